#!/usr/bin/env python3
"""What `denoise` loses by measuring white noise instead of being told its sigma.

    measured_sigma.py CLIP [CLIP ...] [--sigmas 5,10,20,40] [--crf 23] [--frames 20] [--size 320x208]

CLIP is a folder of frames. The noise is on Y, U and V, of 8 bits, and also seen behind x264. Prints the PSNR
of luma: as given, with the sigma told, with the sigma measured, and the loss.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import numpy as np
from real_noise import ours, read_folder, write

sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "helpers"))
from held_out_noise import Frames, plane_psnr, stored, x264

MOST_LOST = 0.1  # dB


def with_noise(frames: Frames, sigma: float, seed: int = 1) -> Frames:
    rng = np.random.default_rng(seed)
    noisy = []
    for y, u, v in frames:
        noisy.append(tuple(stored(plane + sigma * rng.standard_normal(plane.shape)) for plane in (y, u, v)))
    return noisy


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clips", nargs="+", type=Path)
    parser.add_argument("--sigmas", default="5,10,20,40")
    parser.add_argument("--crf", type=int, default=23)
    parser.add_argument("--frames", type=int, default=20)
    parser.add_argument("--size", default="320x208", help="of the middle that is used")
    given = parser.parse_args()
    width, height = map(int, given.size.split("x"))
    losses = []
    print(f"{'clip':14} {'coded':6} sigma  given   told  measured  loss")
    with tempfile.TemporaryDirectory() as folder:
        noisy_path, out = Path(folder, "noisy.mkv"), Path(folder, "out.mkv")
        for clip in given.clips:
            clean = read_folder(clip, given.frames, width, height)
            for coded in (False, True):
                for sigma in map(float, given.sigmas.split(",")):
                    noisy = with_noise(clean, sigma)
                    noisy = x264(noisy, given.crf) if coded else noisy
                    write(noisy_path, noisy)
                    told, measured = (
                        plane_psnr(clean, ours(noisy_path, out, options), 0)
                        for options in (f"--sigma {sigma}", "")
                    )
                    losses.append(told - measured)
                    kind, before = f"crf {given.crf}" if coded else "", plane_psnr(clean, noisy, 0)
                    line = f"{clip.name:14} {kind:6} {sigma:5g}  {before:5.2f}  {told:5.2f}  {measured:8.2f}"
                    print(f"{line}  {losses[-1]:+.2f}", flush=True)
    few = sum(loss <= MOST_LOST for loss in losses)
    print(f"{few} of {len(losses)} lose at most {MOST_LOST} dB; mean {np.mean(losses):.2f} dB")


if __name__ == "__main__":
    main()
