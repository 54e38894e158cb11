"""Frames of made-up scenes under white noise."""

import numpy as np

from vidrestore.pixels.frames import Frame


def scene_frames(
    lengths: list[int],
    noise: float = 0.0,
    height: int = 48,
    width: int = 64,
    seed: int = 0,
) -> list[Frame]:
    """Scenes of smooth random pictures (nothing moves) under white noise; frame k has pts 10k."""
    rng = np.random.default_rng(seed)
    frames: list[Frame] = []
    for length in lengths:
        levels = rng.uniform(60, 190, (3, 12, 16))
        pictures = [
            np.kron(level, np.ones((height // 12 >> plane, width // 16 >> plane)))
            for level, plane in zip(levels, (0, 1, 1), strict=True)
        ]
        for _ in range(length):
            planes = tuple(
                (picture + rng.normal(0, noise, picture.shape))
                .round()
                .clip(0, 255)
                .astype(np.uint8)
                for picture in pictures
            )
            frames.append(Frame(planes, 10 * len(frames), 10))
    return frames
