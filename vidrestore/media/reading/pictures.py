"""Pictures (`media.formats.source`) as a video.

Each picture is opened by itself, as safely as a video, and is one frame, turned upright by its orientation
(EXIF). A picture that can't be read, or that has another size than the first, is an error that names it.
"""

from __future__ import annotations

import io
import re
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
from av.container import InputContainer
from av.sidedata.sidedata import Type
from av.video.frame import VideoFrame
from av.video.stream import VideoStream
from numpy.typing import NDArray

from vidrestore.errors import MediaError
from vidrestore.media.formats.damage import Damage
from vidrestore.media.formats.heif import avif_losses, heif_frame
from vidrestore.media.formats.log import collect_errors
from vidrestore.media.formats.photo_notes import (
    EDITORS,
    EXIF,
    TEXTS,
    check_text,
    has_editors_notes,
    jpeg_end,
    read_notes,
    unreadable,
)
from vidrestore.media.formats.pixel_formats import layout_of, planes_of
from vidrestore.media.formats.side_data import filtered, matrix_in, read_side_data
from vidrestore.media.formats.source import (
    AVIF,
    HEIF,
    KINDS,
    NUMBERED_PICTURES,
    Pictures,
    kind_by_content,
)
from vidrestore.media.reading.coding_loss import JpegPlane, jpeg_planes
from vidrestore.media.reading.probe import (
    DECODER_OPTIONS,
    SourceInfo,
    StreamInfo,
    check_size,
    describe_video,
)
from vidrestore.pixels.frames import ColourTags, VideoInfo

READABLE_SUFFIXES = tuple(KINDS)
# bytes that nearly always hold a JPEG's tables: notes before them have up to 64 KB each
JPEG_HEAD = 1 << 18
USUAL_RATE = Fraction(25)  # pictures per second unless asked for
# their decoders stop at an error only if asked to; TIFF's would then refuse undamaged files, too
_STRICT = frozenset({"png_pipe", "jpeg_pipe"})
_SCANS = ("tiff_pipe", "bmp_pipe")
# FFmpeg's names of tags of a TIFF -> as side data is called
_TIFF_NOTES = {
    **dict.fromkeys(
        ("Make", "Model", "Artist", "Copyright", "ExifIFD", "GPSInfo"), EXIF
    ),
    **dict.fromkeys(("0x02BC", "0x83BB"), EDITORS),
}
NOTES = ("EXIF", "APP fields")  # by FFmpeg's names


def pictures_info(pictures: Pictures, rate: Fraction) -> SourceInfo:
    """Describe pictures as a video of `rate` pictures per second; its times count pictures from 0."""
    # the first picture stands for all: they must be alike
    path = pictures.files[0]
    with _open_whole_picture(path) as container:
        stored = container.streams.video[0]
        check_size(path, stored)
        frame = _upright(stored, _first(container, path))
        video = describe_video(path, stored, [frame], NUMBERED_PICTURES)
        kind = container.format.name
    # turned by a quarter, pixels that are wide become high
    is_turned = stored.width != stored.height and video.width == stored.height
    if is_turned and video.sample_aspect_ratio:
        video = replace(video, sample_aspect_ratio=1 / video.sample_aspect_ratio)
    count = len(pictures.files)
    # times count pictures, as they have none of their own
    video = replace(
        video, time_base=1 / rate, rate=rate, base_rate=rate, frames=count, start=0
    )
    video = replace(video, duration=count, interlaced=False, unmarked_order=None)
    # notes that no output can hold, so that the user is warned
    notes = video.side_data | (read_notes(path).kinds & {TEXTS})
    notes |= {EDITORS} if has_editors_notes(path) else frozenset()
    # it was opened as a TIFF, which has neither its codec nor its notes
    if kind_by_content(path) == HEIF:
        video = replace(video, codec="hevc")
        notes = notes - {EXIF} | read_notes(path).kinds
    elif kind_by_content(path) == AVIF:
        notes = notes | avif_losses(path)
    elif kind == "tiff_pipe":  # FFmpeg calls all tags of a TIFF EXIF, even its size
        notes = notes - {EXIF} | {
            _TIFF_NOTES[tag] for tag in frame.metadata.keys() & _TIFF_NOTES
        }
    video = replace(video, side_data=notes)
    stream = StreamInfo(video.index, "video", video.codec)
    return SourceInfo(
        pictures.source, NUMBERED_PICTURES, video, (stream,), duration=count / rate
    )


class PictureDecoding:
    """Decode pictures one by one, as `Decoding` does the frames of a video."""

    longest = 1  # duration of a picture, in ticks
    reach = 0  # no picture was reordered
    jpeg: tuple[JpegPlane, ...] = ()  # of the latest picture, if that is a JPEG
    is_altered = False  # whether that picture is not as it is stored

    def __init__(
        self,
        pictures: Pictures,
        info: SourceInfo,
        damage: Damage,
        *,
        losses: bool = False,
    ) -> None:
        self.source, self.info, self.damage, self.losses = (
            pictures,
            info,
            damage,
            losses,
        )

    def pictures(
        self,
        start_pts: int | None = None,
        stop_pts: int | None = None,
        *,
        around: int = 0,
    ) -> Generator[VideoFrame]:
        """Yield the pictures with start <= pts < stop and the one after, and as many `around`."""
        files, video = self.source.files, self.info.video
        first = max(0, (start_pts or 0) - around)
        for pts in range(
            first,
            len(files) if stop_pts is None else min(stop_pts + 1 + around, len(files)),
        ):
            with _open_whole_picture(files[pts]) as container:
                stored = _first(container, files[pts], video.pix_fmt)
                frame = _upright(container.streams.video[0], stored)
                self.is_altered = frame is not stored
            # a JPEG may be cut short without an error of its decoder
            if video.codec == "mjpeg":
                data = Path(files[pts]).read_bytes()
                if jpeg_end(data) is None:
                    self.damage.add(
                        f"{files[pts]}: the marker of its end is missing, and maybe its last rows"
                    )
                if self.losses:
                    self.jpeg = jpeg_planes(data[:JPEG_HEAD])
            # all as the first, or the next step would take parts of pictures for others
            shape, first_shape = (
                _shape(frame, frame.format.name),
                _shape(video, video.pix_fmt),
            )
            if shape != first_shape:
                raise MediaError(
                    f"{files[pts]}: {shape}, but the first picture is {first_shape}; all frames must be "
                    "alike; `photos` restores each by itself"
                )
            frame.pts, frame.duration, frame.time_base = pts, 1, video.time_base
            yield frame


def _shape(pictures: VideoFrame | VideoInfo, pix_fmt: str) -> str:
    return f"{pictures.width}x{pictures.height} in {pix_fmt}"


@contextmanager
def _open_whole_picture(path: str) -> Iterator[InputContainer]:
    """Open a picture that must be whole and the only one in its file."""
    problems: list[str] = []
    # one thread, so that an error is known before the picture is used
    with _open_picture(path) as container:
        context = container.streams.video[0].codec_context
        demuxer = container.format.name
        context.thread_type = "NONE"
        strict = {"err_detect": "crccheck+explode"} if demuxer in _STRICT else {}
        context.options = DECODER_OPTIONS | strict
        names = frozenset({context.name, context.codec.canonical_name, demuxer})
        with collect_errors(names, problems.append) as errors, errors.calling():
            yield container
    # odd notes don't harm the pixels
    for notes in NOTES:
        problems = [problem for problem in problems if notes not in problem]
    if problems:
        raise MediaError(f"{path}: the picture is damaged ({problems[0]}); replace it")


@contextmanager
def _open_picture(path: str) -> Iterator[InputContainer]:
    """Open a file, and no other that it names, as a picture; its content decides its kind, else its name."""
    try:
        # what can't be read rightly is refused before FFmpeg sees it
        check_text(path)
        if content := unreadable(path):
            raise MediaError(f"{path}: holds {content}")
        demuxer = kind_by_content(path) or KINDS[Path(path).suffix.lower()]
        file: Any = f"file:{path}"
        demuxer = "mov" if demuxer == AVIF else demuxer
        options = {"protocol_whitelist": "file", "format_whitelist": demuxer}
        if demuxer == HEIF:  # as an uncompressed TIFF in memory, which loses nothing
            frame = heif_frame(path)
            demuxer, options = "tiff_pipe", {}
            file = io.BytesIO(encoded("tiff", frame, compression_algo="raw"))
        with av.open(file, "r", format=demuxer, container_options=options) as container:
            yield container
    except (OSError, IndexError, av.error.FFmpegError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise MediaError(
            f"{path}: can't be read as a picture ({reason}); replace it"
        ) from error


def _first(container: InputContainer, path: str, pix_fmt: str = "") -> VideoFrame:
    """Return the picture; a palette without transparent colours has alpha only if `pix_fmt` asks for it."""
    frame = next(container.decode(video=0), None)
    if frame is None or frame.is_corrupt:
        raise MediaError(f"{path}: holds no complete picture; replace it")
    kind = container.format.name
    name = frame.format.name
    stream = container.streams.video[0]
    # the fourth is black
    if kind == "jpeg_pipe" and any(part.is_alpha for part in frame.format.components):
        raise MediaError(
            f"{path}: its colours are those of print, CMYK; convert it to RGB first"
        )
    # FFmpeg calls the order of a PNG's pixels interlaced
    if frame.interlaced_frame:  # the order of a PNG's pixels, not fields
        frame = filtered(stream, frame, ("setfield", "mode=prog"))
    if name == "pal8" or (kind == "webp_pipe" and name == "argb"):
        *colours, alpha = np.moveaxis(frame.to_ndarray(format="rgba"), -1, 0)
        # a scan of few grey levels has a palette
        is_grey = (
            kind in _SCANS
            and pix_fmt in ("", "gray")
            and all((colours[0] == c).all() for c in colours)
        )
        opaque = "rgb24" if (alpha == 255).all() else "rgba"
        if is_grey and opaque == "rgb24":
            return filtered(stream, frame, ("format", "gbrp"), ("extractplanes", "g"))
        frame = frame.reformat(format=pix_fmt if pix_fmt == "rgba" else opaque)
    elif name in ("monob", "monow"):
        frame = frame.reformat(format="gray")
    return frame


def _upright(stream: VideoStream, frame: VideoFrame) -> VideoFrame:
    """Return a picture turned upright, because few formats can store its orientation.

    The display matrix (ISO/IEC 14496-12) takes column p and row q to x = a p + c q and y = b p + d q.
    """
    # the matrix as filters: turn by a quarter, then mirror
    matrix = matrix_in(read_side_data(frame, stream))
    if matrix is None:
        return frame
    a, b, c, d = matrix[0], matrix[1], matrix[3], matrix[4]
    filters = [("sidedata", f"mode=delete:type={Type.DISPLAYMATRIX.value}")]
    if is_turned := abs(a) < abs(c):
        # chroma must stay as wide as it is high
        pix_fmt = re.sub("4(22|40|11)p", "444p", frame.format.name)
        filters += [("format", f"pix_fmts={pix_fmt}"), ("transpose", "dir=cclock_flip")]
    across, down = (c, b) if is_turned else (a, d)
    filters += [("hflip", "")] * (across < 0) + [("vflip", "")] * (down < 0)
    return filtered(stream, frame, *filters)


def read_picture(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return Y, U and V of a picture at full size (4:4:4), each (height, width) uint8: BT.601, limited range.

    Raises MediaError for a file that is not such a picture, by its name or by its content.
    """
    luma, blue, red = (
        _decoded(path).reformat(format="yuv444p", dst_color_range="MPEG").to_ndarray()
    )
    return luma, blue, red


def read_luma(path: str) -> NDArray[np.uint8]:
    """Return the luma (height, width) of a picture. Raises MediaError as `read_picture` does."""
    luma: NDArray[np.uint8] = np.asarray(
        _decoded(Path(path)).reformat(format="gray").to_ndarray(), np.uint8
    )
    return luma


def read_rgb(path: Path) -> NDArray[np.uint8]:
    """Return R, G, B (3, height, width) of a file as uint8, without alpha. YCbCr is converted by `colour`,
    within 4 grey levels of libjpeg: FFmpeg's own conversion differs from it by up to 35 at edges.

    Raises MediaError as `read_picture` does.
    """
    import torch

    from vidrestore.pixels.colour import planes_to_grey, yuv_to_rgb

    frame = _decoded(path)
    if len(frame.format.components) < 3 or frame.format.is_rgb:
        return np.ascontiguousarray(frame.to_ndarray(format="rgb24").transpose(2, 0, 1))
    pixels = layout_of(frame.format.name).format
    # the decoder's names of the ranges
    is_full = frame.format.name.startswith("yuvj") or frame.color_range == 2
    # JFIF: BT.601, centred chroma
    tags = ColourTags(matrix=6, range=2 if is_full else 1, chroma_location=2)
    planes = planes_to_grey(planes_of(frame), pixels)
    rgb = yuv_to_rgb(planes, pixels, tags, frame.height)
    return rgb.mul_(255).round_().clamp_(0, 255).to(torch.uint8).numpy()


def png(picture: NDArray[np.uint8]) -> bytes:
    """Return (height, width, 3) R, G, B as a PNG file; the same picture gives the same bytes."""
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), "rgb24")
    return encoded("png", frame, pred="paeth", compression_level="6")  # for photographs


def encoded(encoder: str, frame: VideoFrame, **options: str) -> bytes:
    """Return a frame as a picture file in its own format."""
    context: Any = av.CodecContext.create(encoder, "w")
    context.width, context.height, context.pix_fmt = (
        frame.width,
        frame.height,
        frame.format.name,
    )
    context.time_base, context.options = Fraction(1), options
    return b"".join(
        bytes(packet) for packet in [*context.encode(frame), *context.encode(None)]
    )


def _decoded(path: Path) -> VideoFrame:
    if path.suffix.lower() not in KINDS:
        raise MediaError(
            f"{path}: not a picture by its name; expected {', '.join(READABLE_SUFFIXES)}"
        )
    with _open_picture(str(path)) as container:
        frame = next(container.decode(video=0), None)
    if frame is None:
        raise MediaError(f"{path}: holds no picture")
    return frame
