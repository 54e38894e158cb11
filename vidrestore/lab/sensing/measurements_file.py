"""Write and read measurements of a video in one `.safetensors` file, with all that is needed to recover the
video.

Three tensors, in this order, so that a video of unknown length can be written in one pass (the header of
fixed size comes first and is filled in last):

    measurements  (F, P, M) F16 or F32: F frames, P patches, M measurements of each, on the 0-255 scale
    pts           (F,) I64: start of each frame, in ticks of `video.time_base`
    durations     (F,) I64: its length in ticks, 0 if the source has none

and metadata, each value a JSON text but for `format`, `version`, `job` and `crc32`:

    format        "vidrestore measurements"
    version       "1"; readers refuse any other
    model         {"name", "sha256"}: the weights that hold the sensing matrix; recovery needs the same file
    rate          M / N, the compressed sensing rate
    patch         side of a patch in pixels; N = patch * patch; patches lie side by side
    planes        [[rows, columns], ...]: the patches of each plane; P counts them plane after plane, in
                  reading order
    measurements  M
    sigma, seed   standard deviation and seed of the Gaussian noise added to the measurements; sigma 0: none
    source        the name of the file that was measured
    left_out      kinds of other streams in the source ("audio", ...)
    video         size, pixel format, codec, time base, rates, aspect, rotation, colour,
                  as in `pixels.frames.VideoInfo`; fractions are texts
    job           the digest of what was asked for, by which the file is known as finished
    crc32         of the bytes of `measurements` as stored, in hexadecimal; files without it aren't checked
"""

from __future__ import annotations

import json
import math
import re
import zlib
from array import array
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from fractions import Fraction
from pathlib import Path
from types import TracebackType
from typing import Annotated, Any, Self

import numpy as np
import torch.nn.functional as F
from numpy.typing import NDArray
from pydantic import Field, PlainValidator
from safetensors import SafetensorError, safe_open
from torch import Tensor

from vidrestore.errors import MediaError
from vidrestore.files.atomic import Partial, remove_partials
from vidrestore.files.regular import MEGABYTE, check_regular, parse_json, write_problem
from vidrestore.media.formats.pixel_formats import layout_of
from vidrestore.media.reading.probe import MOST_PIXELS
from vidrestore.pixels.frames import ColourTags, VideoInfo
from vidrestore.settings.checking import Checked, checked

FORMAT, FORMAT_VERSION = "vidrestore measurements", "1"
SUFFIX = ".safetensors"
_HEADER_FRAMES = 10**12  # room in the header for any number of frames below
_CHECKED_FRAMES = 8  # frames in memory while the checksum is compared
# most ticks and seconds (270 years) of times
_MOST_TICKS, _MOST_TIME = 1 << 62, 1 << 33
_TYPES: dict[str, np.dtype[Any]] = {
    "F16": np.dtype("<f2"),
    "F32": np.dtype("<f4"),
    "I64": np.dtype("<i8"),
}
# Fraction itself takes 1e999999999, too, and works on it for days
_FRACTION = re.compile(r"[0-9]{1,19}(/[1-9][0-9]{0,18})?")


def _fraction(text: Any) -> Fraction:
    if not isinstance(text, str) or not _FRACTION.fullmatch(text):
        raise ValueError(f"{text!r:.40} is not a fraction")
    return Fraction(text)


def _above_zero(text: Any) -> Fraction:
    if not (value := _fraction(text)):
        raise ValueError("a time base, rate or aspect of 0")
    return value


Count = Annotated[int, Field(ge=0, lt=1 << 62)]
Size = Annotated[int, Field(ge=1, lt=1 << 31)]
Signed = Annotated[int, Field(ge=-(1 << 31), lt=1 << 31)]
Ratio = Annotated[Fraction, PlainValidator(_above_zero)]


@dataclass(frozen=True)
class _Video(Checked):
    """The fields of VideoInfo that are stored; fractions are texts."""

    index: Count
    codec: str
    width: Size
    height: Size
    pix_fmt: str
    format: dict[str, Any]
    colour: dict[str, Annotated[int, Field(ge=0, lt=256)]]
    rotation: Annotated[int, Field(ge=-360, le=360)]
    interlaced: bool
    time_base: Ratio
    rate: Ratio | None
    base_rate: Ratio | None
    sample_aspect_ratio: Ratio | None
    mastering_display: tuple[Annotated[Fraction, PlainValidator(_fraction)], ...] | None
    display_matrix: (
        Annotated[tuple[Signed, ...], Field(min_length=9, max_length=9)] | None
    )
    content_light: tuple[Count, Count] | None

    def info(self) -> VideoInfo:
        """Raises ValueError or MediaError for values that don't fit together."""
        if self.width * self.height > MOST_PIXELS:
            raise ValueError(f"pictures of {self.width}x{self.height}")
        pixels = layout_of(self.pix_fmt).format
        if asdict(pixels) != self.format:
            raise ValueError(f"the pixels of {pixels.name} are not {self.format}")
        return VideoInfo(
            **(vars(self) | {"format": pixels, "colour": ColourTags(**self.colour)})
        )


def _video(values: Any) -> VideoInfo:
    return checked(_Video, values, "video", MediaError).info()


@dataclass(frozen=True)
class PatchGrid:
    """`rows` x `columns` square patches that cover a plane of `height` x `width` without overlap, in reading
    order; it is padded at the right and bottom by replication.
    """

    height: int
    width: int
    patch: int

    @property
    def rows(self) -> int:
        return -(-self.height // self.patch)

    @property
    def columns(self) -> int:
        return -(-self.width // self.patch)

    @property
    def count(self) -> int:
        return self.rows * self.columns

    def cut(self, planes: Tensor) -> Tensor:
        """Cut (T, height, width) planes into (T, count, N) patches."""
        # a border that has no whole patch is filled by repetition
        below = self.rows * self.patch - self.height
        right = self.columns * self.patch - self.width
        if below or right:
            planes = F.pad(planes[:, None], (0, right, 0, below), mode="replicate")[
                :, 0
            ]
        cells = planes.reshape(-1, self.rows, self.patch, self.columns, self.patch)
        return cells.transpose(2, 3).reshape(len(planes), self.count, self.patch**2)

    def joined(self, patches: Tensor) -> Tensor:
        """Join (T, count, N) patches to (T, height, width) planes, without the padding."""
        cells = patches.reshape(
            -1, self.rows, self.columns, self.patch, self.patch
        ).transpose(2, 3)
        planes = cells.reshape(-1, self.rows * self.patch, self.columns * self.patch)
        return planes[:, : self.height, : self.width]


@dataclass(frozen=True)
class Measured(Checked):
    """The header of a file of measurements; for the fields see the module's docstring."""

    model: str
    sha256: str
    patch: Size
    measurements: Size
    sigma: Annotated[float, Field(ge=0)]
    seed: int
    source: str
    left_out: tuple[str, ...]
    video: Annotated[VideoInfo, PlainValidator(_video)]

    @property
    def rate(self) -> float:
        return self.measurements / self.patch**2

    @property
    def grids(self) -> tuple[PatchGrid, ...]:
        """The patches of each plane, an alpha plane included."""
        pixels, height, width = self.video.format, self.video.height, self.video.width
        sizes = (
            pixels.plane_size(plane, height, width)
            for plane in range(pixels.plane_count)
        )
        return tuple(PatchGrid(height, width, self.patch) for height, width in sizes)

    @property
    def patches(self) -> int:
        """P, the patches of all planes of a frame."""
        return sum(grid.count for grid in self.grids)

    def to_metadata(self) -> dict[str, str]:
        video = asdict(self.video)
        # fields that readers of other programs find by name
        values = vars(self) | {
            "model": {"name": self.model, "sha256": self.sha256},
            "rate": self.rate,
            "planes": [[grid.rows, grid.columns] for grid in self.grids],
            "video": {field.name: video[field.name] for field in fields(_Video)},
        }
        del values["sha256"]
        return {"format": FORMAT, "version": FORMAT_VERSION} | {
            key: json.dumps(value, default=str) for key, value in values.items()
        }

    @classmethod
    def from_metadata(cls, metadata: Mapping[str, str]) -> Measured:
        """Raises KeyError, TypeError, ValueError or MediaError if something is missing or wrong."""
        # names and types first, then whether they fit together
        names = {field.name for field in fields(cls)} - {"sha256"} | {"planes"}
        values = {name: parse_json(metadata[name]) for name in names}
        values |= {
            "model": values["model"]["name"],
            "sha256": values["model"]["sha256"],
        }
        planes = values.pop("planes")
        measured = checked(cls, values, "metadata", MediaError)
        if planes != [[grid.rows, grid.columns] for grid in measured.grids]:
            raise ValueError(
                f"planes {planes} do not fit {measured.video.width}x{measured.video.height} "
                f"{measured.video.format.name}"
            )
        return measured


class MeasurementWriter:
    """Writes measurements frame by frame; the file gets its name on a clean exit, and is removed on an error.

    `half` stores 16-bit floats; `job` is the digest by which the file is known as finished. Raises
    MediaError if the file can't be written, OutputExistsError if another one took its name.
    """

    def __init__(
        self,
        output: str,
        measured: Measured,
        *,
        half: bool,
        overwrite: bool = False,
        job: str = "",
    ) -> None:
        self.output = output
        self.measured = measured
        self.overwrite = overwrite
        self.job = job
        self.dtype = "F16" if half else "F32"
        self._crc32 = 0
        self.pts = array("q")
        self.durations = array("q")
        # room for the header, whose length depends on the number of frames
        self._room = len(self._header(_HEADER_FRAMES))
        try:
            remove_partials(Path(output))
            self._partial = Partial(Path(output))
            self._file = self._partial.file
            self._file.write(bytes(self._room))
        except OSError as error:
            raise write_problem(output, error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        try:
            if kind is None:
                self._finish()
        except OSError as problem:
            raise write_problem(self.output, problem) from problem
        finally:
            self._partial.discard()

    @property
    def frames(self) -> int:
        return len(self.pts)

    def write(self, measurements: NDArray[np.float32], pts: int, duration: int) -> None:
        """Append the measurements (P, M) of the next frame."""
        expected = (self.measured.patches, self.measured.measurements)
        if measurements.shape != expected:
            raise ValueError(
                f"measurements of shape {measurements.shape}, but {expected} were expected"
            )
        try:
            values = measurements.astype(_TYPES[self.dtype]).tobytes()
            self._file.write(values)
        except OSError as error:
            raise write_problem(self.output, error) from error
        self._crc32 = zlib.crc32(values, self._crc32)
        self.pts.append(pts)
        self.durations.append(duration)

    def _finish(self) -> None:
        # times behind the measurements, and the header in its place
        if not self.frames:
            raise MediaError(
                f"{self.output}: no frame was measured, so there is nothing to keep"
            )
        for times in (self.pts, self.durations):
            self._file.write(np.array(times, _TYPES["I64"]).tobytes())
        self._file.seek(0)
        self._file.write(self._header(self.frames).ljust(self._room))
        self._file.seek(0)
        self._file.write((self._room - 8).to_bytes(8, "little"))
        self._file.flush()
        self._partial.put_in_place(overwrite=self.overwrite)

    def _header(self, frames: int) -> bytes:
        """Return eight bytes for the length, then the JSON of safetensors, padded to a multiple of 8."""
        shapes = {
            "measurements": (
                self.dtype,
                [frames, self.measured.patches, self.measured.measurements],
            ),
            "pts": ("I64", [frames]),
            "durations": ("I64", [frames]),
        }
        entries: dict[str, Any] = {
            "__metadata__": self.measured.to_metadata()
            | {"job": self.job, "crc32": f"{self._crc32:08x}"}
        }
        offset = 0
        for name, (dtype, shape) in shapes.items():
            stop = offset + math.prod(shape) * _TYPES[dtype].itemsize
            entries[name] = {
                "dtype": dtype,
                "shape": shape,
                "data_offsets": [offset, stop],
            }
            offset = stop
        text = bytes(8) + json.dumps(entries, separators=(",", ":")).encode()
        return text + b" " * (-len(text) % 8)


class MeasurementReader:
    """A file of measurements, read a few frames at a time: `measured` describes it, `job` is that of the
    writer; `pts` and `durations` are (F,) int64. Raises MediaError for another file or version, and for
    damage.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        with self._opened() as stream:
            metadata = stream.metadata() or {}
            if metadata.get("format") != FORMAT:
                raise self._foreign("it holds something else")
            if sum(map(len, metadata.values())) > MEGABYTE:
                raise self._foreign("its metadata is too long")
            if metadata.get("version") != FORMAT_VERSION:
                raise MediaError(
                    f"{path}: measurements of version {metadata.get('version')}, this vidrestore reads "
                    f"version {FORMAT_VERSION}; recover with the version that wrote it, or measure the "
                    "video again"
                )
            try:
                self.measured = Measured.from_metadata(metadata)
                self.job = metadata.get("job")
                self._crc32 = metadata.get("crc32")
                self._check_tensors(stream)
            except (KeyError, TypeError, ValueError, MediaError) as error:
                reason = f"{type(error).__name__}: {error}"
                raise MediaError(
                    f"{path}: its header is damaged ({reason}); copy it again or measure the video again"
                ) from error
            self.pts: NDArray[np.int64] = stream.get_tensor("pts")
            self.durations: NDArray[np.int64] = stream.get_tensor("durations")
        self._check_times()

    @property
    def frames(self) -> int:
        return len(self.pts)

    def clip(self, first: int, stop: int) -> NDArray[np.floating[Any]]:
        """Return the measurements (stop - first, P, M) of frames [first, stop), as stored. The file is open
        only meanwhile: parts that were read before take no memory.
        """
        with self._opened() as stream:
            measurements: NDArray[np.floating[Any]] = stream.get_slice("measurements")[
                first:stop
            ]
        return measurements

    def check(self) -> None:
        """Read all measurements once. Raises MediaError if they are not those that were written."""
        crc32 = 0
        for first in range(0, self.frames if self._crc32 else 0, _CHECKED_FRAMES):
            stop = min(first + _CHECKED_FRAMES, self.frames)
            crc32 = zlib.crc32(self.clip(first, stop).tobytes(), crc32)
        if self._crc32 and f"{crc32:08x}" != self._crc32:
            raise MediaError(
                f"{self.path}: its measurements were damaged or changed: their CRC-32 is {crc32:08x}, but "
                f"its metadata says {self._crc32:.40}; copy it again, measure the video again, or remove "
                "crc32 from the metadata if they were changed on purpose"
            )

    @contextmanager
    def _opened(self) -> Iterator[Any]:
        try:
            check_regular(Path(self.path))
            with safe_open(self.path, "np") as stream:
                yield stream
        except OSError as error:
            raise MediaError(
                f"{self.path}: can't be read ({error.strerror}); expected a file of `vidrestore sense`"
            ) from error
        except SafetensorError as error:
            raise self._foreign(
                f"{error}; if it is one, it was cut short or damaged: copy it again"
            ) from error

    def _foreign(self, reason: str) -> MediaError:
        return MediaError(
            f"{self.path}: not a file of measurements ({reason}); expected one that `vidrestore sense` wrote"
        )

    def _check_tensors(self, stream: Any) -> None:
        """Raise ValueError unless tensors have the dtypes and shapes that the metadata ask for."""
        dtypes = {
            "measurements": ("F16", "F32"),
            "pts": ("I64",),
            "durations": ("I64",),
        }
        if missing := dtypes.keys() - set(stream.keys()):
            raise ValueError(f"it lacks {', '.join(sorted(missing))}")
        parts = {name: stream.get_slice(name) for name in dtypes}
        frames = parts["measurements"].get_shape()[0]
        for name, part in parts.items():
            more = (
                [self.measured.patches, self.measured.measurements]
                if name == "measurements"
                else []
            )
            shape = part.get_shape()
            expected = [frames, *more]
            if shape != expected or not frames or part.get_dtype() not in dtypes[name]:
                raise ValueError(
                    f"{name} {part.get_dtype()} of shape {shape}, but {expected} was expected"
                )

    def _check_times(self) -> None:
        """Raise MediaError for times that would not fit into the ticks of any container."""
        edges = (
            edge
            for times in (self.pts, self.durations)
            for edge in (times.min(), times.max())
        )
        most = max(abs(int(edge)) for edge in edges)
        seconds = most * self.measured.video.time_base
        if self.durations.min() < 0 or most > _MOST_TICKS or seconds > _MOST_TIME:
            raise MediaError(
                f"{self.path}: has impossible times; copy it again or measure the video again"
            )
