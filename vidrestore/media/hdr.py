"""Pass HDR's static metadata (mastering display, light level) to encoders, since re-encoding drops it."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from vidrestore.media.probe import VideoInfo

_CHROMATICITY, _LUMINANCE = 50_000, 10_000  # steps per unit in SMPTE ST 2086
_PARAMETERS = {
    "libx264": ("x264-params", "mastering-display", "cll"),
    "libx265": ("x265-params", "master-display", "max-cll"),
    "libsvtav1": ("svtav1-params", "mastering-display", "content-light"),
}


def hdr_settings(encoder: str, video: VideoInfo) -> dict[str, str]:
    """Return the encoder option with the source's mastering display and light level; empty without them or
    without such an option.
    """
    if encoder not in _PARAMETERS:
        return {}
    option, display, light = _PARAMETERS[encoder]
    parts = []
    if video.mastering_display:
        parts.append(f"{display}={_display(video.mastering_display, whole=encoder != 'libsvtav1')}")
    if video.content_light:
        parts.append(f"{light}={video.content_light[0]},{video.content_light[1]}")
    return {option: ":".join(parts)} if parts else {}


def hdr_warning(encoder: str, video: VideoInfo) -> str | None:
    """Return a sentence for the user if the encoder can't write the source's HDR metadata."""
    if encoder in _PARAMETERS or not (video.mastering_display or video.content_light):
        return None
    return (
        f"{encoder} can't write the HDR mastering display and light level, so they are left out; "
        "`encoder=libx265` keeps them"
    )


def _display(values: tuple[Fraction, ...], *, whole: bool) -> str:
    """Reorder x y of red, green, blue, white, darkest, brightest to the encoders' green, blue, red, white,
    brightest, darkest.
    """
    red, green, blue, white, (darkest, brightest) = (values[start : start + 2] for start in range(0, 10, 2))

    def pair(first: Fraction, second: Fraction, steps: int) -> str:
        return (
            f"({round(first * steps)},{round(second * steps)})"
            if whole
            else f"({float(first):.5f},{float(second):.5f})"
        )

    colours = (("G", green), ("B", blue), ("R", red), ("WP", white))
    return (
        "".join(name + pair(x, y, _CHROMATICITY) for name, (x, y) in colours)
        + "L"
        + pair(brightest, darkest, _LUMINANCE)
    )
