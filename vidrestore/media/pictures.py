"""Pictures (`media.source`) as a video.

Each picture is opened by itself, as safely as a video, and is one frame, turned upright by its orientation
(EXIF). A picture that can't be read, that has another size than the first, or that is missing in the
numbering is an error that names it.

Written pictures are numbered, the first one last, so that it exists only once all others do, and represents
them if a single file is needed: its attributes hold the mark of a finished job.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from vidrestore.errors import MediaError, OptionError
from vidrestore.files.atomic import Partial, remove_partials, sync_folder
from vidrestore.frames import ColourTags, PixelFormat, enlarged_size
from vidrestore.media.encoder_table import EncoderChoice
from vidrestore.media.encoding import Encoder, explained, opens
from vidrestore.media.formats import SRGB, layout_of, planes_of
from vidrestore.media.log import collect_errors
from vidrestore.media.photo_notes import EDITORS, EXIF, PhotoNotes, further_pictures, read_notes, with_notes
from vidrestore.media.probe import (
    SourceInfo,
    StreamInfo,
    check_size,
    decoder_options,
    describe_video,
)
from vidrestore.media.side_data import display_matrix, filtered
from vidrestore.media.source import DEMUXERS, KINDS, PICTURE_ENCODERS, PICTURES, Pictures, Target

if TYPE_CHECKING:
    import av
    from av.container import InputContainer
    from av.packet import Packet
    from av.video.frame import VideoFrame
    from av.video.stream import VideoStream

    from vidrestore.frames import Frame, Scale, VideoInfo
    from vidrestore.media.probe import SourceInfo
    from vidrestore.media.segment_file import SegmentFacts, StoredPacket
    from vidrestore.options import EncoderOptions

USUAL_RATE = Fraction(25)  # pictures per second unless asked for
# their decoders stop at an error only if asked to; TIFF's would then refuse undamaged files, too
_STRICT = frozenset({"png_pipe", "jpeg_pipe"})
_MAGIC = {  # first bytes of files -> demuxer
    b"\x89PNG\r\n\x1a\n": "png_pipe",
    b"\xff\xd8\xff": "jpeg_pipe",
    b"II*\0": "tiff_pipe",
    b"MM\0*": "tiff_pipe",
    b"v/1\1": "exr_pipe",
}
_UNPACKED = {"pal8": "rgba", "monob": "gray", "monow": "gray"}  # palettes and single bits, as samples
_BRIGHTEST = 1e9  # of EXR; 1 is white


def pictures_info(pictures: Pictures, rate: Fraction) -> SourceInfo:
    """Describe pictures as a video of `rate` pictures per second; its times count pictures from 0."""
    with _opened(pictures.files[0]) as container:
        stored = container.streams.video[0]
        check_size(pictures.files[0], stored)
        video = describe_video(pictures.files[0], stored, [_first(container, pictures.files[0])], PICTURES)
        kind = container.format.name
    if video.width == stored.height != stored.width and video.sample_aspect_ratio:  # it was turned
        video = replace(video, sample_aspect_ratio=1 / video.sample_aspect_ratio)
    count = len(pictures.files)
    video = replace(video, time_base=1 / rate, rate=rate, base_rate=rate, frames=count, start=0)
    video = replace(video, duration=count, bit_rate=None, interlaced=False, unmarked_order=None)
    if kind == "tiff_pipe":  # all their tags are EXIF, the size, too
        video = replace(video, side_data=video.side_data - {"EXIF"})
    if kind == "exr_pipe":  # as the reader delivers them
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
    """Open a picture that must be whole and the only one in its file."""
    problems: list[str] = []
    with _readable(path) as container:
        if more := further_pictures(path):
            raise MediaError(f"{path}: holds {more}")
        context, demuxer = container.streams.video[0].codec_context, container.format.name
        context.thread_type = "NONE"
        strict = {"err_detect": "crccheck+explode"} if demuxer in _STRICT else {}
        context.options = decoder_options() | strict
        names = frozenset({context.name, context.codec.canonical_name, demuxer})
        with collect_errors(names, problems.append) as errors, errors.calling():
            yield container
    problems = [problem for problem in problems if "EXIF" not in problem]  # odd notes don't harm the pixels
    if problems:
        raise MediaError(f"{path}: the picture is damaged ({problems[0]}); replace it")


@contextmanager
def _readable(path: str) -> Iterator[InputContainer]:
    """Open a file as a picture of the kind that its content or else its name says, with access to nothing
    else.
    """
    import av

    try:
        demuxer = _kind_of(path)
        options = {"protocol_whitelist": "file", "format_whitelist": demuxer}
        with av.open(f"file:{path}", "r", format=demuxer, container_options=options) as container:
            yield container
    except (OSError, IndexError, av.error.FFmpegError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise MediaError(f"{path}: can't be read as a picture ({reason}); replace it") from error


def _kind_of(path: str) -> str:
    """Return the demuxer of a picture by its first bytes: many a file has the name of another kind."""
    with open(path, "rb") as file:
        start = file.read(12)
    if start[:4] + start[8:] == b"RIFFWEBP":
        return "webp_pipe"
    return next(
        (kind for magic, kind in _MAGIC.items() if start.startswith(magic)), KINDS[Path(path).suffix.lower()]
    )


def _first(container: InputContainer, path: str) -> VideoFrame:
    frame = next(container.decode(video=0), None)
    if frame is None or frame.is_corrupt:
        raise MediaError(f"{path}: holds no whole picture; replace it")
    if frame.format.name == "gbrap" and container.format.name == "jpeg_pipe":
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


_SETTINGS = {
    "png": {"pred": "mixed"},
    "mjpeg": {"qmin": "2", "qmax": "2"},  # from 2 to 31, lower is better
    "tiff": {"compression_algo": "deflate"},
    "exr": {"compression": "zip16"},
}
_DEEP = {"png": "be", "tiff": "le"}


def choose_picture_encoder(
    source: SourceInfo, output: Target, options: EncoderOptions, scale: Scale = 1
) -> EncoderChoice:
    """Return the encoder for pictures by the suffix of their names. Raises MediaError, or OptionError for
    options that it lacks.
    """
    name = PICTURE_ENCODERS[output.suffix]
    if options.encoder not in (None, "auto", name):
        raise OptionError(
            f"`encoder={options.encoder}`: the suffix of pictures determines their encoder; remove the option"
        )
    for field in ("crf", "preset"):
        if getattr(options, field) is not None:
            raise OptionError(f"`{field}={getattr(options, field)}`: {name} has none; remove the option")
    if options.lossless and name == "mjpeg":
        raise OptionError(f"{output}: JPEG is never lossless; name .png or .tiff pictures")
    pix_fmt = _pix_fmt(name, source.video.format, output)
    settings = _SETTINGS[name] | {key: str(value) for key, value in options.options.items()}
    height, width = enlarged_size(source.video.height, source.video.width, scale)
    if not opens(name, pix_fmt, width, height, settings):
        given = " ".join(f"{key}={value}" for key, value in settings.items())
        raise MediaError(f"{output}: {name} can't encode {width}x{height} {pix_fmt} with {given}")
    return EncoderChoice(name, pix_fmt, PICTURES, settings, lossless=name != "mjpeg")


def _pix_fmt(encoder: str, pixels: PixelFormat, output: Target) -> str:
    if encoder == "mjpeg":
        if pixels.alpha:
            raise MediaError(f"{output}: JPEG has no transparency; name .png or .tiff pictures")
        subsampling = {(1, 1): "420", (1, 0): "422"}.get(
            (pixels.chroma_width_shift, pixels.chroma_height_shift), "444"
        )
        return f"yuvj{subsampling}p"  # full range, the only one in JPEG
    if encoder == "exr":
        return "gbrapf32le" if pixels.alpha else "grayf32le" if pixels.family == "gray" else "gbrpf32le"
    deep = pixels.depth > 8
    if pixels.family == "gray":
        stem = ("ya16" if deep else "ya8") if pixels.alpha else ("gray16" if deep else "gray")
    else:
        stem = ("rgba" if pixels.alpha else "rgb") + ("64" if pixels.alpha else "48") * deep
        stem = stem if deep or pixels.alpha else "rgb24"
    return stem + _DEEP[encoder] * deep


def losses(source: SourceInfo, output: Target, choice: EncoderChoice, others: Sequence[str]) -> str | None:
    """Return a sentence on what pictures can't store of a source; `others` are its other streams' kinds."""
    if choice.container != PICTURES:
        return None
    video, kinds = source.video, [*others]
    if video.rotation or video.display_matrix:
        kinds.append(f"the rotation by {video.rotation} degrees")
    if video.sample_aspect_ratio not in (None, 1):
        kinds.append(f"the pixel aspect ratio {video.sample_aspect_ratio}")
    if source.container != PICTURES and video.rate and video.base_rate and video.rate != video.base_rate:
        kinds.append("the times of the frames, whose rate varies")
    if choice.encoder == "mjpeg" and video.format.depth > 8:
        kinds.append(f"{video.format.depth - 8} of {video.format.depth} bits")
    return f"{output}: pictures hold the frames only; left out: {', '.join(kinds)}" if kinds else None


def side_data_left_out(source: SourceInfo, choice: EncoderChoice, drop: Set[str]) -> frozenset[str]:
    """Return the kinds of side data that the output doesn't hold, but for those that are dropped. Pictures
    hold the notes of pictures (`photo_notes`); the first speaks for all.
    """
    kinds = source.video.side_data
    if source.pictures is None or choice.container != PICTURES:
        return kinds
    notes = read_notes(source.pictures.files[0])
    dropped = {EXIF, EDITORS} if "exif" in drop else set[str]()
    return (kinds | notes.kinds) - notes.fitting(choice, drop).kinds - dropped


class JoinedPictures:
    """Numbered pictures joined from segments, with the interface of `JoinedFile`.

    `before_naming` is called with the path of the first picture before it is renamed, last of all. `abort`
    removes all pictures that were written.
    """

    damage: str | None = None

    def __init__(
        self,
        output: Target,
        source: SourceInfo,
        choice: EncoderChoice,
        drop: Set[str],
        *,
        overwrite: bool = False,
        before_naming: Callable[[Path], None] = lambda path: None,
    ) -> None:
        self.output, self.source, self.overwrite = output, source, overwrite
        self.choice, self.drop = choice, drop
        self.before_naming = before_naming
        self.warnings: list[str] = []
        self.written: list[Path] = []
        self._held: bytes | None = None  # the first picture
        self._count = self._first = 0
        self._sources: tuple[str, ...] = ()  # the picture that each is made of
        self._partial: Partial | None = None

    def begin(self, pts: Sequence[int], durations: Sequence[int], delay: int) -> None:
        """Set the first number by the times of all frames: pictures made from pictures keep their numbers."""
        given = self.source.pictures
        self._first = given.first + pts[0] if given else 1
        self._sources = given.files[pts[0] :] if given else ()
        remove_partials(self.output.path)

    def check_head(self, segment: Path, facts: SegmentFacts) -> None:
        """Do nothing: pictures have no header."""

    def put(self, packet: StoredPacket, first: int) -> None:
        """Write the next picture, of a segment that begins with frame `first`."""
        self.add(first + packet.place, packet.data)

    def add(self, frame: int, data: bytes) -> None:
        """Write the picture of a frame; the first is held back."""
        self._count += 1
        if self._sources:
            data = with_notes(data, self._notes(self._sources[frame]))
        if frame == 0:
            self._held = data
        else:
            self._write(frame, data)

    def _notes(self, source: str) -> PhotoNotes:
        try:
            return read_notes(source).fitting(self.choice, self.drop)
        except OSError as error:
            raise explained(source, error) from error

    def _write(self, frame: int, data: bytes) -> None:
        target = self.output.numbered(self._first + frame)
        try:
            self._partial = Partial(self.output.path)  # one name for all, to be found again
            self._partial.target = target
            self._partial.file.write(data)
            if frame == 0:
                self._partial.sync()
                self.before_naming(self._partial.path)
            else:
                self._partial.file.flush()
            self._partial.put_in_place(overwrite=self.overwrite)
        except OSError as error:
            raise explained(str(target), error) from error
        self._partial = None
        self.written.append(target)

    def finish(self) -> None:
        """Rename the first picture, and warn of older ones beyond the last."""
        if self._held is None:
            raise MediaError(f"{self.output}: no frame was written, so there is no picture to keep")
        beyond = set(self.output.existing()) - set(range(self._first, self._first + self._count))
        self._write(0, self._held)
        sync_folder(self.output.path.parent)
        if beyond:
            self.warnings.append(
                f"{self.output}: {len(beyond)} older pictures with other numbers are there, too, from "
                f"{self.output.numbered(min(beyond)).name} on"
            )

    def abort(self) -> None:
        """Remove all pictures that were written."""
        if self._partial is not None:
            self._partial.discard()
        for path in self.written:
            path.unlink(missing_ok=True)
        self.written = []


class PictureSink:
    """Encode frames into numbered pictures as they come."""

    damage: str | None = None

    def __init__(self, joined: JoinedPictures, video: VideoInfo) -> None:
        self.joined, self.warnings = joined, joined.warnings
        self.encoder = Encoder.opened(joined.choice, video)
        self._frames = 0

    def write(self, frame: Frame) -> None:
        """Encode a frame, and write the pictures that are ready."""
        if not self._frames:
            self.joined.begin([frame.pts], [frame.duration], 0)
        self._add(self.encoder.encode(frame, self._frames, 1))
        self._frames += 1

    def finish(self) -> None:
        self._add(self.encoder.flush())
        self.joined.finish()

    def _add(self, packets: Iterator[Packet[Any]]) -> None:
        for packet in packets:
            assert packet.pts is not None
            self.joined.add(packet.pts, bytes(packet))

    def abort(self) -> None:
        self.joined.abort()


T = TypeVar("T")

SUFFIXES = tuple(DEMUXERS)


def read_picture(path: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return Y, U and V of a picture at full size (4:4:4), each (height, width) uint8: BT.601, limited range.

    Raises MediaError for a file that is not such a picture, by its name or by its content.
    """
    planes = _decoded(
        path, lambda frame: frame.reformat(format="yuv444p", dst_color_range="MPEG").to_ndarray()
    )
    return planes[0], planes[1], planes[2]


def read_rgb(path: Path) -> NDArray[np.uint8]:
    """Return (3, height, width) uint8: R, G, B of a file, without alpha. JPEG equals libjpeg's result within
    4 grey levels.

    Raises MediaError as `read_picture` does.
    """
    return _decoded(path, _rgb)


def png(picture: NDArray[np.uint8]) -> bytes:
    """Return (height, width, 3) R, G, B as a PNG file; the same picture gives the same bytes."""
    import av

    context: Any = av.CodecContext.create("png", "w")
    context.height, context.width = picture.shape[:2]
    context.pix_fmt, context.time_base = "rgb24", Fraction(1)
    context.options = {"pred": "paeth", "compression_level": "6"}  # for photographs
    frame = av.VideoFrame.from_ndarray(np.ascontiguousarray(picture), "rgb24")
    return b"".join(bytes(packet) for packet in [*context.encode(frame), *context.encode(None)])


def _decoded(path: Path, taken: Callable[[av.VideoFrame], T]) -> T:
    """Return the result of `taken` for the picture in a file, decoded while the file is open."""
    if path.suffix.lower() not in DEMUXERS:
        raise MediaError(f"{path}: not a picture by its name; expected {', '.join(SUFFIXES)}")
    with _readable(str(path)) as container:
        for frame in container.decode(video=0):
            return taken(frame)
    raise MediaError(f"{path}: holds no picture")


def _rgb(frame: av.VideoFrame) -> NDArray[np.uint8]:
    """Return R, G, B of a frame. YCbCr goes by `colour`: FFmpeg's own conversion of 4:2:0 is up to 35 grey
    levels from libjpeg's at edges.
    """
    import torch

    from vidrestore.colour import planes_to_grey, yuv_to_rgb

    if len(frame.format.components) < 3 or frame.format.is_rgb:
        return np.ascontiguousarray(frame.to_ndarray(format="rgb24").transpose(2, 0, 1))
    layout = layout_of(frame.format.name)
    full = frame.format.name.startswith("yuvj") or frame.color_range == 2
    tags = ColourTags(matrix=6, range=2 if full else 1, chroma_location=2)
    planes = planes_to_grey(planes_of(frame, layout), layout.format)
    rgb = yuv_to_rgb(planes, layout.format, tags, frame.height)
    return rgb.mul_(255).round_().clamp_(0, 255).to(torch.uint8).numpy()
