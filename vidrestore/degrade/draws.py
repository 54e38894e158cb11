"""Random numbers for strengths, which are as likely to double as to halve."""

from __future__ import annotations

import math

import numpy as np


def log_uniform(rng: np.random.Generator, bounds: tuple[float, float]) -> float:
    """Return a number between two bounds above 0, uniform in its logarithm."""
    return math.exp(rng.uniform(math.log(bounds[0]), math.log(bounds[1])))
