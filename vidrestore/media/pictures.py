"""Single pictures (JPEG, PNG, TIFF, WebP), decoded as safely as videos are."""

from __future__ import annotations

from pathlib import Path

import av
import numpy as np

from vidrestore.errors import MediaError

_DEMUXERS = {
    ".jpg": "jpeg_pipe",
    ".jpeg": "jpeg_pipe",
    ".png": "png_pipe",
    ".tif": "tiff_pipe",
    ".tiff": "tiff_pipe",
    ".webp": "webp_pipe",
}
SUFFIXES = tuple(_DEMUXERS)


def read_picture(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Y, U and V of a picture at full size (4:4:4), each (height, width) uint8: BT.601 in the range of video, luma 16 to 235.

    Raises MediaError for a file that holds no such picture, by its name or by its content.
    """
    demuxer = _DEMUXERS.get(path.suffix.lower())
    if demuxer is None:
        raise MediaError(f"{path}: not a picture by its name; expected {', '.join(SUFFIXES)}")
    options = {"protocol_whitelist": "file", "format_whitelist": demuxer}
    try:
        with av.open(f"file:{path}", "r", format=demuxer, container_options=options) as container:
            frame = next(container.decode(video=0), None)
            planes = None if frame is None else frame.reformat(format="yuv444p", dst_color_range="MPEG").to_ndarray()
    except (OSError, av.FFmpegError) as error:
        raise MediaError(f"{path}: can't be read as a picture ({error})") from error
    if planes is None:
        raise MediaError(f"{path}: holds no picture")
    return planes[0], planes[1], planes[2]
