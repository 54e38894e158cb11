"""Faster forms of the networks' parts, with the same results."""
