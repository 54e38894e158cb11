"""HDR metadata and places of chroma samples: as encoders take them, and what an output can't hold."""

from __future__ import annotations

from fractions import Fraction

from vidrestore.media.formats.encoder_table import EncoderChoice, EncoderRow
from vidrestore.pixels.frames import VideoInfo

_UNTAGGED_LOCATION = 1  # the chroma location of 4:2:2 that isn't tagged
_CHROMATICITY, _LUMINANCE = 50_000, 10_000  # steps per unit in SMPTE ST 2086


def hdr_settings(row: EncoderRow, video: VideoInfo) -> dict[str, str]:
    """Return the encoder's option with mastering display and light level; empty without one."""
    if row.hdr is None:
        return {}
    option, display, light, in_steps = row.hdr
    # in the encoder's own words
    parts = []
    if video.mastering_display:
        parts.append(
            f"{display}={_display(video.mastering_display, in_steps=in_steps)}"
        )
    if video.content_light:
        parts.append(f"{light}={video.content_light[0]},{video.content_light[1]}")
    return {option: ":".join(parts)} if parts else {}


def unwritten(choice: EncoderChoice, video: VideoInfo) -> str | None:
    """Return a sentence on HDR metadata and a chroma location that can't be written, or None."""
    lost = []
    if choice.row.hdr is None and (video.mastering_display or video.content_light):
        lost.append(
            f"{choice.encoder} can't write the HDR mastering display and light level, so they are left out; "
            "`encoder=libx265` keeps them"
        )
    if video.colour.chroma_location > _UNTAGGED_LOCATION and not _keeps_location(
        choice, video
    ):
        lost.append(
            f"{choice.encoder} in {choice.container} can't write where the chroma samples of "
            f"{video.format.name} lie, so it is left out; `encoder=ffv1` in .mkv keeps it"
        )
    return "; ".join(lost) or None


def _keeps_location(choice: EncoderChoice, video: VideoInfo) -> bool:
    """Return False if the chroma location is lost, as tried with all encoders that need no device."""
    pixels = video.format
    if not pixels.chroma_width_shift:
        return True  # it means nothing
    if choice.row.location == "4:2:0":
        return pixels.chroma_height_shift == 1
    return choice.row.location == "stream" or choice.container in ("matroska", "webm")


def _display(values: tuple[Fraction, ...], *, in_steps: bool) -> str:
    """Reorder R, G, B, white, darkest, brightest to the encoders' G, B, R, white, brightest, darkest."""
    red, green, blue, white, (darkest, brightest) = (
        values[start : start + 2] for start in range(0, 10, 2)
    )

    def pair(first: Fraction, second: Fraction, steps: int) -> str:
        if in_steps:
            return f"({round(first * steps)},{round(second * steps)})"
        return f"({float(first):.5f},{float(second):.5f})"

    colours = (("G", green), ("B", blue), ("R", red), ("WP", white))
    pairs = "".join(name + pair(x, y, _CHROMATICITY) for name, (x, y) in colours)
    return f"{pairs}L{pair(brightest, darkest, _LUMINANCE)}"
