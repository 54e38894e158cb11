"""Walk through a Matroska file (RFC 9559), whose elements must fit, find the encodings of its tracks, and
store the aspect of its pixels.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from math import gcd
from pathlib import Path

from vidrestore.errors import MediaError
from vidrestore.media.containers.file_bytes import (
    LARGEST_INDEX,
    FileBytes,
    cut_short,
    foreign,
)

EBML, _SEGMENT = bytes.fromhex("1a45dfa3"), 0x18538067
# what a segment holds, with the parts of its clusters, which are read as if they were not nested
_CLUSTER, _TRACKS, _BLOCK_GROUP, _SIMPLE_BLOCK = 0x1F43B675, 0x1654AE6B, 0xA0, 0xA3
_SEEK_HEAD, _VOID, _CRC = 0x114D9B74, 0xEC, 0xBF
_TAGS = 0x1254C367
_NUMBERS = (0xE7, 0xA7, 0xAB)  # a cluster's time and places
_KNOWN_ELEMENTS = frozenset(
    {_CLUSTER, _TRACKS, _BLOCK_GROUP, _SIMPLE_BLOCK, 0x5854, *_NUMBERS}
    | {_SEEK_HEAD, 0x1549A966, 0x1C53BB6B, 0x1941A469, 0x1043A770, _TAGS}
    | {_VOID, _CRC}
)
_TRACK, _TRACK_NUMBER, _TRACK_KIND, _ENCODINGS = 0xAE, 0xD7, 0x83, 0x6D80
_ENCODING, _ENCODING_KIND, _COMPRESSION, _ALGORITHM = 0x6240, 0x5033, 0x5034, 0x4254
_READ_BY_FFMPEG = frozenset({1, 2, 0x11, 0x21})  # kinds of tracks that become streams
# of compression, that FFmpeg undoes: zlib, LZO, stripped headers
_READ_ALGORITHMS = frozenset({0, 2, 3})


def walk_matroska(file: FileBytes) -> Iterator[str]:
    """Yield messages on elements of unknown kinds, blocks of unknown tracks, and a segment cut short."""
    tracks = set[int]()
    if lacking := lacking_bytes(file):
        yield cut_short(lacking)
    for offset, head in _top_elements(file):
        name, data, length = _element(head, 0)
        # where a block begins in its element, and which track it is of
        block = data
        # a group begins with its block
        if name == _BLOCK_GROUP and head[data : data + 1] == b"\xa1":
            block = _ebml_size(head, data + 1)[1]
        is_block = name in (_SIMPLE_BLOCK, _BLOCK_GROUP)
        of_no_track = is_block and tracks and _ebml_size(head, block)[0] not in tracks
        is_unknown = name not in _KNOWN_ELEMENTS or (name in _NUMBERS and length > 8)
        if of_no_track or is_unknown:
            yield foreign(offset)
            return
        # from here on the tracks are known
        if name == _TRACKS and length <= LARGEST_INDEX:
            entries = _entries(file.bytes(offset + data, length))
            tracks = {_number(track, _TRACK_NUMBER) for _, track in entries} - {0}


def lacking_bytes(file: FileBytes) -> int:
    """Return how many bytes of its segment a file lacks."""
    start, length = _segment(file)
    return max(0, start + length - file.size) if start else 0


def unreadable_tracks(path: str) -> dict[int, str]:
    """Return the encodings of tracks that this FFmpeg can't undo, by the index of the stream."""
    encodings, number = dict[int, str](), 0
    # the index of a stream counts only the tracks that FFmpeg reads
    with open(path, "rb") as opened:
        file = FileBytes(opened)
        for offset, head in _top_elements(file):
            name, data, length = _element(head, 0)
            if name not in _KNOWN_ELEMENTS - {_CLUSTER}:
                break
            if name != _TRACKS or length > LARGEST_INDEX:
                continue
            for kind, entry in _entries(file.bytes(offset + data, length)):
                if kind == _TRACK and _number(entry, _TRACK_KIND) in _READ_BY_FFMPEG:
                    if ways := [*_encodings(entry)]:
                        encodings[number] = ", ".join(ways)
                    number += 1
    return encodings


def _top_elements(file: FileBytes) -> Iterator[tuple[int, bytes]]:
    """Yield the place and first bytes of the elements of a segment and of its clusters."""
    offset, length = _segment(file)
    stop = min(file.size, offset + length) if length else file.size
    while 0 < offset < stop:
        head = file.bytes(offset, 32)
        yield offset, head
        name, data, length = _element(head, 0)
        offset += data if name == _CLUSTER else data + length


def replace_in_tags(path: Path, text: bytes, other: bytes) -> None:
    """Replace a text in the tags of a finished file by one of the same length, in place. Raises OSError."""
    # a text of the same length moves nothing in the file
    with path.open("r+b") as opened:
        file = FileBytes(opened)
        for offset, head in _top_elements(file):
            name, data, length = _element(head, 0)
            if name == _TAGS:
                content = file.bytes(offset + data, length).replace(text, other, 1)
                opened.seek(offset + data)
                opened.write(_with_checksum(content))
                return


def _encodings(track: bytes) -> Iterator[str]:
    for name, encodings in _entries(track):
        for kind, encoding in _entries(encodings) if name == _ENCODINGS else ():
            if kind == _ENCODING and _number(encoding, _ENCODING_KIND):
                yield "encrypted"
            for part, compression in _entries(encoding) if kind == _ENCODING else ():
                algorithm = (
                    _number(compression, _ALGORITHM) if part == _COMPRESSION else 0
                )
                if algorithm not in _READ_ALGORITHMS:
                    yield f"compressed by {'bzip2' if algorithm == 1 else f'method {algorithm}'}"


def _entries(data: bytes) -> Iterator[tuple[int, bytes]]:
    return (
        (element.id, element.content(data)) for element in _elements(data, 0, len(data))
    )


def _number(data: bytes, name: int) -> int:
    """Return the number with this name among elements, 0 if it isn't there."""
    numbers = (
        int.from_bytes(value, "big") for kind, value in _entries(data) if kind == name
    )
    return next(numbers, 0)


def _element(data: bytes, offset: int) -> tuple[int, int, int]:
    """Return an element's identifier, the place of its content, and the length of that."""
    # the number of leading zeros of the first byte states the width
    width = 9 - (data[offset].bit_length() if offset < len(data) else 0)
    identifier = int.from_bytes(data[offset : offset + width], "big")
    length, start = _ebml_size(data, offset + width)
    return identifier, max(start, offset + 1), length


def _segment(file: FileBytes) -> tuple[int, int]:
    """Return the place and the length of what a Matroska file holds; 0 and 0 without a segment."""
    head = file.bytes(0, 64)
    length, start = _ebml_size(head, 4)
    segment = start + length
    if head[:4] != EBML or head[segment : segment + 4] != _SEGMENT.to_bytes(4):
        return 0, 0
    length, start = _ebml_size(head, segment + 4)
    return start, length


def _ebml_size(data: bytes, offset: int) -> tuple[int, int]:
    """Return (value, position after it) of an EBML variable-length size; an unknown size counts as 0."""
    if offset >= len(data) or data[offset] == 0:
        return 0, offset
    width = 9 - data[offset].bit_length()
    unknown = (1 << 7 * width) - 1
    value = int.from_bytes(data[offset : offset + width], "big") & unknown
    return (0 if value == unknown else value), offset + width


# The sample aspect ratio, written into the track header of a finished file, as PyAV 18 can't set it. FFmpeg
# leaves an empty element (Void) near the start of each file. The elements between it and the clusters move
# into that space by as many bytes as the track header grows; nothing after the track header moves, so every
# other position in the file stays valid.

_SEEK, _SEEK_POSITION, _VIDEO = 0x4DBB, 0x53AC, 0xE0
_DISPLAY = (0x54B0, 0x54BA, 0x54B2)  # width, height, unit
_PIXEL_UNIT, _ASPECT_UNIT = 0, 3  # values of the display unit
# read from the start; track headers lie within the first thousands
_HEADER_BYTES = 1 << 22


@dataclass(frozen=True)
class _Element:
    """One EBML element, by offsets."""

    id: int
    start: int  # of its ID
    data: int  # of its content
    stop: int

    def content(self, of: bytes) -> bytes:
        return of[self.data : self.stop]


def write_aspect(
    path: Path, track: int, width: int, height: int, ratio: Fraction
) -> None:
    """Store the sample aspect ratio of a video track, counted from 0, in place. Raises MediaError if the file
    isn't laid out as by FFmpeg's muxer.
    """
    with path.open("r+b") as file:
        head = file.read(_HEADER_BYTES)
        try:
            start, changed = _with_aspect(
                head, track, display_size(width, height, ratio)
            )
        except (LookupError, StopIteration) as error:
            raise MediaError(
                f"{path}: no place in its header for the sample aspect ratio {ratio}; "
                "`output=NAME.mp4` keeps it"
            ) from error
        file.seek(start)
        file.write(changed)


def display_size(width: int, height: int, ratio: Fraction) -> tuple[int, int, int]:
    """Return the exact DisplayWidth, DisplayHeight and DisplayUnit for a frame size and an aspect ratio."""
    # a size in pixels where one side can stay as it is, else only the aspect
    wide, high = width * ratio, height / ratio
    if wide.denominator == 1:
        return int(wide), height, _PIXEL_UNIT
    if high.denominator == 1:
        return width, int(high), _PIXEL_UNIT
    across, down = width * ratio.numerator, height * ratio.denominator
    return across // gcd(across, down), down // gcd(across, down), _ASPECT_UNIT


def _with_aspect(
    head: bytes, track: int, size: tuple[int, int, int]
) -> tuple[int, bytes]:
    """Return the start of the changed bytes of the head, and these bytes."""
    segment = next(
        element for element in _elements(head, 0, len(head)) if element.id == _SEGMENT
    )
    top: dict[int, _Element] = {}
    for element in _elements(head, segment.data, len(head)):
        top[element.id] = element
        if element.id == _TRACKS:
            break
    seeks, void, tracks = top[_SEEK_HEAD], top[_VOID], top[_TRACKS]

    # let the track header grow into the empty element
    grown = _grown_tracks(tracks.content(head), track, size)
    new_tracks = _encode(_TRACKS, _with_checksum(grown))
    growth = len(new_tracks) - (tracks.stop - tracks.start)
    between = head[void.stop : tracks.start]
    room = void.stop - void.start - growth
    if void.start > tracks.start or room < 9:
        raise IndexError("no room")

    # tell the index of elements the positions of those that move
    moved = range(void.stop - segment.data, tracks.stop - segment.data)
    new_index = _moved_seeks(seeks.content(head), moved, growth)
    new_seeks = _encode(_SEEK_HEAD, _with_checksum(new_index))
    if len(new_seeks) != seeks.stop - seeks.start:
        raise IndexError("positions changed their length")
    void_bytes = bytes([_VOID]) + _size(room - 9, 8) + bytes(room - 9)
    gap = head[seeks.stop : void.start]
    return seeks.start, new_seeks + gap + void_bytes + between + new_tracks


def _grown_tracks(content: bytes, track: int, size: tuple[int, int, int]) -> bytes:
    """Return the content of the track header with the display size of one track."""
    # all of the video's settings but the display size, which follows them
    entries = [
        element
        for element in _elements(content, 0, len(content))
        if element.id == _TRACK
    ]
    entry = entries[track]
    settings = _elements(content, entry.data, entry.stop)
    video = next(element for element in settings if element.id == _VIDEO)
    others = [
        element
        for element in _elements(content, video.data, video.stop)
        if element.id not in _DISPLAY
    ]
    new_video = b"".join(content[element.start : element.stop] for element in others)
    for name, value in zip(_DISPLAY, size, strict=True):
        width = (value.bit_length() + 7) // 8 or 1
        new_video += _encode(name, value.to_bytes(width))
    before, after = content[entry.data : video.start], content[video.stop : entry.stop]
    new_entry = before + _encode(_VIDEO, new_video) + after
    return content[: entry.start] + _encode(_TRACK, new_entry) + content[entry.stop :]


def _moved_seeks(content: bytes, moved: range, growth: int) -> bytes:
    """Return the index of elements with each position in `moved` reduced by `growth`, in unchanged length."""
    # positions are counted from the segment's content, so that only what moves changes
    out = bytearray(content)
    for seek in _elements(content, 0, len(content)):
        if seek.id != _SEEK:
            continue
        for entry in _elements(content, seek.data, seek.stop):
            position = int.from_bytes(entry.content(content), "big")
            if entry.id == _SEEK_POSITION and position in moved:
                width = entry.stop - entry.data
                out[entry.data : entry.stop] = (position - growth).to_bytes(
                    width, "big"
                )
    return bytes(out)


def _with_checksum(content: bytes) -> bytes:
    """Return the content with its leading checksum, if any, recomputed."""
    if content[:2] != bytes([_CRC, 0x84]):
        return content
    return content[:2] + zlib.crc32(content[6:]).to_bytes(4, "little") + content[6:]


def _elements(data: bytes, start: int, stop: int) -> Iterator[_Element]:
    while start < stop:
        name, body, length = _element(data, start)
        yield _Element(name, start, body, body + length)
        start = body + length


def _encode(name: int, content: bytes) -> bytes:
    return (
        name.to_bytes((name.bit_length() + 7) // 8, "big")
        + _size(len(content))
        + content
    )


def _size(value: int, length: int = 0) -> bytes:
    length = length or next(
        width for width in range(1, 9) if value < (1 << 7 * width) - 1
    )
    return (value | 1 << 7 * length).to_bytes(length, "big")
