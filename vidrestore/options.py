"""Every option of a restoration and its default, in one place."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Literal, get_args

from vidrestore.errors import OptionError

Precision = Literal["auto", "fp32", "bf16"]
Quality = Literal["fast", "default", "best"]
Input = Literal["compressed", "clean"]
DROPPABLE = ("audio", "subtitles", "data", "attachments", "cover", "video")
MAX_SIGMA = 255.0
MAX_GRAIN = 30.0
LEAST_TILE = 64
MOST_THREADS = 1024


@dataclass(frozen=True)
class EncoderOptions:
    """What the user asks of the encoder. `encoder` is an FFmpeg name or None or "auto"; `crf` and `preset` are in the encoder's own scale;
    `options` are handed to it as they are; `threads` 0 is the fixed default (another number is another, equally repeatable, file)."""

    encoder: str | None = None
    crf: float | None = None
    preset: str | None = None
    options: Mapping[str, str] = field(default_factory=dict)
    lossless: bool = False
    threads: int = 0


@dataclass(frozen=True)
class RestoreOptions:
    """How to restore. What raises `OptionError` here is a value outside its range.

    `sigma`: standard deviation of the noise on the 0-255 scale, or "auto", estimated per plane and scene. `strength`: 1 is the
    restored picture, 0 the source, a mix between; `chroma_strength` the same for colour differences, None for the same value. `grain`:
    standard deviation of the even grain that is added to brightness afterwards, on the 0-255 scale. `threads`:
    CPU threads, 0 for all. `cfr`: constant frame rate of a pipe whose source has a variable one. `drop`: kinds of streams that are
    not copied. `start` and `duration`: the part of the film to restore, in seconds, `start` counted from the film's first frame.
    `tile`: the largest side of a tile in pixels, None for whole frames as long as memory allows; `tile_overlap`: pixels that tiles
    share, None for the network's own. `steady`: mix each frame of an image network with its neighbours where they agree, so that it
    flickers less. `scale`: how many times larger the task `sr` makes the film, in both directions; `input`: what that is given,
    frames as cameras and the web have them, or clean ones that were made small without loss.
    `deinterlace`: make frames that are marked as interlaced progressive. `strict`: refuse a film that carries what encoding it again
    leaves out. `segment_frames`: about how many frames are restored and encoded before they are safe from an interruption, None for a
    number that fits the film's size. `work_dir`: the folder in which unfinished work is kept, None for beside the output. `restart`:
    discard unfinished work instead of going on with it.
    """

    sigma: float | Literal["auto"] = "auto"
    model: str | None = None  # None: the task's own default
    quality: Quality = "default"
    match: bool = True
    strength: float = 1.0
    chroma_strength: float | None = None
    grain: float = 0.0
    device: str = "auto"
    precision: Precision = "auto"
    threads: int = 0
    scene_detect: bool = True
    cfr: Fraction | None = None
    drop: frozenset[str] = frozenset()
    start: Fraction | None = None
    duration: Fraction | None = None
    tile: int | None = None
    tile_overlap: int | None = None
    steady: bool = False
    scale: int = 4
    input: Input = "compressed"
    deinterlace: bool = False
    strict: bool = False
    encoder: EncoderOptions = field(default_factory=EncoderOptions)
    overwrite: bool = False
    skip_existing: bool = False
    segment_frames: int | None = None
    work_dir: str | None = None
    restart: bool = False

    def __post_init__(self) -> None:
        if self.sigma != "auto" and not 0 <= self.sigma <= MAX_SIGMA:
            raise OptionError(f"sigma must be 'auto' or in [0, {MAX_SIGMA:g}] on the 0-255 scale, got {self.sigma}")
        if not 0 <= self.strength <= 1:
            raise OptionError(f"strength must be in [0, 1], got {self.strength}")
        if self.chroma_strength is not None and not 0 <= self.chroma_strength <= 1:
            raise OptionError(f"chroma_strength must be in [0, 1], got {self.chroma_strength}")
        if not 0 <= self.grain <= MAX_GRAIN:
            raise OptionError(f"grain must be in [0, {MAX_GRAIN:g}] on the 0-255 scale, got {self.grain}")
        check_threads(self.threads)
        _check_choice("precision", self.precision, get_args(Precision))
        _check_choice("quality", self.quality, get_args(Quality))
        _check_choice("input", self.input, get_args(Input))
        for kind in self.drop:
            _check_choice("drop", kind, DROPPABLE)
        _check_rate(self.cfr)
        if self.scale != 4:
            raise OptionError(f"scale must be 4, the networks' own (-x4), got {self.scale}")
        _check_tiles(self.tile, self.tile_overlap)
        if self.segment_frames is not None and self.segment_frames < 1:
            raise OptionError(f"segment_frames must be 1 or more, got {self.segment_frames}")
        if self.start is not None and self.start < 0:
            raise OptionError(f"start must be 0 s or later, got {float(self.start):g}")
        if self.duration is not None and self.duration <= 0:
            raise OptionError(f"duration must be above 0 s, got {float(self.duration):g}")


@dataclass(frozen=True)
class SenseOptions:
    """How to measure. What raises `OptionError` here is a value outside its range.

    `rate` (measurements per pixel) picks bundled weights, `model` names some; one of the two is needed. `sigma` is the standard deviation
    of Gaussian noise added to the measurements, on their own scale, that of grey levels 0-255; `seed` draws it.
    """

    rate: float | None = None
    model: str | None = None
    sigma: float = 0.0
    seed: int = 0
    overwrite: bool = False

    def __post_init__(self) -> None:
        if self.rate is None and self.model is None:
            raise OptionError("a rate such as 0.2 is needed, or a model that has a sensing matrix (--rate, --model)")
        if self.rate is not None and not 0 < self.rate <= 1:
            raise OptionError(f"rate must be in (0, 1], measurements per pixel, got {self.rate}")
        if not 0 <= self.sigma < float("inf"):
            raise OptionError(f"sigma must be 0 or more, got {self.sigma}")
        if not 0 <= self.seed < 2**63:
            raise OptionError(f"seed must be in [0, 2^63), got {self.seed}")


@dataclass(frozen=True)
class RecoverOptions:
    """How to recover a film from its measurements. The fields mean what they mean in `RestoreOptions`.

    `model` is needed only where the weights that measured are not among the bundled ones.
    """

    model: str | None = None
    precision: Precision = "auto"
    threads: int = 0
    cfr: Fraction | None = None
    encoder: EncoderOptions = field(default_factory=EncoderOptions)
    overwrite: bool = False

    def __post_init__(self) -> None:
        check_threads(self.threads)
        _check_choice("precision", self.precision, get_args(Precision))
        _check_rate(self.cfr)


def quality(fast: bool, best: bool) -> Quality:
    """The quality that two switches ask for. Raises OptionError for both."""
    if fast and best:
        raise OptionError("--fast and --best exclude each other; leave one out")
    return "fast" if fast else "best" if best else RestoreOptions.quality


def check_threads(threads: int) -> None:
    """Raises OptionError for a number of CPU threads that no machine has."""
    if not 0 <= threads <= MOST_THREADS:
        raise OptionError(f"threads must be 0 (all) to {MOST_THREADS}, got {threads}")


def _check_tiles(tile: int | None, overlap: int | None) -> None:
    if tile is not None and tile < LEAST_TILE:
        raise OptionError(f"tile must be {LEAST_TILE} pixels or more, got {tile}")
    if overlap is not None and overlap < 0:
        raise OptionError(f"tile_overlap must be 0 pixels or more, got {overlap}")
    if tile is not None and overlap is not None and overlap > tile // 2:
        raise OptionError(f"tile_overlap must be at most half a tile, {tile // 2} pixels, got {overlap}")


def _check_rate(cfr: Fraction | None) -> None:
    if cfr is not None and cfr <= 0:
        raise OptionError(f"cfr must be above 0, got {float(cfr):g}")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise OptionError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
