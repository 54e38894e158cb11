"""Find the folders of a user's cache and configuration: by the XDG variables, else the system's own."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Literal

_MACOS = {"cache": "Caches", "config": "Application Support"}


def user_folder(kind: Literal["cache", "config"]) -> Path:
    """Return the user's folder for a kind of files; it may be missing."""
    if base := os.environ.get(f"XDG_{kind.upper()}_HOME"):
        return Path(base) / "vidrestore"
    if sys.platform == "darwin":
        return Path.home() / "Library" / _MACOS[kind] / "vidrestore"
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home()) / "vidrestore" / kind
    return Path.home() / f".{kind}" / "vidrestore"
