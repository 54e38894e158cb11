"""The bytes of a file at any place, and the messages of walks through it."""

from __future__ import annotations

import os
from typing import BinaryIO

LARGEST_INDEX = 1 << 24  # bytes of a header that are read at once


class FileBytes:
    """The bytes of an open file; a slice beyond the end has fewer, or none."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.size = os.fstat(file.fileno()).st_size

    def bytes(self, place: int, length: int) -> bytes:
        if place >= self.size:
            return b""
        self.file.seek(place)
        return self.file.read(min(length, self.size - place))

    def number(self, place: int, length: int = 1) -> int:
        return int.from_bytes(self.bytes(place, length), "big")

    def little(self, place: int, length: int) -> int:
        return int.from_bytes(self.bytes(place, length), "little")

    def padded(self, place: int) -> bool:
        """Return True if nothing but zeros follow."""
        parts = range(place, self.size, LARGEST_INDEX)
        return not any(self.bytes(part, LARGEST_INDEX).strip(b"\0") for part in parts)


def cut_short(lacking: int) -> str:
    return f"the file is cut short: {lacking} bytes of it are missing"


def unfinished(part: str) -> str:
    return f"the file is cut short: its last {part} isn't whole"


def foreign(at: int) -> str:
    return f"something that is no packet lies between the packets, at byte {at}"
