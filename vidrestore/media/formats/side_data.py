"""Read the side data of frames, and name what encoding them again loses of it."""

from __future__ import annotations

import struct
from collections.abc import Set
from fractions import Fraction
from typing import Any, cast

from av.filter import Graph
from av.sidedata.sidedata import Type
from av.video.frame import VideoFrame
from av.video.stream import VideoStream

# FFmpeg's names of side data -> ours. Omitted: data that the writer copies, an encoder's note on its
# settings, film grain that the decoder has applied, the time codes of every MPEG-2 stream.
_LOST = {
    "A53_CC": "closed captions",
    "DYNAMIC_HDR_PLUS": "HDR10+",
    "DYNAMIC_HDR_VIVID": "HDR Vivid",
    "DOVI_RPU_BUFFER": "Dolby Vision",
    "DOVI_METADATA": "Dolby Vision",
    "AMBIENT_VIEWING_ENVIRONMENT": "the ambient viewing environment",
    "ICC_PROFILE": "an ICC profile",
    "EXIF": "notes of the camera (EXIF)",
    "XMP": "notes of editors (XMP or IPTC)",
    "PNG_TEXT": "texts of the PNG, such as its title",
    "STEREO3D": "the stereo 3D layout",
    "SPHERICAL": "the spherical projection",
    "AFD": "the active format description",
    "PANSCAN": "pan and scan",
    "S12M_TIMECODE": "time codes",
    "ALPHA_LAYER": "the transparency of VP8, VP9 or AVIF",
}

_PAN_OFFSETS = slice(12, 24)  # bytes of an AVPanScan after id, width and height
# decoders of FFmpeg that give the name of a profile
_NAMING_PROFILES = frozenset({"png", "apng"})
_UNNAMED = {"31": "EXIF"}  # kinds that FFmpeg's headers number, which PyAV doesn't name


# closed captions of ATSC A/53, as user data of H.264, H.265 and AV1 (ITU-T T.35), and of MPEG-2
_CAPTIONS = (b"\xb5\x00\x31GA94", b"\x00\x00\x01\xb2GA94")
CAPTIONED = frozenset({"h264", "hevc", "av1", "mpeg2video"})


def has_captions(packet: bytes) -> bool:
    """Return True if a packet of a codec in `CAPTIONED` holds closed captions. Looking at the side data of
    each decoded frame would keep it: PyAV 18 makes a cycle of the two.
    """
    return any(mark in packet for mark in _CAPTIONS)


def lost_side_data(kinds: Set[str]) -> str | None:
    """Return a sentence naming the kinds of side data that no encoder writes; None if there are none."""
    lost = sorted({_LOST[name] for name in kinds if name in _LOST})
    return (
        f"the source carries {', '.join(lost)}, which encoding it again leaves out"
        if lost
        else None
    )


def matrix_in(side_data: dict[str, bytes]) -> tuple[int, ...] | None:
    """Return the nine integers by which a frame is rotated or mirrored for display; None without them."""
    return (
        struct.unpack("=9i", side_data["DISPLAYMATRIX"])
        if "DISPLAYMATRIX" in side_data
        else None
    )


def read_side_data(frame: VideoFrame, stream: VideoStream) -> dict[str, bytes]:
    """Return the side data of a frame by kind, without pan and scan that has no effect.

    For a kind that PyAV has no name for, it raises an error ("31 is not a valid Type") instead of reading the
    others, so such data is removed first.
    """
    unnamed: list[str] = []
    frame, side_data = _without_profile(frame, stream)
    # a kind without a name hides all others, so it is taken out and the rest is read
    while True:
        try:
            # PyAV's annotation is wrong: it iterates over the items
            container: Any = frame.side_data
            side_data |= {data.type.name: bytes(data) for data in container}
            break
        except ValueError as error:
            kind = str(error).split()[0]
            if kind in unnamed or not kind.isdigit():
                raise
            unnamed.append(kind)
            side_data |= {_UNNAMED[kind]: b""} if kind in _UNNAMED else {}
            frame = filtered(stream, frame, ("sidedata", f"mode=delete:type={kind}"))
    # every MPEG-2 picture has one
    if not any(side_data.get("PANSCAN", b"")[_PAN_OFFSETS]):
        side_data.pop("PANSCAN", None)
    return side_data


def _without_profile(
    frame: VideoFrame, stream: VideoStream
) -> tuple[VideoFrame, dict[str, bytes]]:
    """Return a frame of PNG without its colour profile, and that the profile was there.

    The name of such a profile is metadata of the side data, which PyAV 18 frees a second time if it looks at
    the side data of the frame; the memory then belongs to others.
    """
    if stream.codec_context.name not in _NAMING_PROFILES:
        return frame, {}
    kind = Type.ICC_PROFILE.value
    # first see whether there is a profile, by a filter
    try:
        profile_frame = filtered(
            stream, frame, ("sidedata", f"mode=select:type={kind}")
        )
    except BlockingIOError:  # the filter let nothing through
        return frame, {}
    return filtered(stream, profile_frame, ("sidedata", f"mode=delete:type={kind}")), {
        "ICC_PROFILE": b""
    }


def filtered(
    stream: VideoStream, frame: VideoFrame, *filters: tuple[str, str]
) -> VideoFrame:
    """Pass a frame through FFmpeg's filters, (name, options) each."""
    graph = Graph()
    # a graph of its own, for this one frame
    source = graph.add_buffer(
        template=stream, width=frame.width, height=frame.height, format=frame.format
    )
    nodes = [graph.add(*node) for node in (*filters, ("buffersink",))]
    graph.link_nodes(source, *nodes).configure()
    graph.push(frame)
    return cast("VideoFrame", graph.pull())


def mastering_display(data: bytes | None) -> tuple[Fraction, ...] | None:
    """Return the mastering display as ten fractions; None if it is missing or incomplete."""
    if data is None:
        return None
    # all or nothing: half of a description would be wrong
    # 10 rationals, then two flags
    *numbers, has_primaries, has_luminance = struct.unpack_from("=22i", data)
    if not (has_primaries and has_luminance) or not all(numbers[1::2]):
        return None
    return tuple(
        Fraction(top, bottom)
        for top, bottom in zip(numbers[::2], numbers[1::2], strict=True)
    )


# places in FFmpeg's data header of a Dolby Vision RPU
_RPU_PROFILE, _FULL_RANGE = 4, 10


def lacks_base_layer(side_data: dict[str, bytes]) -> bool:
    """Return True for Dolby Vision of profile 5, whose colours other decoders don't know."""
    data = side_data.get("DOVI_METADATA")
    if data is None:
        return False
    (start,) = struct.unpack_from("@N", data)
    return data[start + _RPU_PROFILE] == 0 and bool(data[start + _FULL_RANGE])
