"""A video of a held-out sequence, degraded for a task, lossless.

    python examples/experiments/degraded_video.py TASK SEQUENCE OUT [--frames N]

FFV1 in RGB, so that nothing is lost; the pictures in weights/README.md are frames of such videos.
"""

from __future__ import annotations

from argparse import ArgumentParser
from fractions import Fraction
from pathlib import Path

import av
import torch
from held_out_degradations import MODELS
from held_out_table import DATA, SEQUENCES, rgb_picture
from torch import Tensor


def main() -> None:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("task", choices=list(MODELS))
    parser.add_argument("sequence", choices=SEQUENCES)
    parser.add_argument("output", type=Path)
    parser.add_argument("--frames", type=int, default=5)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    files = sorted((DATA / "eval" / "davis480p_heldout" / given.sequence).iterdir())[given.first :][
        : given.frames
    ]
    degraded, _ = MODELS[given.task](torch.stack([rgb_picture(path) for path in files]), given.seed)
    write_film(given.output, degraded)


def write_film(path: Path, clip: Tensor) -> None:
    """(T, 3, H, W) in [0, 1] as FFV1 in RGB."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=Fraction(24))
        stream.height, stream.width, stream.pix_fmt = *clip.shape[2:], "bgr0"
        for picture in clip.mul(255).round().byte().permute(0, 2, 3, 1).contiguous().numpy():
            container.mux(
                stream.encode(av.VideoFrame.from_ndarray(picture, format="rgb24").reformat(format="bgr0"))
            )
        container.mux(stream.encode(None))


if __name__ == "__main__":
    main()
