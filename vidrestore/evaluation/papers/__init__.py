"""The protocols of the papers' tables, and the tables as printed."""
