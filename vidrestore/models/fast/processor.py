"""Abilities of the processor."""

from __future__ import annotations


def processor_has(feature: str) -> bool:
    """Return True if the processor has a feature, by torch's name for it, such as "avx2" or "avx512_bf16".

    Versions of torch without `get_capabilities` only know AVX2.
    """
    import torch

    if hasattr(torch.cpu, "get_capabilities"):
        return bool(torch.cpu.get_capabilities().get(feature))
    return feature == "avx2" and torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")
