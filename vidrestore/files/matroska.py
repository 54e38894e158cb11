"""Write the sample aspect ratio into the track header of a finished Matroska file; PyAV 18 can't set it.

FFmpeg leaves an empty element (Void) near the start of each file. The elements between it and the clusters
move into that space by as many bytes as the track header grows; nothing after the track header moves, so
every other position in the file stays valid.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from pathlib import Path

from vidrestore.errors import MediaError

_EBML, _SEGMENT, _SEEK_HEAD, _TRACKS = 0x1A45DFA3, 0x18538067, 0x114D9B74, 0x1654AE6B
_SEEK, _SEEK_POSITION = 0x4DBB, 0x53AC
_VOID, _CRC, _TRACK_ENTRY, _VIDEO = 0xEC, 0xBF, 0xAE, 0xE0
_DISPLAY_WIDTH, _DISPLAY_HEIGHT, _DISPLAY_UNIT = 0x54B0, 0x54BA, 0x54B2
_PIXELS, _RATIO = 0, 3  # values of the display unit
_HEAD = 1 << 22  # bytes read from the start; track headers lie within the first thousands


@dataclass(frozen=True)
class _Element:
    """One EBML element; `start` is the offset of its ID, `data` that of its content."""

    id: int
    start: int
    data: int
    stop: int

    def content(self, of: bytes) -> bytes:
        return of[self.data : self.stop]


def write_aspect(path: Path, track: int, width: int, height: int, ratio: Fraction) -> None:
    """Store the sample aspect ratio of a video track, counted from 0, in place. Raises MediaError if the file
    isn't laid out as by FFmpeg's muxer.
    """
    with path.open("r+b") as file:
        head = file.read(_HEAD)
        try:
            start, changed = _with_aspect(head, track, display_size(width, height, ratio))
        except (LookupError, StopIteration) as error:
            raise MediaError(
                f"{path}: no place in its header for the sample aspect ratio {ratio}; "
                "`output=NAME.mp4` keeps it"
            ) from error
        file.seek(start)
        file.write(changed)


def display_size(width: int, height: int, ratio: Fraction) -> tuple[int, int, int]:
    """Return the exact DisplayWidth, DisplayHeight and DisplayUnit for a frame size and an aspect ratio."""
    wide, high = width * ratio, height / ratio
    if wide.denominator == 1:
        return int(wide), height, _PIXELS
    if high.denominator == 1:
        return width, int(high), _PIXELS
    across, down = width * ratio.numerator, height * ratio.denominator
    return across // gcd(across, down), down // gcd(across, down), _RATIO


def _with_aspect(head: bytes, track: int, size: tuple[int, int, int]) -> tuple[int, bytes]:
    """Return the start of the changed bytes of the head, and these bytes."""
    segment = next(element for element in _elements(head, 0, len(head)) if element.id == _SEGMENT)
    top: dict[int, _Element] = {}
    for element in _elements(head, segment.data, len(head)):
        top[element.id] = element
        if element.id == _TRACKS:
            break
    seeks, void, tracks = top[_SEEK_HEAD], top[_VOID], top[_TRACKS]
    new_tracks = _encode(_TRACKS, _sealed(_grown_tracks(tracks.content(head), track, size)))
    growth = len(new_tracks) - (tracks.stop - tracks.start)
    between = head[void.stop : tracks.start]
    room = void.stop - void.start - growth
    if void.start > tracks.start or room < 9:
        raise IndexError("no room")
    moved = range(void.stop - segment.data, tracks.stop - segment.data)
    new_seeks = _encode(_SEEK_HEAD, _sealed(_moved_seeks(seeks.content(head), moved, growth)))
    if len(new_seeks) != seeks.stop - seeks.start:
        raise IndexError("positions changed their length")
    void_bytes = bytes([_VOID]) + _size(room - 9, 8) + bytes(room - 9)
    gap = head[seeks.stop : void.start]
    return seeks.start, new_seeks + gap + void_bytes + between + new_tracks


def _grown_tracks(content: bytes, track: int, size: tuple[int, int, int]) -> bytes:
    entries = [element for element in _elements(content, 0, len(content)) if element.id == _TRACK_ENTRY]
    entry = entries[track]
    video = next(element for element in _elements(content, entry.data, entry.stop) if element.id == _VIDEO)
    parts = zip((_DISPLAY_WIDTH, _DISPLAY_HEIGHT, _DISPLAY_UNIT), size, strict=True)
    shape = {name: _encode(name, value.to_bytes((value.bit_length() + 7) // 8 or 1)) for name, value in parts}
    inner = _elements(content, video.data, video.stop)
    others = b"".join(content[each.start : each.stop] for each in inner if each.id not in shape)
    made = _encode(_VIDEO, others + b"".join(shape.values()))
    made = content[entry.data : video.start] + made + content[video.stop : entry.stop]
    return content[: entry.start] + _encode(_TRACK_ENTRY, made) + content[entry.stop :]


def _moved_seeks(content: bytes, moved: range, growth: int) -> bytes:
    """Return the index of elements with each position in `moved` reduced by `growth`, in unchanged length."""
    out = bytearray(content)
    for seek in _elements(content, 0, len(content)):
        for part in _elements(content, seek.data, seek.stop) if seek.id == _SEEK else ():
            position = int.from_bytes(part.content(content), "big")
            if part.id == _SEEK_POSITION and position in moved:
                out[part.data : part.stop] = (position - growth).to_bytes(part.stop - part.data, "big")
    return bytes(out)


def _sealed(content: bytes) -> bytes:
    """Return the content with its leading checksum, if any, recomputed."""
    if content[:2] != bytes([_CRC, 0x84]):
        return content
    return content[:2] + zlib.crc32(content[6:]).to_bytes(4, "little") + content[6:]


def _elements(data: bytes, start: int, stop: int) -> Iterator[_Element]:
    while start < stop:
        id_length = _length(data[start])
        size_length = _length(data[start + id_length])
        body = start + id_length + size_length
        size = int.from_bytes(data[start + id_length : body], "big") & ((1 << 7 * size_length) - 1)
        yield _Element(int.from_bytes(data[start : start + id_length], "big"), start, body, body + size)
        start = body + size


def _length(first: int) -> int:
    """Return the length of a variable-length number from its first byte. Raises IndexError for 0."""
    if first == 0:
        raise IndexError("not an EBML number")
    return 9 - first.bit_length()


def _encode(name: int, content: bytes) -> bytes:
    return name.to_bytes((name.bit_length() + 7) // 8, "big") + _size(len(content)) + content


def _size(value: int, length: int = 0) -> bytes:
    length = length or next(bytes_ for bytes_ in range(1, 9) if value < (1 << 7 * bytes_) - 1)
    return (value | 1 << 7 * length).to_bytes(length, "big")
