"""The families `vsr-transformer` and `spynet`: build networks from their configurations."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from vidrestore.models.spynet import Spynet, SpynetConfig
from vidrestore.models.vsr_attention import Locality
from vidrestore.models.vsr_transformer import VsrConfig, VsrTransformer

# `reds` and `vimeo` are the released sizes (32.6 and 43.8 million parameters). S is for GPUs. T and C are for
# CPUs: T takes about 65 GFLOP for a frame of 180x320 pixels, S ten times as much. C has no attention: it is
# the network without STCSA of Table 6, and most of its work is on single frames.
SIZES = {
    "reds": VsrConfig(),
    "vimeo": VsrConfig(frames=7, blocks=7),
    "s": VsrConfig(blocks=3, extraction=5, propagation=8, reconstruction=15, tail=32, local=Locality()),
    "t": VsrConfig(
        features=32,
        blocks=1,
        extraction=4,
        propagation=3,
        reconstruction=15,
        tail=0,
        local=Locality(),
        flow=SpynetConfig(levels=5, widths=(24, 24, 24, 16), kernel=3),
    ),
    "c": VsrConfig(
        features=64,
        blocks=2,
        patch=1,
        extraction=3,
        propagation=1,
        reconstruction=7,
        tail=0,
        shared=24,
        attention=False,
        local=Locality(),
        flow=SpynetConfig(levels=5, finest=1, widths=(24, 24, 24, 16), kernel=3),
    ),
}


def build(config: dict[str, Any]) -> VsrTransformer:
    """Build the network from the configuration in its weights file: `size`, one of SIZES (default "reds"),
    and other fields.

    Raises ValueError for an unknown size.
    """
    settings = dict(config)
    size = settings.pop("size", "reds")
    if size not in SIZES:
        raise ValueError(f"unknown size {size!r}; there are {', '.join(SIZES)}")
    settings = asdict(SIZES[size]) | settings
    settings["local"] = Locality(**settings["local"]) if settings["local"] else None
    settings["flow"] = SpynetConfig(**settings["flow"])
    return VsrTransformer(VsrConfig(**settings))


def build_flow(config: dict[str, Any]) -> Spynet:
    """Build a flow network from fields of SpynetConfig; the defaults are the published sizes."""
    return Spynet(SpynetConfig(**config))


def config_of(network: VsrTransformer) -> dict[str, Any]:
    """Return the settings from which `build` rebuilds the network, independent of SIZES."""
    return asdict(network.config)
