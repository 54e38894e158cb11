"""Noise on the shared clips, what a codec leaves of it, and a table of estimates.

    python examples/experiments/noise_clips.py ../shared/data

The table shows the estimate and, in brackets, its error in percent: of the sigma that was added, and after
x264 of the `residual`.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from fractions import Fraction
from io import BytesIO
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from vidrestore.noise import NoiseEstimator

Planes = tuple[NDArray[np.uint8], ...]  # Y, U, V
CLIPS = ("car-shadow", "dog", "kite-surf")


def noisy(clean: NDArray[Any], sigma: float, seed: int = 0) -> NDArray[np.uint8]:
    return (
        np.rint(clean + np.random.default_rng(seed).normal(0, sigma, clean.shape))
        .clip(0, 255)
        .astype(np.uint8)
    )


def estimate(*planes: NDArray[Any], unit: float = 1.0) -> float:
    estimator = NoiseEstimator(unit)
    for plane in planes:
        estimator.add(plane)
    return estimator.sigma()


def read_planes(folder: Path, count: int, step: int = 3) -> list[Planes]:
    """Y, U, V of every `step`-th picture of a folder."""
    frames = []
    for file in sorted(folder.iterdir())[: step * count : step]:
        with av.open(str(file)) as container:
            picture = next(container.decode(video=0)).reformat(format="yuv420p")  # type: ignore[attr-defined]
            flat, height, width = picture.to_ndarray(), picture.height, picture.width
            chroma = flat[height:].reshape(2, height // 2, width // 2)
            frames.append((flat[:height], chroma[0], chroma[1]))
    return frames


def through_x264(frames: list[Planes], crf: int = 23) -> list[Planes]:
    return through_encoder(frames, "libx264", {"crf": str(crf), "preset": "medium"})


def through_encoder(frames: list[Planes], name: str, options: dict[str, str]) -> list[Planes]:
    """Encode and decode frames of 4:2:0."""
    file = BytesIO()
    height, width = frames[0][0].shape
    with av.open(file, "w", format="mp4") as container:
        stream = container.add_stream(name, rate=24, options=options)
        stream.width, stream.height, stream.pix_fmt, stream.time_base = (
            width,
            height,
            "yuv420p",
            Fraction(1, 24),
        )
        for planes in frames:
            flat = np.concatenate([planes[0], np.stack(planes[1:]).reshape(height // 2, width)])
            container.mux(stream.encode(av.VideoFrame.from_ndarray(flat, format="yuv420p")))
        container.mux(stream.encode(None))
    file.seek(0)
    decoded = []
    with av.open(file) as container:
        for picture in container.decode(video=0):
            flat = picture.to_ndarray()
            chroma = flat[height:].reshape(2, height // 2, width // 2)
            decoded.append((flat[:height], chroma[0], chroma[1]))
    return decoded


def residual(clean: Sequence[Planes], decoded: Sequence[Planes], plane: int, sigma: float) -> float:
    """Standard deviation of decoded less clean where the noise was not clipped: what is left, and what the
    codec took from the picture.
    """
    original = np.stack([frame[plane] for frame in clean]).astype(np.float32)
    margin = min(3 * sigma, 100)
    inner = (original > margin) & (original < 255 - margin)
    return (
        float((np.stack([frame[plane] for frame in decoded]) - original)[inner].std()) if inner.any() else 0.0
    )


def main(data: Path) -> None:
    sigmas = (2, 5, 10, 20, 40, 60)
    sys.stdout.write(
        f"| clip, plane | clean | {' | '.join(map(str, sigmas))} | "
        f"{' | '.join(f'{sigma} crf 23' for sigma in sigmas)} |\n"
    )
    for clip in CLIPS:
        frames = read_planes(data / "eval" / "davis480p_heldout" / clip, 12, step=1)
        added = {
            sigma: [
                tuple(noisy(plane, sigma, 100 * at + sigma) for plane in frame)
                for at, frame in enumerate(frames)
            ]
            for sigma in sigmas
        }
        coded = {sigma: through_x264(added[sigma]) for sigma in sigmas}
        for plane in range(3):
            cells = [f"{clip} {'YUV'[plane]}", f"{estimate(*(frame[plane] for frame in frames)):.1f}"]
            left = {sigma: residual(frames, coded[sigma], plane, sigma) for sigma in sigmas}
            for videos, truth in ((added, {sigma: sigma for sigma in sigmas}), (coded, left)):
                for sigma in sigmas:
                    got = estimate(*(frame[plane] for frame in videos[sigma]))
                    cells.append(f"{got:.1f} ({100 * (got / max(truth[sigma], 0.1) - 1):+.0f})")
            sys.stdout.write(f"| {' | '.join(cells)} |\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
