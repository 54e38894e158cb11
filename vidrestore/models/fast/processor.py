"""Abilities of the processor."""

from __future__ import annotations


def processor_has(feature: str) -> bool:
    """Return whether the processor has a feature by torch's name for it, "avx2" or "avx512_bf16".

    Versions of torch without `get_capabilities` know of AVX2 only.
    """
    import torch

    if hasattr(torch.cpu, "get_capabilities"):
        return bool(torch.cpu.get_capabilities().get(feature))
    return feature == "avx2" and torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
