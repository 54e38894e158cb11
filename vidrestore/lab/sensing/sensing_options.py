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
    """Options of a measurement, of which `rate` or `model` is required. Raises `OptionError` for a value out
    of range.

    Args:
        rate (float): Measurements per pixel, by which bundled weights are chosen: 0.1, 0.2, 0.3, 0.4 or 0.5;
            default None: that of `model`.
        model (str or path): Weights with a sensing matrix: a name of the manifest, a .safetensors file, or an
            address of the Hugging Face Hub; default None: those of the rate.
        sigma (float): Standard deviation of noise that is added to the measurements, on the 0-255 scale;
            default 0.0.
        seed (int): Seed of that noise; default 0.
        overwrite (bool): Replace an output that exists; default False: refuse it.
        device (str): "cpu", "cuda", "cuda:1" or "mps"; default "auto": a GPU if there is one.
    """

    rate: Annotated[
        float | None,
        Field(gt=0, le=1),
        quality_option(
            help="Measurements per pixel: 0.1, 0.2, 0.3, 0.4 or 0.5 with the bundled weights.",
            metavar="RATE",
        ),
    ] = None
    model: Model = None
    sigma: Annotated[
        float,
        Field(ge=0),
        quality_option(
            help="Noise added to the measurements: standard deviation, 0-255 scale.",
            metavar="SIGMA",
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
    """Options of a recovery. Raises `OptionError` for a value out of range.

    Args:
        model (str or path): The weights that measured the video, where they are not bundled; default None:
            those that the measurements name.
        precision ("auto", "fp32" or "bf16"): Arithmetic of the network; default "auto": by the device and
            the rate.
        threads (int): CPU threads, up to 1024; default 0: all cores.
        cfr (float or Fraction): Constant frame rate for a y4m pipe; default None: the source's, which must be
            constant.
        encoder (EncoderOptions): Options of the encoder; default EncoderOptions().
        overwrite (bool): Replace an output that exists; default False: refuse it.
        device (str): "cpu", "cuda", "cuda:1" or "mps"; default "auto": a GPU if there is one.
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
