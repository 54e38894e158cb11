"""Measure a video by compressed sensing: a few measurements per patch, from which `recover` reconstructs the
video.

As in the DUST paper (Section IV): patches lie side by side, each is multiplied by the network's own sensing
matrix, and a patch is recovered together with those at the same place in the other frames of a clip of 20.
Clips don't overlap; the last one reaches back to full length, and gives only the frames that no other has.

Measured on real clips at a rate of 0.2: 16-bit measurements cost less than 0.001 dB; bf16 in the network up
to 0.01 dB at 34 dB; frames at the ends of a clip are within 0.02 dB of those in its middle.
"""

from __future__ import annotations

import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Unpack, cast

import torch
from torch import Tensor

from vidrestore.errors import CheckpointError, MediaError, OptionError
from vidrestore.events import Listener, Planned, Started, Summary, Warned, ignore_event
from vidrestore.files.atomic import check_output, remove_partials
from vidrestore.files.regular import digest
from vidrestore.jobs.frame_progress import counted
from vidrestore.lab.sensing.measurements_file import (
    SUFFIX,
    Measured,
    MeasurementReader,
    MeasurementWriter,
    PatchGrid,
)
from vidrestore.lab.sensing.sensing_options import SenseKeywords, SenseOptions
from vidrestore.media.formats.source import Source
from vidrestore.media.reading.reader import VideoReader, expected_frames
from vidrestore.media.writing.streams import other_kinds
from vidrestore.models.grouping import GroupNetwork
from vidrestore.pipeline.chain import frames_ahead
from vidrestore.pipeline.conversions import Uploads, floats
from vidrestore.pixels.colour import planes_to_grey
from vidrestore.pixels.frames import WHOLE, Frame, PixelFormat
from vidrestore.restorers.devices import device_name, torch_device
from vidrestore.settings.options import chosen_options
from vidrestore.weights import Model, load_model, read_manifest
from vidrestore.weights.manifest import Card

# measurements that can't go beyond it are stored in 16 bits, whose largest number is 65504
HALF_LIMIT = 60000.0
ABOVE_WHITE = 256.0  # above all samples of any bit depth


def sense(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    options: SenseOptions | None = None,
    on_event: Listener | None = None,
    **overrides: Unpack[SenseKeywords],
) -> Summary:
    """Measure the video `source` into the `.safetensors` file `output`; done when it returns.

    Sound and all other streams are left out. Raises VidRestoreError; then there is no output.

    Args:
        source (str or path): Video to measure; "-" for a y4m video on standard input.
        output (str or path): File to write, with the suffix `.safetensors`.
        options (SenseOptions): Settings of the measurement; default None: those of `SenseOptions()`.
        on_event (callable): Called with every event of the run; default None: events are dropped.
        overrides: Fields of SenseOptions by name (`rate=0.2`), which win over `options`.
    """
    options = chosen_options(SenseOptions, options, overrides)
    emit = on_event or ignore_event
    source = os.fspath(source)
    output = os.fspath(output)
    if not output.endswith(SUFFIX):
        raise MediaError(
            f"{output}: measurements are written as {SUFFIX}; give `output` a name such as video{SUFFIX}"
        )
    device = torch_device(options.device)
    model = sensing_model(options, device)
    # an output that an earlier run finished is left as it is
    job = ""
    if Source(source).is_stored:
        identity = Source(source).identity()
        request = {
            "sense": model.card.sha256,
            "sigma": options.sigma,
            "seed": options.seed,
        }
        job = digest(request | {"places": identity.places, "size": identity.size})
    if job and not options.overwrite and os.path.isfile(output):
        with suppress(MediaError):  # another file
            earlier = MeasurementReader(output)
            if earlier.job == job:
                earlier.check()
                remove_partials(Path(output))
                emit(
                    summary := Summary(source, output, earlier.frames, 0.0, before=True)
                )
                return summary
    read = (*Source(source).files, *([options.model] if options.model else ()))
    check_output(output, read, overwrite=options.overwrite)
    with VideoReader(source) as reader:
        reader.refuse_interlaced(
            "deinterlace first, for example: ffmpeg -i IN -vf bwdif=send_frame -c:v ffv1 OUT.mkv"
        )
        emit(Started(source, output, "sense", model.card.name, device_name(device)))
        return _sense(reader, output, model, options, emit, job)


def sensing_cards() -> dict[str, Card]:
    """Return the first listed weights of each rate ("0.2") that have a sensing matrix, by rate."""
    cards: dict[str, Card] = {}
    for card in read_manifest().values():
        if measurements := card.config.get("measurements"):
            cards.setdefault(
                f"{measurements / card.config.get('patch', 16) ** 2:.2g}", card
            )
    return cards


def sensing_model(options: SenseOptions, device: torch.device) -> Model:
    """Return the weights named, or of the rate. Raises OptionError if no weights have it, CheckpointError."""
    # bundled weights by their rate, or a file
    if options.model is None:
        cards = sensing_cards()
        rate = f"{options.rate:.2g}"
        if rate not in cards:
            choices = (
                ", ".join(
                    f"{rate} ({card.name})" for rate, card in sorted(cards.items())
                )
                or "none"
            )
            raise OptionError(
                f"no weights for a rate of {options.rate:g}; there are: {choices}. `model` takes a file of "
                "your own"
            )
        return load_model(cards[rate].name, str(device))
    model = load_model(options.model, str(device))
    pixels = model.card.config.get("patch", 16) ** 2
    measurements = model.card.config.get("measurements")
    if not measurements:
        choices = ", ".join(card.name for card in sensing_cards().values()) or "none"
        raise CheckpointError(
            f"{options.model}: has no sensing matrix (its task is {model.card.task}); weights that have "
            f"one: {choices}"
        )
    if (
        options.rate is not None
        and f"{options.rate:.2g}" != f"{measurements / pixels:.2g}"
    ):
        raise OptionError(
            f"{options.model} measures at a rate of {measurements / pixels:.2g}, not {options.rate:g}; "
            "leave `rate` out"
        )
    return model


def _sense(
    reader: VideoReader,
    output: str,
    model: Model,
    options: SenseOptions,
    emit: Listener,
    job: str,
) -> Summary:
    """Measure the frames of a video, write the measurements file and return its summary."""
    # the header, by which the measurements can be recovered
    network = cast(GroupNetwork, model.network)
    info = reader.info
    measured = Measured(
        model=model.card.name,
        sha256=model.card.sha256,
        patch=model.card.config.get("patch", 16),
        measurements=model.card.config["measurements"],
        sigma=float(options.sigma),
        seed=options.seed,
        source=Path(info.path).name,
        left_out=tuple(other_kinds(info)),
        video=info.video,
    )
    total = expected_frames(info, WHOLE)
    began = time.monotonic()
    details = {
        name: getattr(measured, name) for name in ("rate", "measurements", "patches")
    }
    emit(Planned(info.path, total, details=details))
    sensor = Sensor(
        network, info.video.format, measured.grids, options.sigma, options.seed
    )

    # measured while the next frames are decoded
    writing = MeasurementWriter(
        output, measured, half=sensor.half, overwrite=options.overwrite, job=job
    )
    with frames_ahead(reader.frames()) as decoded, writing as writer:
        for frame in counted(decoded, info.path, total, "sense", emit):
            writer.write(sensor.measure(frame).numpy(), frame.pts, frame.duration)
    if left_out := ", ".join(measured.left_out):
        emit(
            Warned(
                info.path, f"measurements hold the picture only; left out: {left_out}"
            )
        )
    seconds = time.monotonic() - began
    emit(
        summary := Summary(
            info.path, output, writer.frames, seconds, reader.damage.sentence
        )
    )
    return summary


class Sensor:
    """Takes measurements of one frame after another, with noise of standard deviation `sigma` that follows
    from the seed and a frame's place in the video alone.
    """

    def __init__(
        self,
        network: GroupNetwork,
        pixels: PixelFormat,
        grids: tuple[PatchGrid, ...],
        sigma: float,
        seed: int,
    ) -> None:
        self.network = network
        self.pixels = pixels
        self.grids = grids
        self.sigma = sigma
        self.generator = torch.Generator().manual_seed(seed)
        self.device = next(network.parameters()).device
        self.uploads = (
            None if self.device.type == "cpu" else Uploads(self.device, len(grids))
        )
        self.measured = 0  # frames
        self.half = self.largest <= HALF_LIMIT  # 16 bits hold every measurement

    @property
    def largest(self) -> float:
        """Upper bound of a measurement with noise of up to 10 sigma; infinite for floating-point samples."""
        # no measurement can be larger than all white, seen by one row of the matrix
        if self.pixels.depth == 32:
            return float("inf")
        identity = torch.eye(self.network.config.patch**2, device=self.device)
        # (N, M), the sensing matrix transposed
        unit = self.network.measure(identity).detach()
        return float(ABOVE_WHITE * unit.abs().sum(0).max() + 10 * self.sigma)

    @torch.inference_mode()
    def measure(self, frame: Frame) -> Tensor:
        """Return (P, M) measurements of the patches of all planes, one plane after another; on the CPU."""
        # a GPU gets the frame while the last one is computed
        if self.uploads:
            grey = floats(
                self.uploads.send(self.measured, [frame]).result(), self.pixels.unit
            )
            self.measured += 1
        else:
            grey = tuple(
                plane[None] for plane in planes_to_grey(frame.planes, self.pixels)
            )
        patches = torch.cat(
            [grid.cut(plane)[0] for grid, plane in zip(self.grids, grey, strict=True)]
        )
        measurements = self.network.measure(patches)
        if self.sigma:
            noise = torch.randn(measurements.shape, generator=self.generator)
            measurements = measurements + self.sigma * noise.to(self.device)
        return (
            measurements.half() if self.uploads and self.half else measurements
        ).cpu()
