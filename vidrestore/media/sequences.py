"""Pictures (`media.source`) as a video.

Each picture is opened by itself, as safely as a video, and is one frame, turned upright by its orientation
(EXIF). A picture that can't be read, that has another size than the first, or that is missing in the
numbering is an error that names it.
"""

from __future__ import annotations

import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING

from vidrestore.errors import MediaError
from vidrestore.media.conversion import SRGB
from vidrestore.media.formats import layout_of, planes_of
from vidrestore.media.log import collect_errors
from vidrestore.media.photo_notes import further_pictures
from vidrestore.media.probe import (
    SourceInfo,
    StreamInfo,
    check_size,
    decoder_options,
    describe_video,
)
from vidrestore.media.side_data import display_matrix, filtered
from vidrestore.media.source import KINDS, PICTURES, Pictures

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

USUAL_RATE = Fraction(25)  # pictures per second unless asked for
# their decoders stop at an error only if asked to; TIFF's would then refuse undamaged files, too
_STRICT = frozenset({"png_pipe", "jpeg_pipe"})
_UNPACKED = {"pal8": "rgba", "monob": "gray", "monow": "gray"}  # palettes and single bits, as samples
_BRIGHTEST = 1e9  # of EXR; 1 is white


def pictures_info(pictures: Pictures, rate: Fraction) -> SourceInfo:
    """Describe pictures as a video of `rate` pictures per second; its times count pictures from 0."""
    with _opened(pictures.files[0]) as container:
        stored = container.streams.video[0]
        check_size(pictures.files[0], stored)
        video = describe_video(pictures.files[0], stored, [_first(container, pictures.files[0])], PICTURES)
    if video.width == stored.height != stored.width and video.sample_aspect_ratio:  # it was turned
        video = replace(video, sample_aspect_ratio=1 / video.sample_aspect_ratio)
    count = len(pictures.files)
    video = replace(video, time_base=1 / rate, rate=rate, base_rate=rate, frames=count, start=0)
    video = replace(video, duration=count, bit_rate=None, interlaced=False, unmarked_order=None)
    suffix = Path(pictures.files[0]).suffix.lower()
    if suffix in (".tif", ".tiff"):  # all their tags are EXIF, the size, too
        video = replace(video, side_data=video.side_data - {"EXIF"})
    if suffix == ".exr":  # as the reader delivers them
        video = replace(video, colour=replace(video.colour, transfer=SRGB))
    stream = StreamInfo(video.index, "video", video.codec)
    return SourceInfo(pictures.source, PICTURES, video, (stream,), duration=count / rate)


class PictureDecoding:
    """Decode pictures one by one, as `Decoding` does the frames of a video."""

    longest = 1  # duration of a picture, in ticks
    reach = 0  # no picture was reordered

    def __init__(self, pictures: Pictures, info: SourceInfo) -> None:
        self.pictures_found, self.info = pictures, info

    def pictures(
        self, start_pts: int | None = None, stop_pts: int | None = None, *, lead: bool = False
    ) -> Generator[VideoFrame]:
        """Yield the pictures with start <= pts < stop and the one after; with `lead` the one before, too."""
        files, video = self.pictures_found.files, self.info.video
        first = max(0, (start_pts or 0) - lead)
        for pts in range(first, len(files) if stop_pts is None else min(stop_pts + 1, len(files))):
            with _opened(files[pts]) as container:
                frame = _first(container, files[pts])
            found = frame.width, frame.height, frame.format.name
            if found != (video.width, video.height, video.pix_fmt):
                raise MediaError(
                    f"{files[pts]}: {found[0]}x{found[1]} in {found[2]}, but the first picture is "
                    f"{video.width}x{video.height} in {video.pix_fmt}; all frames must be alike; "
                    "`photos` restores each by itself"
                )
            _check_light(frame, files[pts])
            frame.pts, frame.duration, frame.time_base = pts, 1, video.time_base
            yield frame


@contextmanager
def _opened(path: str) -> Iterator[InputContainer]:
    import av

    demuxer = KINDS[Path(path).suffix.lower()]
    options = {"protocol_whitelist": "file", "format_whitelist": demuxer}
    problems: list[str] = []
    try:
        if more := further_pictures(path):
            raise MediaError(f"{path}: holds {more}")
        with av.open(f"file:{path}", "r", format=demuxer, container_options=options) as container:
            context = container.streams.video[0].codec_context
            context.thread_type = "NONE"
            strict = {"err_detect": "crccheck+explode"} if demuxer in _STRICT else {}
            context.options = decoder_options() | strict
            names = frozenset({context.name, context.codec.canonical_name, demuxer})
            with collect_errors(names, problems.append) as errors, errors.calling():
                yield container
    except (OSError, IndexError, av.error.FFmpegError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise MediaError(f"{path}: can't be read as a picture ({reason}); replace it") from error
    problems = [problem for problem in problems if "EXIF" not in problem]  # odd notes don't harm the pixels
    if problems:
        raise MediaError(f"{path}: the picture is damaged ({problems[0]}); replace it")


def _first(container: InputContainer, path: str) -> VideoFrame:
    frame = next(container.decode(video=0), None)
    if frame is None or frame.is_corrupt:
        raise MediaError(f"{path}: holds no whole picture; replace it")
    if frame.format.name == "gbrap" and Path(path).suffix.lower() in (".jpg", ".jpeg"):
        raise MediaError(f"{path}: its colours are those of print, CMYK; convert it to RGB first")
    if wider := _UNPACKED.get(frame.format.name):
        frame = frame.reformat(format=wider)
    return _upright(container.streams.video[0], frame)


def _check_light(frame: VideoFrame, path: str) -> None:
    """Refuse NaN and infinity, which renderers leave in EXR, and which spread to all pixels around them."""
    layout = layout_of(frame.format.name)
    if layout.format.depth != 32:
        return
    wrong = sum(int((~(abs(plane) <= _BRIGHTEST)).sum()) for plane in planes_of(frame, layout))
    if wrong:
        count = "1 sample is" if wrong == 1 else f"{wrong} samples are"
        raise MediaError(f"{path}: {count} NaN, infinite or beyond {_BRIGHTEST:g}; mend the picture first")


def _upright(stream: VideoStream, frame: VideoFrame) -> VideoFrame:
    """Return a picture upright: its pixels are moved, because few formats can store its orientation.

    The display matrix (ISO/IEC 14496-12) takes column p and row q to x = a p + c q and y = b p + d q.
    """
    from av.sidedata.sidedata import Type

    matrix = display_matrix(frame, stream)
    if matrix is None:
        return frame
    a, b, c, d = matrix[0], matrix[1], matrix[3], matrix[4]
    filters = [("sidedata", f"mode=delete:type={Type.DISPLAYMATRIX.value}")]
    if is_turned := abs(a) < abs(c):
        whole = re.sub("4(22|40|11)p", "444p", frame.format.name)  # chroma must stay as wide as it is high
        filters += [("format", f"pix_fmts={whole}"), ("transpose", "dir=cclock_flip")]
    across, down = (c, b) if is_turned else (a, d)
    filters += [("hflip", "")] * (across < 0) + [("vflip", "")] * (down < 0)
    return filtered(stream, frame, *filters)
