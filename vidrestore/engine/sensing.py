"""Compressed sensing of film: `sense` keeps a few measurements of every patch, `recover` makes the film again from those alone.

As in the DUST paper (Section IV): patches lie side by side, each is multiplied by the network's own sensing matrix, and a patch is
recovered together with those at the same place in the other frames of a clip of 20. Clips don't overlap; the last one reaches back to
full length, and gives only the frames that no other has.

Measured on real clips at a rate of 0.2: 16-bit measurements cost less than 0.001 dB; bf16 in the network up to 0.01 dB at 34 dB; frames
at the edges of a clip are within 0.02 dB of what they are in the middle of one.
"""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar, cast

import torch
from torch import Tensor

from vidrestore.colour import grey_to_planes, planes_to_grey
from vidrestore.engine.chain import buffered
from vidrestore.engine.excerpt import expected_frames
from vidrestore.engine.job import QUEUE_BYTES, Summary, available_cores, check_picture, check_request, ignore
from vidrestore.engine.options import RecoverOptions, SenseOptions
from vidrestore.engine.progress import counted
from vidrestore.engine.restoring import CLIPS_MEMORY, COPIES, all_finite, at_once
from vidrestore.errors import CheckpointError, MediaError, OptionError, VidRestoreError
from vidrestore.events import Finished, Listener, Planned, Started, Warned
from vidrestore.frames import Frame, PixelFormat
from vidrestore.media.atomic import check_output, same_file
from vidrestore.media.encoders import PIPE, choose_encoder
from vidrestore.media.encoding import EncoderChoice
from vidrestore.media.measurements import SUFFIX, Measured, MeasurementReader, MeasurementWriter
from vidrestore.media.probe import SourceInfo
from vidrestore.media.reader import VideoReader
from vidrestore.media.span import WHOLE
from vidrestore.media.streams import other_kinds
from vidrestore.media.writer import VideoWriter
from vidrestore.models.dust import Dust
from vidrestore.models.grouping import CHUNK, GROUP
from vidrestore.models.linear import PackedLinear
from vidrestore.models.patches import PatchGrid
from vidrestore.models.recovery import RecoverySystem
from vidrestore.weights import Model, load_model, read_manifest
from vidrestore.weights.manifest import Card

HALF_LIMIT = 60000.0  # measurements that can't go beyond it are stored in 16 bits, whose largest number is 65504
BF16_BELOW = 0.35  # rate: what comes back from more measurements is so close to the source that bf16's 8 bits would begin to show
WHITE = 256.0  # no sample is above it, whatever the depth

Chosen = TypeVar("Chosen", SenseOptions, RecoverOptions)
Network = Dust | RecoverySystem  # with a sensing matrix


def sense(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    options: SenseOptions | None = None,
    on_event: Listener | None = None,
    **overrides: Any,
) -> Summary:
    """Measure the film `source` into the `.safetensors` file `output`; done when it returns.

    `source` is a path, or "-" for a y4m film on standard input. `overrides` are fields of SenseOptions (`rate=0.2`) and win over
    `options`. Sound and all other streams are left out. Raises VidRestoreError; then there is no output.
    """
    chosen, tell = _chosen(SenseOptions, options, overrides), on_event or ignore
    source, output = os.fspath(source), os.fspath(output)
    _check_measurements_name(output)
    check_output(output, source, overwrite=chosen.overwrite)
    if chosen.model is not None and same_file(Path(output), Path(chosen.model)):
        raise MediaError(f"{output}: the output is the weights that measure, without which nothing is recovered; give -o another name")
    model = sensing_model(chosen)
    with VideoReader(source) as reader:
        check_picture(source, reader.info.video, "deinterlace first, for example: ffmpeg -i IN -vf bwdif=send_frame -c:v ffv1 OUT.mkv")
        tell(Started(source, output, "sense", model.card.name, "cpu"))
        return _sense(reader, output, model, chosen, tell)


def recover(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    options: RecoverOptions | None = None,
    on_event: Listener | None = None,
    **overrides: Any,
) -> Summary:
    """Make a film from the measurements in `source`, with the times, size, colour and rotation of the one that was measured.

    `output` is a path, or "-" for y4m on standard output; it has no stream but the video. `overrides` are fields of RecoverOptions and
    win over `options`. Raises VidRestoreError; then there is no output.
    """
    chosen, tell = _chosen(RecoverOptions, options, overrides), on_event or ignore
    source, output = os.fspath(source), os.fspath(output)
    check_request(source, output, chosen)
    with MeasurementReader(source) as reader:
        info = recovered_info(reader.measured)
        encoder = choose_encoder(info, output, chosen.encoder)
        model = recovering_model(source, reader.measured, chosen.model)
        tell(Started(source, output, "recover", model.card.name, "cpu"))
        return _recover(reader, output, info, encoder, model, chosen, tell)


def _chosen(kind: type[Chosen], options: Chosen | None, overrides: dict[str, Any]) -> Chosen:
    return replace(options, **overrides) if options else kind(**overrides)


def _check_measurements_name(output: str) -> None:
    if not output.endswith(SUFFIX):
        raise MediaError(f"{output}: measurements are written as {SUFFIX}; give -o a name such as film{SUFFIX}")


def sensing_cards() -> dict[str, Card]:
    """The listed weights that have a sensing matrix, by their rate as a text such as "0.2"; the first one where several have the same."""
    cards: dict[str, Card] = {}
    for card in read_manifest().values():
        if measurements := card.config.get("measurements"):
            cards.setdefault(f"{measurements / card.config.get('patch', 16) ** 2:.2g}", card)
    return cards


def sensing_model(options: SenseOptions) -> Model:
    """The weights that an option names or whose rate it asks for. Raises OptionError for a rate that none has, CheckpointError."""
    if options.model is None:
        cards = sensing_cards()
        rate = f"{options.rate:.2g}"
        if rate not in cards:
            known = ", ".join(f"{rate} ({card.name})" for rate, card in sorted(cards.items())) or "none"
            raise OptionError(f"no weights for a rate of {options.rate:g}; there are: {known}. --model takes a file of your own")
        return load_model(cards[rate].name)
    model = load_model(options.model)
    pixels = model.card.config.get("patch", 16) ** 2
    measurements = model.card.config.get("measurements")
    if not measurements:
        known = ", ".join(card.name for card in sensing_cards().values()) or "none"
        raise CheckpointError(f"{options.model}: has no sensing matrix (its task is {model.card.task}); weights that have one: {known}")
    if options.rate is not None and f"{options.rate:.2g}" != f"{measurements / pixels:.2g}":
        raise OptionError(f"{options.model} measures at a rate of {measurements / pixels:.2g}, not {options.rate:g}; leave --rate out")
    return model


def recovering_model(source: str, measured: Measured, asked: str | None) -> Model:
    """The very weights that measured: by the name in the file, or those that were `asked` for. CheckpointError where they are others."""
    made = f"{source}: measured with {measured.model} (sha256 {measured.sha256[:12]}…)"
    try:
        model = load_model(asked or measured.model)
    except CheckpointError as error:
        raise error if asked else CheckpointError(f"{made}, which can't be loaded here; name its file with --model ({error})") from error
    if model.card.sha256 != measured.sha256:
        raise CheckpointError(
            f"{made}, but {asked or model.card.name} has sha256 {model.card.sha256[:12]}…; only the weights that measured can recover: "
            "name their file with --model"
        )
    return model


def _sense(reader: VideoReader, output: str, model: Model, options: SenseOptions, tell: Listener) -> Summary:
    network, info = cast(Network, model.network), reader.info
    measured = _description(info, model, options)
    total, began = expected_frames(info, WHOLE), time.monotonic()
    tell(Planned(info.path, total, details={"rate": measured.rate, "measurements": measured.measurements, "patches": measured.patches}))
    sensor = Sensor(network, info.video.format, measured.grids, options.sigma, options.seed)
    half = sensor.largest <= HALF_LIMIT
    decoded = buffered(reader.frames(), QUEUE_BYTES, _nbytes)
    with closing(decoded), MeasurementWriter(output, measured, half=half, overwrite=options.overwrite) as writer:
        for frame in counted(decoded, info.path, total, "sense", tell):
            writer.write(sensor.measure(frame).numpy(), frame.pts, frame.duration)
    if measured.left_out:
        tell(Warned(info.path, f"measurements hold the picture only; left out: {', '.join(measured.left_out)}"))
    damage = reader.damage.summary() if reader.damage.found else None
    return _finished(Summary(info.path, output, writer.frames, time.monotonic() - began, damage=damage), tell)


def _description(info: SourceInfo, model: Model, options: SenseOptions) -> Measured:
    return Measured(
        model=model.card.name,
        sha256=model.card.sha256,
        patch=model.card.config.get("patch", 16),
        measurements=model.card.config["measurements"],
        sigma=float(options.sigma),
        seed=options.seed,
        source=info.path if info.path == PIPE else Path(info.path).name,
        left_out=tuple(other_kinds(info)),
        video=info.video,
    )


class Sensor:
    """Takes the measurements of one frame after another, with noise of standard deviation `sigma` on them.

    The noise follows from the seed and a frame's place in the film alone.
    """

    def __init__(self, network: Network, pixels: PixelFormat, grids: tuple[PatchGrid, ...], sigma: float, seed: int) -> None:
        self.network, self.pixels, self.grids, self.sigma = network, pixels, grids, sigma
        self.generator = torch.Generator().manual_seed(seed)

    @property
    def largest(self) -> float:
        """No measurement is further from 0, whatever is filmed; noise is taken to stay within 10 standard deviations. Infinite for
        floating-point samples, which have no bound."""
        if self.pixels.depth == 32:
            return float("inf")
        unit = self.network.measure(torch.eye(self.network.config.patch**2)).detach()  # (N, M), the sensing matrix transposed
        return float(WHITE * unit.abs().sum(0).max() + 10 * self.sigma)

    @torch.inference_mode()
    def measure(self, frame: Frame) -> Tensor:
        """(P, M) measurements of the patches of all planes, one plane after another."""
        grey = planes_to_grey(frame.planes, self.pixels)
        patches = torch.cat([grid.cut(plane[None])[0] for grid, plane in zip(self.grids, grey, strict=True)])
        measurements = self.network.measure(patches)
        if self.sigma:
            measurements = measurements + self.sigma * torch.randn(measurements.shape, generator=self.generator)
        return measurements


def recovered_info(measured: Measured) -> SourceInfo:
    """The measured film as a source that has nothing but the video, and no file behind it."""
    return SourceInfo(path=PIPE, container="", video=measured.video, streams=())


def _recover(
    reader: MeasurementReader, output: str, info: SourceInfo, encoder: EncoderChoice, model: Model, options: RecoverOptions, tell: Listener
) -> Summary:
    began = time.monotonic()
    details = {"encoder": encoder.encoder, "pix_fmt": encoder.pix_fmt, "rate": reader.measured.rate, "sigma": reader.measured.sigma}
    tell(Planned(reader.path, reader.frames, clips=len(recovery_clips(reader.frames)), details=details))
    writer = VideoWriter(output, source=info, encoder=encoder, copy=(), frames=reader.frames, overwrite=options.overwrite, rate=options.cfr)
    frames = buffered(recovered_frames(reader, cast(Network, model.network), options), QUEUE_BYTES, _nbytes)
    with closing(frames), writer:
        for frame in counted(frames, reader.path, reader.frames, "recover", tell):
            writer.write(frame)
    warnings = list(writer.warnings)
    if left_out := ", ".join(reader.measured.left_out):
        warnings.append(f"the film has no {left_out}: measurements hold the picture only; {reader.measured.source} had them")
    for warning in warnings:
        tell(Warned(reader.path, warning))
    return _finished(Summary(reader.path, output, reader.frames, time.monotonic() - began), tell)


def recovery_clips(frames: int) -> list[tuple[int, int, int]]:
    """(start, first, stop) of each clip: frames [start, stop) are recovered together, of which [first, stop) are its own."""
    stops = ((first, min(first + GROUP, frames)) for first in range(0, frames, GROUP))
    return [(max(0, stop - GROUP), first, stop) for first, stop in stops]


def recovered_frames(reader: MeasurementReader, network: Network, options: RecoverOptions) -> Generator[Frame]:
    """Yield every frame of a file of measurements, recovered; several clips are worked on at once, as many as memory allows."""
    threads = options.threads or available_cores()
    samples = GROUP * reader.measured.patches * reader.measured.patch**2
    workers = max(1, min(threads, CLIPS_MEMORY // (COPIES * 4 * samples)))
    recoverer = Recoverer(reader.measured, network, options.precision)
    with closing(at_once(recoverer.recover, _clips(reader), workers, threads)) as clips:
        for frames in clips:
            yield from frames


def _clips(reader: MeasurementReader) -> Iterator[tuple[Tensor, list[tuple[int, int]]]]:
    """Yield the measurements of each clip and the times of the frames that are its own, the last of them."""
    for start, first, stop in recovery_clips(reader.frames):
        times = zip(reader.pts[first:stop].tolist(), reader.durations[first:stop].tolist(), strict=True)
        yield torch.from_numpy(reader.clip(start, stop)), list(times)


class Recoverer:
    """Makes frames from measurements with the network's fast form, which is worked out once."""

    def __init__(self, measured: Measured, network: Network, precision: str) -> None:
        self.measured = measured
        with torch.no_grad():
            dtype = torch.bfloat16 if _use_bf16(measured.rate, precision) else torch.float32
            self.network = network.at(measured.sigma, dtype, PackedLinear)

    @torch.inference_mode()
    def recover(self, clip: tuple[Tensor, list[tuple[int, int]]]) -> list[Frame]:
        """The frames of a clip: its measurements (T, P, M), and (pts, duration) of the last of its frames, those that are wanted."""
        measurements, times = clip
        grids, pixels = self.measured.grids, self.measured.video.format
        parts = measurements.split([grid.count for grid in grids], dim=1)
        native = [grey_to_planes([self._plane(part, grid, times)], pixels)[0] for part, grid in zip(parts, grids, strict=True)]
        return [Frame(tuple(plane[index] for plane in native), pts, duration) for index, (pts, duration) in enumerate(times)]

    def _plane(self, measurements: Tensor, grid: PatchGrid, times: list[tuple[int, int]]) -> Tensor:
        """(T, count, M) measurements of one plane -> its last frames (T', H, W), as many as there are times."""
        patches = torch.empty(len(times), grid.count, grid.patch**2)
        for first in range(0, grid.count, CHUNK):
            groups = measurements[:, first : first + CHUNK].transpose(0, 1)  # a group is a patch's place in all frames
            patches[:, first : first + CHUNK] = self.network(groups)[:, -len(times) :].transpose(0, 1)
        plane = grid.joined(patches)
        if not all_finite((plane,)):
            raise VidRestoreError(
                f"frames at pts {times[0][0]} to {times[-1][0]}: {self.measured.model} gave values that are no numbers; the measurements "
                "or the weights may be damaged (see `vidrestore weights verify`)"
            )
        return plane


def _use_bf16(rate: float, precision: str) -> bool:
    if precision == "auto":
        return rate < BF16_BELOW and torch.cpu._is_avx512_bf16_supported()
    return precision == "bf16"


def _finished(summary: Summary, tell: Listener) -> Summary:
    details = {"fps": summary.fps}
    tell(Finished(summary.source, summary.output, summary.frames, summary.seconds, summary.damage, details))
    return summary


def _nbytes(frame: Frame) -> int:
    return frame.nbytes
