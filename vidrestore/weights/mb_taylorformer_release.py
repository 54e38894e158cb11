"""Adopt checkpoints of the authors of MB-TaylorFormer V2: infer the network, and rename its tensors.

The authors pack the branches of a stage along the first axis; ours have a separate axis. They state no
licence for their weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Any

import torch
from torch import Tensor

from vidrestore.models.mb_taylorformer import MBTaylorFormerConfig, config_from, settings_of
from vidrestore.weights.importing import Adopted

# Theirs -> ours, replaced in this order. Two of theirs with the same name of ours are concatenated.
_RENAMES = (
    ("patch_embed.proj.weight", "stem"),
    ("output.0.weight", "head"),
    *((f"reduce_chan_level{level}.0.weight", f"reduce.{level - 2}") for level in (2, 3)),
    *((f"down{level}_{level + 1}.", f"down.{level - 1}.") for level in (1, 2, 3)),
    *((f"up{level + 1}_{level}.", f"up.{level - 1}.") for level in (1, 2, 3)),
    ("patch_embed_", ""),
    *(
        (f"{side}_level{level}.", f"{side}.{level - 1}.")
        for side in ("encoder", "decoder")
        for level in (1, 2, 3)
    ),
    ("latent.", "encoder.3."),
    ("patch_embeds.", "embeddings."),
    ("patch_conv.offset_generator.0.weight", "offset_depthwise"),
    ("patch_conv.offset_generator.1.weight", "offset_pointwise"),
    ("patch_conv.dcn.weight", "depthwise"),
    ("patch_conv.pwconv.weight", "pointwise"),
    ("mhca_blk.MHCA_layers.", "blocks."),
    ("norm1.body.weight", "attention.norm"),
    ("attn.temperature", "attention.temperature"),
    ("attn.scale", "attention.remainder"),
    ("attn.one_M", "attention.one"),
    ("attn.qkv.weight", "attention.qkv"),
    ("attn.qkv_dwconv.weight", "attention.qkv_depthwise"),
    ("attn.project_out.weight", "attention.project"),
    *(
        (f"attn.refine_att.conv_list.{window}.weight", f"attention.position.weights.{window}")
        for window in range(3)
    ),
    *(
        (f"attn.refine_att.conv_list.{window}.bias", f"attention.position.biases.{window}")
        for window in range(3)
    ),
    ("norm2.body.weight", "feed_forward.norm"),
    *((f"ffn.project_in_{part}.weight", "feed_forward.expand") for part in (1, 2)),
    *((f"ffn.dwconv_{part}.weight", "feed_forward.expand_depthwise") for part in (1, 2)),
    ("ffn.project_out.weight", "feed_forward.contract"),
    ("aggregate.conv_du.0.weight", "fusion.squeeze"),
    ("aggregate.conv_du.1.weight", "fusion.slope"),
    *((f"aggregate.fcs.{branch}.weight", "fusion.excite") for branch in range(9)),
    ("body.0.weight", "depthwise"),
    ("body.1.weight", "pointwise"),
)
_LEVELS = ("encoder_level1", "encoder_level2", "encoder_level3", "latent")

# Arguments of the authors' constructor for the sizes of the network, by our names; then those that it accepts
# and ignores.
_SIZES = {"dim": "widths", "num_blocks": "blocks", "num_path": "branches", "heads": "heads"}
_IGNORED = {
    "type",
    "model_name",
    "num_refinement_blocks",
    "ffn_expansion_factor",
    "LayerNorm_type",
    "qk_norm",
}
_FIXED = {"inp_channels": 3, "out_channels": 3, "bias": False, "dual_pixel_task": False}


def adopt(tensors: dict[str, Tensor], arguments: dict[str, Any]) -> Adopted:
    """Return config and tensors of a released network. Sizes are read from the tensors; `arguments` must
    agree with them.

    Options that no tensor shows are as in every released training: offsets limited to 3 pixels, unless
    `arguments` have `offset_clamp`. `arguments` may also have fields of ours (`first_residual`, `attention`),
    for weights trained by the paper's rules. Raises ValueError.
    """
    sizes = _sizes(tensors)
    config = config_from(sizes | _options(arguments, sizes))
    parts: dict[str, list[Tensor]] = {}
    for name in sorted(tensors):
        parts.setdefault(_our_name(name), []).append(tensors[name])
    return Adopted(
        settings_of(config), {name: _our_tensor(name, found, config) for name, found in parts.items()}
    )


def _our_name(name: str) -> str:
    for theirs, ours in _RENAMES:
        name = name.replace(theirs, ours)
    return name


def _our_tensor(name: str, parts: list[Tensor], config: MBTaylorFormerConfig) -> Tensor:
    """Convert 1x1 convolutions to matrices and, in blocks, split the branches to an axis and concatenate the
    parts.
    """
    parts = [part[..., 0, 0] if part.ndim == 4 and part.shape[2:] == (1, 1) else part for part in parts]
    if name.endswith("fusion.excite"):
        return torch.stack(parts)
    if ".blocks." in name and not name.endswith(("norm", "temperature", "remainder", "one")):
        branches = config.branches[_level(name)]
        if odd := [part for part in parts if part.ndim == 0 or part.shape[0] % branches]:
            raise ValueError(f"{name}: shape {list(odd[0].shape)} can't be divided among {branches} branches")
        parts = [part.unflatten(0, (branches, -1)) for part in parts]
        return torch.cat(parts, 1)
    return parts[0]


def _level(name: str) -> int:
    numbers = re.findall(r"^(?:encoder|decoder)\.(\d)", name)
    return int(numbers[0]) if numbers else 0


def _sizes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Return widths, blocks, branches and heads of the four levels, by our names."""
    try:
        widths = [
            tensors[f"patch_embed_{stage}.patch_embeds.0.patch_conv.dcn.weight"].shape[0] for stage in _LEVELS
        ]
        heads = [tensors[f"{stage}.mhca_blk.MHCA_layers.0.attn.temperature"].shape[1] for stage in _LEVELS]
    except (KeyError, IndexError) as error:
        raise ValueError(f"is not a checkpoint of MB-TaylorFormer V2's authors: it lacks {error}") from error
    blocks = [_count(tensors, rf"{stage}\.mhca_blk\.MHCA_layers\.(\d+)\.") for stage in _LEVELS]
    branches = [_count(tensors, rf"patch_embed_{stage}\.patch_embeds\.(\d+)\.") for stage in _LEVELS]
    return {
        "widths": tuple(widths),
        "blocks": tuple(blocks),
        "branches": tuple(branches),
        "heads": tuple(heads),
    }


def _count(names: Mapping[str, Tensor], pattern: str) -> int:
    return len({match[1] for name in names if (match := re.match(pattern, name))})


def _options(arguments: Mapping[str, Any], sizes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    """Return fields of our config that no tensor shows, from the authors' arguments.

    Raises ValueError for unknown arguments and for those that contradict the tensors.
    """
    ours = {field.name for field in fields(MBTaylorFormerConfig)} - set(sizes)
    if unknown := sorted(set(arguments) - set(_SIZES) - _IGNORED - set(_FIXED) - ours - {"offset_clamp"}):
        known = sorted([*_SIZES, *_IGNORED, *_FIXED, "offset_clamp"])
        raise ValueError(
            f"the config has {', '.join(unknown)}, which its authors' constructor doesn't take; it takes "
            f"{', '.join(known)}"
        )
    for theirs, name in _SIZES.items():
        if not isinstance(given := arguments.get(theirs, sizes[name]), list | tuple):
            raise ValueError(f"the config's {theirs} is {given}, expected four numbers")
        if tuple(given) != sizes[name]:
            raise ValueError(
                f"the config has {theirs} {list(given)}, but the tensors are those of {list(sizes[name])}"
            )
    for theirs, value in _FIXED.items():
        if arguments.get(theirs, value) != value:
            raise ValueError(
                f"the config has {theirs} {arguments[theirs]}, but only {value} is supported, as in all "
                "released networks"
            )
    options = {name: arguments[name] for name in ours if name in arguments}
    if "offset_clamp" in arguments:
        options["offset_limit"] = arguments["offset_clamp"] or ()
    return options
