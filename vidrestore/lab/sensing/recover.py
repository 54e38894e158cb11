"""Recover a video from the measurements of `sense` alone."""

from __future__ import annotations

import os
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from dataclasses import asdict, replace
from typing import Any, Unpack, cast

import torch
from numpy.typing import NDArray
from torch import Tensor

from vidrestore import __version__
from vidrestore.cores import dealt
from vidrestore.errors import CheckpointError, VidRestoreError
from vidrestore.events import Listener, Planned, Started, Summary, Warned, ignore_event
from vidrestore.files.atomic import remove_partials
from vidrestore.files.regular import digest
from vidrestore.jobs.frame_progress import counted
from vidrestore.jobs.steps import write_frames
from vidrestore.lab.sensing.measurements_file import (
    Measured,
    MeasurementReader,
    PatchGrid,
)
from vidrestore.lab.sensing.sensing_options import RecoverKeywords, RecoverOptions
from vidrestore.media.formats.encoder_table import EncoderChoice
from vidrestore.media.formats.source import PIPE, Source, Target
from vidrestore.media.reading.probe import SourceInfo
from vidrestore.media.writing.encoders import choose_encoder
from vidrestore.media.writing.finished import (
    UNKNOWN,
    broken_output,
    is_foreign,
    read_tag,
)
from vidrestore.media.writing.writer import VideoWriter
from vidrestore.models.fast_linear import PackedLinear
from vidrestore.models.fitted import on_device
from vidrestore.models.grouping import CHUNK, GROUP, GroupNetwork
from vidrestore.pipeline.chain import at_once, frames_ahead
from vidrestore.pipeline.conversions import (
    CLIPS_MEMORY,
    COPIES,
    all_finite,
    stored_samples,
)
from vidrestore.pixels.frames import Frame
from vidrestore.restorers.denoise import GROUPS_PER_PROCESSOR
from vidrestore.restorers.devices import batch_for, device_name, torch_device, uses_bf16
from vidrestore.settings.options import chosen_options
from vidrestore.weights import Model, load_model
from vidrestore.working import available_cores, threads_for

# rate: what comes back from more measurements is so close to the source that bf16's 8 bits would begin to
# show
BF16_BELOW = 0.35
ATOMS_PER_PIXEL = 4  # approximate number of atoms per pixel of dictionaries


def recover(
    source: str | os.PathLike[str],
    output: str | os.PathLike[str],
    *,
    options: RecoverOptions | None = None,
    on_event: Listener | None = None,
    **overrides: Unpack[RecoverKeywords],
) -> Summary:
    """Make a video from the measurements in `source`, with the times, size, colour and rotation of the
    original.

    The output has no stream but the video. Raises VidRestoreError; then there is no output.

    Args:
        source (str or path): Measurements as `sense` writes them.
        output (str or path): Video to write; "-" for y4m on standard output.
        options (RecoverOptions): Settings of the recovery; default None: those of `RecoverOptions()`.
        on_event (callable): Called with every event of the run; default None: events are dropped.
        overrides: Fields of RecoverOptions by name, which win over `options`.
    """
    options = chosen_options(RecoverOptions, options, overrides)
    emit = on_event or ignore_event
    source = os.fspath(source)
    target = Target.of(output)
    target.make_folder()
    target.check(Source(source), overwrite=True, cfr=options.cfr)
    reader = MeasurementReader(source)
    # the video alone, and no file behind it
    info = SourceInfo(path=PIPE, container="", video=reader.measured.video, streams=())
    encoder = choose_encoder(info, target, options.encoder, cores=available_cores())
    device = torch_device(options.device)
    model = recovering_model(source, reader.measured, options.model, device)
    settings = {"encoder": asdict(encoder), "precision": options.precision}
    identity = Source(source).identity()
    places = {"places": identity.places, "size": identity.size}
    request = digest({"recover": model.card.sha256, **places, **settings})
    # an output that an earlier run finished is left as it is
    tag = None if options.overwrite else read_tag(target)
    if tag and tag.job == request and not is_foreign(target):
        problem = broken_output(target, tag)
        if not problem:
            remove_partials(target.path)
            emit(earlier := Summary(source, str(target), tag.frames, 0.0, before=True))
            return earlier
        emit(Warned(source, f"{target}: {problem}; it is made again"))
        options = replace(options, overwrite=True)
    target.check(Source(source), overwrite=options.overwrite)
    reader.check()
    emit(Started(source, str(target), "recover", model.card.name, device_name(device)))
    return _recover(reader, target, info, encoder, model, options, emit, request)


def recovering_model(
    source: str, measured: Measured, name: str | None, device: torch.device
) -> Model:
    """Return the model that took the measurements, by `name` or by the file's. Raises CheckpointError."""
    # only the network that measured can recover
    origin = (
        f"{source}: measured with {measured.model} (sha256 {measured.sha256[:12]}…)"
    )
    try:
        model = load_model(name or measured.model, str(device))
    except CheckpointError as error:
        if name:
            raise
        raise CheckpointError(
            f"{origin}, which can't be loaded here; name its file with `model` ({error})"
        ) from error
    if model.card.sha256 != measured.sha256:
        raise CheckpointError(
            f"{origin}, but {name or model.card.name} has sha256 {model.card.sha256[:12]}…; only the "
            "weights that measured a video can recover it: name their file with `model`"
        )
    return model


def _recover(
    reader: MeasurementReader,
    output: Target,
    info: SourceInfo,
    encoder: EncoderChoice,
    model: Model,
    options: RecoverOptions,
    emit: Listener,
    request: str,
) -> Summary:
    """Recover the frames of a measurements file, write the output and return its summary."""
    began = time.monotonic()
    # what is planned, and how the output is marked
    details = {
        "encoder": encoder.encoder,
        "pix_fmt": encoder.pix_fmt,
        "rate": reader.measured.rate,
        "sigma": reader.measured.sigma,
    }
    emit(
        Planned(
            reader.path,
            reader.frames,
            clips=len(recovery_clips(reader.frames)),
            details=details,
        )
    )
    tag = (
        f"vidrestore {request}+{UNKNOWN} {__version__}: recover; {reader.frames} frames"
    )
    writer = VideoWriter(
        output,
        source=info,
        encoder=encoder,
        frames=reader.frames,
        overwrite=options.overwrite,
        rate=options.cfr,
        tag=tag,
    )
    # frames are written while the next ones are recovered
    recovered = recovered_frames(reader, cast(GroupNetwork, model.network), options)
    with frames_ahead(recovered) as frames:
        write_frames(
            frames,
            writer,
            lambda items: counted(items, reader.path, reader.frames, "recover", emit),
        )
    warnings = list(writer.warnings)
    if left_out := ", ".join(reader.measured.left_out):
        warnings.append(
            f"the video has no {left_out}: measurements hold the picture only; {reader.measured.source} had "
            "them"
        )
    for warning in warnings:
        emit(Warned(reader.path, warning))
    emit(
        summary := Summary(
            reader.path, str(output), reader.frames, time.monotonic() - began
        )
    )
    return summary


def recovery_clips(frames: int, length: int = GROUP) -> list[tuple[int, int, int]]:
    """Return (start, first, stop) of each clip: [start, stop) are recovered, [first, stop) are new."""
    stops = ((first, min(first + length, frames)) for first in range(0, frames, length))
    return [(max(0, stop - length), first, stop) for first, stop in stops]


def recovered_frames(
    reader: MeasurementReader, network: GroupNetwork, options: RecoverOptions
) -> Generator[Frame]:
    """Yield every frame of a file, recovered; as many clips at once as memory allows."""
    # as many clips as there are cores and memory for
    threads = threads_for(options.threads)
    samples = GROUP * reader.measured.patches * reader.measured.patch**2
    clips_at_once = max(1, min(threads, CLIPS_MEMORY // (COPIES * 4 * samples)))
    recoverer = Recoverer(reader.measured, network, options.precision)
    if recoverer.device.type != "cpu":
        clips_at_once = threads = 1
    with closing(
        at_once(recoverer.recover, _clips(reader), clips_at_once, threads)
    ) as clips:
        for frames in clips:
            yield from frames


def _clips(reader: MeasurementReader) -> Iterator[tuple[Tensor, list[tuple[int, int]]]]:
    """Yield the measurements of each clip and the times of the frames that are its own, the last of them."""
    for start, first, stop in recovery_clips(reader.frames):
        times = zip(
            reader.pts[first:stop].tolist(),
            reader.durations[first:stop].tolist(),
            strict=True,
        )
        yield torch.from_numpy(reader.clip(start, stop)), list(times)


class Recoverer:
    """Recovers frames from measurements by the network's fast form, which is prepared once."""

    def __init__(
        self, measured: Measured, network: GroupNetwork, precision: str
    ) -> None:
        # how many groups fit at once
        self.measured = measured
        self.device = next(network.parameters()).device
        group_bytes = 8 * 4 * GROUP * measured.patch**2 * ATOMS_PER_PIXEL
        self.chunk = batch_for(self.device, CHUNK, group_bytes, GROUPS_PER_PROCESSOR)
        with torch.no_grad():
            half = uses_bf16(precision, self.device) and (
                precision != "auto" or measured.rate < BF16_BELOW
            )
            dtype = torch.bfloat16 if half else torch.float32
            self.network = network.at(measured.sigma, dtype, PackedLinear)

    @torch.inference_mode()
    def recover(self, clip: tuple[Tensor, list[tuple[int, int]]]) -> list[Frame]:
        """Return the last frames of a clip (T, P, M), one for each (pts, duration)."""
        values, times = clip
        measurements = on_device(values, self.device).float()
        # halved until it fits
        while True:
            try:
                native = self._native(measurements, times)
                break
            except torch.OutOfMemoryError as error:
                failure = error.with_traceback(None)  # its frames hold tensors
            if self.chunk == 1:
                raise VidRestoreError(
                    f"{self.measured.model} ran out of memory on {self.device}; use `device=cpu`"
                ) from failure
            self.chunk //= 2
        frames = []
        for index, (pts, duration) in enumerate(times):
            planes = tuple(plane[index] for plane in native)
            frames.append(Frame(planes, pts, duration))
        return frames

    def _native(
        self, measurements: Tensor, times: list[tuple[int, int]]
    ) -> list[NDArray[Any]]:
        """Return the last frames of all planes, one per entry of `times`, as they are stored."""
        # plane by plane, as their patches were cut
        grids = self.measured.grids
        pixels = self.measured.video.format
        parts = measurements.split([grid.count for grid in grids], dim=1)
        planes = (
            self._plane(part, grid, times)
            for part, grid in zip(parts, grids, strict=True)
        )
        return [stored_samples([plane], pixels)[0] for plane in planes]

    def _plane(
        self, measurements: Tensor, grid: PatchGrid, times: list[tuple[int, int]]
    ) -> Tensor:
        """Recover the last frames (T', H, W), one per entry of `times`, of a plane (T, count, M)."""
        # groups of all patches, a part at a time
        patches = torch.empty(len(times), grid.count, grid.patch**2, device=self.device)
        # a group is a patch's place in all frames
        groups = measurements.transpose(0, 1).split(self.chunk)
        for place, result in zip(
            patches.split(self.chunk, 1), dealt(self.network, groups), strict=True
        ):
            place.copy_(result[:, -len(times) :].transpose(0, 1))
        plane = grid.joined(patches)
        if not all_finite((plane,)):
            raise VidRestoreError(
                f"frames at pts {times[0][0]} to {times[-1][0]}: {self.measured.model} produced NaN or "
                "infinity; the measurements or the weights may be damaged (see `vidrestore weights verify`)"
            )
        return plane
