"""Outputs that are finished: the tag by which the next run knows them, and the check that they are whole.

The tag names the job, by a digest of request, source and weights. A copy that broke off or a disk that failed
leaves it in place, so the tag also holds a checksum of the video's packets. Other metadata, names and streams
may be changed, and the file may be put into the same container again with its metadata: the packets stay the
same.
"""

from __future__ import annotations

import html
import json
import os
import re
import struct
import zlib
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from av.container import InputContainer
from av.packet import Packet
from av.video.stream import VideoStream

from vidrestore.errors import MediaError
from vidrestore.files.atomic import write_whole
from vidrestore.files.regular import (
    LARGEST_PLAN,
    is_own_or_guarded,
    open_regular,
    places_digest,
    read_object,
    readable,
    stored,
)
from vidrestore.media.containers.file_bytes import FileBytes, cut_short
from vidrestore.media.containers.matroska import EBML, lacking_bytes, replace_in_tags
from vidrestore.media.containers.structure import broken_structure, replace_in_index
from vidrestore.media.formats.photo_notes import jpeg_end
from vidrestore.media.formats.source import MUXERS, Target, kind_by_content
from vidrestore.media.reading.probe import open_input, video_stream

PREVIEW_JOB = "preview"  # in place of a digest
UNKNOWN = "00000000"  # a checksum that isn't known yet
MATROSKA = ("matroska", "webm")
# container -> the keys that hold our tag, as FFmpeg reads them; which depends on the form of its metadata
_TAG_KEYS = {
    "mp4": ["encoder", "encoding_tool"],
    "mov": ["VIDRESTORE", "xmp"],
    "matroska": ["VIDRESTORE"],
    "webm": ["VIDRESTORE"],
}
_TAG = re.compile(
    r"vidrestore (?:(preview)|([0-9a-f]{16})(?:\+([0-9a-f]{8}))?)\b(?:.*?; (\d{1,12}) frames(?:; (.*))?$)?",
    re.DOTALL,
)
# MOV has no free place for text but XMP, where the program that made a file is the creator tool
_XMP = (
    '<x:xmpmeta xmlns:x="adobe:ns:meta/"><rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#">'
    '<rdf:Description rdf:about="" xmlns:xmp="http://ns.adobe.com/xap/1.0/"><xmp:CreatorTool>{}'
    "</xmp:CreatorTool></rdf:Description></rdf:RDF></x:xmpmeta>"
)
_CREATOR = re.compile("<xmp:CreatorTool>(.*)</xmp:CreatorTool>", re.DOTALL)
_PNG_END = b"IEND\xae\x42\x60\x82"  # its last chunk, with the checksum
_LISTED_PICTURES = stored(tag=str, pictures=list[str], digests=list[str])


@dataclass(frozen=True)
class SampledPackets:
    """The packets of a file that are compared: all of a small one, else those at places spread over it."""

    small: int = 1 << 26  # bytes of a file that is read completely
    places: int = 16
    window: int = 1 << 20  # bytes of packets at each place
    # of each picture of a sequence
    picture_places: int = 3
    picture_window: int = 1 << 14  # bytes


PACKET_SAMPLE = SampledPackets()


@dataclass(frozen=True)
class Tag:
    """The tag of an output, which identifies the job that wrote it."""

    job: str  # the job's digest; "preview" for a preview
    # of its packets; None in tags of earlier versions, and in previews
    checksum: str | None = None
    frames: int = 0  # 0 if they weren't counted yet
    damage: str | None = None  # of the source, in words, as far as it was known

    @classmethod
    def parse(cls, text: str) -> Self | None:
        match = _TAG.match(text)
        if match is None:
            return None
        preview, job, checksum, frames, damage = match.groups()
        return cls(preview or job, checksum, int(frames or 0), damage)

    @property
    def is_preview(self) -> bool:
        return self.job == PREVIEW_JOB


def tag_metadata(tag: str, container: str, *, by_keys: bool) -> dict[str, str]:
    """Return the metadata that holds a tag in a container. `by_keys`: it is one of ISO whose metadata are
    stored in the newer form, a list of keys.
    """
    if container == "mp4":
        return {"encoding_tool": tag}
    if container == "mov" and not by_keys:
        return {"xmp": _XMP.format(html.escape(tag, quote=False))}
    return {"VIDRESTORE": tag}


def read_tag(output: Target) -> Tag | None:
    """Return the tag of a video, or of numbered pictures by their list; None without."""
    # of numbered pictures a list, else the metadata
    if output.is_pattern:
        with suppress(OSError, ValueError):
            listed = read_object(output.list_path, stored(tag=str), LARGEST_PLAN)
            return Tag.parse(str(listed["tag"]))
    elif output.suffix in MUXERS and os.path.isfile(output):
        container = MUXERS[output.suffix]
        with suppress(MediaError), open_input(output.name, export_xmp="1") as opened:
            return next(filter(None, map(Tag.parse, _texts(opened, container))), None)
    return None


def _texts(opened: InputContainer, container: str) -> Iterator[str]:
    # the tag may be wrapped in XMP
    for key in _TAG_KEYS[container]:
        text = opened.metadata.get(key, "")
        creator = _CREATOR.search(text) if key == "xmp" else None
        yield html.unescape(creator[1]) if creator else text
    if container == "mov":  # earlier versions had only this place
        yield from (
            stream.metadata.get("encoder", "") for stream in opened.streams.video
        )


def is_foreign(output: Target) -> bool:
    """Return True if other users may have put an output there, with its tag: it belongs to one of them, and
    lies in a folder where they may write.
    """
    paths = list(output.existing().values()) + [output.list_path] * output.is_pattern
    return not all(map(is_own_or_guarded, map(Path, paths)))


def broken_output(output: Target, tag: Tag) -> str | None:
    """Return why an output isn't the whole one that its `tag` was written for; None if it is."""
    if output.is_pattern:
        return _broken_pictures(output)
    # the structure first, which is cheap; then the packets
    with readable(output.name):
        if finding := next(_structure_findings(output.name), None):
            return finding
    try:
        count, checksum = packets_checksum(output.name)
    except MediaError as error:
        return str(error).removeprefix(f"{output}: ")
    if count is not None and count < tag.frames:
        return f"it has {count} of its {tag.frames} frames"
    return (
        None
        if checksum == tag.checksum
        else "its packets are not those that were written"
    )


def unfinished_output(output: Target) -> str | None:
    """Return why an output isn't whole, by its tag if it has one, else by its end; None if it is."""
    tag = read_tag(output)
    if tag and (tag.checksum or output.is_pattern):
        return broken_output(output, tag)
    return None if output.is_pattern else stump(output)


def _structure_findings(path: str) -> Iterator[str]:
    """Yield what is missing of a file; of a large Matroska file only its end is looked for, as each of its
    packets would have to be.
    """
    # walking through a large file would take minutes
    is_large = os.path.getsize(path) > PACKET_SAMPLE.small
    if is_large and MUXERS.get(Path(path).suffix.lower()) in MATROSKA:
        with open_regular(path) as file:
            if lacking := lacking_bytes(FileBytes(file)):
                yield cut_short(lacking)
    else:
        yield from broken_structure(path)


def packets_checksum(path: str) -> tuple[int | None, str]:
    """Return the number of packets of the video in a file, or None if it is large, and the CRC-32 of its
    packets: of those at `PACKET_SAMPLE` places of a large file. Raises MediaError.
    """
    with open_input(path) as opened:
        stream = video_stream(opened)
        # all packets of a small file, else samples of it
        if opened.size <= PACKET_SAMPLE.small:
            packets = [
                zlib.crc32(packet) for packet in opened.demux(stream) if packet.size
            ]
            return len(packets), f"{zlib.crc32(repr(packets).encode()):08x}"
        checksum = 0
        for place in range(PACKET_SAMPLE.places + 1):
            for packet in _packets_at(opened, stream, place):
                checksum = zlib.crc32(packet, checksum)
        return None, f"{checksum:08x}"


def _packets_at(
    opened: InputContainer, stream: VideoStream, place: int
) -> Iterator[Packet[VideoStream]]:
    """Yield packets of the video from the key frame before one place of a file on; of the last place, all to
    the end.
    """
    opened.seek((opened.duration or 0) * place // PACKET_SAMPLE.places)
    size = 0
    for packet in opened.demux(stream):
        if packet.size:
            yield packet
        size += packet.size
        if size >= PACKET_SAMPLE.window and place < PACKET_SAMPLE.places:
            return


def store_checksum(path: Path, container: str, tag: str) -> None:
    """Write the checksum of a closed file's packets into its tag, in place. Raises OSError or MediaError."""
    # the checksum takes the place that was left for it
    name, unknown, _ = tag.partition(f"+{UNKNOWN}")
    if not unknown:  # a preview, or the output of a pipe, which no run knows again
        return
    _, checksum = packets_checksum(str(path))
    replacing = replace_in_tags if container in MATROSKA else replace_in_index
    replacing(path, f"{name}+{UNKNOWN}".encode(), f"{name}+{checksum}".encode())


def stump(output: Target) -> str | None:
    """Return why a file without a tag is no more than the beginning of a video or picture; None for a whole
    one, for any other content, and without a file. Raises OSError or MediaError.
    """
    # by what kind of file it begins as
    path = output.path
    if not path.is_file():
        return None
    if not path.stat().st_size:
        return "it is empty"
    if kind_by_content(output.name):
        return None if _has_end(path.read_bytes()) else "it is cut short"
    with open_regular(path) as file:
        head = file.read(8)
    if not (head.startswith(EBML) or head[4:] == b"ftyp"):
        return None
    if finding := next(_structure_findings(output.name), None):
        return finding
    try:
        open_input(output.name).close()
    except MediaError as error:
        return str(error).removeprefix(f"{output}: ")
    return None


def _has_end(picture: bytes) -> bool:
    """Return True for a PNG or JPEG with its end, a TIFF with its directory, and for other kinds."""
    if picture.startswith(b"\x89PNG"):
        return _PNG_END in picture
    # a TIFF ends with its directory
    if byte_order := {b"II*\0": "<", b"MM\0*": ">"}.get(picture[:4]):
        place: int = struct.unpack(f"{byte_order}I", picture[4:8].ljust(4, b"\0"))[0]
        count: int = struct.unpack(
            f"{byte_order}H", picture[place : place + 2].ljust(2, b"\0")
        )[0]
        return place > 0 and place + 2 + 12 * count + 4 <= len(picture)
    return jpeg_end(picture) is not None


# Pictures


def write_list(output: Target, tag: str, pictures: Sequence[Path]) -> None:
    """Write the list of numbered pictures, by which they are known to be whole. Raises MediaError."""
    names, digests = (
        [path.name for path in pictures],
        [_picture_digest(path) for path in pictures],
    )
    content = {"tag": tag, "pictures": names, "digests": digests}
    write_whole(output.list_path, json.dumps(content).encode())


def _broken_pictures(output: Target) -> str | None:
    try:
        listed = read_object(output.list_path, _LISTED_PICTURES, LARGEST_PLAN)
    except (OSError, ValueError) as error:
        return f"its list can't be read ({error})"
    count = len(listed["pictures"])
    # all pictures by name and content
    for name, digest in zip(listed["pictures"], listed["digests"], strict=False):
        path = output.path.with_name(name)
        with suppress(OSError):
            if _picture_digest(path) == digest:
                continue
            return f"{name} is not the picture that was written"
        return f"{name} of its {count} pictures is missing"
    return None


def _picture_digest(path: Path) -> str:
    return places_digest(
        path, PACKET_SAMPLE.picture_places, PACKET_SAMPLE.picture_window
    )[:16]
