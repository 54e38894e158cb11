"""Restorers: one file per kind of networks, and the protocol that they share (`base`)."""
