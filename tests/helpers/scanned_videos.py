"""Videos of fields: woven, telecined, or with both fields of one moment, and what was woven."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray
from sample_videos import sound_packets, video_frame

SIZE = (120, 160)  # height, width
NTSC = Fraction(30000, 1001)
Pictures = list[NDArray[np.uint8]]


def moments(count: int, step: float = 6, sigma: float = 0) -> Pictures:
    """Smooth shapes that move `step` columns from moment to moment, under a still pattern, with noise."""
    rows, columns = np.mgrid[: SIZE[0], : SIZE[1]]
    random = np.random.default_rng(5)
    pictures = []
    for time in range(count):
        place = columns - step * time
        shapes = (
            128
            + 50 * np.sin(place / 7 + rows / 9)
            + 25 * np.sin(place / 3)
            + 9 * np.sin(rows / 2)
        )
        noise = random.normal(0, sigma, SIZE) if sigma else 0
        pictures.append(np.clip(np.round(shapes + noise), 0, 255).astype(np.uint8))
    return pictures


def weave(
    first: NDArray[np.uint8], second: NDArray[np.uint8], top: bool = True
) -> NDArray[np.uint8]:
    """A frame of the top field of one moment and the bottom field of a later one, or the other way round."""
    frame = first.copy()
    frame[top::2] = second[top::2]
    return frame


def interlaced(pictures: Pictures, top: bool = True) -> Pictures:
    """Half as many frames, of two moments each."""
    return [
        weave(first, second, top)
        for first, second in zip(pictures[::2], pictures[1::2], strict=True)
    ]


def telecined(pictures: Pictures, top: bool = True) -> Pictures:
    """Five frames of each four: of two fields, then of three, by turns."""
    fields = [
        picture
        for number, picture in enumerate(pictures)
        for picture in [picture] * (2 + number % 2)
    ]
    return interlaced(fields, top)


def apart(pictures: Pictures) -> Pictures:
    """As many frames less one: the fields of a moment lie in two of them."""
    return [weave(first, second) for first, second in pairwise(pictures)]


def write_frames(
    path: Path,
    frames: Sequence[NDArray[np.uint8]],
    rate: Fraction = NTSC,
    *,
    order: str | None = None,
    sound: bool = False,
) -> Path:
    """Write frames without loss; `order` is the stream's mark, "tt" or "bb"; `sound` lasts as long."""
    lossless: tuple[str, dict[str, str]] = (
        "ffv1",
        {"field_order": order} if order else {},
    )
    if path.suffix != ".mkv":
        lossless = "libx264", {"qp": "0", "preset": "ultrafast", "g": "7"}
    with av.open(str(path), "w") as output:
        stream: Any = output.add_stream(lossless[0], rate=rate, options=lossless[1])
        (stream.height, stream.width), stream.pix_fmt = frames[0].shape, "yuv420p"
        tone = output.add_stream(
            "pcm_s16le" if path.suffix == ".mkv" else "aac", rate=48000, layout="mono"
        )
        chroma = np.full((stream.height // 2, stream.width // 2), 128, np.uint8)
        for number, luma in enumerate(frames):
            output.mux(
                stream.encode(video_frame("yuv420p", (luma, chroma, chroma), number))
            )
        output.mux(stream.encode(None))
        output.mux(
            sound_packets(tone, int(len(frames) / rate * 48000) if sound else 1024)
        )
    return path
