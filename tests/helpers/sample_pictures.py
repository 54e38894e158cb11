"""Small pictures for tests."""

from pathlib import Path

import av
import numpy as np
from sample_videos import encoded


def write_rgb(path: Path, picture: np.ndarray) -> None:
    """A PNG of (3, height, width) uint8, exactly; its folder is made."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_frame(
        path,
        "png",
        av.VideoFrame.from_ndarray(
            np.ascontiguousarray(picture.transpose(1, 2, 0)), "rgb24"
        ),
    )


def write_frame(path: Path, encoder: str, frame: av.VideoFrame) -> None:
    """A frame as a picture file, in its own pixel format."""
    path.write_bytes(b"".join(map(bytes, encoded(encoder, [frame]))))


ENCODERS = {
    ".png": ("png", "rgb24"),
    ".jpg": ("mjpeg", "yuvj444p"),
    ".tiff": ("tiff", "rgb24"),
    ".webp": ("libwebp", "yuv420p"),
}


def write_picture(
    path: Path, colour: tuple[int, int, int], kind: str | None = None
) -> None:
    """A picture of 48x32 in one colour (R, G, B)."""
    name, pix_fmt = ENCODERS[kind or path.suffix]
    frame = av.VideoFrame.from_ndarray(np.full((32, 48, 3), colour, np.uint8), "rgb24")
    write_frame(path, name, frame.reformat(format=pix_fmt))
