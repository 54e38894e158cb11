"""Restore a clip in a script of VapourSynth, which needs RGB and at least two threads of its core.

    import vapoursynth as vs
    from vapoursynth_filter import restored

    rgb = vs.core.resize.Bicubic(source, format=vs.RGBS, matrix_in_s="709")
    clip = restored(rgb, "derain", strength=0.8)
    vs.core.resize.Bicubic(clip, format=vs.YUV420P10, matrix_s="709").set_output()

Frames are restored in order, so a jump begins anew there, without the neighbours before it. A whole clip goes
through a pipe, too: `vspipe -c y4m script.vpy - | vidrestore derain - -o out.mkv`.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Lock
from typing import Any

import numpy as np
import vapoursynth as vs
from numpy.typing import NDArray

import vidrestore

REMEMBERED = 64  # restored frames, for requests that come in another order


def restored(
    clip: vs.VideoNode, task: str = "denoise", scale: int = 1, **options: Any
) -> vs.VideoNode:
    """Return a clip of RGBS restored by `vidrestore.Restorer(task, **options)`; `scale` is for "sr"."""
    if clip.format.id != vs.RGBS:
        raise vs.Error("restored: expected a clip of the format RGBS")
    if vs.core.num_threads < 2:
        raise vs.Error(
            "restored: the core needs two threads, one waits for the restorer"
        )
    options |= {"scale": scale} if task == "sr" else {}
    order = FramesInOrder(clip, vidrestore.Restorer(task, **options))
    canvas = clip.std.BlankClip(
        width=scale * clip.width, height=scale * clip.height, keep=True
    )

    def paste(n: int, f: list[vs.VideoFrame]) -> vs.VideoFrame:
        canvas_frame, source = f
        result = canvas_frame.copy()
        result.props.update(source.props)
        for channel, samples in enumerate(order[n].transpose(2, 0, 1)):
            np.copyto(np.asarray(result[channel]), samples)
        return result

    return canvas.std.ModifyFrame([canvas, clip], paste)


class FramesInOrder:
    """The restored frames (H, W, 3) of a clip by number; those before a jump are forgotten."""

    def __init__(self, clip: vs.VideoNode, restorer: vidrestore.Restorer) -> None:
        self.clip, self.restorer, self.lock = clip, restorer, Lock()
        self.frames: Any = iter(())
        self.results: dict[int, NDArray[np.float32]] = {}
        self.next = -REMEMBERED  # number of the frame that `frames` yields next

    def __getitem__(self, number: int) -> NDArray[np.float32]:
        with self.lock:
            if number not in self.results and not 0 <= number - self.next < REMEMBERED:
                getattr(self.frames, "close", lambda: None)()
                self.frames, self.next = self.restorer(self._sources(number)), number
            while number not in self.results:
                self.results[self.next] = next(self.frames)
                self.next += 1
            for old in [
                key for key in self.results if not 0 <= self.next - key <= REMEMBERED
            ]:
                del self.results[old]
            return self.results[number]

    def _sources(self, first: int) -> Iterator[NDArray[np.float32]]:
        for number in range(first, self.clip.num_frames):
            with self.clip.get_frame(number) as frame:
                planes = [np.asarray(frame[channel]) for channel in range(3)]
                yield np.stack(planes, -1).clip(0, 1)
