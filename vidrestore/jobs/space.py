"""Room on the disk for segments and the video that is joined from them, which are there at the same time."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from vidrestore.errors import MediaError
from vidrestore.frames import Scale, VideoInfo, enlarged_size
from vidrestore.media.encoder_table import EncoderChoice

# Bits per pixel of what comes out, the least there could be and what is likely; without loss as shares of the
# samples' own size.
LOSSY = 0.0005, 0.3  # still pictures at crf 40 take four times the least
LOSSLESS = 0.001, 0.5


def video_sizes(video: VideoInfo, encoder: EncoderChoice, frames: int, scale: Scale) -> tuple[int, int]:
    """Return how many bytes the encoded video takes: at least, and likely."""
    height, width = enlarged_size(video.height, video.width, scale)
    if encoder.lossless or encoder.encoder == "ffv1":
        planes = [video.format.plane_size(plane, height, width) for plane in range(video.format.plane_count)]
        raw = sum(rows * columns for rows, columns in planes) * (1 if video.format.depth == 8 else 2)
        return int(frames * raw * LOSSLESS[0]), int(frames * raw * LOSSLESS[1])
    return int(frames * height * width * LOSSY[0] / 8), int(frames * height * width * LOSSY[1] / 8)


def check_space(work: Path, output: Path, least: int, likely: int, segment_bytes: int = 0) -> str | None:
    """Return a warning if there is less room than segments and video are likely to take. MediaError if there
    certainly is too little.

    `work` is the folder of the segments, which take as much as the video, `segment_bytes` so far.
    """
    home = output.absolute().parent
    is_same_disk = os.stat(work).st_dev == os.stat(home).st_dev
    for folder, copies in [(work, 2)] if is_same_disk else [(work, 1), (home, 1)]:
        free = shutil.disk_usage(folder).free
        for size, certain in ((least, True), (likely, False)):
            demand = copies * size - segment_bytes * (folder == work)
            if free < demand:
                text = (
                    f"{folder}: {_size(free)} free, but {'at least' if certain else 'probably'} "
                    f"{_size(demand)} are needed"
                )
                text += ", as joining needs twice the output's size" if copies == 2 else ""
                if certain:
                    raise MediaError(
                        f"{text}; free some, or choose another place with `output` or `work_dir`"
                    )
                return f"{text}; if it fills up, free some and run the same command again, which resumes"
    return None


def _size(count: int) -> str:
    return f"{count / 1e9:.1f} GB" if count >= 1e9 else f"{max(count, 0) / 1e6:.1f} MB"
