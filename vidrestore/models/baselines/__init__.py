"""The systems that the families are compared with."""
