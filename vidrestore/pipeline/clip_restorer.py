"""From planned clips to restored frames: clips restored several at once, and joined in order.

What differs between colour planes and RGB is at both ends of a clip: see `conversions`. Floats take four
times the memory of 8-bit samples, so a frame is in floats only while its clip is restored; frames that two
clips share, until both are there to be cross-faded.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from threading import Lock
from typing import Any, NamedTuple, TypeAlias

import torch
from numpy.typing import NDArray

from vidrestore.errors import VidRestoreError
from vidrestore.pipeline.chain import at_once
from vidrestore.pipeline.conversions import (
    AtOnce,
    PlaneConversion,
    RgbConversion,
    Samples,
    Upload,
    Uploads,
    all_finite,
    enlarged_samples,
    stored_samples,
)
from vidrestore.pipeline.plan import Clip, Plan, PlannedClip, Timeline, colour_planes
from vidrestore.pixels.clips import Bounds, Planes, clip_bounds, crossfade, join_clips
from vidrestore.pixels.frames import Frame, VideoInfo
from vidrestore.restorers.base import Restorer
from vidrestore.restorers.devices import memory_for
from vidrestore.settings.options import LEAST_TILE, RestoreOptions
from vidrestore.settings.tasks import TASKS
from vidrestore.working import HERE, begin_task, threads_for


class EdgedClip(NamedTuple):
    """A planned clip and its neighbours' edges: all frames outside [before, after) belong to two clips."""

    clip: Clip
    frames: list[Frame]
    before: int  # stop of the clip before it
    after: int  # first frame of the clip after it
    upload: Upload | None = None  # its samples on the device, if that is not the CPU


class Restored(NamedTuple):
    """A frame with its samples; or, with `planes`, the source's frame and floats to fade into a clip."""

    frame: Frame
    planes: Planes | None = None


Piece: TypeAlias = tuple[Bounds, list[Restored]]


class ClipRestorer:
    """One step of a job: restores planned clips of `video`, several at once, and joins them into frames.

    Alpha passes through, or is enlarged bicubically.
    """

    def __init__(
        self, task: str, restorer: Restorer, video: VideoInfo, options: RestoreOptions
    ) -> None:
        self.task, self.restorer, self.video, self.options = (
            task,
            restorer,
            video,
            options,
        )
        self.keeps_noise = task in TASKS and TASKS[task].keeps_noise
        # frames of a clip, and those that neighbouring clips share
        self.length, self.overlap = (
            restorer.clip_length(video.height, video.width),
            restorer.facts.overlap,
        )
        self.threads = threads_for(options.threads)
        self.device = torch.device(restorer.facts.device)
        self.conversion: PlaneConversion | RgbConversion = (
            RgbConversion(restorer, video, options)
            if restorer.input_kind == "rgb"
            else PlaneConversion(restorer, video, options)
        )
        self.scale = self.conversion.scale
        sigma = None if options.sigma == "auto" else options.sigma
        # the noise to restore with: 0 if the restorer takes none, None if it is measured
        self.sigma = sigma if restorer.facts.needs_sigma else 0.0
        # clips with NaN or infinity in half precision, restored again in fp32
        self.retried = 0
        self.share = 1.0  # of a frame's work, if there are several steps
        self._counting = Lock()

    def timeline(self, cuts: list[int]) -> Timeline:
        """Return an empty timeline of this step's clips for frames with these cuts."""
        return Timeline(self.length, self.overlap, cuts=cuts)

    def work(self, timeline: Timeline) -> int:
        """Return how many frames are computed for a finished timeline: those that clips share, twice."""
        once = self.restorer.facts.cached
        return (
            len(timeline.pts)
            if once
            else sum(clip.stop - clip.first for clip in timeline.clips)
        )

    def plan_after(self, plan: Plan) -> Plan:
        """Return the plan of this step from the finished plan of the first one. Noise that isn't given is
        that of the source, as measured there at the end of each clip.
        """
        frames = len(plan.timeline.pts)
        bounds = clip_bounds(frames, plan.timeline.cuts, self.length, self.overlap)
        sigmas = (self.sigma or 0.0,) * colour_planes(self.video.format)
        clips = [Clip(first, stop, sigmas) for first, stop in bounds]
        if self.sigma is None:
            clips = [plan.timeline.with_noise(clip) for clip in clips]
        timeline = replace(
            plan.timeline, length=self.length, overlap=self.overlap, clips=clips
        )
        return replace(plan, timeline=timeline)

    def frames(
        self, clips: Iterator[PlannedClip], span: Bounds | None = None
    ) -> Generator[Frame]:
        """Yield every frame restored, with its own time; with `span` only frames [first, stop), the same as
        in a complete run.

        Keeps the clips that are being restored and two more.
        """
        edged = self._uploading(_edged(clips))
        with closing(at_once(self.restore, edged, *self.at_once())) as restored:
            yield from map(self._finished, join_clips(_pieces(restored), _fade, span))

    def at_once(self) -> AtOnce:
        """Return how many clips, and parts of them, to restore at the same time: a device works on one."""
        if self.device.type != "cpu":
            return AtOnce(1, 1)
        clips, parts = self.conversion.at_once(self.threads)
        return AtOnce(max(1, clips), parts)

    def memory_share(self, frames: int | None) -> float:
        """Return the share that a video of so many frames takes of the memory for clips on the CPU; 1 if it
        fills that, or gives every worker a clip.
        """
        if self.device.type != "cpu" or frames is None:
            return 1.0
        if frames > self.threads * self.length:
            return 1.0
        return min(1.0, self.conversion.memory_share(frames, self.threads))

    def _uploading(self, clips: Iterator[EdgedClip]) -> Generator[EdgedClip]:
        """Yield the clips, each on its way to the device while earlier ones are restored."""
        uploads = (
            None
            if self.device.type == "cpu"
            else Uploads(self.device, colour_planes(self.video.format))
        )
        for edged in clips:
            yield (
                edged._replace(upload=uploads.send(edged.clip.first, edged.frames))
                if uploads
                else edged
            )
            del edged

    def restore(self, edged: EdgedClip) -> tuple[Piece, Piece]:
        """Restore one clip: return its frames before the fade into the next clip, and those that fade.

        If a device runs out of memory, less is computed at once and the clip is restored again. Raises
        VidRestoreError if the model produces NaN or infinity, or if less at once is not possible.
        """
        (first, _), (fade_in, fade_out) = self._bounds(edged)
        begin_task((max(fade_in, fade_out) - first) * self.share)
        while True:
            try:
                with torch.inference_mode():
                    pieces = self._pieces(edged)
                HERE.reach(1.0)
                return pieces
            except torch.OutOfMemoryError as error:
                failure = error.with_traceback(None)  # its frames hold tensors
            if not self.restorer.halve_batch():
                raise self._too_large(edged.clip) from failure
            if self.device.type == "cuda":
                torch.cuda.empty_cache()

    def _pieces(self, edged: EdgedClip) -> tuple[Piece, Piece]:
        """Do the work of `restore`. Raises torch.OutOfMemoryError."""
        restored = self._restored(edged, None)
        if restored is None:
            with self._counting:
                self.retried += 1
            restored = self._restored(edged, "fp32")
        if restored is None:
            raise VidRestoreError(
                f"{_named(edged.clip)}: {self.restorer.facts.name} produced NaN or infinity, in fp32 too; "
                "the weights may be damaged: see `vidrestore weights verify`"
            )
        (first, stop), (fade_in, fade_out) = self._bounds(edged)
        count = max(fade_in, fade_out) - first
        return ((first, first + count), restored[:count]), (
            (first + count, stop),
            restored[count:],
        )

    def _bounds(self, edged: EdgedClip) -> tuple[Bounds, Bounds]:
        """Return the frames of a clip to restore; of them, where the fade from the clip before ends and where
        that into the next clip begins.

        Planes are restored in whole clips, and shared frames are faded. On RGB a frame is restored by the
        clip in which it sees all its neighbours, or the end of their scene.
        """
        clip, radius = edged.clip, self.restorer.facts.radius
        if self.restorer.input_kind == "planes":
            fades = max(clip.first, edged.before), min(clip.stop, edged.after)
            return (clip.first, clip.stop), fades
        first = clip.first + (radius if edged.before > clip.first else 0)
        stop = clip.stop - (radius if edged.after < clip.stop else 0)
        return (first, stop), (first, stop)

    def _restored(
        self, edged: EdgedClip, precision: str | None
    ) -> list[Restored] | None:
        """Return the restored frames of a clip; None if one holds NaN or infinity."""
        clip, frames = edged.clip, edged.frames
        samples = Samples(
            frames, self.video.format, edged.upload.result() if edged.upload else None
        )
        (first, stop), (fade_in, fade_out) = self._bounds(edged)
        keep = (first - clip.first, stop - clip.first)
        restored: list[Restored] = []
        for planes in self.conversion.restored(clip, samples, keep, precision):
            if not all_finite(planes):
                return None
            index = first + len(restored)
            sources = frames[index - clip.first :][: len(planes[0])]
            restored += self._restored_frames(
                sources, planes, fade_in - index, fade_out - index
            )
        return restored

    def _restored_frames(
        self, frames: list[Frame], planes: Planes, first: int, stop: int
    ) -> list[Restored]:
        """Return restored frames. Those in [first, stop) get samples of the source's format; the others,
        which are cross-faded, stay in floats.
        """
        first = max(0, first)
        stop = max(first, min(stop, len(frames)))
        # from a device by one copy per plane
        step = 1 if self.device.type == "cpu" else len(frames)
        results: list[Restored] = []
        for start in range(first, stop, step):
            part = slice(start, min(start + step, stop))
            stacks = stored_samples(
                (plane[part] for plane in planes), self.video.format
            )
            results += map(self._with_samples, frames[part], zip(*stacks, strict=True))
        floats = []
        for index in (
            index for index in range(len(frames)) if not first <= index < stop
        ):
            # a view would hold the memory of the clip
            copies = tuple(plane[index].clone() for plane in planes)
            floats.append(Restored(frames[index], copies))
        return [*floats[:first], *results, *floats[first:]]

    def _with_samples(self, frame: Frame, planes: Iterable[NDArray[Any]]) -> Restored:
        """Return a frame with restored planes, and its alpha at their size."""
        pixels = self.video.format
        alpha = (
            enlarged_samples(plane, pixels, self.scale)
            for plane in frame.planes[colour_planes(pixels) :]
        )
        planes, loss = (*planes, *alpha), frame.loss if self.keeps_noise else (0.0, 0.0)
        return Restored(
            replace(frame, planes=planes, real_rows=None, steps=(), loss=loss)
        )

    def _finished(self, item: Restored) -> Frame:
        """Return a frame with samples of the source's format."""
        if item.planes is None:
            return item.frame
        return self._with_samples(
            item.frame, stored_samples(item.planes, self.video.format)
        ).frame

    def _too_large(self, clip: Clip) -> VidRestoreError:
        """Return the error for a clip that a device has too little memory for, with smaller tiles, if the
        restorer has some, as the way out.
        """
        restorer, where, way_out = self.restorer, "the GPU", "use `device=cpu`"
        if restorer.input_kind == "rgb":
            height, width = self.video.height, self.video.width
            rows, columns = restorer.tile_size(height, width)
            tile = max(rows, columns)
            where = f"{self.device} for tiles of {tile} pixels"
            fitting = (
                memory_for(self.device)
                * rows
                * columns
                // restorer.memory(height, width)
            )
            smaller = max(
                LEAST_TILE,
                min(tile // 2, math.isqrt(fitting)) // LEAST_TILE * LEAST_TILE,
            )
            way_out = f"give `tile={smaller}`" if tile > LEAST_TILE else way_out
        return VidRestoreError(
            f"{_named(clip)}: {restorer.facts.name} ran out of memory on {where}; {way_out}"
        )


def _named(clip: Clip) -> str:
    return f"frames {clip.first} to {clip.stop - 1}"


def _edged(clips: Iterator[PlannedClip]) -> Iterator[EdgedClip]:
    """Yield each clip with its neighbours' edges; reads one clip ahead."""
    before = 0
    lookahead = next(clips, None)
    while lookahead is not None:
        (clip, frames), lookahead = lookahead, next(clips, None)
        yield EdgedClip(
            clip, frames, before, lookahead[0].first if lookahead else clip.stop
        )
        del frames
        before = clip.stop


def _pieces(clips: Iterable[tuple[Piece, Piece]]) -> Iterator[Piece]:
    """Yield one piece after the other, so that most frames are free before the next clip comes."""
    for body, overlap in clips:
        yield body
        del body
        yield overlap
        del overlap


def _fade(old: Restored, new: Restored, weight: float) -> Restored:
    assert old.planes is not None and new.planes is not None
    return Restored(new.frame, crossfade(old.planes, new.planes, weight))
