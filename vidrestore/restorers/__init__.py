"""Restorers: one file per task or kind of networks, and the protocol that they share (`base`)."""
