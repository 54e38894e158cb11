"""Compressed sensing of video: measure it, recover it, and the file between."""
