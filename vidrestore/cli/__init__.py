"""The `vidrestore` command."""

from vidrestore.cli.app import main

__all__ = ["main"]
