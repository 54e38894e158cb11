"""Copy the notes of the camera (EXIF), the colour profile (ICC) and the pixels per inch from one picture to
another.

PyAV hands neither to an encoder. After CIPA DC-008 (EXIF 2.32), ICC.1 annex B, PNG third edition, TIFF 6.0.
"""

from __future__ import annotations

import io
import re
import struct
import zlib
from collections.abc import Iterable, Iterator, Set
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import BinaryIO

from vidrestore.errors import MediaError
from vidrestore.media.containers.file_bytes import MOST_BLOCKS, jpeg_segments
from vidrestore.media.formats.heif import avif_profile, has_tiles, heif_notes
from vidrestore.media.formats.source import AVIF, HEIF, kind_by_content

# names of side data
EXIF, PROFILE, EDITORS, TEXTS = "EXIF", "ICC_PROFILE", "XMP", "PNG_TEXT"
_LARGEST_EXIF, _LARGEST_PROFILE = 65_525, 8 << 20  # the first fills a block of JPEG
_APP0, _APP1, _APP2, _COMMENT = 0xFFE0, 0xFFE1, 0xFFE2, 0xFFFE
_SIZE_MARKERS = 0xFFC0, 0xFFC1, 0xFFC2
# what XMP and IPTC begin with in any file
_OF_EDITORS = (
    *(
        b"http://ns.adobe.com/xap/1.0/",
        b"XML:com.adobe.xmp",
        b"<x:xmpmeta",
        b"8BIM\x04\x04",
    ),
    b"Raw profile type",
)
_PROFILE_BLOCK_BYTES = 65_519  # of a profile in a block of JPEG
_ORDERS = {b"II*\0": "<", b"MM\0*": ">"}
_SHORT_TYPE, _LONG_TYPE = 3, 4  # types of a TIFF's numbers
_SUBFILE, _COPY_OR_MASK = 0xFE, 0b101  # a tag, and the bits of its value
# tags of a TIFF: words for them, the values that FFmpeg reads right, and words for others
_TIFF_FORMS: dict[int, tuple[str, frozenset[int], dict[int, str]]] = {
    0x103: (
        "compression",
        frozenset({1, 2, 3, 4, 5, 8, 32773, 32946, 34925}),
        {6: "JPEG", 7: "JPEG"},
    ),
    0x106: (
        "colours of kind",
        frozenset({0, 1, 2, 3}),
        {5: "the colours of print, CMYK", 6: "YCbCr", 8: "CIE Lab", 32803: "raw data"},
    ),
    0x142: ("tiles of width", frozenset(), {}),
    0x152: (
        "extra samples of kind",
        frozenset({0, 2}),
        {1: "premultiplied (associated) alpha"},
    ),
    0x153: (
        "samples of kind",
        frozenset({1, 4}),
        {2: "signed samples", 3: "floating-point samples"},
    ),
}
_ICC, _UNDEFINED = 0x8773, 7  # the tag of a colour profile, and its type
_MOST_SAMPLES = 16
# tags: pixels across and down in a unit, and that
_RESOLUTIONS, _RESOLUTION_UNIT = (0x11A, 0x11B), 0x128
_INCH, _METRES = 2, 0.0254  # value of that unit; an inch in metres
_JFIF_UNITS = {1: 1.0, 2: 2.54}  # of a JPEG's pixels -> how many are in an inch
# markers of a JPEG that have a length
_MARKER = re.compile(rb"\xff[\xc0-\xcf\xd9-\xfe]")
# chunks of a PNG
_TEXTS, _COMPRESSED = {b"tEXt", b"zTXt", b"iTXt", b"iCCP"}, {b"zTXt", b"iCCP"}
# inflated bytes, and chunks; each is compared with all others
_MOST_TEXT, _MOST_TEXTS = 1 << 26, 4096
_ANIMATED = 0x02  # a flag of WebP


@dataclass(frozen=True)
class PhotoNotes:
    """The notes of a picture, as in its file; empty without."""

    exif: bytes = b""  # from its byte order on
    profile: bytes = b""  # ICC
    per_inch: tuple[float, ...] = ()  # pixels per inch across and down
    # the chunks of a PNG with texts, such as a title, but not those of editors
    texts: bytes = b""
    # segments of a JPEG; most name a program, so that only a JPEG gets them, and their loss isn't said
    comments: bytes = b""

    def fitting(
        self, encoder: str, pix_fmt: str, drop: Set[str] = frozenset()
    ) -> PhotoNotes:
        """Return the notes that such a picture can hold, upright and without those to drop."""
        # only what the target has a place for, and what is true of the upright picture
        colours = b"GRAY" if pix_fmt.startswith(("gray", "ya")) else b"RGB "
        exif = b"" if "exif" in drop or encoder == "tiff" else upright(self.exif)
        texts = b"" if "exif" in drop or encoder != "png" else self.texts
        comments = b"" if "exif" in drop or encoder != "mjpeg" else self.comments
        profile = self.profile if self.profile[16:20] == colours else b""
        return PhotoNotes(exif, profile, self.per_inch, texts, comments)

    @property
    def kinds(self) -> frozenset[str]:
        kinds = {EXIF: self.exif, PROFILE: self.profile, TEXTS: self.texts}
        return frozenset(kind for kind, content in kinds.items() if content)


def read_notes(path: str) -> PhotoNotes:
    """Return the notes of a picture, of a TIFF without EXIF; none if they can't be read. Raises OSError."""
    # each kind of file has a place of its own for them
    if kind_by_content(path) == HEIF:
        return PhotoNotes(*heif_notes(path)[:2])
    if kind_by_content(path) == AVIF:
        return PhotoNotes(profile=avif_profile(path))
    with open(path, "rb") as file:
        start = file.read(8)
        if start[:4] == b"RIFF":
            file.seek(12)
            return _webp_notes(file)
        if start.startswith(b"\xff\xd8"):
            file.seek(2)
            return _jpeg_notes(file)
        if order := _ORDERS.get(start[:4]):
            return _tiff_notes(file, order)
        return _png_notes(file) if start.startswith(b"\x89PNG") else PhotoNotes()


def has_editors_notes(path: str) -> bool:
    """Return True if there is XMP or IPTC anywhere in a picture. Raises OSError."""
    data = Path(path).read_bytes()
    return any(mark in data for mark in _OF_EDITORS)


def unreadable(path: str) -> str | None:
    """Return what a file holds that can't be restored as one picture, with the way out; else None. FFmpeg
    reads the first of several pictures, and some forms of TIFF as others, without an error. Raises OSError.
    """
    with open(path, "rb") as file:
        start = file.read(32)
        # several pictures, or a form that FFmpeg reads wrong, by the kind of file
        if start.startswith(b"\x89PNG"):
            file.seek(8)
            counts = (file.read(4) for kind, _ in _chunks(file) if kind == b"acTL")
            count = int.from_bytes(next(counts, b""), "big")
            if count > 1:
                return f"an animation of {count} pictures; give its name the suffix .apng to restore a video"
        elif start[:4] in _ORDERS:
            pages = _pages(file, _ORDERS[start[:4]])
            if len(pages) > 1:
                return f"{len(pages)} pages; split them into files of one each, named by a number"
            if odd := next(filter(None, pages), None):
                return f"{odd} in a TIFF, which FFmpeg reads wrong; save it as PNG, or as RGB in strips"
        elif start[:4] in (b"II+\0", b"MM\0+"):
            return (
                "a BigTIFF, which can't be decoded; save it as a plain TIFF, or as PNG"
            )
        elif start[:4] + start[8:16] == b"RIFFWEBPVP8X" and start[20] & _ANIMATED:
            return "an animation, which can't be decoded; convert it to .apng or a video first"
        elif start[4:12] == b"ftypavis":
            return "an animation; give its name the suffix .mp4 to restore a video"
        elif start[4:12] == b"ftypavif" and has_tiles(path):
            return "a picture in tiles (a grid), of which FFmpeg reads one; convert it to PNG first"
    return None


def check_text(path: str) -> None:
    """Raise MediaError for a PNG whose compressed notes would take FFmpeg gigabytes. Raises OSError."""
    with open(path, "rb") as file:
        if not file.read(8).startswith(b"\x89PNG"):
            return
        # a note of some kilobytes may inflate to gigabytes
        count = inflated = 0
        for kind, size in _chunks(file):
            count += kind in _TEXTS
            if kind in _COMPRESSED and inflated <= _MOST_TEXT:
                data, stream = file.read(size), zlib.decompressobj()
                with suppress(zlib.error):  # which the decoder leaves out
                    inflated += len(
                        stream.decompress(data[data.find(b"\0") + 2 :], _MOST_TEXT + 1)
                    )
    problem = f"{count} notes" if count > _MOST_TEXTS else None
    if inflated > _MOST_TEXT:
        problem = f"notes that inflate to more than {_MOST_TEXT >> 20} MB"
    if problem:
        raise MediaError(
            f"{path}: {problem}; no camera or editor writes that: save the picture again without its notes"
        )


def jpeg_end(data: bytes) -> int | None:
    """Return the place behind the marker that ends a JPEG; None if it lacks one, 0 for other files."""
    offset = 2
    # from marker to marker, over what lies between
    if not data.startswith(b"\xff\xd8"):
        return 0
    while match := _MARKER.search(data, offset):
        marker, offset = data[match.end() - 1], match.end()
        if marker == 0xD9:
            return offset
        offset += int.from_bytes(data[offset : offset + 2], "big")
    return None


def second_picture(path: str) -> str | None:
    """Return a warning of what else a JPEG or HEIF holds (MPO, gain maps, a motion photo's video), or None.
    Raises OSError.
    """
    if kind_by_content(path) == HEIF:
        extras = " and ".join(heif_notes(path).extras)
        return f"{path}: left out of the file: {extras}" if extras else None
    data = Path(path).read_bytes()
    end = jpeg_end(data)
    if end and data[end:].lstrip(b"\0\xff").startswith(b"\xd8\xff"):
        return f"{path}: a second picture (MPO: of another eye, or a map of brightness) is left out"
    if end and b"ftyp" in data[end:]:
        return f"{path}: the video behind the picture (a motion photo) is left out"
    return None


def _chunks(file: BinaryIO) -> Iterator[tuple[bytes, int]]:
    """Yield the kinds and sizes of a PNG's chunks, each with the file at its data."""
    for head in islice(iter(lambda: file.read(8), b""), MOST_BLOCKS):
        size, kind = struct.unpack(">I4s", head.ljust(8, b"\0"))
        place = file.tell()
        yield kind, size
        file.seek(place + size + 4)


def _directories(
    file: BinaryIO, order: str
) -> Iterator[tuple[bytearray, dict[int, int]]]:
    """Yield a TIFF's directories, each with the places of its entries by their tags."""
    directories, place = set[int](), 4
    with suppress(struct.error, ValueError):  # a place beyond the end
        # directories are chained; a chain that closes would never end
        while True:
            file.seek(place)
            (directory,) = struct.unpack(f"{order}I", file.read(4))
            if (
                not directory
                or directory in directories
                or len(directories) > MOST_BLOCKS
            ):
                break
            directories.add(directory)
            file.seek(directory)
            places, end = _entries(
                data := bytearray(file.read(2 + 12 * 0xFFFF)), order, 0
            )
            yield data, places
            place = directory + end


def _pages(file: BinaryIO, order: str) -> list[str | None]:
    """Return what FFmpeg reads wrong of each page of a TIFF, in words, or None: of its directories that
    aren't smaller copies or masks.
    """
    pages = []
    # a page counts unless it is a smaller copy or a mask of another
    for data, places in _directories(file, order):
        flags = sum(_values(file, order, data, places, _SUBFILE))
        if not flags & _COPY_OR_MASK:
            pages.append(next(_odd_forms(file, order, data, places), None))
    return pages


def _odd_forms(
    file: BinaryIO, order: str, data: bytearray, places: dict[int, int]
) -> Iterator[str]:
    for tag, (word, read_right, names) in _TIFF_FORMS.items():
        for value in _values(file, order, data, places, tag):
            if value not in read_right:
                yield names.get(value, f"{word} {value}")


def _values(
    file: BinaryIO, order: str, data: bytearray, places: dict[int, int], tag: int
) -> list[int]:
    """Return the numbers of a tag in a directory of a TIFF; none if it isn't there, or beyond the end."""
    with suppress(struct.error, KeyError):
        # small values lie in the entry, others at the place that it names
        kind, count = struct.unpack_from(f"{order}HI", data, places[tag] + 2)
        letter = "H" if kind == _SHORT_TYPE else "I"
        form = f"{order}{min(count, _MOST_SAMPLES)}{letter}"
        if struct.calcsize(form) <= 4:
            return list(struct.unpack_from(form, data, places[tag] + 8))
        file.seek(struct.unpack_from(f"{order}I", data, places[tag] + 8)[0])
        return list(struct.unpack(form, file.read(struct.calcsize(form))))
    return []


def _jpeg_notes(file: BinaryIO) -> PhotoNotes:
    """Return the EXIF, colour profile, density and comments of a JPEG file."""
    exif, comments, per_inch = b"", b"", tuple[float, ...]()
    # a profile may be cut into numbered blocks
    blocks, count = dict[int, bytes](), 0  # of the profile, by their numbers
    for marker, data in jpeg_segments(file):
        has_density = (
            data.startswith(b"JFIF\0") and len(data) >= 12 and data[7] in _JFIF_UNITS
        )
        if marker == _APP0 and has_density:
            unit = _JFIF_UNITS[data[7]]
            numbers = struct.unpack_from(">HH", data, 8)
            per_inch = _density(unit * number for number in numbers)
        elif marker == _APP1 and data.startswith(b"Exif\0\0"):
            exif = exif or data[6:]
        elif marker == _APP2 and data.startswith(b"ICC_PROFILE\0") and len(data) > 14:
            blocks[data[12]], count = data[14:], data[13]
        elif marker == _COMMENT:
            comments += _segment(marker, data)
    is_complete = sorted(blocks) == list(range(1, count + 1))
    profile = (
        b"".join(blocks[number] for number in sorted(blocks)) if is_complete else b""
    )
    return PhotoNotes(exif, profile, per_inch, comments=comments)


def _tiff_notes(file: BinaryIO, order: str) -> PhotoNotes:
    data, places = next(_directories(file, order), (bytearray(), {}))
    profile = b""
    # the profile, then the resolution; either may be missing
    with suppress(struct.error, KeyError):
        size, place = struct.unpack_from(f"{order}II", data, places[_ICC] + 4)
        file.seek(place)
        profile = file.read(min(size, _LARGEST_PROFILE))
    with suppress(struct.error, KeyError, ZeroDivisionError):
        (unit,) = struct.unpack_from(f"{order}H", data, places[_RESOLUTION_UNIT] + 8)
        numbers = []
        for tag in _RESOLUTIONS:
            (place,) = struct.unpack_from(f"{order}I", data, places[tag] + 8)
            file.seek(place)
            above, below = struct.unpack(f"{order}II", file.read(8))
            numbers.append(_JFIF_UNITS[unit - 1] * above / below)
        return PhotoNotes(b"", profile, _density(numbers))
    return PhotoNotes(b"", profile)


def _density(per_inch: Iterable[float]) -> tuple[float, ...]:
    """Return pixels per inch, or nothing if they are 0 or more than a file can hold."""
    density = tuple(per_inch)
    return density if all(1 <= value <= 0xFFFF for value in density) else ()


def _webp_notes(file: BinaryIO) -> PhotoNotes:
    blocks = {b"EXIF": b"", b"ICCP": b""}
    # blocks with their kind and size, padded to even places
    for head in islice(iter(lambda: file.read(8), b""), MOST_BLOCKS):
        kind, size = struct.unpack("<4sI", head.ljust(8, b"\0"))
        place = file.tell() + size + size % 2
        if kind in blocks and size <= _LARGEST_PROFILE:
            blocks[kind] = file.read(size)
        file.seek(place)
    return PhotoNotes(blocks[b"EXIF"].removeprefix(b"Exif\0\0"), blocks[b"ICCP"])


def _png_notes(file: BinaryIO) -> PhotoNotes:
    chunks, texts = {b"eXIf": b"", b"iCCP": b"", b"pHYs": b""}, b""
    # known chunks, and texts that aren't those of an editor
    for kind, size in _chunks(file):
        if kind in chunks and size <= _LARGEST_PROFILE:
            chunks[kind] = file.read(size)
        elif kind in _TEXTS and len(texts) + size <= _LARGEST_PROFILE:
            text = file.read(size)
            texts += b"" if text.startswith(_OF_EDITORS) else _chunk(kind, text)
    # the profile is compressed behind its name
    chunk, stream = chunks[b"iCCP"], zlib.decompressobj()
    try:  # a name, 0, the method 0, and a stream of zlib
        profile = stream.decompress(chunk[chunk.find(b"\0") + 2 :], _LARGEST_PROFILE)
    except zlib.error:
        profile = b""
    *per_metre, unit = struct.unpack(">IIB", chunks[b"pHYs"].ljust(9, b"\0")[:9])
    per_inch = _density(_METRES * value for value in per_metre) if unit else ()
    return PhotoNotes(chunks[b"eXIf"], profile if stream.eof else b"", per_inch, texts)


def upright(exif: bytes, size: tuple[int, int] | None = None) -> bytes:
    """Return EXIF of an upright picture of `size` (height, width) without thumbnail; b"" if unreadable."""
    # the size and orientation in it must be those of the restored picture
    order = _ORDERS.get(exif[:4])
    if order is None or len(exif) > _LARGEST_EXIF:
        return b""
    data = bytearray(exif)
    height, width = size or (0, 0)
    sizes = {0x100: width, 0x101: height, 0xA002: width, 0xA003: height} if size else {}
    try:
        # the size, in the first directory and in the one of the camera
        (place,) = struct.unpack_from(f"{order}I", data, 4)
        first, after = _entries(data, order, place)
        directories = [first]
        if 0x8769 in first:
            (offset,) = struct.unpack_from(f"{order}I", data, first[0x8769] + 8)
            directories.append(_entries(data, order, offset)[0])
        for entries in directories:
            for tag in sizes.keys() & entries.keys():
                struct.pack_into(
                    f"{order}HHII", data, entries[tag], tag, _LONG_TYPE, 1, sizes[tag]
                )

        # the orientation, and the thumbnail's directory and bytes
        if 0x112 in first:
            struct.pack_into(
                f"{order}HHIHH", data, first[0x112], 0x112, _SHORT_TYPE, 1, 1, 0
            )
        (thumbnail,) = struct.unpack_from(f"{order}I", data, after)
        struct.pack_into(f"{order}I", data, after, 0)
        places = _entries(data, order, thumbnail)[0] if thumbnail else {}
        # place and length of the thumbnail's JPEG
        if 0x201 in places and 0x202 in places:
            (begin,) = struct.unpack_from(f"{order}I", data, places[0x201] + 8)
            (length,) = struct.unpack_from(f"{order}I", data, places[0x202] + 8)
            stop = min(len(data), begin + length)
            data[begin:stop] = bytes(max(0, stop - begin))
    except struct.error:  # a place beyond the end
        return b""
    return bytes(data)


def _entries(data: bytearray, order: str, place: int) -> tuple[dict[int, int], int]:
    """Return the places of a directory's entries by their tags, and the place after them."""
    (count,) = struct.unpack_from(f"{order}H", data, place)
    places = range(place + 2, place + 2 + 12 * count, 12)
    return {
        struct.unpack_from(f"{order}H", data, entry)[0]: entry for entry in places
    }, places.stop


def with_notes(picture: bytes, notes: PhotoNotes) -> bytes:
    """Return an encoded JPEG, PNG or TIFF with the notes in it."""
    if order := _ORDERS.get(picture[:4]):
        picture = (
            _with_resolution(bytearray(picture), order, notes.per_inch)
            if notes.per_inch
            else picture
        )
        return (
            _with_profile(bytearray(picture), order, notes.profile)
            if notes.profile
            else picture
        )
    return (
        _jpeg_with(picture, notes)
        if picture.startswith(b"\xff\xd8")
        else _png_with(picture, notes)
    )


def _png_with(picture: bytes, notes: PhotoNotes) -> bytes:
    # chunks go right behind the header
    width, height = struct.unpack_from(">II", picture, 16)
    exif = upright(notes.exif, (height, width))
    profile = zlib.compress(notes.profile)
    added = _chunk(b"iCCP", b"ICC profile\0\0" + profile) if notes.profile else b""
    added += (_chunk(b"eXIf", exif) if exif else b"") + notes.texts
    # IHDR is first, then FFmpeg's aspect ratio, if there is one
    head, rest = picture[:33], picture[33:]
    if notes.per_inch:
        per_metre = (round(value / _METRES) for value in notes.per_inch)
        added += _chunk(b"pHYs", struct.pack(">IIB", *per_metre, 1))
        rest = rest[21:] if rest[4:8] == b"pHYs" else rest
    return head + added + rest


def _jpeg_with(picture: bytes, notes: PhotoNotes) -> bytes:
    # notes go in front, behind JFIF's block
    segments = dict(jpeg_segments(io.BytesIO(picture[2:])))
    (frame,) = (segments[marker] for marker in _SIZE_MARKERS if marker in segments)
    exif = upright(notes.exif, struct.unpack_from(">HH", frame, 1))
    added = _segment(_APP1, b"Exif\0\0" + exif) if exif else b""
    offsets = range(0, len(notes.profile), _PROFILE_BLOCK_BYTES)
    for number, offset in enumerate(offsets, 1):
        block = notes.profile[offset : offset + _PROFILE_BLOCK_BYTES]
        added += _segment(
            _APP2, b"ICC_PROFILE\0" + bytes([number, len(offsets)]) + block
        )
    added += notes.comments
    # behind JFIF's
    place = 2 + (4 + len(segments[_APP0]) if picture[2:4] == b"\xff\xe0" else 0)
    start = picture[:place]
    if notes.per_inch:
        density = struct.pack(">BHH", 1, *(round(value) for value in notes.per_inch))
        start = start[:2] + _segment(_APP0, b"JFIF\0\1\1" + density + b"\0\0")
    return start + added + picture[place:]


def _with_resolution(data: bytearray, order: str, per_inch: tuple[float, ...]) -> bytes:
    """Return a TIFF of FFmpeg's, which always has pixels per inch, with these."""
    # the numbers are stored as fractions, at the places of the old ones
    places, _ = _entries(data, order, struct.unpack_from(f"{order}I", data, 4)[0])
    for tag, resolution in zip(_RESOLUTIONS, per_inch, strict=True):
        (place,) = struct.unpack_from(f"{order}I", data, places[tag] + 8)
        struct.pack_into(f"{order}II", data, place, round(100 * resolution), 100)
    struct.pack_into(f"{order}H", data, places[_RESOLUTION_UNIT] + 8, _INCH)
    return bytes(data)


def _with_profile(data: bytearray, order: str, profile: bytes) -> bytes:
    """Return a TIFF of one page with a colour profile, and its directory, behind it."""
    # a new directory behind the data, as the old one has no room
    places, _ = _entries(data, order, struct.unpack_from(f"{order}I", data, 4)[0])
    data += bytes(len(data) % 2)
    entries = {tag: bytes(data[place : place + 12]) for tag, place in places.items()}
    entries[_ICC] = struct.pack(
        f"{order}HHII", _ICC, _UNDEFINED, len(profile), len(data)
    )
    data += profile + bytes(len(profile) % 2)
    struct.pack_into(f"{order}I", data, 4, len(data))
    directory = struct.pack(f"{order}H", len(entries)) + b"".join(
        entries[tag] for tag in sorted(entries)
    )
    return bytes(data + directory + bytes(4))


def _segment(marker: int, data: bytes) -> bytes:
    return struct.pack(">HH", marker, len(data) + 2) + data


def _chunk(kind: bytes, data: bytes) -> bytes:
    return (
        struct.pack(">I", len(data))
        + kind
        + data
        + struct.pack(">I", zlib.crc32(kind + data))
    )
