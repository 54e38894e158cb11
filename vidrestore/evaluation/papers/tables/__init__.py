"""The papers' tables as data, one TOML file each, and their protocol's settings."""
