"""Restorations on the stand-in for a GPU and on the CPU: small networks, made up frames."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import torch
from rgb_networks import doubling, released_form, without, write_weights
from stand_in import Rehearsal
from taylor_networks import small

from vidrestore.models.dust_sigma import SigmaDust, SigmaDustConfig, config_of
from vidrestore.models.mb_taylorformer import build
from vidrestore.pipeline.clip_restorer import ClipRestorer
from vidrestore.pipeline.plan import Clip, PlannedClip, colour_planes
from vidrestore.pixels.frames import Frame, PixelFormat, VideoInfo
from vidrestore.restorers.base import load_restorer
from vidrestore.settings.options import RestoreOptions
from vidrestore.weights.checkpoint import save_model

HEIGHT, WIDTH, FRAMES = 32, 48, 5
EIGHT, TEN = (
    PixelFormat("yuv420p", "yuv", 8, 1, 1),
    PixelFormat("yuv422p10le", "yuv", 10, 1, 0),
)


def video_of(
    pixels: PixelFormat, height: int = HEIGHT, width: int = WIDTH
) -> VideoInfo:
    return VideoInfo(
        0, "rawvideo", width, height, pixels, Fraction(1, 25), pix_fmt=pixels.name
    )


def frames_of(
    pixels: PixelFormat, height: int = HEIGHT, width: int = WIDTH, count: int = FRAMES
) -> list[Frame]:
    """A texture that moves, with noise."""
    rng, frames = np.random.default_rng(7), []
    for number in range(count):
        planes = []
        for plane in range(pixels.plane_count):
            rows, columns = np.ogrid[
                tuple(map(slice, pixels.plane_size(plane, height, width)))
            ]
            texture = 128 + 60 * np.sin((rows + 2 * number) / 5) * np.cos(
                (columns - number) / 7
            )
            noisy = pixels.unit * (texture + rng.normal(0, 8, texture.shape))
            samples = np.rint(noisy).clip(0, 2**pixels.depth - 1)
            planes.append(samples.astype(np.uint8 if pixels.depth == 8 else np.uint16))
        frames.append(Frame(tuple(planes), number, 1))
    return frames


def clips_of(
    frames: list[Frame], pixels: PixelFormat, shared: int
) -> Iterator[PlannedClip]:
    """Two clips, which share frames or are scenes of their own."""
    sigma = (8.0,) * colour_planes(pixels)
    yield Clip(0, 3, sigma), frames[:3]
    yield Clip(3 - shared, FRAMES, sigma), frames[3 - shared :]


def small_weights(folder: Path) -> dict[str, str]:
    """Write weights of every family into a folder; return their paths by name."""
    torch.manual_seed(1)
    dust = SigmaDust(SigmaDustConfig(patch=8, atoms=64))
    save_model(
        folder / "dust.safetensors",
        dust,
        family="dust",
        config=config_of(dust),
        task="denoise",
    )
    compact_pictures = {
        "size": "h",
        "widths": [4, 8, 8, 8],
        "heads": [1, 1, 2, 4],
        "blocks": [1, 1, 1, 1],
    }
    networks: dict[str, tuple[Any, str]] = {
        "t": (small(size="t"), "dehaze"),
        "h": (build(compact_pictures).eval(), "derain"),
        "h, noise": (build(compact_pictures).eval(), "denoise"),
        "sr": (doubling(), "sr"),
        "sr, released": (without(released_form(), "tail"), "sr"),
    }
    paths = {
        name: write_weights(folder, network, task)
        for name, (network, task) in networks.items()
    }
    finding = build(
        compact_pictures | {"frames": 1, "gain": False, "haze": True}
    ).eval()
    hazy = write_weights(folder, finding, "dehaze", coarse_lines=16)
    return paths | {"dust": str(folder / "dust.safetensors"), "h, haze": hazy}


def restored(
    task: str, device: str, pixels: PixelFormat, size: Any = (), **options: Any
) -> list[Frame]:
    finish = {
        name: options.pop(name)
        for name in ("strength", "grain", "chroma_strength")
        if name in options
    }
    options = {"precision": "fp32"} | options
    restorer = load_restorer(task, RestoreOptions(device=device, **options))
    frames = frames_of(pixels, *size)
    clips = ClipRestorer(
        task, restorer, video_of(pixels, *size), RestoreOptions(threads=1, **finish)
    )
    if Rehearsal.current:
        Rehearsal.current.counts.clear()
        Rehearsal.current.moved.clear()
    shared = 0 if restorer.input_kind == "rgb" else restorer.facts.overlap
    return list(clips.frames(clips_of(frames, pixels, shared)))


def assert_same(found: list[Frame], expected: list[Frame]) -> None:
    """The same samples, or next ones if both lie near the middle of two."""
    assert len(found) == len(expected) == FRAMES
    for one, other in zip(found, expected, strict=True):
        assert one.pts == other.pts
        for first, second in zip(one.planes, other.planes, strict=True):
            assert first.dtype == second.dtype and first.shape == second.shape
            apart = np.abs(first.astype(int) - second.astype(int))
            assert apart.max() <= 1 and apart.mean() < 0.01
