"""All options of the commands: type, range, default, flags and help of each field, written once.

Pydantic checks the values. `cli.command_options` gives commands the `typer.Option` of each field.
"""

from __future__ import annotations

import inspect
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass as plain_dataclass
from dataclasses import field, fields, replace
from fractions import Fraction
from functools import cache, partial
from numbers import Integral, Real
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    TypedDict,
    TypeVar,
    get_type_hints,
)

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    InstanceOf,
    ValidationError,
    model_validator,
)
from pydantic.dataclasses import dataclass
from typer import Option
from typer.models import ParameterInfo

from vidrestore.errors import OptionError
from vidrestore.settings import option_values
from vidrestore.settings.checking import explained
from vidrestore.settings.tasks import TASKS

Precision = Literal["auto", "fp32", "bf16"]
Quality = Literal["fast", "default", "best"]
Input = Literal["auto", "compressed", "clean"]
Scanned = Literal["auto", "progressive", "tff", "bff", "film"]
Haze = Literal["auto", "always"]
Dust = Literal["auto", "always"]
Filled = Literal["fill", "keep"]
# what an option alters; only the first three make another file, and only the first two other frames in it
Scope = Literal[
    "pixels",  # the restored pixels
    "file",  # the frames that are read, and how they are encoded
    "streams",  # the streams that are copied with them
    "call",  # names, permissions and messages of this call
    "job",  # how the work is resumed, shared or shown
    "machine",  # where and how fast it works
]
Chosen = TypeVar("Chosen")
DROPPABLE = ("audio", "subtitles", "data", "attachments", "cover", "video", "exif")
MOST_SHIFT = 64  # pixels of luma that chroma is moved by
MOST_THREADS = 1024
LEAST_TILE = 64
LONGEST_SIDE = 1 << 16  # pixels
MOST_SECONDS = 366 * 24 * 3600
MOST_RATE = 10_000  # frames per second

# options, by their panels of the help
QUALITY = "Quality"
quality_option = partial(Option, rich_help_panel=QUALITY)
input_option = partial(Option, rich_help_panel="Input")
output_option = partial(Option, rich_help_panel="Output")
encoding_option = partial(Option, rich_help_panel="Encoding")
resume_option = partial(Option, rich_help_panel="Resume and batches")
machine_option = partial(Option, rich_help_panel="Machine")

# tasks with options of their own
DENOISE = frozenset({"denoise"})
ENLARGE = frozenset({"sr"})
EVERY_TASK = frozenset(TASKS)
WITH_WEIGHTS = frozenset(task.name for task in TASKS.values() if task.weights)


@plain_dataclass(frozen=True)
class About:
    """The scope of an option, and its tasks."""

    scope: Scope
    tasks: frozenset[str] = frozenset()  # empty for an option of the run


def _number(value: Any) -> Any:
    """Return a number of any type, such as NumPy's, as Python's own."""
    if isinstance(value, bool | Fraction) or not isinstance(value, Real):
        return value
    return int(value) if isinstance(value, Integral) else float(value)


def _exact(value: Any) -> Any:
    """Return a number as a fraction; 29.97 means what it shows."""
    value = _number(value)
    is_number = (
        isinstance(value, int | float)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )
    return Fraction(repr(value)) if is_number else value


def _storable(rate: Fraction) -> Fraction:
    """Raise ValueError for a rate that FFmpeg can't store: its fractions are of 32 bits."""
    if max(rate.numerator, rate.denominator) >= 1 << 31:
        raise ValueError("must be a fraction of at most 31 bits, such as 30000/1001")
    return rate


def _text(value: Any) -> Any:
    """Return a path, or a device of torch, as its name."""
    # torch isn't loaded for it
    if (type(value).__module__, type(value).__name__) == ("torch", "device"):
        return str(value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


Whole = Annotated[int, BeforeValidator(_number)]
Distance = Annotated[
    float, BeforeValidator(_number), Field(ge=-MOST_SHIFT, le=MOST_SHIFT)
]
# columns that chroma lies right of luma, and lines below it, in pixels of luma
Shift = tuple[Distance, Distance]
ChromaShift = Shift | Literal["auto"] | None
Exact = Annotated[Fraction, BeforeValidator(_exact)]
Rate = Annotated[
    Exact, Field(ge=1 / MOST_RATE, le=MOST_RATE), AfterValidator(_storable)
]
Share = Annotated[float, Field(ge=0, le=1)]
Text = Annotated[str, BeforeValidator(_text)]

# fields of several classes
Model = Annotated[
    Text | None,
    quality_option(
        help="Name from `vidrestore weights list`, or a .safetensors file.",
        metavar="NAME|FILE",
    ),
    About("pixels", WITH_WEIGHTS),
]
ConstantRate = Annotated[
    Rate | None,
    encoding_option(
        help="Constant frame rate for a pipe, such as 30000/1001.",
        metavar="RATE",
        parser=option_values.rate,
    ),
    About("file"),
]
Overwrite = Annotated[
    bool,
    output_option("--overwrite", "-y", help="Overwrite an existing output."),
    About("call"),
]
Arithmetic = Annotated[
    Precision,
    machine_option(help="Arithmetic of the model.", metavar="auto|fp32|bf16"),
    About("pixels"),
]
Threads = Annotated[
    Whole,
    Field(ge=0, le=MOST_THREADS),
    machine_option(help="CPU threads.", metavar="N", show_default="all"),
    About("machine"),
]


@dataclass(
    frozen=True, config=ConfigDict(strict=True, extra="forbid", allow_inf_nan=False)
)
class Options:
    """Base of options classes, which raise `OptionError` for wrong values and unknown names."""

    @model_validator(mode="wrap")
    @classmethod
    def _explained(cls, values: Any, handler: Any) -> Any:
        try:
            return handler(values)
        except ValidationError as error:
            raise OptionError(
                explained(error, [option.name for option in fields(cls)])
            ) from None


class Declared(NamedTuple):
    """The type of a field, its option of the command line, and what the option alters."""

    type: Any
    option: Any  # typer.Option(...), or None
    about: About | None


@cache
def declared(kind: type) -> dict[str, Declared]:
    """Return what the annotations of an options class declare, by the names of its fields."""
    annotations = get_type_hints(kind, include_extras=True)

    def first(name: str, kind: type) -> Any:
        notes = getattr(annotations[name], "__metadata__", ())
        return next((note for note in notes if isinstance(note, kind)), None)

    return {
        name: Declared(hint, first(name, ParameterInfo), first(name, About))
        for name, hint in get_type_hints(kind).items()
    }


def readable(kind: type[Chosen]) -> type[Chosen]:
    """Give a class a signature of names and defaults, since `help` would show all that its annotations
    declare.
    """
    signature = inspect.signature(kind)
    empty, parameters = inspect.Parameter.empty, signature.parameters.values()
    plain = signature.replace(
        parameters=[parameter.replace(annotation=empty) for parameter in parameters]
    )
    kind.__signature__ = plain  # type: ignore[attr-defined]
    return kind


@readable
@dataclass(frozen=True)
class EncoderOptions(Options):
    """Options of the encoder. Raises `OptionError` for a value out of range.

    Args:
        encoder (str): FFmpeg's name of the encoder, such as "libx265"; default None, as "auto": one of the
            source's codec, else the container's usual one.
        crf (float): Quality on the encoder's own scale, where lower is better; default None: by the bits per
            pixel of the source, 16 to 24 on the scale of x264.
        preset (str): Name or number of the encoder's speed, such as "slow"; default None: a usual one.
        options (mapping of str to str): Further options, passed to the encoder unchanged; default {}.
        lossless (bool): Encode without loss; default False.
        threads (int): Threads of the encoder; another number gives another, equally repeatable, file;
            default 0: by the cores and the size of the video.
    """

    encoder: Annotated[
        str | None,
        encoding_option(
            help="FFmpeg encoder, such as libx265; Tab completes names.",
            metavar="NAME",
            show_default="as the source",
        ),
    ] = None
    crf: Annotated[
        float | None,
        encoding_option(
            help="Quality on the encoder's scale; lower is better.",
            metavar="N",
            show_default="16 to 24",
        ),
    ] = None
    preset: Annotated[
        str | None,
        encoding_option(
            help="Encoder preset: medium, slow, ... or a number.", metavar="NAME"
        ),
    ] = None
    options: Annotated[
        Mapping[str, str],
        encoding_option(
            "--encoder-option",
            help="Pass an option to the encoder; repeatable.",
            metavar="KEY=VALUE",
            parser=option_values.setting,
        ),
    ] = field(default_factory=dict)
    lossless: Annotated[bool, encoding_option(help="Encode without loss.")] = False
    threads: Annotated[Whole, Field(ge=0, le=MOST_THREADS)] = 0


@readable
@dataclass(frozen=True)
class RestoreOptions(Options):
    """Options of a restoration. Raises `OptionError` for a value out of range.

    Args:
        sigma (float or "auto"): Noise level for `denoise`: standard deviation on the 0-255 scale, from 0 to
            255; default "auto": measured, scene by scene.
        model (str or path): Weights: a name of the manifest, a .safetensors file, or an address of the
            Hugging Face Hub; default None: those of the task.
        family (str): "spandrel" if `model` is a network of other authors (.pth, .safetensors); default None:
            the file names its family.
        quality ("fast", "default" or "best"): Effort of `denoise`; default "default".
        match (bool): Follow motion in `denoise`; False compares the same position in every frame; default
            True.
        scale (int): Factor of `sr`: 2, 3 or 4; default 4.
        height (int): Lines of the output of `sr`, an even number, in place of `scale`; default None: by
            `scale`.
        input ("auto", "clean" or "compressed"): Kind of source for `sr`: downscaled without loss, or from a
            camera or the web; default "auto": by its bits per pixel, noise and softness.
        strength (float): Share of the restored picture, from 0, the source, to 1; default 1.0.
        chroma_strength (float): The same of chroma in `denoise`; default None: that of `strength`.
        grain (float): Standard deviation of film grain that is added after `denoise`, on the 0-255 scale,
            from 0 to 30; default 0.0.
        haze ("auto" or "always"): "always" removes little haze as thick haze is; default "auto": little haze
            stays, as clear pictures look alike.
        dust ("auto" or "always"): "always" removes all specks; default "auto": few specks stay, and bright
            ones alone, as of rain and snow.
        scene_detect (bool): Restore scenes apart; False takes the video for one scene; default True.
        start (float or Fraction): Seconds from the first frame to the part to restore; default None: the
            beginning.
        duration (float or Fraction): Seconds of that part, of its sound as well; default None: to the end.
        fps (float or Fraction): Pictures per second of a folder or pattern, or of a raw stream; default None:
            25, or what the stream states.
        scan ("auto", "progressive", "tff", "bff" or "film"): "progressive" takes frames as they are; "tff"
            and "bff" deinterlace all, top or bottom field first; "film" makes 24 whole frames of 30 (3:2
            pulldown); default "auto": by what frames show and how they are marked.
        double_rate (bool): Make a frame of each field, so that 25 frames per second become 50; default False.
        dropouts ("fill" or "keep"): Fill dropouts of a tape from the fields before and after, or keep them;
            default "fill".
        chroma_shift (two floats, or "auto"): Columns that chroma lies right of luma, and lines below it, in
            pixels of luma, from -64 to 64: it is moved back; "auto" measures them, and moves 1.5 and more;
            default None: chroma stays.
        strict (bool): Fail if captions, HDR10+ or the like would be lost; default False: warn.
        drop (collection of str): What is not copied: "audio", "subtitles", "data", "attachments", "cover",
            "video" (further streams of it), "exif", or numbers of streams; default empty: all is copied.
        tags (bool): Store the settings in the output's tags, by which a later run knows it; default True.
        overwrite (bool): Replace an output that exists; default False: refuse it.
        encoder (EncoderOptions): Options of the encoder; default EncoderOptions().
        cfr (float or Fraction): Constant frame rate for a y4m pipe; default None: the source's, which must be
            constant.
        restart (bool): Discard an interrupted run and start over; default False: resume it.
        work_dir (str or path): Folder for work in progress; default None: a folder beside the output.
        device (str): "cpu", "cuda", "cuda:1", "mps", or several GPUs: "cuda:0,1"; default "auto": a GPU if
            there is one.
        precision ("auto", "fp32" or "bf16"): Arithmetic of the network; default "auto": by the device.
        threads (int): CPU threads, up to 1024; default 0: all cores.
        tile (int): Largest side of a tile in pixels, 64 or more; default None: whole frames if memory allows.
    """

    sigma: Annotated[
        Annotated[float, Field(ge=0, le=255)] | Literal["auto"],
        BeforeValidator(_number),
        quality_option(
            help="Noise level: standard deviation on the 0-255 scale; auto measures it.",
            metavar="SIGMA|auto",
            parser=option_values.noise,
        ),
        About("pixels", DENOISE),
    ] = "auto"
    model: Model = None
    family: Annotated[
        Text | None,
        quality_option(
            help="spandrel: --model is a network of other authors (.pth, .safetensors).",
            metavar="spandrel",
        ),
        About(
            "pixels",
            frozenset(task.name for task in TASKS.values() if task.has_published),
        ),
    ] = None
    quality: Annotated[
        Quality,
        quality_option(
            help="Also --fast and --best (slower).", metavar="fast|default|best"
        ),
        About("pixels", DENOISE),
    ] = "default"
    match: Annotated[bool, About("pixels", DENOISE)] = True
    scale: Annotated[
        Whole,
        Field(ge=2, le=4),
        quality_option("--scale", "-x", help="Scale factor: 2, 3 or 4.", metavar="N"),
        About("pixels", ENLARGE),
    ] = 4
    height: Annotated[
        Whole | None,
        Field(ge=2, le=LONGEST_SIDE, multiple_of=2),
        quality_option(
            help="Output height in pixels, such as 1080, instead of --scale.",
            metavar="LINES",
        ),
        About("pixels", ENLARGE),
    ] = None
    input: Annotated[
        Input,
        quality_option(
            help="compressed: from a camera or the web; clean: downscaled without loss; auto: by the bits "
            "per pixel.",
            metavar="auto|clean|compressed",
        ),
        About("pixels", ENLARGE),
    ] = "auto"
    strength: Annotated[
        Share,
        quality_option(
            help="Mix with the source: 1 is fully restored, 0 the source.",
            metavar="0..1",
            parser=option_values.share,
        ),
        About("pixels", EVERY_TASK),
    ] = 1.0
    chroma_strength: Annotated[
        Share | None,
        quality_option(
            help="Strength for chroma.",
            metavar="0..1",
            parser=option_values.share,
            show_default="as --strength",
        ),
        About("pixels", DENOISE),
    ] = None
    grain: Annotated[
        float,
        Field(ge=0, le=30),
        quality_option(
            help="Add film grain after denoising: standard deviation, 0-255 scale.",
            metavar="N",
        ),
        About("pixels", DENOISE),
    ] = 0.0
    haze: Annotated[
        Haze,
        quality_option(
            help="auto: little haze stays, as clear pictures look alike; always: removed as thick haze is.",
            metavar="auto|always",
        ),
        About("pixels", frozenset({"dehaze"})),
    ] = "auto"
    dust: Annotated[
        Dust,
        quality_option(
            help="auto: few specks stay, and bright ones alone (rain, snow); always: all are removed.",
            metavar="auto|always",
        ),
        About("pixels", frozenset({"dedust"})),
    ] = "auto"
    scene_detect: Annotated[
        bool,
        quality_option(
            " /--no-scene-detect", help="Don't detect scene cuts.", show_default=False
        ),
        About("pixels"),
    ] = True
    start: Annotated[
        Annotated[Exact, Field(ge=0, le=MOST_SECONDS)] | None,
        input_option(
            help="Start time: seconds, 1m30s or 1:30.",
            metavar="TIME",
            parser=option_values.moment,
        ),
        About("file"),
    ] = None
    duration: Annotated[
        Annotated[Exact, Field(gt=0, le=MOST_SECONDS)] | None,
        input_option(
            help="Length to restore, sound as well.",
            metavar="TIME",
            parser=option_values.seconds,
        ),
        About("file"),
    ] = None
    fps: Annotated[
        Rate | None,
        input_option(
            help="Pictures per second of a folder or pattern, or of a raw stream.",
            metavar="RATE",
            parser=option_values.rate,
            show_default="25",
        ),
        About("file"),
    ] = None
    scan: Annotated[
        Scanned,
        input_option(
            help="Fields of IN: as found, none, top or bottom field first, or film in fields (3:2).",
            metavar="auto|progressive|tff|bff|film",
        ),
        About("file"),
    ] = "auto"
    double_rate: Annotated[
        bool,
        input_option(help="Deinterlace, one frame per field: 25 fps become 50."),
        About("file"),
    ] = False
    dropouts: Annotated[
        Filled,
        input_option(
            help="Dropouts of a tape: filled from the fields before and after, or kept.",
            metavar="fill|keep",
        ),
        About("file"),
    ] = "fill"
    chroma_shift: Annotated[
        ChromaShift,
        input_option(
            help="Columns right of luma, and lines below it, that a tape's chroma is moved back by; auto "
            "measures them.",
            metavar="auto|X,Y",
            parser=option_values.chroma_shift,
            show_default="none",
        ),
        About("file"),
    ] = None
    strict: Annotated[
        bool,
        input_option(help="Fail if captions, HDR10+ or the like would be lost."),
        About("call"),
    ] = False
    drop: Annotated[
        frozenset[str],
        Field(strict=False),  # lists and tuples, too
        output_option(
            help=f"Don't copy: {', '.join(DROPPABLE)}, or streams by number.",
            metavar="KIND,N",
            parser=option_values.kinds,
        ),
        About("streams"),
    ] = frozenset()
    tags: Annotated[
        bool,
        output_option(
            " /--no-tags",
            help="Don't store the settings in OUT's tags.",
            show_default=False,
        ),
        About("streams"),
    ] = True
    overwrite: Overwrite = False
    encoder: Annotated[InstanceOf[EncoderOptions], About("file")] = field(
        default_factory=EncoderOptions
    )
    cfr: ConstantRate = None
    restart: Annotated[
        bool,
        resume_option(help="Discard an interrupted run and start over."),
        About("job"),
    ] = False
    work_dir: Annotated[
        Text | None,
        resume_option(
            help="Folder for work in progress.",
            metavar="DIR",
            show_default="beside OUT",
        ),
        About("job"),
    ] = None
    device: Annotated[
        Text,
        machine_option(
            help="auto, cpu, cuda, cuda:1 or mps; several GPUs: cuda:0,1.",
            metavar="NAME",
            parser=option_values.device,
        ),
        About("machine"),
    ] = "auto"
    precision: Arithmetic = "auto"
    threads: Threads = 0
    tile: Annotated[
        Whole | None,
        Field(ge=LEAST_TILE, le=LONGEST_SIDE),
        machine_option(
            help="Largest side of a tile in pixels: 64, 72, ...",
            metavar="N|auto",
            parser=option_values.tile,
            show_default="by the memory",
        ),
        About("pixels", EVERY_TASK),
    ] = None

    def __post_init__(self) -> None:
        # words that name nothing, then options that exclude each other
        if unknown := {
            word for word in self.drop if word not in DROPPABLE and not word.isdecimal()
        }:
            raise OptionError(
                f"drop must be of {', '.join(DROPPABLE)} and numbers of streams, found "
                f"{', '.join(sorted(unknown))}"
            )
        if self.double_rate and self.scan in ("progressive", "film"):
            raise OptionError(
                f"`double_rate` takes fields for frames; leave out that, or `scan={self.scan}`"
            )
        if self.family is not None and self.model is None:
            raise OptionError(
                f"`family={self.family}` is the kind of a file; name the file with `model`"
            )
        if self.height is not None and self.scale != 4:
            raise OptionError(
                "scale and height both set the size of the output; leave one out"
            )


FileName = str | os.PathLike[str]
Number = float | Fraction


class RestoreKeywords(TypedDict, total=False):
    """The fields of `RestoreOptions` as keywords of a function, for type checkers."""

    sigma: float | Literal["auto"]
    model: FileName | None
    family: str | None
    quality: Quality
    match: bool
    scale: int
    height: int | None
    input: Input
    strength: float
    chroma_strength: float | None
    grain: float
    haze: Haze
    dust: Dust
    scene_detect: bool
    start: Number | None
    duration: Number | None
    fps: Number | None
    scan: Scanned
    double_rate: bool
    dropouts: Filled
    chroma_shift: tuple[float, float] | Literal["auto"] | None
    strict: bool
    drop: frozenset[str] | set[str] | list[str] | tuple[str, ...]
    tags: bool
    overwrite: bool
    encoder: EncoderOptions
    cfr: Number | None
    restart: bool
    work_dir: FileName | None
    device: str
    precision: Precision
    threads: int
    tile: int | None


def chosen_options(
    kind: type[Chosen], options: Chosen | None, overrides: Mapping[str, object]
) -> Chosen:
    """Return `options`, by default those of `kind`, with fields changed. Raises OptionError."""
    if options is not None and not isinstance(options, kind):
        raise OptionError(
            f"options must be {kind.__name__}(...), got {type(options).__name__}"
        )
    return replace(options, **overrides) if options else kind(**overrides)  # type: ignore[type-var]


def values_of(options: Any, *scopes: Scope) -> dict[str, Any]:
    """Return the values of the options in some scopes, by name."""
    kind: Any = type(options)
    abouts = {name: declaration.about for name, declaration in declared(kind).items()}
    return {
        name: getattr(options, name)
        for name, about in abouts.items()
        if about and about.scope in scopes
    }


def changed_values(options: Any, *scopes: Scope) -> dict[str, Any]:
    """Return the values in some scopes that are not the defaults, by name."""
    default = type(options)()
    return {
        name: value
        for name, value in values_of(options, *scopes).items()
        if value != getattr(default, name)
    }
