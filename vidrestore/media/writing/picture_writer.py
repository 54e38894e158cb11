"""Write frames as numbered pictures (`media.formats.source`): encoder, what they can't hold, and files.

All are written under hidden names; once the last is whole, they get theirs. The first is renamed last, so
that it exists only once all others do.
"""

from __future__ import annotations

import os
from collections.abc import Sequence, Set
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import av
from av.packet import Packet

from vidrestore.errors import MediaError, OptionError
from vidrestore.files.atomic import Partial, remove_partials, sync_folder
from vidrestore.media.formats.encoder_table import EncoderChoice
from vidrestore.media.formats.encoding import Encoder, opens, write_errors
from vidrestore.media.formats.photo_notes import (
    EDITORS,
    EXIF,
    TEXTS,
    read_notes,
    with_notes,
)
from vidrestore.media.formats.source import (
    KINDS,
    NUMBERED_PICTURES,
    PICTURE_ENCODERS,
    Target,
    kind_by_content,
)
from vidrestore.media.reading.probe import SourceInfo
from vidrestore.media.reading.reader import VideoReader
from vidrestore.media.writing.finished import write_list
from vidrestore.pixels.frames import PixelFormat, VideoInfo
from vidrestore.settings.options import EncoderOptions

_SETTINGS = {
    "png": {"pred": "mixed"},
    # from 2 to 31, lower is better; in two slices those of up to 16 pixels across are broken
    "mjpeg": {"qmin": "2", "qmax": "2", "slices": "1"},
    "tiff": {"compression_algo": "deflate"},
}
# to another quality
_WAYS = dict.fromkeys(("png", "tiff"), "these pictures are lossless; remove the option")
_WAYS["mjpeg"] = (
    "JPEG has a scale of its own, from 2, the best and the default, to 31: `options=qmin=5` and "
    "`options=qmax=5` instead"
)
_DEEP = {"png": "be", "tiff": "le"}
COPIED_FILE = (
    "nothing in it was changed, so the output is a copy of the file, bit for bit"
)
_STORED = {  # (family, alpha) -> formats of 8 bits and of more
    ("gray", False): ("gray", "gray16"),
    ("gray", True): ("ya8", "ya16"),
    ("rgb", False): ("rgb24", "rgb48"),
    ("rgb", True): ("rgba", "rgba64"),
}


def choose_picture_encoder(
    source: SourceInfo, video: VideoInfo, output: Target, options: EncoderOptions
) -> EncoderChoice:
    """Return the encoder for pictures of `video` by the suffix of their names. Raises MediaError for a single
    name for many pictures, OptionError for options that the encoder lacks.
    """
    # options that these encoders lack are errors
    if not output.is_pattern and not (
        source.container == NUMBERED_PICTURES and source.video.frames == 1
    ):
        raise MediaError(
            f"{output}: one picture, but a video has many; name them all, as in %04d{output.path.suffix}"
        )
    name = PICTURE_ENCODERS[output.suffix]
    if options.encoder not in (None, "auto", name):
        raise OptionError(
            f"`encoder={options.encoder}`: the suffix of pictures determines their encoder; remove the option"
        )
    for field in ("crf", "preset"):
        if (value := getattr(options, field)) is not None:
            raise OptionError(
                f"`{field}={str(value).removesuffix('.0')}`: {_WAYS[name]}"
            )
    if options.lossless and name == "mjpeg":
        raise OptionError(
            f"{output}: JPEG is never lossless; name .png or .tiff pictures"
        )
    # a format that holds all bits, tried before the work
    pix_fmt = _pix_fmt(name, video.format, output)
    settings = _SETTINGS[name] | {
        key: str(value) for key, value in options.options.items()
    }
    if not opens(name, pix_fmt, video.width, video.height, settings):
        words = " ".join(f"{key}={value}" for key, value in settings.items())
        raise MediaError(
            f"{output}: {name} can't encode {video.width}x{video.height} {pix_fmt} with {words}"
        )
    return EncoderChoice(
        name, pix_fmt, NUMBERED_PICTURES, settings, lossless=name != "mjpeg"
    )


def _pix_fmt(encoder: str, pixels: PixelFormat, output: Target) -> str:
    if encoder == "mjpeg":
        if pixels.alpha:
            raise MediaError(
                f"{output}: JPEG has no transparency; name .png or .tiff pictures"
            )
        shifts = pixels.chroma_width_shift, pixels.chroma_height_shift
        subsampling = {(1, 1): "420", (1, 0): "422"}.get(shifts, "444")
        return f"yuvj{subsampling}p"  # full range, the only one in JPEG
    # deep samples in the byte order of the file's kind
    deep = pixels.depth > 8
    names = _STORED["gray" if pixels.family == "gray" else "rgb", pixels.alpha]
    return names[deep] + _DEEP[encoder] * deep


def losses(
    source: SourceInfo, output: Target, choice: EncoderChoice, streams: Sequence[str]
) -> str | None:
    """Return a sentence on what is left out if the output is pictures; `streams` are the kinds of the other
    streams.
    """
    if choice.container != NUMBERED_PICTURES:
        return None
    # what pictures have no place for
    video, omissions = source.video, [*streams]
    if video.rotation or video.display_matrix:
        omissions.append(f"the rotation by {video.rotation} degrees")
    # states it, too
    per_inch = read_notes(source.pictures.files[0]).per_inch if source.pictures else ()
    if video.sample_aspect_ratio not in (None, 1) and not per_inch:
        omissions.append(f"the pixel aspect ratio {video.sample_aspect_ratio}")
    if (
        source.container != NUMBERED_PICTURES
        and video.rate
        and video.base_rate
        and video.rate != video.base_rate
    ):
        omissions.append("the times of the frames, whose rate varies")
    if choice.encoder == "mjpeg" and video.format.depth > 8:
        omissions.append(f"{video.format.depth - 8} of {video.format.depth} bits")
    return (
        f"{output}: pictures hold the frames only; left out: {', '.join(omissions)}"
        if omissions
        else None
    )


def side_data_left_out(
    source: SourceInfo, choice: EncoderChoice, drop: Set[str]
) -> frozenset[str]:
    """Return the kinds of side data that the output lacks, but for those that are dropped. Pictures store the
    notes of pictures (`photo_notes`), of which the first is examined.
    """
    kinds = source.video.side_data
    if source.pictures is None or choice.container != NUMBERED_PICTURES:
        return kinds
    dropped = {EXIF, EDITORS, TEXTS} if "exif" in drop else set[str]()
    return (
        kinds
        - read_notes(source.pictures.files[0])
        .fitting(choice.encoder, choice.pix_fmt, drop)
        .kinds
        - dropped
    )


class PictureFiles:
    """Numbered pictures, written as a `Muxer` writes a file."""

    damage: str | None = None

    def __init__(
        self,
        output: Target,
        source: SourceInfo,
        choice: EncoderChoice,
        drop: Set[str],  # notes that aren't stored
        *,
        overwrite: bool = False,
        tag: str | None = None,  # written into the list of the pictures
    ) -> None:
        self.output, self.source, self.overwrite = output, source, overwrite
        self.choice, self.drop, self.tag = choice, drop, tag
        self.time_base = source.video.time_base
        self.warnings: list[str] = []
        self._first_picture: bytes | None = None  # encoded; written last, by `finish`
        self._count = 0  # frames
        self._first_number = 1  # in the name of the first picture
        # the source's picture of each frame; empty for a video
        self._sources: tuple[str, ...] = ()
        # pictures under hidden names; the last may be incomplete
        self._partials: list[Partial] = []

    @cached_property
    def encoder(self) -> Encoder:
        """An encoder of these pictures."""
        return Encoder.opened(self.choice, self.source.video)

    def register(self, pts: int, duration: int) -> tuple[int, int]:
        """Record the next frame; return its index as its time, and a duration of 1. Pictures of pictures keep
        their numbers.
        """
        # at the first frame numbers and notes are known
        pictures = self.source.pictures
        if self._count == 0:
            remove_partials(self.output.path)
            if pictures:
                self._first_number = pictures.first + pts
                self._sources = pictures.files[pts:]
        self._count += 1
        return self._count - 1, 1

    def put(self, packet: Packet[Any]) -> None:
        """Write the picture whose pts is its index; the first waits for `finish`."""
        frame, data = packet.pts, bytes(packet)
        assert frame is not None
        source = self._sources[frame] if self._sources else None
        if source and (original := self._unchanged(data, source)):
            data = original
        else:
            # with its notes it must still be a picture
            data = self._with_notes(data, source) if source else data
            if not self._is_decodable(data):
                raise MediaError(
                    f"{self.output}, frame {frame}: the picture that {self.choice.encoder} wrote can't be "
                    "read; name pictures of another kind, such as .png or .tiff"
                )
        if frame == 0:
            self._first_picture = data
        else:
            self._write(frame, data)

    def _unchanged(self, data: bytes, source: str) -> bytes | None:
        """Return the file of a photograph whose own pixels were encoded to `data`; None if they were changed,
        or other settings or notes are asked for.
        """
        is_single = self.source.pictures and len(self.source.pictures.files) == 1
        is_plain = self.choice.settings == _SETTINGS[self.choice.encoder]
        if not (is_single and is_plain) or "exif" in self.drop:
            return None
        with write_errors(source):
            kind = KINDS[self.output.path.suffix.lower()]
            if kind_by_content(source) != kind:
                return None
            original = Path(source).read_bytes()
        with VideoReader(source) as reader, closing(reader.frames()) as frames:
            frame, given, video = next(frames), reader.info.video, self.source.video
            if (given.width, given.height) != (video.width, video.height):
                return None
            encoder = Encoder.opened(self.choice, video)
            packets = [*encoder.encode(frame, 0, 1), *encoder.flush()]
        # encoders give the same for the same pixels
        if b"".join(map(bytes, packets)) != data:
            return None
        self.warnings.append(COPIED_FILE)
        return original

    def _with_notes(self, data: bytes, source: str) -> bytes:
        """Return a picture with the notes of its source, without EXIF that makes it unreadable."""
        with write_errors(source):
            notes = read_notes(source).fitting(
                self.choice.encoder, self.choice.pix_fmt, self.drop
            )
        noted = with_notes(data, notes)
        if not notes.exif or self._is_decodable(noted):
            return noted
        self.warnings.append(
            f"{source}: its notes of the camera (EXIF) are broken, and left out"
        )
        return with_notes(data, replace(notes, exif=b""))

    def _is_decodable(self, data: bytes) -> bool:
        """Return True for an encoded picture that can be decoded without an error, in its size."""
        # as strictly as FFmpeg can
        decoder: Any = av.CodecContext.create(self.choice.encoder, "r")
        decoder.thread_count = 1
        # of which FFmpeg's own files are not strictly right
        if self.choice.encoder != "tiff":
            decoder.options = {"err_detect": "explode"}
        try:
            frames = [*decoder.decode(av.Packet(data)), *decoder.decode(None)]
        except av.error.FFmpegError:
            return False
        size = self.source.video.width, self.source.video.height
        return [(frame.width, frame.height) for frame in frames] == [size]

    def _write(self, frame: int, data: bytes) -> None:
        target = self.output.numbered(self._first_number + frame)
        with write_errors(str(target)):
            partial = Partial(self.output.path)  # one name for all, to be found again
            partial.target = target
            self._partials.append(partial)
            partial.file.write(data)
            if frame == 0:
                partial.sync()
            partial.close()

    def finish(self) -> None:
        """Rename all pictures, and warn of older ones with other numbers. Raises MediaError if other
        pictures have their names and may not be replaced.
        """
        # nothing is renamed before all are whole, the first picture last of all
        if self._first_picture is None:
            raise MediaError(
                f"{self.output}: no frame was written, so there is no picture to keep"
            )
        beyond = set(self.output.existing()) - set(
            range(self._first_number, self._first_number + self._count)
        )
        self._write(0, self._first_picture)
        for partial in () if self.overwrite else self._partials:
            if os.path.lexists(partial.target) and not partial.has_content():
                raise MediaError(
                    f"{partial.target}: appeared while the pictures were being made; add `overwrite` to "
                    "replace it, or move it away"
                )
        # now the names, then the list by which they are known
        for partial in self._partials:
            with write_errors(str(partial.target)):
                partial.put_in_place(overwrite=self.overwrite)
        if self.tag and self.output.is_pattern:
            write_list(
                self.output, self.tag, [partial.target for partial in self._partials]
            )
        sync_folder(self.output.path.parent)
        if beyond:
            self.warnings.append(
                f"{self.output}: {len(beyond)} older pictures with other numbers are there, too, from "
                f"{self.output.numbered(min(beyond)).name} on"
            )

    def abort(self) -> None:
        """Remove the pictures that are not renamed yet."""
        for partial in self._partials:
            partial.discard()
        self._partials = []
