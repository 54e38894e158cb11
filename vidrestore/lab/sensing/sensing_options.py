"""Options of `sense` and `recover`, declared as those of a restoration are (`settings.options`)."""

from __future__ import annotations

from dataclasses import field
from typing import Annotated, TypedDict

from pydantic import Field, InstanceOf
from pydantic.dataclasses import dataclass

from vidrestore.errors import OptionError
from vidrestore.settings.options import (
    About,
    Arithmetic,
    ConstantRate,
    EncoderOptions,
    FileName,
    Model,
    Number,
    Options,
    Overwrite,
    Precision,
    Text,
    Threads,
    Whole,
    machine_option,
    quality_option,
    readable,
)

Device = Annotated[
    Text,
    machine_option(help="auto, cpu, cuda, cuda:1 or mps.", metavar="NAME"),
    About("machine"),
]


@readable
@dataclass(frozen=True)
class SenseOptions(Options):
    """Options of a measurement. Raises `OptionError` for a value out of range.

    `rate` (measurements per pixel) selects bundled weights, `model` names weights; one of the two is
    required. `sigma` is on the scale of the measurements, that of grey levels 0-255; `seed` determines the
    noise.
    """

    rate: Annotated[
        float | None,
        Field(gt=0, le=1),
        quality_option(
            help="Measurements per pixel: 0.1, 0.2, 0.3, 0.4 or 0.5 with the bundled weights.", metavar="RATE"
        ),
    ] = None
    model: Model = None
    sigma: Annotated[
        float,
        Field(ge=0),
        quality_option(
            help="Noise added to the measurements: standard deviation, 0-255 scale.", metavar="SIGMA"
        ),
    ] = 0.0
    seed: Annotated[
        Whole,
        Field(ge=0, lt=1 << 63),
        quality_option(help="Random seed of the noise.", metavar="N"),
    ] = 0
    overwrite: Overwrite = False
    device: Device = "auto"

    def __post_init__(self) -> None:
        if self.rate is None and self.model is None:
            raise OptionError(
                "a rate such as 0.2 is needed, or a model that has a sensing matrix (`rate`, `model`)"
            )


@readable
@dataclass(frozen=True)
class RecoverOptions(Options):
    """Options of a recovery. `model` is needed only if the weights that measured the video are not bundled.

    Raises `OptionError` for a value out of range.
    """

    model: Model = None
    precision: Arithmetic = "auto"
    threads: Threads = 0
    cfr: ConstantRate = None
    encoder: InstanceOf[EncoderOptions] = field(default_factory=EncoderOptions)
    overwrite: Overwrite = False
    device: Device = "auto"


class SenseKeywords(TypedDict, total=False):
    """The fields of `SenseOptions` as keywords of a function, for type checkers."""

    rate: float | None
    model: FileName | None
    sigma: float
    seed: int
    overwrite: bool
    device: str


class RecoverKeywords(TypedDict, total=False):
    """The fields of `RecoverOptions` as keywords of a function, for type checkers."""

    model: FileName | None
    precision: Precision
    threads: int
    cfr: Number | None
    encoder: EncoderOptions
    overwrite: bool
    device: str
