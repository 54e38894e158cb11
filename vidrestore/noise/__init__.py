"""Measure the strength of a video's noise, plane by plane, without a clean reference."""

from vidrestore.noise.white import NoiseEstimator

__all__ = ["NoiseEstimator"]
