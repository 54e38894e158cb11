"""The ends of a clip's restoration: from stored samples to what a restorer takes, and back to planes.

Colour planes are restored as they are, the frames of a clip together. Networks on RGB get R'G'B' by the
file's own matrix, range and chroma siting; their frames come one by one and may be larger.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import islice
from statistics import fmean
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch
import torch.nn.functional as F
from numpy.typing import NDArray
from torch import Tensor

from vidrestore.cores import dealt
from vidrestore.errors import OptionError
from vidrestore.media.reading.coding_loss import WITHIN
from vidrestore.models.dust import dct_dictionary
from vidrestore.models.fields import woven
from vidrestore.pipeline.plan import Clip, colour_planes
from vidrestore.pixels.clips import Bounds, Planes
from vidrestore.pixels.colour import (
    OPPONENT_NORMS,
    grey_to_planes,
    grey_to_stored,
    matrix_of,
    opponent_to_rgb,
    planes_to_grey,
    rgb_to_opponent,
    rgb_to_yuv,
    yuv_to_rgb,
)
from vidrestore.pixels.frames import Frame, PixelFormat, Scale, VideoInfo, enlarged_size
from vidrestore.restorers.base import PlaneRestorer, RgbRestorer, load_restorer
from vidrestore.restorers.devices import CPU_MEMORY, memory_for
from vidrestore.restorers.result_cache import ResultCache
from vidrestore.settings.options import RestoreOptions
from vidrestore.working import steps

# Stored samples on their way to a device, as integers and each frame once, and back

# (T, h, w) of each plane, stored samples; those of 16 bits in int16
Stacks = tuple[Tensor, ...]


@dataclass
class Upload:
    """A clip's samples, whose copy to a device may still be under way."""

    stacks: Stacks
    end: torch.cuda.Event | None = None  # of the copy; None if it is done

    def result(self) -> Stacks:
        """Return the stacks for work on the calling thread's current stream, which waits for the copy."""
        if self.end is not None:
            stream = torch.cuda.current_stream(self.stacks[0].device)
            stream.wait_event(self.end)
            for stack in self.stacks:
                stack.record_stream(stream)
        return self.stacks


class Uploads:
    """Copies the first `planes` planes of clips to a device, in the order of the clips.

    Frames that a clip shares with the last one are there already. On CUDA the copy is from pinned memory and
    on a stream of its own, so that it runs during the work on the clip before.
    """

    def __init__(self, device: torch.device, planes: int) -> None:
        self.device, self.planes = device, planes
        self.stream = torch.cuda.Stream(device) if device.type == "cuda" else None
        # the stop of the last clip, and its samples
        self._last: tuple[int, Stacks] | None = None

    def send(self, first: int, frames: list[Frame]) -> Upload:
        """Begin to copy frames `first` and on; free those of the last clip that are not needed any more."""
        shared = 0
        if self._last is not None and self._last[0] > first:
            shared = min(self._last[0] - first, len(self._last[1][0]))
        stacks = tuple(
            self._copy(plane, frames[shared:], shared) for plane in range(self.planes)
        )
        self._last = first + len(frames), stacks
        return Upload(stacks, self.stream.record_event() if self.stream else None)

    def _copy(self, plane: int, frames: list[Frame], shared: int) -> Tensor:
        with torch.cuda.stream(self.stream):  # does nothing without a stream
            overlap = (
                self._last[1][plane][-shared:]
                if self._last is not None and shared
                else None
            )
            if not frames and overlap is not None:
                return overlap
            samples = np.stack([frame.planes[plane] for frame in frames])
            stack = torch.from_numpy(
                samples.view(np.int16) if samples.dtype == np.uint16 else samples
            )
            if self.stream is not None:
                stack = stack.pin_memory()
            copy = stack.to(self.device, non_blocking=True)
            return copy if overlap is None else torch.cat((overlap, copy))


class Samples(NamedTuple):
    """Frames, and the stacks of their colour planes on a device; None on the CPU."""

    frames: list[Frame]
    pixels: PixelFormat
    stacks: Stacks | None

    def grey(self, places: slice = slice(None)) -> Planes:
        """Return the colour planes (T, h, w) of some frames, float32 on the 0-255 scale; always a copy."""
        if self.stacks is not None:
            return floats((stack[places] for stack in self.stacks), self.pixels.unit)
        planes = zip(*(frame.planes for frame in self.frames[places]), strict=True)
        colours = islice(planes, colour_planes(self.pixels))
        return tuple(_stacked(plane, self.pixels.unit) for plane in colours)

    def woven(self, sigma: tuple[float, ...]) -> Planes:
        """Return the colour planes of all frames, with noise `sigma`, after `models.fields.woven`."""
        planes, rows = self.grey(), [frame.real_rows for frame in self.frames]
        step = 1 + any(frame.second for frame in self.frames)
        if step == 2:
            frames = [
                replace(frame, planes=frame.second or frame.planes)
                for frame in self.frames
            ]
            pairs = zip(planes, Samples(frames, self.pixels, None).grey(), strict=True)
            planes = tuple(
                torch.stack((one, other.to(one.device)), 1).flatten(0, 1)
                for one, other in pairs
            )
            rows = [
                parity
                for row in rows
                for parity in (row, None if row is None else 1 - row)
            ]
        return woven(planes, rows, sigma, int(self.pixels.family == "rgb"), step)


def _stacked(planes: tuple[NDArray[Any], ...], unit: float) -> Tensor:
    """Stack planes as floats in one pass over memory that NumPy takes in huge pages."""
    stack = np.empty((len(planes), *planes[0].shape), np.float32)
    for target, plane in zip(stack, planes, strict=True):
        target[...] = plane
    return torch.from_numpy(
        stack if unit == 1 else np.divide(stack, np.float32(unit), out=stack)
    )


def floats(stacks: Iterable[Tensor], unit: float) -> tuple[Tensor, ...]:
    """Return stacks of stored samples as float32 on the 0-255 scale; `unit` is that of `PixelFormat`."""
    integers = (
        stack.int().bitwise_and_(0xFFFF) if stack.dtype == torch.int16 else stack
        for stack in stacks
    )
    return tuple(
        stack.to(torch.float32, copy=True).mul_(1 / unit) for stack in integers
    )


def stored_samples(
    planes: Iterable[Tensor], pixels: PixelFormat
) -> tuple[NDArray[Any], ...]:
    """Convert planes on the 0-255 scale to arrays of the samples that the format stores.

    From a GPU they are copied to pinned memory, which the bus writes to at its full speed, all together.
    """
    stacks = list(grey_to_stored(list(planes), pixels))
    if stacks[0].device.type == "cuda":
        device, sent = stacks[0].device, stacks
        stacks = [
            torch.empty(stack.shape, dtype=stack.dtype, pin_memory=True)
            for stack in sent
        ]
        for stack, samples in zip(stacks, sent, strict=True):
            stack.copy_(samples, non_blocking=True)
        torch.cuda.current_stream(device).synchronize()
    arrays = (stack.cpu().numpy() for stack in stacks)
    return tuple(
        array.view(np.uint16) if 8 < pixels.depth <= 16 else array for array in arrays
    )


def all_finite(planes: tuple[Tensor, ...]) -> bool:
    """Return True if no sample is NaN or infinite; one sum per plane shows it, and one value is read."""
    return bool(torch.isfinite(torch.stack([plane.sum() for plane in planes])).all())


# What a restorer takes, and planes again

# bytes for the float samples of all clips that are restored at once
CLIPS_MEMORY = 600 << 20
COPIES = 4  # a clip's float samples while it is restored: in, out, and the model's sums
# bytes of RGB that a device converts at once, or one over the share of its memory: a step takes as long for
# few samples as for many
CONVERTED, CONVERTED_SHARE = 512 << 20, 16
UNCHANGED = 0.02  # grey levels; frames with a smaller mean change look the same
# mean change of a photograph, in grey levels, from which on its loss of coding is removed completely
WHOLE_LOSS = 4.0


@dataclass(frozen=True)
class Changes:
    """The changes of restored frames from their sources."""

    frames: int = 0
    unchanged: int = 0  # of them, with a mean change below UNCHANGED
    total: float = 0.0  # of the frames' mean absolute changes in grey levels
    # of frames that were searched for motion blur, its length in pixels if it was undone, else 0
    shakes: tuple[float, ...] = ()
    # of these frames, blurred and unchanged, since no kernel is believable
    hopeless: int = 0
    # of frames that were searched for dust, how many were found
    specks: tuple[int, ...] = ()
    always: bool = False  # little haze is removed, too, as the options ask

    @property
    def mean(self) -> float:
        """The mean absolute change of a sample in grey levels."""
        return self.total / self.frames if self.frames else 0.0

    @property
    def details(self) -> dict[str, float]:
        """The changes as values of the last event."""
        values = {
            "frames": self.frames,
            "unchanged": self.unchanged,
            "mean": round(self.mean, 3),
        }
        undone = [length for length in self.shakes if length]
        shake = {
            "undone": len(undone),
            "hopeless": self.hopeless,
            "shake": round(fmean(undone or [0.0]), 1),
        }
        if self.specks:
            values |= {"specks": round(fmean(self.specks), 1)}
        if self.always:
            values |= {"always": True}
        return values | (shake if self.shakes else {})


class AtOnce(NamedTuple):
    """The work at the same time."""

    clips: int
    parts: int  # of clips: the number of workers


class PlaneConversion:
    """Clips for restorers of colour planes, whose results are mixed with the source and get grain."""

    changes = Changes()  # not counted
    scale: Scale = 1

    def __init__(
        self, restorer: PlaneRestorer, video: VideoInfo, options: RestoreOptions
    ) -> None:
        self.restorer, self.pixels, self.grain = restorer, video.format, options.grain
        self.quality = options.quality
        self.size = video.height, video.width
        self.strengths = [options.strength] * colour_planes(self.pixels)
        if self.pixels.family == "yuv" and options.chroma_strength is not None:
            self.strengths[1:] = [options.chroma_strength] * (len(self.strengths) - 1)

    def at_once(self, threads: int) -> AtOnce:
        """Return how many clips to restore at once while memory lasts; parts of them take little."""
        clip = self._memory(self.restorer.facts.clip)
        return AtOnce(min(threads, CLIPS_MEMORY // clip), threads)

    def memory_share(self, frames: int, threads: int) -> float:
        """Return the share of the memory for clips that all frames of a short video take."""
        return self._memory(frames) / CLIPS_MEMORY

    def _memory(self, frames: int) -> int:
        """Return the bytes of frames while they are restored."""
        planes = (
            self.pixels.plane_size(plane, *self.size)
            for plane in range(self.pixels.plane_count)
        )
        return COPIES * 4 * frames * sum(map(math.prod, planes))

    def restored(
        self, clip: Clip, samples: Samples, keep: Bounds, precision: str | None
    ) -> Iterable[Planes]:
        """Return the planes of all frames of a clip, restored together.

        Noise of R, G, B is removed from luma and colour differences, which the picture fills less evenly.
        """
        is_woven = self._weaves(clip, samples)
        # weaving takes about as long as denoising
        stages = steps(("source", "restored"), (is_woven, 1))
        next(stages)
        source = samples.woven(clip.sigma) if is_woven else samples.grey()
        next(stages)
        restore = partial(
            self.restorer.restore,
            measured=any(clip.rms),
            coding=clip.coding,
            precision=precision,
            real_rows=[frame.real_rows for frame in samples.frames],
        )
        if self.pixels.family != "rgb" or not any(clip.sigma):
            restored = restore(source, clip.sigma)
        else:
            levels = tuple(
                level * norm
                for level, norm in zip(clip.sigma, OPPONENT_NORMS, strict=True)
            )
            restored = opponent_to_rgb(restore(rgb_to_opponent(source), levels))
        if all(frame.steps for frame in samples.frames):
            restored = self._within_steps(clip, samples.frames, source, restored)
        mixed = zip(source, restored, self.strengths, strict=True)
        planes: Planes = tuple(
            after if strength == 1 else before.lerp(after, strength)
            for before, after, strength in mixed
        )
        if self.grain:
            planes = with_grain(
                planes, self.grain, clip.first, colour=self.pixels.family == "yuv"
            )
        return [planes]

    def _weaves(self, clip: Clip, samples: Samples) -> bool:
        """Return True if fields are woven: by default only if the clip is denoised, which takes longer."""
        interpolated = any(frame.real_rows is not None for frame in samples.frames)
        return interpolated and self.quality in (
            ("best", "default") if any(clip.sigma) else ("best",)
        )

    def _within_steps(
        self, clip: Clip, frames: list[Frame], source: Planes, restored: Planes
    ) -> Planes:
        """Return restored planes within the steps of their frames, where only a loss was removed: noise came
        before the coder.
        """
        steps = zip(*(frame.steps for frame in frames), strict=True)
        noise = clip.rms or (0.0,) * len(source)
        planes = zip(source, restored, steps, clip.coding, noise, strict=True)
        return tuple(
            within_steps(before, after, plane_steps) if coding and not rms else after
            for before, after, plane_steps, coding, rms in planes
        )


JPEG_BLOCK = 8  # side of a JPEG's blocks


def within_steps(
    decoded: Tensor, restored: Tensor, steps: Sequence[NDArray[Any]]
) -> Tensor:
    """Return a restored plane (T, H, W) with the DCT of each block within WITHIN of a step of the decoded's.

    The coder rounded the coefficients to multiples of `steps`, (8, 8) for each frame, and what lies farther
    away is hardly the picture.
    """
    height, width = decoded.shape[1:]
    basis = dct_dictionary(JPEG_BLOCK, JPEG_BLOCK**2).to(decoded.device)
    result = torch.empty_like(decoded)
    for before, after, target, table in zip(
        decoded, restored, result, steps, strict=True
    ):
        limits = WITHIN * torch.from_numpy(table).flatten().to(decoded.device)
        change = F.pad(
            (after - before)[None],
            (0, -width % JPEG_BLOCK, 0, -height % JPEG_BLOCK),
            mode="replicate",
        )[0]
        blocks = (
            change.unflatten(1, (-1, JPEG_BLOCK))
            .unflatten(0, (-1, JPEG_BLOCK))
            .transpose(1, 2)
        )
        # (rows, columns, 64)
        correction = (blocks.flatten(2) @ basis).clamp(-limits, limits) @ basis.mT
        change = (
            correction.unflatten(2, (JPEG_BLOCK, JPEG_BLOCK))
            .transpose(1, 2)
            .flatten(2)
            .flatten(0, 1)
        )
        torch.add(before, change[:height, :width], out=target)
    return result


class RgbConversion:
    """Clips for networks on RGB, at the video's size or `scale` times larger.

    `strength` mixes with the source's own planes, or, if frames are enlarged, with the source enlarged
    bicubically. A result larger than asked for is downscaled, antialiased. Frames that the network leaves as
    they are keep their samples.
    """

    def __init__(
        self, restorer: RgbRestorer, video: VideoInfo, options: RestoreOptions
    ) -> None:
        self.restorer, self.video, self.strength = restorer, video, options.strength
        self.always = options.haze == "always"
        self.device = torch.device(restorer.facts.device)
        self.scale = output_scale(restorer.facts.scale, options, video.height)
        self.batch_bytes = max(CONVERTED, memory_for(self.device) // CONVERTED_SHARE)
        self.cache = ResultCache()
        none = torch.zeros((), device=self.device)
        self._compared, self._unchanged, self._change, self._counting = (
            0,
            none,
            none,
            Lock(),
        )

    @property
    def changes(self) -> Changes:
        """The changes so far, if restored pictures are compared with their sources."""
        shakes, specks = (*self.cache.shakes.values(),), (*self.cache.specks.values(),)
        with self._counting:
            return Changes(
                self._compared,
                int(self._unchanged),
                float(self._change),
                shakes,
                len(self.cache.hopeless),
                specks,
                self.always,
            )

    def _count_changes(self, before: Tensor, after: Tensor) -> None:
        """Count restored pictures (N, 3, H, W) in [0, 1]; nothing is read from their device yet."""
        change = 255 * (after - before).abs().mean((1, 2, 3))
        with self._counting:
            self._compared += len(change)
            self._unchanged = self._unchanged + (change < UNCHANGED).sum()
            self._change = self._change + change.sum()

    def at_once(self, threads: int) -> AtOnce:
        """Return how many parts of clips memory and threads allow at once, and in what is left how many
        clips: such that most frames are restored at the same time, then by most workers.
        """
        size, facts = (self.video.height, self.video.width), self.restorer.facts
        part = self.restorer.part_memory(*size)
        clip = max(1, self.restorer.memory(*size) - part)
        # the clip of large frames may be one photograph
        room = max(CPU_MEMORY - clip, CPU_MEMORY // 2)
        # that a clip gives
        frames = max(1, self.restorer.clip_length(*size) - facts.overlap)
        most = self.video.frames or sys.maxsize

        def allowed(parts: int) -> AtOnce:
            return AtOnce(min(parts, (CPU_MEMORY - parts * part) // clip), parts)

        def at_work(choice: AtOnce) -> tuple[int, int]:
            return min(choice.parts, max(1, choice.clips) * frames, most), choice.parts

        return max(
            map(allowed, range(1, max(1, min(threads, room // part)) + 1)), key=at_work
        )

    def memory_share(self, frames: int, threads: int) -> float:
        """Return the share of the CPU's memory that the clips of a short video and their parts take."""
        size, (clips, parts) = (
            (self.video.height, self.video.width),
            self.at_once(threads),
        )
        part = self.restorer.part_memory(*size)
        clip = max(1, self.restorer.memory(*size) - part)
        return (min(clips, frames) * clip + parts * part) / CPU_MEMORY

    def restored(
        self, clip: Clip, samples: Samples, keep: Bounds, precision: str | None
    ) -> Iterable[Planes]:
        """Yield the planes of the frames `keep` of a clip, one by one; on a device several together."""
        restore = partial(
            self.restorer.frames,
            keep=keep,
            precision=precision,
            first=clip.first,
            cache=self.cache,
        )
        # a photograph that changes is restored without what its coder lost
        rgb, whole = self._rgb(samples), None
        if (
            self.restorer.facts.takes_loss
            and len(rgb) == 1
            and any(samples.frames[0].loss)
        ):
            (restored,) = restore(rgb)
            if 255 * float((restored - rgb[0]).abs().mean()) >= UNCHANGED:
                whole = self._without_loss(samples)
                rgb = self._rgb_of(whole)
        # back to planes, several frames together on a device
        pictures = restore(rgb)
        start, step = keep[0], self._frames_at_once(self.scale)
        while batch := list(islice(pictures, step)):
            places, restored = slice(start, start + len(batch)), torch.stack(batch)
            if restored.shape == rgb[places].shape:
                self._count_changes(rgb[places], restored)
            planes = self._planes(samples, places, rgb[places], restored)
            yield (
                planes
                if whole is None
                else self._mixed(planes, whole, samples, rgb, restored)
            )
            start = places.stop
        assert start == keep[1], "as many frames as asked for"

    def _rgb(self, samples: Samples) -> Tensor:
        """Return (T, 3, H, W) of all frames on the network's device: all colour is converted there."""
        count, step = len(samples.frames), self._frames_at_once(1)
        parts = (slice(start, start + step) for start in range(0, count, step))
        return torch.cat([*dealt(lambda part: self._rgb_of(samples.grey(part)), parts)])

    def _rgb_of(self, planes: Planes) -> Tensor:
        return yuv_to_rgb(
            planes, self.video.format, self.video.colour, self.video.height
        ).to(self.device)

    def _without_loss(self, samples: Samples) -> Planes:
        """Return the planes of a photograph without its loss of coding, which its restorer would amplify."""
        luma, chroma = samples.frames[0].loss
        denoiser = load_restorer("denoise", RestoreOptions(device=str(self.device)))
        assert denoiser.input_kind == "planes"
        sigma = luma, *[chroma] * (colour_planes(samples.pixels) - 1)
        clip = Clip(0, 1, sigma, loss=sigma)
        conversion = PlaneConversion(denoiser, self.video, RestoreOptions())
        (planes,) = conversion.restored(clip, samples, (0, 1), None)
        return planes

    def _mixed(
        self,
        planes: Planes,
        whole: Planes,
        samples: Samples,
        rgb: Tensor,
        restored: Tensor,
    ) -> Planes:
        """Return a photograph's restored planes without its loss, the less the picture changed the less."""
        change = 255 * (restored - rgb).abs().mean()
        share = self.strength * (change / WHOLE_LOSS).clamp(max=1)
        sources = zip(planes, whole, samples.grey(), strict=True)
        return tuple(
            plane + share * (better - before) for plane, better, before in sources
        )

    def _frames_at_once(self, scale: Scale) -> int:
        """Return how many frames to convert together: one on a CPU, whose caches are small."""
        size = enlarged_size(self.video.height, self.video.width, scale)
        return (
            1
            if self.device.type == "cpu"
            else max(1, self.batch_bytes // (4 * 3 * math.prod(size)))
        )

    def _planes(
        self, samples: Samples, places: slice, rgb: Tensor, pictures: Tensor
    ) -> Planes:
        """Return restored pictures as planes on the 0-255 scale, mixed with their sources."""
        scale = self.scale
        if scale != self.restorer.facts.scale:
            pictures = shrunk(
                pictures, enlarged_size(rgb.shape[-2], rgb.shape[-1], scale)
            )
        if self.strength < 1 and scale > 1:
            pictures = enlarged(rgb, scale).lerp(pictures, self.strength)
        # without a tagged matrix players guess by the height: the output's
        planes = rgb_to_yuv(
            pictures, samples.pixels, self.video.colour, pictures.shape[-2]
        )
        if scale == 1:
            # Only the change is converted: chroma loses detail on the way to its own size and back.
            sources = rgb_to_yuv(rgb, samples.pixels, self.video.colour, rgb.shape[-2])
            changes = zip(samples.grey(places), sources, planes, strict=True)
            planes = tuple(
                before + self.strength * (after - source)
                for before, source, after in changes
            )
        return planes


def output_scale(native: int, options: RestoreOptions, height: int) -> Scale:
    """Return how many times larger the output of a video of `height` lines is, at most `native` times.

    Raises OptionError for a height that is not larger, or too much so.
    """
    if native == 1:
        return 1
    if options.height is None:
        return min(options.scale, native)
    scale = Fraction(options.height, height)
    if not 1 < scale <= native:
        raise OptionError(
            f"`height={options.height}`: the video has {height} lines, and sr makes more of them, up to "
            f"{native * height}"
        )
    return int(scale) if scale.denominator == 1 else scale


def enlarged(pictures: Tensor, scale: Scale) -> Tensor:
    """Enlarge (N, C, H, W) to (N, C, scale * H, scale * W), bicubic."""
    size = enlarged_size(pictures.shape[-2], pictures.shape[-1], scale)
    return F.interpolate(pictures, size, mode="bicubic", align_corners=False)


def shrunk(pictures: Tensor, size: tuple[int, int]) -> Tensor:
    """Downscale (N, C, H, W) to a smaller `size`, bicubic, antialiased."""
    return F.interpolate(
        pictures, size, mode="bicubic", align_corners=False, antialias=True
    )


def enlarged_samples(
    plane: NDArray[Any], pixels: PixelFormat, scale: Scale
) -> NDArray[Any]:
    """Return a plane of stored samples enlarged by bicubic interpolation; at scale 1 the plane itself."""
    if scale == 1:
        return plane
    (grey,) = planes_to_grey([plane], pixels)
    return grey_to_planes(list(enlarged(grey[None, None], scale)[0]), pixels)[0]


def enlarged_frame(frame: Frame, video: VideoInfo, scale: Scale) -> Frame:
    """Return a frame with all its planes enlarged, to compare with; at scale 1 the frame itself."""
    if scale == 1:
        return frame
    pixels, planes = video.format, list(frame.planes)
    height, width = enlarged_size(planes[0].shape[0], planes[0].shape[1], scale)
    small, large = (
        matrix_of(pixels, video.colour, lines) for lines in (video.height, height)
    )
    # the matrix that players assume for that height if none is tagged
    if small != large:
        planes[:3] = _other_matrix(planes[:3], video, large)
    sizes = [
        pixels.plane_size(plane, height, width) for plane in range(pixels.plane_count)
    ]
    if scale.denominator == 1:  # chroma of odd sizes reaches beyond the picture
        enlarged_planes = [enlarged_samples(plane, pixels, scale) for plane in planes]
        larger = [
            plane[:rows, :columns]
            for plane, (rows, columns) in zip(enlarged_planes, sizes, strict=True)
        ]
    else:
        grey = zip(planes_to_grey(planes, pixels), sizes, strict=True)
        sized = [
            F.interpolate(plane[None, None], size, mode="bicubic")[0, 0]
            for plane, size in grey
        ]
        larger = list(grey_to_planes(sized, pixels))
    return replace(frame, planes=tuple(larger))


def _other_matrix(
    planes: list[NDArray[Any]], video: VideoInfo, matrix: int
) -> tuple[NDArray[Any], ...]:
    """Return Y, U, V of the same colours by another matrix, by way of RGB."""
    rgb = yuv_to_rgb(
        planes_to_grey(planes, video.format), video.format, video.colour, video.height
    )
    colour = replace(video.colour, matrix=matrix)
    return grey_to_planes(
        rgb_to_yuv(rgb, video.format, colour, video.height), video.format
    )


# Even film grain, for pictures that look too smooth, or to hide banding
GRAIN_BLUR = 0.6  # pixels, standard deviation of the blur
GRAIN_LEAST = 0.35  # strength at black and white over that in mid tones


def with_grain(
    planes: tuple[Tensor, ...], sigma: float, first: int, *, colour: bool
) -> tuple[Tensor, ...]:
    """Return planes (T, H, W) on the 0-255 scale with grain of `sigma` in mid tones; less at black and white.

    The grain of a frame follows from its number alone, `first` for the first one. With `colour` the planes
    after the first are colour differences and stay as they are; otherwise all get the same grain.
    """
    frames, height, width = planes[0].shape
    noise = torch.stack(
        [_noise(height, width, first + index) for index in range(frames)]
    )
    noise, grained = noise.to(planes[0].device), planes[:1] if colour else planes
    return (
        *(plane + sigma * noise * _tone(plane) for plane in grained),
        *planes[len(grained) :],
    )


def _noise(height: int, width: int, number: int) -> Tensor:
    """Return (H, W) blurred noise of unit variance."""
    white = torch.randn(
        1, 1, height + 4, width + 4, generator=torch.Generator().manual_seed(number)
    )
    line = torch.exp(-0.5 * (torch.arange(-2.0, 3.0) / GRAIN_BLUR) ** 2)
    line = line / line.norm()
    across = F.conv2d(white, line.view(1, 1, 1, 5))
    return F.conv2d(across, line.view(1, 1, 5, 1))[0, 0]


def _tone(plane: Tensor) -> Tensor:
    """Return the share of the grain by brightness: 1 in mid tones."""
    light = (plane / 255).clamp(0, 1)
    return GRAIN_LEAST + (1 - GRAIN_LEAST) * 4 * light * (1 - light)
