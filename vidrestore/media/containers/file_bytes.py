"""Read the bytes of a file at any place, for walks through its structure, and phrase their messages."""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO

LARGEST_INDEX = 1 << 24  # bytes of a header that are read at once
MOST_BLOCKS = 100_000  # most blocks of a picture


class FileBytes:
    """The bytes of an open file; a slice beyond the end has fewer, or none."""

    def __init__(self, file: BinaryIO) -> None:
        self.file = file
        self.size = os.fstat(file.fileno()).st_size

    def bytes(self, offset: int, length: int) -> bytes:
        if offset >= self.size:
            return b""
        self.file.seek(offset)
        return self.file.read(min(length, self.size - offset))

    def number(self, offset: int, length: int = 1) -> int:
        return int.from_bytes(self.bytes(offset, length), "big")

    def little(self, offset: int, length: int) -> int:
        return int.from_bytes(self.bytes(offset, length), "little")

    def padded(self, offset: int) -> bool:
        """Return True if nothing but zeros follow."""
        parts = range(offset, self.size, LARGEST_INDEX)
        return not any(self.bytes(part, LARGEST_INDEX).strip(b"\0") for part in parts)


def cut_short(lacking: int) -> str:
    return f"the file is cut short: {lacking} bytes of it are missing"


def unfinished(part: str) -> str:
    return f"the file is cut short: its last {part} is incomplete"


def foreign(offset: int) -> str:
    return f"something other than a packet lies between the packets, at byte {offset}"


def jpeg_segments(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """Yield the marker segments of a JPEG before its scans."""
    for head in islice(iter(lambda: file.read(4), b""), MOST_BLOCKS):
        # up to the scans, or the first thing that is no marker
        marker, length = struct.unpack(">HH", head) if len(head) == 4 else (0, 0)
        if not 0xFFC0 <= marker < 0xFFFF or marker == 0xFFDA or length < 2:
            return
        yield marker, file.read(length - 2)
