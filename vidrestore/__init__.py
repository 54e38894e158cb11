"""Restore noisy, hazy, rainy, snowy, blurred or low-resolution video with published transformers."""

__version__ = "0.1.0"
