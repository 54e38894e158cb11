"""Containers read byte by byte: their structure, whole or cut short, and the fields of Matroska."""
