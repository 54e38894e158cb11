"""How strong the noise of a video is, plane by plane, measured without a clean reference."""

from vidrestore.noise.white import NoiseEstimator

__all__ = ["NoiseEstimator"]
