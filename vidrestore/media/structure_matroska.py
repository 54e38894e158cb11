"""Verify the structure of a Matroska file, and find the encodings of its tracks (RFC 9559)."""

from __future__ import annotations

from collections.abc import Iterator

from vidrestore.media.file_bytes import LARGEST_INDEX, FileBytes, cut_short, foreign

# what a Matroska segment holds, with the parts of its clusters, which are read as if they were not nested
_CLUSTER, _TRACKS, _GROUP, _BLOCK = 0x1F43B675, 0x1654AE6B, 0xA0, 0xA3
_NUMBERS = (0xE7, 0xA7, 0xAB)  # a cluster's time and places
_MATROSKA = frozenset(
    {_CLUSTER, _TRACKS, _GROUP, _BLOCK, 0x5854, *_NUMBERS}
    | {0x114D9B74, 0x1549A966, 0x1C53BB6B, 0x1941A469, 0x1043A770, 0x1254C367}
    | {0xEC, 0xBF}  # empty space and checksums
)
EBML, _SEGMENT = bytes.fromhex("1a45dfa3"), bytes.fromhex("18538067")
_TRACK, _TRACK_NUMBER, _TRACK_KIND, _ENCODINGS = 0xAE, 0xD7, 0x83, 0x6D80
_ENCODING, _ENCODING_KIND, _COMPRESSION, _ALGORITHM = 0x6240, 0x5033, 0x5034, 0x4254
_READ_BY_FFMPEG = frozenset({1, 2, 0x11, 0x21})  # kinds of tracks that become streams
_ALGORITHMS = {1: "bzip2", 2: "LZO"}  # those left out, zlib (0) and stripped headers (3), can be undone


def walk_matroska(file: FileBytes) -> Iterator[str]:
    """Yield messages on elements of unknown kinds, blocks of unknown tracks, and a segment cut short."""
    tracks = set[int]()
    start, length = _segment(file)
    if start and (lacking := start + length - file.size) > 0:
        yield cut_short(lacking)
    for at, head in _top_elements(file):
        name, data, length = _element(head, 0)
        block = data
        if name == _GROUP and head[data : data + 1] == b"\xa1":  # a group begins with its block
            block = _ebml_size(head, data + 1)[1]
        of_no_track = name in (_BLOCK, _GROUP) and tracks and _ebml_size(head, block)[0] not in tracks
        if of_no_track or name not in _MATROSKA or (name in _NUMBERS and length > 8):
            yield foreign(at)
            return
        if name == _TRACKS and length <= LARGEST_INDEX:
            entries = _entries(file.bytes(at + data, length))
            tracks = {number for _, value in entries if (number := _number(value, _TRACK_NUMBER))}


def unreadable_tracks(path: str) -> dict[int, str]:
    """Return the encodings of tracks that this FFmpeg can't undo, by the index of the stream."""
    found, number = dict[int, str](), 0
    with open(path, "rb") as opened:
        file = FileBytes(opened)
        for at, head in _top_elements(file):
            name, data, length = _element(head, 0)
            if name not in _MATROSKA - {_CLUSTER}:
                break
            entries = file.bytes(at + data, length) if name == _TRACKS and length <= LARGEST_INDEX else b""
            for kind, entry in _entries(entries):
                if kind == _TRACK and _number(entry, _TRACK_KIND) in _READ_BY_FFMPEG:
                    if ways := [*_encodings(entry)]:
                        found[number] = ", ".join(ways)
                    number += 1
    return found


def _top_elements(file: FileBytes) -> Iterator[tuple[int, bytes]]:
    """Yield the place and first bytes of the elements of a segment and of its clusters."""
    at, length = _segment(file)
    stop = min(file.size, at + length) if length else file.size
    while 0 < at < stop:
        head = file.bytes(at, 32)
        yield at, head
        name, data, length = _element(head, 0)
        at += data if name == _CLUSTER else data + length


def _encodings(track: bytes) -> Iterator[str]:
    for name, encodings in _entries(track):
        for kind, encoding in _entries(encodings) if name == _ENCODINGS else ():
            if kind == _ENCODING and _number(encoding, _ENCODING_KIND):
                yield "encrypted"
            for part, compression in _entries(encoding) if kind == _ENCODING else ():
                algorithm = _number(compression, _ALGORITHM) if part == _COMPRESSION else 0
                if algorithm not in (0, 3):
                    yield f"compressed by {_ALGORITHMS.get(algorithm, f'method {algorithm}')}"


def _entries(data: bytes) -> Iterator[tuple[int, bytes]]:
    at = 0
    while at < len(data):
        name, start, length = _element(data, at)
        yield name, data[start : start + length]
        at = start + length


def _number(data: bytes, name: int) -> int:
    """Return the number with this name among elements, 0 if it isn't there."""
    return next((int.from_bytes(value, "big") for kind, value in _entries(data) if kind == name), 0)


def _element(data: bytes, at: int) -> tuple[int, int, int]:
    """Return an element's identifier, the place of its content, and the length of that."""
    width = 9 - (data[at].bit_length() if at < len(data) else 0)
    length, start = _ebml_size(data, at + width)
    return int.from_bytes(data[at : at + width], "big"), max(start, at + 1), length


def _segment(file: FileBytes) -> tuple[int, int]:
    """Return the place and the length of what a Matroska file holds; 0 and 0 without a segment."""
    head = file.bytes(0, 64)
    length, start = _ebml_size(head, 4)
    segment = start + length
    if head[:4] != EBML or head[segment : segment + 4] != _SEGMENT:
        return 0, 0
    length, start = _ebml_size(head, segment + 4)
    return start, length


def _ebml_size(data: bytes, at: int) -> tuple[int, int]:
    """Return (value, position after it) of an EBML variable-length size; an unknown size counts as 0."""
    if at >= len(data) or data[at] == 0:
        return 0, at
    width = 9 - data[at].bit_length()
    value = int.from_bytes(data[at : at + width], "big") & ((1 << 7 * width) - 1)
    return (0 if value == (1 << 7 * width) - 1 else value), at + width
