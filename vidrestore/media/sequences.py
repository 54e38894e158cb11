"""Numbered pictures as a video: a folder of them, a pattern such as "seq_%04d.png", or a glob. A photo is
a video of one frame.

Each picture is opened by itself, as safely as a video, and is one frame, turned upright by its orientation
(EXIF). A picture that can't be read, that has another size than the first, or that is missing in the
numbering is an error that names it.
"""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from vidrestore.errors import MediaError
from vidrestore.media.conversion import SRGB
from vidrestore.media.formats import layout_of, planes_of
from vidrestore.media.log import collect_errors
from vidrestore.media.probe import (
    SourceInfo,
    StreamInfo,
    check_size,
    decoder_options,
    describe_video,
)
from vidrestore.media.side_data import display_matrix, filtered

if TYPE_CHECKING:
    from av.container import InputContainer
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

PICTURES = "image2"  # FFmpeg's name for numbered pictures; the container of such a source or output
USUAL_RATE = Fraction(25)  # pictures per second unless asked for
DEMUXERS = {
    ".jpg": "jpeg_pipe",
    ".jpeg": "jpeg_pipe",
    ".png": "png_pipe",
    ".tif": "tiff_pipe",
    ".tiff": "tiff_pipe",
    ".webp": "webp_pipe",
}
KINDS = {**DEMUXERS, ".exr": "exr_pipe"}
_OTHER_KINDS = frozenset({".avif", ".bmp", ".dng", ".heic", ".heif", ".jp2", ".jxl", ".psd"})
# their decoders stop at an error only if asked to; TIFF's would then refuse undamaged files, too
_STRICT = frozenset({"png_pipe", "jpeg_pipe"})
_UNPACKED = {"pal8": "rgba", "monob": "gray", "monow": "gray"}  # palettes and single bits, as samples
_BRIGHTEST = 1e9  # of EXR; 1 is white
_PLACE = re.compile(r"%(?:0(\d+))?d")
_NUMBERED = re.compile(r"(.*?)(\d+)(\.[^.]*)")


@dataclass(frozen=True)
class Pictures:
    """The pictures that `source` names, in order.

    `pattern` is the pattern of their names, `first` the number of the first; `warnings` are for the user.
    """

    source: str
    files: tuple[str, ...]
    pattern: str
    first: int = 1
    warnings: tuple[str, ...] = ()


def is_pattern(name: str) -> bool:
    """Return True for a name such as out/%04d.png."""
    return Path(name).suffix.lower() in KINDS and bool(_PLACE.search(Path(name).name))


def is_picture(name: str) -> bool:
    """Return True for the name of a picture that isn't hidden."""
    return Path(name).suffix.lower() in KINDS and not Path(name).name.startswith(".")


def numbered(pattern: str, number: int) -> str:
    """Return the name of the picture with a number in a pattern."""
    path = Path(pattern)
    name = _PLACE.sub(lambda place: str(number).zfill(int(place[1] or 0)), path.name, count=1)
    return str(path.with_name(name))


def matching(pattern: str) -> dict[int, str]:
    """Return the existing pictures of a pattern by number, rising; for a plain name, that picture."""
    path = Path(pattern)
    if not _PLACE.search(path.name):
        return {1: pattern} if path.is_file() else {}
    before, after = _PLACE.sub("\0", path.name, count=1).split("\0")
    found = {}
    for name in _names(path.parent):
        middle = name[len(before) : len(name) - len(after)]
        if name.startswith(before) and name.endswith(after) and middle.isdecimal():
            number = int(middle)
            if numbered(path.name, number) == name:
                found[number] = str(path.with_name(name))
    return dict(sorted(found.items()))


def find_pictures(source: str) -> Pictures | None:
    """Return the pictures that `source` names; None if it names something else.

    Raises MediaError if a number is missing, pictures are of several kinds, or a pattern has none.
    """
    if os.path.isdir(source):
        return _in_order(source, [os.path.join(source, name) for name in _names(Path(source))])
    if os.path.exists(source):
        suffix = Path(source).suffix.lower()
        if suffix in _OTHER_KINDS:
            known = ", ".join(KINDS)
            raise MediaError(f"{source}: {suffix} pictures are not read; convert it to one of {known} first")
        return Pictures(source, (source,), Path(source).name) if suffix in KINDS else None
    if is_pattern(source):
        found = matching(source)
        if not found:
            raise MediaError(f"{source}: no picture has such a name; check the folder and the digits")
        _check_whole(source, list(found), source)
        return Pictures(source, tuple(found.values()), Path(source).name, min(found))
    if glob.has_magic(source):
        return _in_order(source, glob.glob(source), is_glob=True)
    return None


def _names(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(folder)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise MediaError(f"{folder}: the folder can't be read ({error.strerror})") from error


def _in_order(source: str, paths: Iterable[str], *, is_glob: bool = False) -> Pictures | None:
    """Return the pictures among the files of a folder or glob. A folder's numbers must be without gaps; a
    glob takes all that exist.
    """
    files = sorted((path for path in paths if is_picture(path) and os.path.isfile(path)), key=_natural)
    if not files:
        return None
    kinds = {KINDS[Path(path).suffix.lower()]: Path(path).suffix for path in files}
    if len(kinds) > 1:
        suffixes = " and ".join(sorted(kinds.values()))
        one = os.path.join(source, "*") if not is_glob else os.path.join(os.path.dirname(source), "*")
        raise MediaError(
            f"{source}: pictures of several kinds, {suffixes}; name one kind, for example "
            f"'{one}{min(kinds.values())}', or add `photos` to restore each by itself"
        )
    found = _numbering(files)
    if found is None:
        return Pictures(source, tuple(files), f"%04d{Path(files[0]).suffix.lower()}")
    pattern, numbers = found
    warnings: tuple[str, ...] = ()
    if is_glob:
        missing = numbers[-1] - numbers[0] + 1 - len(numbers)
        if missing > 0:
            what = "1 number is" if missing == 1 else f"{missing} numbers are"
            warnings = (f"{what} missing between the pictures; they are taken one after the other",)
    else:
        _check_whole(source, numbers, os.path.join(source, pattern))
    return Pictures(source, tuple(files), pattern, numbers[0], warnings)


def _numbering(files: list[str]) -> tuple[str, list[int]] | None:
    """Return the pattern and the numbers of names that are alike but for one number; else None."""
    parts = [_NUMBERED.fullmatch(Path(path).name) for path in files]
    names = {(part[1], part[3]) for part in parts if part}
    if None in parts or len(names) > 1:
        return None
    (before, after), digits = names.pop(), min(len(part[2]) for part in parts if part)
    pattern = f"{before}%{f'0{digits}' if digits > 1 else ''}d{after}"
    return pattern, [int(part[2]) for part in parts if part]


def pattern_of(paths: Iterable[str]) -> str | None:
    """Return the pattern of pictures in one folder whose numbers follow each other; else None."""
    files = sorted(paths, key=_natural)
    found = _numbering(files) if len(files) > 1 and len({*map(os.path.dirname, files)}) == 1 else None
    if found is None or any(other - one != 1 for one, other in pairwise(found[1])):
        return None
    return os.path.join(os.path.dirname(files[0]), found[0])


def _natural(path: str) -> list[tuple[int, str]]:
    """Return a key that sorts numbers in names by value: 2.png before 10.png."""
    return [(int(part), "") if part.isdecimal() else (0, part) for part in re.split(r"(\d+)", path)]


def _check_whole(source: str, numbers: list[int], pattern: str) -> None:
    gaps = [(one, other) for one, other in pairwise(numbers) if other - one != 1]
    if not gaps:
        return
    (one, other), more = gaps[0], len(gaps) - 1
    if one == other:
        raise MediaError(f"{source}: two pictures have the number {one}; remove one of them")
    missing = Path(numbered(pattern, one + 1)).name
    count = other - one - 1
    text = f"{missing} is" if count == 1 else f"{missing} and {count - 1} after it are"
    add = "add it" if count == 1 and not more else "add them"
    further = f", and there {'is 1 gap' if more == 1 else f'are {more} gaps'} more" if more else ""
    anything = os.path.join(os.path.dirname(pattern), f"*{Path(pattern).suffix}")
    raise MediaError(
        f"{source}: {text} missing{further}; {add}, or take what there is by the pattern '{anything}'; "
        "`photos` restores each by itself"
    )


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
        with av.open(f"file:{path}", "r", format=demuxer, container_options=options) as container:
            context = container.streams.video[0].codec_context
            context.thread_type = "NONE"
            strict = {"err_detect": "crccheck+explode"} if demuxer in _STRICT else {}
            context.options = decoder_options() | strict
            names = frozenset({context.name, context.codec.canonical_name, demuxer})
            with collect_errors(names, problems.append):
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
