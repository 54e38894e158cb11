"""Judge `denoise` on noise that cameras made, beside nlmeans: photographs at high ISO, and the means of many.

    python examples/experiments/real_pairs.py [--sigma 16 --sigma 30]

For each pair of `../shared/data/real/noise_pairs`: PSNR of R'G'B' as given, by nlmeans at the best of five
strengths for that picture, by `denoise` with nothing said, and, with --sigma, at the best of these.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from fractions import Fraction
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import av
import torch
from av.filter import Graph
from held_out_table import DATA, rgb_picture
from torch import Tensor

from vidrestore import restore
from vidrestore.metrics import psnr

STRENGTHS = (1.5, 3, 5, 8, 12)  # of nlmeans
COLUMNS = ("as given", "nlmeans at its best", "denoise", "at its best sigma")


def nonlocal_means(path: Path, strength: float) -> Tensor:
    """A picture (3, H, W) by FFmpeg's nlmeans, on Y, U and V of full size."""
    with av.open(str(path)) as container:
        pixels = next(container.decode(video=0)).to_ndarray(format="rgb24")
    frame = av.VideoFrame.from_ndarray(pixels, format="rgb24").reformat(format="yuv444p")
    frame.pts, frame.time_base = 0, Fraction(1, 25)
    graph = Graph()
    source = graph.add_buffer(
        width=frame.width, height=frame.height, format=frame.format, time_base=frame.time_base
    )
    nlmeans = graph.add("nlmeans", f"s={strength}:p=7:r=15")
    graph.link_nodes(source, nlmeans, graph.add("buffersink")).configure()
    graph.push(frame)
    graph.push(None)
    return torch.from_numpy(graph.vpull().to_ndarray(format="rgb24")).permute(2, 0, 1).float() / 255


def main(options: Namespace) -> None:
    print(f"| picture | {' | '.join(COLUMNS)} |\n|---|{'---|' * len(COLUMNS)}")
    rows = []
    for noisy in sorted((options.data / "real" / "noise_pairs").glob("*_noise.png")):
        name = noisy.name.removesuffix("_noise.png")
        truth, given = rgb_picture(noisy.with_name(f"{name}_gt.png")), rgb_picture(noisy)

        def score(picture: Tensor, truth: Tensor = truth) -> float:
            return psnr(picture.permute(1, 2, 0), truth.permute(1, 2, 0), 1)

        with TemporaryDirectory() as work:
            made = []
            for number, sigma in enumerate([None, *options.sigma]):
                output = Path(work) / f"{number}.png"
                restore(noisy, output, **({} if sigma is None else {"sigma": sigma}))
                made.append(score(rgb_picture(output)))
        others = max(score(nonlocal_means(noisy, strength)) for strength in STRENGTHS)
        rows.append((score(given), others, made[0], max(made)))
        print(f"| {name} | {' | '.join(f'{each:.2f}' for each in rows[-1])} |", flush=True)
    print(f"| mean | {' | '.join(f'{fmean(each):.2f}' for each in zip(*rows, strict=True))} |")


if __name__ == "__main__":
    parser = ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--sigma", action="append", type=float, default=[], help="may be given again")
    parser.add_argument("--data", type=Path, default=DATA, help="where the shared photos lie")
    main(parser.parse_args())
