"""Restorers: one file per family, and the small protocol that they share."""
