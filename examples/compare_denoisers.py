"""What the network, the places of its patches and their stride are worth: luma PSNR and time of denoising
clean clips, as a table.

    python examples/compare_denoisers.py CLIP... [--model NAME|FILE ...] [--stride N ...]
                                         [--places fixed|matched ...]
                                         [--sigma S] [--frames N]

CLIP is a video or a folder of pictures. White Gaussian noise is added to its luma, rounded and clipped; clips
are restored in blocks of 20 frames without overlap, on one thread. PSNR is the mean over frames; the time is
CPU time of places, patches and network, without video. Every model is run with all of the places and strides.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from itertools import islice, product
from pathlib import Path
from statistics import fmean
from typing import cast

import av
import numpy as np
import torch
from torch import Tensor

from vidrestore.lab.degrade import add_gaussian_noise
from vidrestore.models.dust import Dust
from vidrestore.models.dust_sigma import SigmaDust
from vidrestore.models.fast_linear import PackedLinear
from vidrestore.models.grouping import GROUP, restore_patches
from vidrestore.pixels.metrics import psnr
from vidrestore.restorers.denoise import ClipPositions
from vidrestore.weights import load_model


def luma(clip: Path, limit: int | None) -> Tensor:
    """(T, H, W) luma of a video, or of a folder of pictures in the order of their names."""

    def frames() -> Iterator[av.VideoFrame]:
        for path in sorted(clip.iterdir()) if clip.is_dir() else [clip]:
            with av.open(str(path)) as container:
                yield from container.decode(video=0)

    planes = [
        frame.reformat(format="gray").to_ndarray() for frame in islice(frames(), limit)
    ]
    return torch.from_numpy(np.stack(planes)).float()


def denoised(
    noisy: Tensor, network: Dust | SigmaDust, sigma: float, stride: int, places: str
) -> Tensor:
    """A clip (T, H, W) restored in blocks; `stride` in sixteenths of a patch."""
    patch, work = network.config.patch, network.at(sigma, torch.bfloat16, PackedLinear)
    blocks = []
    for block in noisy.split(GROUP):
        positions = ClipPositions(block, patch, follow=places == "matched")
        origins = positions.origins(block.shape, stride)
        blocks.append(restore_patches(block, origins, patch, work))
    return torch.cat(blocks)


@torch.inference_mode()
def measure(
    clips: list[Tensor], model: str, places: str, stride: int, sigma: float
) -> tuple[float, float]:
    """Mean luma PSNR (dB) and CPU milliseconds per frame."""
    network = cast("Dust | SigmaDust", load_model(model).network)
    figures, seconds = [], 0.0
    for index, clean in enumerate(clips):
        noisy = add_gaussian_noise(clean, sigma, index)
        began = time.process_time()
        restored = denoised(noisy, network, sigma, stride, places).round().clamp(0, 255)
        seconds += time.process_time() - began
        figures += [
            psnr(frame.numpy(), wanted.numpy())
            for frame, wanted in zip(restored, clean, strict=True)
        ]
    return fmean(figures), 1e3 * seconds / len(figures)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clips", nargs="+", type=Path, metavar="CLIP")
    parser.add_argument(
        "--model",
        action="append",
        help="listed name or .safetensors file; may be given more than once",
    )
    parser.add_argument("--places", action="append", choices=("fixed", "matched"))
    parser.add_argument(
        "--stride",
        action="append",
        type=int,
        help="in sixteenths of a patch, so in pixels for patches of 16 x 16",
    )
    parser.add_argument("--sigma", type=float, default=20.0)
    parser.add_argument(
        "--frames", type=int, help="only the first so many of each clip"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    clips = [luma(clip, arguments.frames) for clip in arguments.clips]
    print(
        "| weights | places | stride | luma PSNR | CPU ms/frame |\n| --- | --- | --- | --- | --- |"
    )
    models, ways = arguments.model or ["dust-denoise"], arguments.places or ["matched"]
    for model, places, stride in product(models, ways, arguments.stride or [16]):
        quality, cost = measure(clips, model, places, stride, arguments.sigma)
        print(
            f"| {Path(model).stem} | {places} | {stride} | {quality:.2f} | {cost:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
