"""Judge deblur on photographs blurred as in a laboratory by a shaken camera: evenly, along bent paths.

    python examples/experiments/drawn_shake.py [--count 24] [--folder stills]

Each of 24 photographs (`../shared/data/stills`) is reduced to SIDE pixels, blurred in light along a path of
its own, stored by each of four responses, and gets a little noise. PSNR is that of stored values after the
best shift, since a path has no position: whole pixels, then quarters; BORDER pixels are left out.

`--side 480` judges whole and half kernels too, which smaller pictures are not divided for; `--extent 32 44`
kernels that their window cuts off; `--curve GoPro` averages of frames of moving cameras instead
(`../shared/data/others/blur_gopro`); `--without RULE` what a rule of deblur is worth.
"""

from __future__ import annotations

import math
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from pathlib import Path
from time import process_time

import numpy as np
import torch
import torch.nn.functional as F
from held_out_table import DATA, rgb_picture
from numpy.typing import NDArray
from real_and_hazy import average_of_frames
from torch import Tensor

from vidrestore import Restorer
from vidrestore.pixels.linear_light import GAMMA, from_light, to_light
from vidrestore.pixels.metrics import psnr
from vidrestore.restorers import shake

SIDE, BORDER, REACH = 320, 15, 6
EXTENT = (8.0, 24.0)  # pixels of a path
MOMENTS, NOISE = 400, (0.3, 2.0)  # samples of a path; grey levels
GRID = np.linspace(0, 1, 4097)  # the 2.2th root of light, by which curves are stored
BASE = (
    (0, 0.004, 0.02, 0.06, 0.16, 0.35, 0.6, 0.8, 1),
    (0, 0.01, 0.09, 0.27, 0.52, 0.75, 0.9, 0.97, 1),
)
# The stored values of light, by the 2.2th root of light.
CURVES: dict[str, Callable[[NDArray[np.float64]], NDArray[np.float64]]] = {
    "light itself": lambda root: root**GAMMA,
    "its 2.2th root": lambda root: root,
    "that with contrast": lambda root: root - 0.1 * np.sin(2 * np.pi * root),
    "a camera's base curve": lambda root: np.interp(root**GAMMA, *BASE),
}
GOPRO = "GoPro"  # instead of a curve
# What stands for a rule of `vidrestore.restorers.shake` if it is left out.
RULES: dict[str, tuple[str, object]] = {
    "responses": ("responses_of", lambda *_: [shake.CAMERA]),
    "agreement": ("_is_even", lambda *_, **__: True),
    "searches": ("agreed", lambda results: min(results, key=lambda one: one.strays)),
    "windows": ("CUT_OFF", 1.0),
    "steady paths": ("STEADY", 0.0),
}


def photographs(folder: Path, count: int, side: int) -> Iterator[Tensor]:
    """Yield pictures (3, side, side), reduced by two at least, so that they are sharp."""
    files = sorted(path for path in folder.iterdir() if "crop" not in path.name)
    for path in files[:: len(files) // count][:count]:
        picture = rgb_picture(path)
        scale = max(side / min(picture.shape[1:]), 0.4)
        size = [max(side, round(length * scale)) for length in picture.shape[1:]]
        small = F.interpolate(picture[None], size, mode="bicubic", antialias=True)[
            0
        ].clamp(0, 1)
        top, left = ((length - side) // 2 for length in size)
        yield small[:, top : top + side, left : left + side]


def kernel(rng: np.random.Generator, extent: Sequence[float] = EXTENT) -> Tensor:
    """Return a kernel (side, side): a path of so many pixels, whose direction and speed change at random, as
    smooth as a hand is.
    """
    steps = rng.normal(size=(MOMENTS, 2))
    for width in (rng.uniform(30, 160), 12):  # of the means that smooth the speed
        window = np.hanning(2 * int(width) + 1)
        steps = np.stack(
            [np.convolve(axis, window / window.sum(), "same") for axis in steps.T], 1
        )
    path = steps.cumsum(0)
    path -= (path.max(0) + path.min(0)) / 2
    path *= rng.uniform(*extent) / np.ptp(path, 0).max()
    reach, places = math.ceil(extent[1] / 2) + 2, torch.from_numpy(path)
    line = torch.arange(-reach, reach + 1)
    down, right = (
        (1 - (places[:, axis, None] - line).abs()).clamp(min=0) for axis in (0, 1)
    )
    light = torch.einsum("ti,tj->ij", down, right)
    return (light / light.sum()).float()


def shaken(
    pictures: Iterator[Tensor], curve: str, extent: Sequence[float] = EXTENT
) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield pictures as given (3, H, W) in 8 bits, and sharp, both stored by a curve."""
    for number, picture in enumerate(pictures):
        rng = np.random.default_rng(number)
        path = kernel(rng, extent)
        light = F.pad(to_light(picture)[:, None], [len(path) // 2] * 4, mode="reflect")
        blurred = from_light(F.conv2d(light, path.flip(0, 1)[None, None])[:, 0])
        noise = (
            torch.from_numpy(rng.normal(size=blurred.shape)).float()
            * rng.uniform(*NOISE)
            / 255
        )
        seen = (stored(blurred, curve) + noise).clamp(0, 1)
        yield seen.mul(255).round().div(255), stored(picture, curve)


def pairs(options: Namespace, curve: str) -> Iterator[tuple[Tensor, Tensor]]:
    """Yield pictures (3, H, W) as given and sharp, for a curve or of GoPro."""
    if curve == GOPRO:
        for seen, sharp in average_of_frames(options.data):
            yield seen[0], sharp[0]
        return
    pictures = photographs(options.data / options.folder, options.count, options.side)
    yield from shaken(pictures, curve, options.extent)


def stored(root: Tensor, curve: str) -> Tensor:
    """Return the values that a curve stores, by the 2.2th root of light."""
    return torch.from_numpy(np.interp(root.numpy(), GRID, CURVES[curve](GRID))).float()


def best_psnr(picture: Tensor, sharp: Tensor) -> float:
    """Return the PSNR (dB) of pictures (3, H, W) after the best shift."""
    edge = BORDER + REACH
    inner = (..., slice(edge, -edge), slice(edge, -edge))

    def judged(down: float, right: float) -> float:
        return psnr(
            moved(picture, down, right)[inner].permute(1, 2, 0),
            sharp[inner].permute(1, 2, 0),
            1,
        )

    before, after = picture.mean(0), sharp.mean(0)[inner]
    whole = product(range(-REACH, REACH + 1), repeat=2)
    down, right = min(
        whole,
        key=lambda shift: float(
            (before.roll(shift, (0, 1))[inner] - after).square().mean()
        ),
    )
    parts = product(np.arange(-0.75, 1, 0.25), repeat=2)
    return max(judged(down + part[0], right + part[1]) for part in parts)


def moved(picture: Tensor, down: float, right: float) -> Tensor:
    """Return a picture shifted by any number of pixels, by its spectrum."""
    rows, columns = (
        torch.fft.fftfreq(picture.shape[1])[:, None],
        torch.fft.rfftfreq(picture.shape[2]),
    )
    angle = -2 * torch.pi * (down * rows + right * columns)
    shifted: Tensor = torch.fft.irfft2(
        torch.fft.rfft2(picture) * torch.polar(torch.ones_like(angle), angle),
        picture.shape[1:],
    )
    return shifted


def main(options: Namespace) -> None:
    if options.without:
        setattr(shake, *RULES[options.without])
    deblur = Restorer("deblur")
    print("| stored | photograph | given (dB) | deblur | |\n|---|---|---|---|---|")
    for curve in options.curve or CURVES:
        gains, cpu = list[float](), process_time()
        for number, (seen, sharp) in enumerate(pairs(options, curve)):
            restored = torch.from_numpy(
                deblur(seen.permute(1, 2, 0)[None].numpy())[0]
            ).permute(2, 0, 1)
            before, after = (
                best_psnr(picture.clamp(0, 1), sharp) for picture in (seen, restored)
            )
            gains.append(after - before)
            print(
                f"| {curve} | {number} | {before:.2f} | {after:.2f} | {gains[-1]:+.2f} |",
                flush=True,
            )
        worse = sum(gain < 0 for gain in gains)
        mean, least, seconds = (
            np.mean(gains),
            min(gains),
            (process_time() - cpu) / len(gains),
        )
        print(
            f"{curve}: gain {mean:+.2f} dB, {least:+.2f} at least, {worse} worse, {seconds:.1f} CPU s each"
        )


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--data", type=Path, default=DATA, help="where the shared pictures lie"
    )
    parser.add_argument(
        "--folder", default="stills", help="of them, whose pictures are shaken"
    )
    parser.add_argument("--count", type=int, default=24, help="of the photographs")
    parser.add_argument(
        "--side", type=int, default=SIDE, help="of the photographs, in pixels"
    )
    curves = (*CURVES, GOPRO)
    parser.add_argument(
        "--curve",
        choices=curves,
        action="append",
        help="stored by it; may be given again",
    )
    parser.add_argument(
        "--extent", type=float, nargs=2, default=EXTENT, help="of the paths, in pixels"
    )
    parser.add_argument("--without", choices=RULES, help="leave a rule of deblur out")
    main(parser.parse_args())
