"""All options of the commands: default, meaning and form on the command line."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from fractions import Fraction
from numbers import Integral, Real
from typing import Any, Literal, TypedDict, TypeVar, get_args, get_origin, get_type_hints

from vidrestore import parsing
from vidrestore.errors import OptionError

Precision = Literal["auto", "fp32", "bf16"]
Quality = Literal["fast", "default", "best"]
Input = Literal["auto", "compressed", "clean"]
Chosen = TypeVar("Chosen")
Scope = Literal["pixels", "file", "streams", "call", "job", "machine"]
DROPPABLE = ("audio", "subtitles", "data", "attachments", "cover", "video", "exif")
MAX_SIGMA = 255.0
MAX_GRAIN = 30.0
LEAST_TILE = 64
MOST_THREADS = 1024
MOST_PIXELS = 1 << 16  # a side
MOST_FRAMES = 1 << 31
MOST_SECONDS = 366 * 24 * 3600
MOST_RATE = 10_000  # frames per second

# panels of the help, in order
QUALITY, INPUT, OUTPUT, ENCODING = ("Quality", "Input", "Output", "Encoding")
RESUME, MACHINE = "Resume and batches", "Machine"
PANELS = (QUALITY, INPUT, OUTPUT, ENCODING, RESUME, MACHINE)


@dataclass(frozen=True)
class Declared:
    """The form of an options field on the command line; `cli.declared` makes the options.

    `scope` is what the option alters: the restored "pixels"; the "file", as to the frames that are read and
    how they are encoded; the "streams" that are copied beside them; this "call", its names, permissions and
    messages; the "job", as to how its work is resumed, shared or shown; or the "machine", where and how fast
    it works. Only the first three make another file, and only the first two make other frames in it.
    `flags`: --the-field's-name if empty, "--match/--no-match" for a switch. `metavar` names the value in the
    help; a switch has none. `parse` converts text to the value, unless the field's type does. `gather`
    combines the values of an option that may be repeated. `switches`: flags that each stand for a value.
    `shown`: the default in the help, if the value isn't clear by itself. `tasks`: those that the option is
    for, each with its own value if there are several; empty for an option of the whole run. `argument`: a
    positional argument instead of an option.
    """

    help: str
    panel: str
    scope: Scope
    flags: tuple[str, ...] = ()
    metavar: str | None = None
    parse: Callable[[str], Any] | None = None
    gather: Callable[[Sequence[Any]], Any] | None = None
    switches: Mapping[str, str] = field(default_factory=dict)
    shown: str | None = None
    tasks: frozenset[str] = frozenset()
    argument: bool = False

    def __post_init__(self) -> None:
        if self.scope not in get_args(Scope):
            raise ValueError(f"scope must be one of {', '.join(get_args(Scope))}, got {self.scope!r}")


def option(default: Any, help: str | Declared, panel: str = "", **declared: Any) -> Any:
    """Return a dataclass field with its default, or default factory if that is a type, and its `Declared`.

    `help` is the `Declared`, or its text, with `panel` and the other fields in `declared`.
    """
    found = help if isinstance(help, Declared) else Declared(help, panel, **declared)
    metadata = {"declared": found, "scope": found.scope}
    return (
        field(default_factory=default, metadata=metadata)
        if isinstance(default, type)
        else field(default=default, metadata=metadata)
    )


DENOISE = frozenset({"denoise"})
ENLARGE = frozenset({"sr"})
# tasks with networks for single frames; weights for denoise may be such, too
SINGLE_FRAMES = frozenset({"denoise", "dehaze", "derain", "desnow", "deblur"})
EACH_TASK = SINGLE_FRAMES | ENLARGE

# options of several classes
MODEL = Declared(
    "Name from `vidrestore weights list`, or a .safetensors file.",
    QUALITY,
    "pixels",
    metavar="NAME|FILE",
    tasks=EACH_TASK,
)
CFR = Declared(
    "Constant frame rate for a pipe, such as 30000/1001.",
    ENCODING,
    "file",
    metavar="RATE",
    parse=parsing.rate,
)
OVERWRITE = Declared("Overwrite an existing output.", OUTPUT, "call", ("--overwrite", "-y"))
PRECISION = Declared("Arithmetic of the model.", MACHINE, "pixels", metavar="auto|fp32|bf16")
ONE_DEVICE = Declared("auto, cpu, cuda, cuda:1 or mps.", MACHINE, "machine", metavar="NAME")
THREADS = Declared("CPU threads.", MACHINE, "machine", metavar="N", shown="all")


@dataclass(frozen=True)
class EncoderOptions:
    """Options of the encoder.

    `encoder` is an FFmpeg name, None or "auto"; `crf` and `preset` are on the encoder's own scale. `options`
    are passed to the encoder unchanged; `threads` 0 is chosen from the cores (another number gives another,
    equally repeatable, file).
    """

    encoder: str | None = option(
        None,
        "FFmpeg encoder, such as libx265; Tab completes names.",
        ENCODING,
        scope="file",
        metavar="NAME",
        shown="as the source",
    )
    crf: float | None = option(
        None,
        "Quality on the encoder's scale; lower is better.",
        ENCODING,
        scope="file",
        metavar="N",
        shown="16 to 24",
    )
    preset: str | None = option(
        None,
        "Encoder preset: medium, slow, ... or a number.",
        ENCODING,
        scope="file",
        metavar="NAME",
    )
    options: Mapping[str, str] = option(
        dict,
        "Pass an option to the encoder; repeatable.",
        ENCODING,
        scope="file",
        flags=("--encoder-option",),
        metavar="KEY=VALUE",
        parse=parsing.setting,
        gather=dict,
    )
    lossless: bool = option(False, "Encode without loss.", ENCODING, scope="file")
    threads: int = 0

    def __post_init__(self) -> None:
        _check_types(self)
        check_threads(self.threads)


@dataclass(frozen=True)
class RestoreOptions:
    """Options of a restoration. Raises `OptionError` for a value out of range.

    `deinterlace`: None makes video progressive that is marked as interlaced at its beginning, or looks so,
    True also frames that are marked later; False refuses marked video and warns of what looks interlaced.
    `sigma` and `grain` are standard deviations on the 0-255 scale; `chroma_strength` None is the same as
    `strength`. `start` and `duration` are in seconds, `start` from the first frame. `model`: None for the
    task's default. `tile`: None for whole frames if memory allows. `threads`: 0 for all. `work_dir`:
    None for beside the output.
    """

    sigma: float | Literal["auto"] = option(
        "auto",
        "Noise level: standard deviation on the 0-255 scale; auto measures it.",
        QUALITY,
        scope="pixels",
        metavar="SIGMA|auto",
        parse=parsing.noise,
        tasks=DENOISE,
    )
    model: str | None = option(None, MODEL)
    family: str | None = option(
        None,
        "spandrel: --model is a network of other authors (.pth, .safetensors).",
        QUALITY,
        scope="pixels",
        metavar="spandrel",
        tasks=EACH_TASK - {"dehaze", "desnow"},
    )
    quality: Quality = option(
        "default",
        "",
        QUALITY,
        scope="pixels",
        switches={"--fast": "Faster, slightly lower quality.", "--best": "Higher quality, slower."},
        tasks=DENOISE,
    )
    match: bool = option(
        True,
        "Compare the same position in every frame; don't follow motion.",
        QUALITY,
        scope="pixels",
        flags=("--match/--no-match",),
        tasks=DENOISE,
    )
    scale: int = option(
        4,
        "Scale factor: 2, 3 or 4.",
        QUALITY,
        scope="pixels",
        flags=("--scale", "-x"),
        metavar="N",
        tasks=ENLARGE,
    )
    height: int | None = option(
        None,
        "Output height in pixels, such as 1080, instead of --scale.",
        QUALITY,
        scope="pixels",
        metavar="LINES",
        tasks=ENLARGE,
    )
    input: Input = option(
        "auto",
        "compressed: from a camera or the web; clean: downscaled without loss; auto: by the bits a pixel.",
        QUALITY,
        scope="pixels",
        metavar="auto|clean|compressed",
        tasks=ENLARGE,
    )
    strength: float = option(
        1.0,
        "Mix with the source: 1 is fully restored, 0 the source.",
        QUALITY,
        scope="pixels",
        metavar="0..1",
        tasks=EACH_TASK,
    )
    chroma_strength: float | None = option(
        None,
        "Strength for chroma.",
        QUALITY,
        scope="pixels",
        metavar="0..1",
        shown="as --strength",
        tasks=DENOISE,
    )
    grain: float = option(
        0.0,
        "Add film grain after denoising: standard deviation, 0-255 scale.",
        QUALITY,
        scope="pixels",
        metavar="N",
        tasks=DENOISE,
    )
    steady: bool = option(
        False,
        "Reduce flicker by temporal smoothing.",
        QUALITY,
        scope="pixels",
        tasks=SINGLE_FRAMES,
    )
    scene_detect: bool = option(
        True, "Don't detect scene cuts.", QUALITY, scope="pixels", flags=("--scene-detect/--no-scene-detect",)
    )
    start: Fraction | None = option(
        None,
        "Start time: seconds, 1m30s or 1:30.",
        INPUT,
        scope="file",
        metavar="TIME",
        parse=parsing.moment,
    )
    duration: Fraction | None = option(
        None,
        "Length to restore; audio is cut as well.",
        INPUT,
        scope="file",
        metavar="TIME",
        parse=parsing.seconds,
    )
    fps: Fraction | None = option(
        None,
        "Pictures per second of a folder or pattern, or of a raw stream.",
        INPUT,
        scope="file",
        metavar="RATE",
        parse=parsing.rate,
        shown="25",
    )
    deinterlace: bool | None = option(
        None,
        "Deinterlace all that is marked, or refuse interlaced video.",
        INPUT,
        scope="file",
        flags=("--deinterlace/--no-deinterlace",),
        shown="if IN is interlaced",
    )
    double_rate: bool = option(
        False, "Deinterlace, one frame per field: 25 fps become 50.", INPUT, scope="file"
    )
    strict: bool = option(False, "Fail if captions, HDR10+ or the like would be lost.", INPUT, scope="call")
    drop: frozenset[str] = option(
        frozenset(),
        f"Don't copy: {', '.join(DROPPABLE)}.",
        OUTPUT,
        scope="streams",
        metavar="KIND,KIND",
        parse=parsing.kinds,
        gather=lambda sets: frozenset().union(*sets),
    )
    tags: bool = option(
        True,
        "Don't say in OUT's tags how it was made.",
        OUTPUT,
        scope="streams",
        flags=("--tags/--no-tags",),
    )
    overwrite: bool = option(False, OVERWRITE)
    encoder: EncoderOptions = field(default_factory=EncoderOptions, metadata={"scope": "file"})
    cfr: Fraction | None = option(None, CFR)
    skip_existing: bool = option(False, "Skip inputs whose output exists.", RESUME, scope="job")
    restart: bool = option(False, "Discard an interrupted run and start over.", RESUME, scope="job")
    work_dir: str | None = option(
        None, "Folder for work in progress.", RESUME, scope="job", metavar="DIR", shown="beside OUT"
    )
    device: str = option(
        "auto",
        "auto, cpu, cuda, cuda:1 or mps; several GPUs: cuda:0,1.",
        MACHINE,
        scope="machine",
        metavar="NAME",
    )
    precision: Precision = option("auto", PRECISION)
    threads: int = option(0, THREADS)
    tile: int | None = option(
        None,
        "Largest side of a tile in pixels: 64, 72, ...",
        MACHINE,
        scope="pixels",
        metavar="N|auto",
        parse=parsing.tile,
        shown="by the memory",
        tasks=EACH_TASK,
    )

    def __post_init__(self) -> None:
        _check_types(self)
        if self.sigma != "auto" and not 0 <= self.sigma <= MAX_SIGMA:
            raise OptionError(
                f"sigma must be 'auto' or in [0, {MAX_SIGMA:g}] on the 0-255 scale, got {self.sigma}"
            )
        if not 0 <= self.strength <= 1:
            raise OptionError(f"strength must be in [0, 1], got {self.strength}")
        if self.chroma_strength is not None and not 0 <= self.chroma_strength <= 1:
            raise OptionError(f"chroma_strength must be in [0, 1], got {self.chroma_strength}")
        if not 0 <= self.grain <= MAX_GRAIN:
            raise OptionError(f"grain must be in [0, {MAX_GRAIN:g}] on the 0-255 scale, got {self.grain}")
        if self.double_rate and self.deinterlace is False:
            raise OptionError("double_rate deinterlaces; leave out that, or deinterlace=False")
        if self.family is not None and self.model is None:
            raise OptionError(f"`family={self.family}` says how to read a file; name it with `model`")
        check_threads(self.threads)
        for kind in self.drop:
            _check_choice("drop", kind, DROPPABLE)
        _check_rate(self.cfr)
        _check_rate(self.fps, "fps")
        if self.scale not in (2, 3, 4):
            raise OptionError(f"scale must be 2, 3 or 4 (-x4), got {self.scale}")
        if self.height is not None and (not 2 <= self.height <= MOST_PIXELS or self.height % 2):
            raise OptionError(f"height must be an even number of lines, got {self.height}")
        if self.height is not None and self.scale != 4:
            raise OptionError("scale and height both say how large the output is; leave one out")
        if self.tile is not None and not LEAST_TILE <= self.tile <= MOST_PIXELS:
            raise OptionError(f"tile must be {LEAST_TILE} pixels or more, got {self.tile}")
        if self.start is not None and not 0 <= self.start <= MOST_SECONDS:
            raise OptionError(f"start must be 0 s or later, in a year at most, got {float(self.start):g}")
        if self.duration is not None and not 0 < self.duration <= MOST_SECONDS:
            raise OptionError(f"duration must be above 0 s, a year at most, got {float(self.duration):g}")


class RestoreKeywords(TypedDict, total=False):
    """The fields of `RestoreOptions` as keywords, for type checkers and editors."""

    sigma: float | Literal["auto"]
    model: str | None
    family: str | None
    quality: Quality
    match: bool
    scale: int
    height: int | None
    input: Input
    strength: float
    chroma_strength: float | None
    grain: float
    steady: bool
    scene_detect: bool
    start: Fraction | None
    duration: Fraction | None
    fps: Fraction | None
    deinterlace: bool | None
    double_rate: bool
    strict: bool
    drop: frozenset[str]
    tags: bool
    overwrite: bool
    encoder: EncoderOptions
    cfr: Fraction | None
    skip_existing: bool
    restart: bool
    work_dir: str | None
    device: str
    precision: Precision
    threads: int
    tile: int | None


@dataclass(frozen=True)
class SenseOptions:
    """Options of a measurement. Raises `OptionError` for a value out of range.

    `rate` (measurements per pixel) selects bundled weights, `model` names weights; one of the two is
    required. `sigma` is on the scale of the measurements, that of grey levels 0-255; `seed` determines the
    noise.
    """

    rate: float | None = option(
        None,
        "Measurements per pixel: 0.1, 0.2, 0.3, 0.4 or 0.5 with the bundled weights.",
        QUALITY,
        scope="pixels",
        metavar="RATE",
    )
    model: str | None = option(None, MODEL)
    sigma: float = option(
        0.0,
        "Noise added to the measurements: standard deviation, 0-255 scale.",
        QUALITY,
        scope="pixels",
        metavar="SIGMA",
        shown="0",
    )
    seed: int = option(0, "Random seed of the noise.", QUALITY, scope="pixels", metavar="N", shown="0")
    overwrite: bool = option(False, OVERWRITE)
    device: str = option("auto", ONE_DEVICE)

    def __post_init__(self) -> None:
        _check_types(self)
        if self.rate is None and self.model is None:
            raise OptionError(
                "a rate such as 0.2 is needed, or a model that has a sensing matrix (`rate`, `model`)"
            )
        if self.rate is not None and not 0 < self.rate <= 1:
            raise OptionError(f"rate must be in (0, 1], measurements per pixel, got {self.rate}")
        if not 0 <= self.sigma < float("inf"):
            raise OptionError(f"sigma must be 0 or more, got {self.sigma}")
        if not 0 <= self.seed < 2**63:
            raise OptionError(f"seed must be in [0, 2^63), got {self.seed}")


@dataclass(frozen=True)
class RecoverOptions:
    """Options of a recovery. `model` is needed only if the weights that measured the video are not bundled.

    Raises `OptionError` for a value out of range.
    """

    model: str | None = option(None, MODEL)
    precision: Precision = option("auto", PRECISION)
    threads: int = option(0, THREADS)
    cfr: Fraction | None = option(None, CFR)
    encoder: EncoderOptions = field(default_factory=EncoderOptions, metadata={"scope": "file"})
    overwrite: bool = option(False, OVERWRITE)
    device: str = option("auto", ONE_DEVICE)

    def __post_init__(self) -> None:
        _check_types(self)
        check_threads(self.threads)
        _check_rate(self.cfr)


def chosen_options(kind: type[Chosen], options: Chosen | None, overrides: Mapping[str, Any]) -> Chosen:
    """Return `options`, by default those of `kind`, with fields changed. Raises OptionError for an unknown
    name, with a similar one, and a value of the wrong type.
    """
    hints = get_type_hints(kind)
    for name in overrides.keys() - hints.keys():
        close = get_close_matches(name, hints, 1)
        known = f"did you mean `{close[0]}`?" if close else f"there are: {', '.join(hints)}"
        raise OptionError(f"no option named {name!r}; {known}")
    return replace(options, **overrides) if options else kind(**overrides)  # type: ignore[type-var]


_KINDS: dict[Any, str] = {
    int: "a whole number",
    float: "a finite number",
    Fraction: "a finite number",
    bool: "True or False",
    str: "text",
    type(None): "None",
    Mapping: "a mapping of names to texts",
    frozenset: "a set of words",
}


def _check_types(options: Any) -> None:
    """Raise OptionError for a value of another type than its field's; numbers and paths become just that."""
    for name, hint in get_type_hints(type(options)).items():
        value = getattr(options, name)
        kinds = (hint,) if get_origin(hint) in (None, Literal, Mapping, frozenset) else get_args(hint)
        found = next(filter(None, (_as(kind, value) for kind in kinds)), None)
        if found is None:
            raise OptionError(f"{name} must be {' or '.join(map(_kind, kinds))}, got {value!r}")
        object.__setattr__(options, name, found[0])


def _kind(kind: Any) -> str:
    if get_origin(kind) is Literal:
        choices = get_args(kind)
        return f"one of {', '.join(choices)}" if len(choices) > 1 else repr(choices[0])
    return _KINDS.get(get_origin(kind) or kind) or kind.__name__


def _as(kind: Any, value: Any) -> tuple[Any] | None:
    """Return the value as a `kind`, in a tuple, or None if it is none."""
    number = not isinstance(value, bool) and isinstance(value, Real) and math.isfinite(value)
    if get_origin(kind) is Literal:
        return (value,) if isinstance(value, str) and value in get_args(kind) else None
    if kind is int:
        return (int(value),) if number and isinstance(value, Integral) else None
    if kind is float:
        return (value if type(value) is int else float(value),) if number else None
    if kind is Fraction:  # a float such as 29.97 means what it shows
        exact = isinstance(value, Integral | Fraction)
        return (Fraction(value if exact else repr(float(value))),) if number else None
    if kind is str:
        return (os.fspath(value),) if isinstance(value, str | os.PathLike) else None
    if get_origin(kind) is frozenset:
        return (frozenset(value),) if isinstance(value, Set | list | tuple) else None
    return (value,) if isinstance(value, get_origin(kind) or kind) else None


def values_of(options: Any, *scopes: Scope) -> dict[str, Any]:
    """Return the values of the options in some scopes, by name."""
    return {
        each.name: getattr(options, each.name) for each in fields(options) if each.metadata["scope"] in scopes
    }


def changed_values(options: Any, *scopes: Scope) -> dict[str, Any]:
    """Return the values in some scopes that are not the defaults, by name."""
    default = type(options)()
    return {
        name: value for name, value in values_of(options, *scopes).items() if value != getattr(default, name)
    }


def check_threads(threads: int) -> None:
    """Raise OptionError for an impossible number of CPU threads."""
    if not 0 <= threads <= MOST_THREADS:
        raise OptionError(f"threads must be 0 (all) to {MOST_THREADS}, got {threads}")


def _check_rate(rate: Fraction | None, name: str = "cfr") -> None:
    if rate is not None and not 1 / Fraction(MOST_RATE) <= rate <= MOST_RATE:
        raise OptionError(f"{name} must be above 0, at most {MOST_RATE}, got {float(rate):g}")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise OptionError(f"{name} must be one of {', '.join(choices)}, got {value!r}")
