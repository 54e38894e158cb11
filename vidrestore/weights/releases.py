"""Adopt checkpoints of the authors of MB-TaylorFormer V2 and of VSR-Transformer, and of SPyNet in the two
layouts that VSR code uses: infer the network, and rename its tensors.

MB-TaylorFormer's authors pack the branches of a stage along the first axis; ours have a separate axis. No
licence is stated for any of these weights.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any

import torch
from torch import Tensor

from vidrestore.models.mb_taylorformer import (
    MBTaylorFormerConfig,
    config_from,
    settings_of,
)
from vidrestore.models.spynet import MEAN, STD, SpynetConfig
from vidrestore.models.vsr_transformer import VsrConfig, frequencies
from vidrestore.weights.importing import Adopted

# Their name -> ours, replaced in this order. Two tensors with the same new name are concatenated.
_TAYLORFORMER = (
    ("patch_embed.proj.weight", "stem"),
    ("output.0.weight", "head"),
    *(
        (f"reduce_chan_level{level}.0.weight", f"reduce.{level - 2}")
        for level in (2, 3)
    ),
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
        (
            f"attn.refine_att.conv_list.{window}.{old}",
            f"attention.position.{new}.{window}",
        )
        for window in range(3)
        for old, new in (("weight", "weights"), ("bias", "biases"))
    ),
    ("norm2.body.weight", "feed_forward.norm"),
    *((f"ffn.project_in_{part}.weight", "feed_forward.expand") for part in (1, 2)),
    *(
        (f"ffn.dwconv_{part}.weight", "feed_forward.expand_depthwise")
        for part in (1, 2)
    ),
    ("ffn.project_out.weight", "feed_forward.contract"),
    ("aggregate.conv_du.0.weight", "fusion.squeeze"),
    ("aggregate.conv_du.1.weight", "fusion.slope"),
    *((f"aggregate.fcs.{branch}.weight", "fusion.excite") for branch in range(9)),
    ("body.0.weight", "depthwise"),
    ("body.1.weight", "pointwise"),
)
_STAGE_NAMES = ("encoder_level1", "encoder_level2", "encoder_level3", "latent")
_VSR = (
    ("conv_first.", "extractor.0."),
    ("feature_extraction.", "extractor.2."),
    ("transformer.layers.", "blocks."),
    (".0.fn.", ".attention."),
    (".1.fn.", ".feed_forward."),
    ("attention.fn.to_q.", "attention.query."),
    ("attention.fn.to_k.", "attention.key."),
    ("attention.fn.to_v.", "attention.value."),
    ("attention.fn.conv.", "attention.output."),
    ("fn.backward_resblocks.main.0.", "later.head."),
    ("fn.backward_resblocks.main.2.", "later.stack."),
    ("fn.forward_resblocks.main.0.", "earlier.head."),
    ("fn.forward_resblocks.main.2.", "earlier.stack."),
    ("feed_forward.fn.fusion.", "feed_forward.fusion."),
    ("upconv1.", "tail.0."),
    ("upconv2.", "tail.3."),
    ("conv_hr.", "tail.6."),
    ("conv_last.", "tail.8."),
)
_FLOW = r"(spynet\.)+"  # the release wraps it once more
_POSITION_FREQUENCIES = "pos_embedding.penc.inv_freq"

_VSR_COUNTED = {
    "num_extract_block": r"feature_extraction\.(\d+)\.",
    "num_reconstruct_block": r"reconstruction\.(\d+)\.",
    "depth": r"transformer\.layers\.(\d+)\.",
}
_VSR_PROPAGATION = (
    r"transformer\.layers\.0\.1\.fn\.fn\.backward_resblocks\.main\.2\.(\d+)\."
)
# of the authors' constructor, which no tensor shows
_VSR_OPTIONS = {"num_frame", "heads", "patch_size"}
# entries of the released configs that their code ignores, or that name a file of the training
_TAYLORFORMER_IGNORED = {
    "type",
    "num_refinement_blocks",
    "LayerNorm_type",
    "qk_norm",
    "model_name",
}
_VSR_IGNORED = {"type", "spynet_path", "spynet_pretrained"}
_VSR_DEPTHS = (5, 7)  # blocks of REDS and Vimeo-90K, equal to the number of frames


def adopt_taylorformer(
    tensors: dict[str, Tensor], arguments: dict[str, Any]
) -> Adopted:
    """Return config and tensors of a released MB-TaylorFormer V2, with sizes from the tensors.

    Options that no tensor shows are as released (offsets limited to 3 pixels) unless `arguments` have
    `offset_clamp`, or fields of ours (`first_residual`, `attention`). Arguments of the released configs that
    tensors show are compared. Raises ValueError for others, and for ones that differ.
    """
    # sizes by the tensors, all else as the authors have it
    sizes = _taylorformer_sizes(tensors)
    field_names = {field.name for field in fields(MBTaylorFormerConfig)} - set(sizes)
    shown: dict[str, Any] = {
        "dim": sizes["widths"],
        "num_blocks": sizes["blocks"],
        "num_path": sizes["branches"],
    }
    shown |= {"heads": sizes["heads"], "inp_channels": 3, "out_channels": 3}
    shown |= {"bias": False, "ffn_expansion_factor": 2.66}
    options = _options(
        arguments, {"offset_clamp", *field_names}, shown, _TAYLORFORMER_IGNORED
    )
    if "offset_clamp" in options:
        options["offset_limit"] = options.pop("offset_clamp") or ()
    config = config_from(sizes | options)
    # our names, under which several of theirs may fall together
    groups: dict[str, list[Tensor]] = {}
    for name in sorted(tensors):
        groups.setdefault(_renamed(name, _TAYLORFORMER), []).append(tensors[name])
    adopted = {name: _joined(name, group, config) for name, group in groups.items()}
    return Adopted(settings_of(config), adopted)


def _taylorformer_sizes(tensors: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    """Return widths, blocks, branches and heads of the four levels, by our names."""
    try:
        widths = [
            tensors[f"patch_embed_{stage}.patch_embeds.0.patch_conv.dcn.weight"].shape[
                0
            ]
            for stage in _STAGE_NAMES
        ]
        heads = [
            tensors[f"{stage}.mhca_blk.MHCA_layers.0.attn.temperature"].shape[1]
            for stage in _STAGE_NAMES
        ]
    except (KeyError, IndexError) as error:
        raise ValueError(
            f"is not a checkpoint of MB-TaylorFormer V2's authors: it lacks {error}"
        ) from error
    blocks = [
        _count(tensors, rf"{stage}\.mhca_blk\.MHCA_layers\.(\d+)\.")
        for stage in _STAGE_NAMES
    ]
    branches = [
        _count(tensors, rf"patch_embed_{stage}\.patch_embeds\.(\d+)\.")
        for stage in _STAGE_NAMES
    ]
    sizes = {"widths": widths, "blocks": blocks, "branches": branches, "heads": heads}
    return {name: tuple(values) for name, values in sizes.items()}


def _joined(name: str, parts: list[Tensor], config: MBTaylorFormerConfig) -> Tensor:
    """Return the parts of one tensor, concatenated; in blocks with branches as an axis."""
    # a convolution of one pixel is a matrix, branches are an axis
    parts = [part[..., 0, 0] if part.shape[2:] == (1, 1) else part for part in parts]
    shapes = [list(part.shape) for part in parts]
    if any(shape[1:] != shapes[0][1:] for shape in shapes):
        found = ", ".join(map(str, shapes))
        raise ValueError(f"{name}: its parts can't be joined, their shapes are {found}")
    if name.endswith("fusion.excite"):
        return torch.stack(parts)
    if ".blocks." in name and not name.endswith(
        ("norm", "temperature", "remainder", "one")
    ):
        level = re.match(r"(?:encoder|decoder)\.(\d)", name)
        branches = config.branches[int(level[1]) if level else 0]
        if odd := [
            part for part in parts if part.ndim == 0 or part.shape[0] % branches
        ]:
            raise ValueError(
                f"{name}: shape {list(odd[0].shape)} can't be divided among {branches} branches"
            )
        return torch.cat([part.unflatten(0, (branches, -1)) for part in parts], 1)
    return parts[0]


def adopt_vsr(tensors: dict[str, Tensor], arguments: dict[str, Any]) -> Adopted:
    """Return config and tensors of a released VSR-Transformer, with its SPyNet. Raises ValueError for other
    `arguments` than the released constructor's, and for ones that differ from the tensors.

    What no tensor shows is as released by default: one head, patches of 8, frames as blocks if 5 or 7.
    """
    if "conv_first.weight" not in tensors or not _count(
        tensors, r"transformer\.layers\.(0)\."
    ):
        raise ValueError(
            "is not a checkpoint of VSR-Transformer's authors: it lacks conv_first.weight or "
            "transformer.layers.0"
        )

    # the config, by the tensors and the arguments
    counted = {name: _count(tensors, pattern) for name, pattern in _VSR_COUNTED.items()}
    features, blocks = len(tensors["conv_first.weight"]), counted["depth"]
    shown = counted | {"num_feat": features, "image_ch": 3, "feat_size": 64}
    options = _options(arguments, _VSR_OPTIONS, shown, _VSR_IGNORED)
    if "num_frame" not in options and blocks not in _VSR_DEPTHS:
        raise ValueError(
            f"has {blocks} blocks and an unknown number of frames; give a config with num_frame"
        )
    config = VsrConfig(
        frames=options.get("num_frame", blocks),
        features=features,
        blocks=blocks,
        heads=options.get("heads", 1),
        patch=options.get("patch_size", 8),
        extraction=counted["num_extract_block"],
        propagation=_count(tensors, _VSR_PROPAGATION),
        reconstruction=counted["num_reconstruct_block"],
        tail=features,
    )

    # the tensors, by our names
    flow = {
        re.sub(_FLOW, "", name): tensor
        for name, tensor in tensors.items()
        if re.match(_FLOW, name)
    }
    adopted = {f"flow.{name}": tensor for name, tensor in _flow_tensors(flow).items()}
    for name, tensor in tensors.items():
        if name == _POSITION_FREQUENCIES:
            _check_constant(name, tensor, frequencies(config.frames))
        elif not re.match(_FLOW, name):
            is_norm = ".norm." in name and tensor.ndim == 3
            adopted[_renamed(name, _VSR)] = (
                tensor.permute(1, 2, 0).contiguous() if is_norm else tensor
            )
    return Adopted(asdict(config), adopted, "sr", {"scale": 4})


def adopt_flow(tensors: dict[str, Tensor], arguments: dict[str, Any]) -> Adopted:
    """Return config and tensors of a SPyNet of mmediting or BasicSR. Raises ValueError for others."""
    if arguments:
        raise ValueError(
            f"the config has {', '.join(arguments)}, but a published SPyNet has no options"
        )
    return Adopted(asdict(SpynetConfig()), _flow_tensors(tensors), "flow")


def _flow_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename a SPyNet's tensors; mmediting counts convolutions, BasicSR also ReLUs."""
    # two projects, with names of their own
    renamed = {}
    for name, tensor in tensors.items():
        if match := re.fullmatch(
            r"basic_module\.(\d+)\.basic_module\.(\d+)(\.conv)?\.(weight|bias)", name
        ):
            level, index, counts_convolutions, kind = match.groups()
            layer = 2 * int(index) if counts_convolutions else index
            renamed[f"levels.{level}.{layer}.{kind}"] = tensor
        elif name in ("mean", "std"):
            _check_constant(
                name,
                tensor,
                torch.tensor(MEAN if name == "mean" else STD).view(1, 3, 1, 1),
            )
        else:
            raise ValueError(
                f"is not a SPyNet of mmediting or BasicSR: {name} is neither .conv.weight nor .weight "
                "of a basic_module"
            )
    return renamed


def _check_constant(name: str, tensor: Tensor, expected: Tensor) -> None:
    """Raise ValueError if constants of the checkpoint differ from those of our network."""
    if tensor.shape != expected.shape or not torch.allclose(
        tensor.double(), expected.double(), rtol=1e-3
    ):
        raise ValueError(
            f"{name} is {tensor.flatten().tolist()}, but this network computes with "
            f"{expected.flatten().tolist()}"
        )


def _renamed(name: str, table: Iterable[tuple[str, str]]) -> str:
    for old, new in table:
        name = name.replace(old, new)
    return name


def _count(names: Mapping[str, Tensor], pattern: str) -> int:
    return len({match[1] for name in names if (match := re.match(pattern, name))})


def _options(
    arguments: Mapping[str, Any],
    names: Iterable[str],
    shown: Mapping[str, Any],
    ignored: Collection[str],
) -> dict[str, Any]:
    """Return the arguments of these names. Raises ValueError for one that differs from what the tensors show,
    and for one that is neither shown nor ignored.
    """
    # what the tensors show must be what was given
    for name in arguments.keys() & shown.keys():
        argument, value = arguments[name], shown[name]
        is_list = isinstance(value, tuple) and isinstance(argument, list)
        if argument != (list(value) if is_list else value):
            raise ValueError(
                f"the config has {name} {argument}, but the tensors are of {name} {value}"
            )
    known = {*names, *shown, *ignored}
    if others := sorted(arguments.keys() - known):
        raise ValueError(
            f"the config has {', '.join(others)}, which the authors' constructor doesn't; it has: "
            f"{', '.join(sorted(known))}"
        )
    return {name: value for name, value in arguments.items() if name in names}
