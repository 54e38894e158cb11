"""Judge deblur on photographs blurred as in a laboratory by a shaken camera: evenly, along bent paths.

    python examples/experiments/drawn_shake.py

Each of COUNT photographs (`../shared/data/stills`) is reduced to SIDE pixels, blurred in light along a path
of its own, and gets a little noise. PSNR is that after the best shift, since a path has no position: whole
pixels, then quarters; BORDER pixels are left out.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from held_out_table import DATA, rgb_picture
from torch import Tensor

from vidrestore import Restorer
from vidrestore.linear_light import from_light, to_light
from vidrestore.metrics import psnr

COUNT, SIDE, BORDER, REACH = 24, 320, 15, 6
EXTENT = (8.0, 24.0)  # pixels of a path
MOMENTS, NOISE = 400, (0.3, 2.0)  # samples of a path; grey levels


def photographs(data: Path) -> Iterator[Tensor]:
    """Yield pictures (3, SIDE, SIDE), reduced by two at least, so that they are sharp."""
    files = sorted(path for path in (data / "stills").iterdir() if "crop" not in path.name)
    for path in files[:: len(files) // COUNT][:COUNT]:
        picture = rgb_picture(path)
        scale = max(SIDE / min(picture.shape[1:]), 0.4)
        size = [max(SIDE, round(side * scale)) for side in picture.shape[1:]]
        small = F.interpolate(picture[None], size, mode="bicubic", antialias=True)[0].clamp(0, 1)
        top, left = ((side - SIDE) // 2 for side in size)
        yield small[:, top : top + SIDE, left : left + SIDE]


def kernel(rng: np.random.Generator) -> Tensor:
    """Return a kernel (29, 29): a path whose direction and speed change at random, as smooth as a hand is."""
    steps = rng.normal(size=(MOMENTS, 2))
    for width in (rng.uniform(30, 160), 12):  # of the means that smooth the speed
        window = np.hanning(2 * int(width) + 1)
        steps = np.stack([np.convolve(axis, window / window.sum(), "same") for axis in steps.T], 1)
    path = steps.cumsum(0)
    path -= (path.max(0) + path.min(0)) / 2
    path *= rng.uniform(*EXTENT) / np.ptp(path, 0).max()
    reach, places = 14, torch.from_numpy(path)
    line = torch.arange(-reach, reach + 1)
    down, right = ((1 - (places[:, axis, None] - line).abs()).clamp(min=0) for axis in (0, 1))
    light = torch.einsum("ti,tj->ij", down, right)
    return (light / light.sum()).float()


def shaken(data: Path) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield pictures as given (3, H, W) in 8 bits, sharp, and their kernels."""
    for number, picture in enumerate(photographs(data)):
        rng = np.random.default_rng(number)
        path = kernel(rng)
        light = F.pad(to_light(picture)[:, None], [len(path) // 2] * 4, mode="reflect")
        seen = from_light(F.conv2d(light, path.flip(0, 1)[None, None])[:, 0])
        noise = torch.from_numpy(rng.normal(size=seen.shape)).float() * rng.uniform(*NOISE) / 255
        yield (seen + noise).clamp(0, 1).mul(255).round().div(255), picture, path


def best_psnr(picture: Tensor, sharp: Tensor) -> float:
    """Return the PSNR (dB) of pictures (3, H, W) after the best shift."""
    edge = BORDER + REACH
    inner = (..., slice(edge, -edge), slice(edge, -edge))

    def judged(down: float, right: float) -> float:
        return psnr(moved(picture, down, right)[inner].permute(1, 2, 0), sharp[inner].permute(1, 2, 0), 1)

    before, after = picture.mean(0), sharp.mean(0)[inner]
    whole = product(range(-REACH, REACH + 1), repeat=2)
    down, right = min(
        whole, key=lambda shift: float((before.roll(shift, (0, 1))[inner] - after).square().mean())
    )
    parts = product(np.arange(-0.75, 1, 0.25), repeat=2)
    return max(judged(down + part[0], right + part[1]) for part in parts)


def moved(picture: Tensor, down: float, right: float) -> Tensor:
    """Return a picture shifted by any number of pixels, by its spectrum."""
    rows, columns = torch.fft.fftfreq(picture.shape[1])[:, None], torch.fft.rfftfreq(picture.shape[2])
    angle = -2 * torch.pi * (down * rows + right * columns)
    shifted: Tensor = torch.fft.irfft2(
        torch.fft.rfft2(picture) * torch.polar(torch.ones_like(angle), angle), picture.shape[1:]
    )
    return shifted


def main(options: Namespace) -> None:
    deblur, gains = Restorer("deblur"), list[float]()
    print("| photograph | given (dB) | deblur | |\n|---|---|---|---|")
    for number, (seen, sharp, _) in enumerate(shaken(options.data)):
        restored = torch.from_numpy(deblur(seen.permute(1, 2, 0)[None].numpy())[0]).permute(2, 0, 1)
        before, after = (best_psnr(picture.clamp(0, 1), sharp) for picture in (seen, restored))
        gains.append(after - before)
        print(f"| {number} | {before:.2f} | {after:.2f} | {gains[-1]:+.2f} |", flush=True)
    worse = sum(gain < 0 for gain in gains)
    print(f"gain {np.mean(gains):+.2f} dB in the mean, {min(gains):+.2f} at least, {worse} worse")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--data", type=Path, default=DATA, help="where the shared pictures lie")
    main(parser.parse_args())
