"""How well neighbours are aligned with a frame, on training clips: clean, and in drawn rain and snow.

    python examples/experiments/alignment.py

The motion is found in the degraded frames and applied to the clean neighbour: PSNR of the result to the clean
frame, by `vidrestore.models.alignment`, without motion, and by OpenCV's DIS where it is installed.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
from torch import Tensor

from vidrestore.colour import planes_to_grey, yuv_to_rgb
from vidrestore.degrade import DEGRADATIONS
from vidrestore.media.reader import VideoReader
from vidrestore.metrics import psnr
from vidrestore.models.alignment import dense_motion
from vidrestore.models.spynet import warp

CLIPS = Path(__file__).parents[3] / "shared" / "data" / "train"
FAST = {"davis_bmx-trees": 2, "davis_car-roundabout": 3, "davis_soapbox": 3, "davis_tennis": 2}  # steps
SLOW = {"davis_blackswan": 1, "davis_camel": 1, "sam2_coffee": 1, "exo_roof360_a": 1}
FIRST, HEIGHT, WIDTH = 20, 256, 320
Motion = Callable[[Tensor, Tensor], Tensor]


def frames_of(name: str, step: int) -> Tensor:
    """Return (2, 3, HEIGHT, WIDTH): two frames of a clip, `step` apart."""
    frames = []
    with VideoReader(str(CLIPS / f"{name}.mp4")) as reader:
        video = reader.info.video
        for number, frame in enumerate(reader.frames()):
            if number in (FIRST, FIRST + step):
                planes = [plane[None] for plane in planes_to_grey(frame.planes, video.format)]
                frames.append(yuv_to_rgb(planes, video.format, video.colour, video.height))
    return torch.cat(frames)[..., :HEIGHT, :WIDTH].clamp(0, 1).contiguous()


def dis() -> Motion | None:
    """Return the motion by OpenCV's DIS of pictures blurred by 2 pixels; None where it isn't installed."""
    try:
        import cv2
    except ImportError:
        return None
    flow = cv2.DISOpticalFlow_create(cv2.DISOPTICAL_FLOW_PRESET_MEDIUM)

    def luma(picture: Tensor) -> Any:
        pixels = np.ascontiguousarray(picture[0].mul(255).byte().permute(1, 2, 0).numpy())
        return cv2.cvtColor(cv2.GaussianBlur(pixels, (0, 0), 2), cv2.COLOR_RGB2GRAY)

    return lambda here, there: torch.from_numpy(flow.calc(luma(here), luma(there), None)).permute(2, 0, 1)[
        None
    ]


def main() -> None:
    still: Motion = lambda here, there: torch.zeros(1, 2, *here.shape[-2:])  # noqa: E731
    methods: dict[str, Motion | None] = {"none": still, "alignment": dense_motion, "DIS": dis()}
    print("| clips | frames | " + " | ".join(name for name, by in methods.items() if by) + " |")
    for kind, clips in (("fast", FAST), ("slow", SLOW)):
        for weather, degrade in (("clean", None), *((name, DEGRADATIONS[name]) for name in ("rain", "snow"))):
            scores: dict[str, list[float]] = {}
            for number, (name, step) in enumerate(clips.items()):
                clean = frames_of(name, step)
                seen = degrade(clean, np.random.default_rng(number)) if degrade else clean
                for method, motion in methods.items():
                    if motion:
                        moved = warp(clean[1:], motion(seen[:1], seen[1:]), border="border")
                        scores.setdefault(method, []).append(psnr(moved[0], clean[0], 1.0))
            print(
                f"| {kind} | {weather} | "
                + " | ".join(f"{fmean(each):.2f}" for each in scores.values())
                + " |"
            )


if __name__ == "__main__":
    main()
