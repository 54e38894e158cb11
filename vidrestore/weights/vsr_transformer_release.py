"""Adopt checkpoints of the authors of VSR-Transformer, and of SPyNet in the two layouts that VSR code uses.

The authors state no licence for their weights.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from vidrestore.models.spynet import MEAN, STD, SpynetConfig
from vidrestore.models.vsr_transformer import SIDE, VsrConfig, frequencies
from vidrestore.weights.importing import Adopted

# Theirs -> ours, the first pattern that a name begins with.
_ATTENTION, _FEED_FORWARD = r"transformer\.layers\.(\d+)\.0\.fn\.", r"transformer\.layers\.(\d+)\.1\.fn\."
_RENAMES = (
    (r"conv_first\.", r"extractor.0."),
    (r"feature_extraction\.", r"extractor.2."),
    (_ATTENTION + r"norm\.", r"blocks.\1.attention.norm."),
    (_ATTENTION + r"fn\.to_q\.", r"blocks.\1.attention.query."),
    (_ATTENTION + r"fn\.to_k\.", r"blocks.\1.attention.key."),
    (_ATTENTION + r"fn\.to_v\.", r"blocks.\1.attention.value."),
    (_ATTENTION + r"fn\.conv\.", r"blocks.\1.attention.output."),
    (_FEED_FORWARD + r"norm\.", r"blocks.\1.feed_forward.norm."),
    (_FEED_FORWARD + r"fn\.backward_resblocks\.main\.0\.", r"blocks.\1.feed_forward.later.head."),
    (_FEED_FORWARD + r"fn\.backward_resblocks\.main\.2\.", r"blocks.\1.feed_forward.later.stack."),
    (_FEED_FORWARD + r"fn\.forward_resblocks\.main\.0\.", r"blocks.\1.feed_forward.earlier.head."),
    (_FEED_FORWARD + r"fn\.forward_resblocks\.main\.2\.", r"blocks.\1.feed_forward.earlier.stack."),
    (_FEED_FORWARD + r"fn\.fusion\.", r"blocks.\1.feed_forward.fusion."),
    (r"upconv1\.", r"tail.0."),
    (r"upconv2\.", r"tail.3."),
    (r"conv_hr\.", r"tail.6."),
    (r"conv_last\.", r"tail.8."),
)
_FLOW = "spynet.spynet."
_POSITIONS = "pos_embedding.penc.inv_freq"

# Arguments of the authors' constructor: those that can be counted in the tensors' names; those with only one
# valid value; and the others.
_COUNTED = {
    "num_extract_block": r"feature_extraction\.(\d+)\.",
    "num_reconstruct_block": r"reconstruction\.(\d+)\.",
    "depth": r"transformer\.layers\.(\d+)\.",
}
_FIXED = {"image_ch": 3, "feat_size": SIDE}
_OTHERS = ("num_feat", "num_frame", "heads", "patch_size", "spynet_pretrained")
_RELEASED_DEPTHS = (5, 7)  # REDS and Vimeo-90K; equal to the number of frames


def adopt(tensors: dict[str, Tensor], arguments: dict[str, Any]) -> Adopted:
    """Return config and tensors of a released network. `arguments` must agree with the tensors.

    Options that no tensor shows are as released unless `arguments` give them: one head, patches of 8, and as
    many frames as blocks if those are 5 or 7. Raises ValueError.
    """
    if "conv_first.weight" not in tensors or not any(
        name.startswith("transformer.layers.0.") for name in tensors
    ):
        raise ValueError(
            "is not a checkpoint of VSR-Transformer's authors: it lacks conv_first.weight or "
            "transformer.layers.0"
        )
    config = _config(tensors, arguments)
    flow = {name.removeprefix(_FLOW): tensor for name, tensor in tensors.items() if name.startswith(_FLOW)}
    ours = {f"flow.{name}": tensor for name, tensor in _flow_tensors(flow).items()}
    for name, tensor in tensors.items():
        if name == _POSITIONS:
            _check_constant(name, tensor, frequencies(config.frames))
        elif not name.startswith(_FLOW):
            ours[_our_name(name)] = (
                tensor.permute(1, 2, 0).contiguous() if ".norm." in name and tensor.ndim == 3 else tensor
            )
    return Adopted(asdict(config), ours, "sr", {"scale": 4})


def adopt_flow(tensors: dict[str, Tensor], arguments: dict[str, Any]) -> Adopted:
    """Return config and tensors of a published SPyNet, named as by mmediting or BasicSR.

    Raises ValueError if it is neither, or if `arguments` are given.
    """
    if arguments:
        raise ValueError(
            f"the config has {', '.join(sorted(arguments))}, but a published SPyNet has no options"
        )
    return Adopted(asdict(SpynetConfig()), _flow_tensors(tensors), "flow")


def _our_name(name: str) -> str:
    for theirs, ours in _RENAMES:
        if match := re.match(theirs, name):
            return match.expand(ours) + name[match.end() :]
    return name


def _flow_tensors(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Rename the tensors of a SPyNet. mmediting counts convolutions; BasicSR counts layers, of which every
    other is a ReLU.
    """
    ours = {}
    for name, tensor in tensors.items():
        if match := re.fullmatch(r"basic_module\.(\d+)\.basic_module\.(\d+)(\.conv)?\.(weight|bias)", name):
            level, index, counts_convolutions, kind = match.groups()
            ours[f"levels.{level}.{2 * int(index) if counts_convolutions else index}.{kind}"] = tensor
        elif name in ("mean", "std"):
            _check_constant(name, tensor, torch.tensor(MEAN if name == "mean" else STD).view(1, 3, 1, 1))
        else:
            raise ValueError(
                f"is not a SPyNet of mmediting or BasicSR: {name} is neither .conv.weight nor .weight "
                "of a basic_module"
            )
    return ours


def _check_constant(name: str, found: Tensor, expected: Tensor) -> None:
    """Raise ValueError if constants of the checkpoint differ from those of our network."""
    if found.shape != expected.shape or not torch.allclose(found.double(), expected.double(), rtol=1e-3):
        raise ValueError(
            f"{name} is {found.flatten().tolist()}, but this network computes with "
            f"{expected.flatten().tolist()}"
        )


def _config(tensors: Mapping[str, Tensor], arguments: Mapping[str, Any]) -> VsrConfig:
    if unknown := sorted(set(arguments) - set(_COUNTED) - set(_FIXED) - set(_OTHERS)):
        known = ", ".join(sorted([*_COUNTED, *_FIXED, *_OTHERS]))
        raise ValueError(
            f"the config has {', '.join(unknown)}, which its authors' constructor doesn't take; it takes "
            f"{known}"
        )
    for name, value in _FIXED.items():
        if arguments.get(name, value) != value:
            raise ValueError(
                f"the config has {name} {arguments[name]}, but the released code only works with {value}"
            )
    found = {name: _count(tensors, pattern) for name, pattern in _COUNTED.items()} | {
        "num_feat": len(tensors["conv_first.weight"])
    }
    for name, value in found.items():
        if arguments.get(name, value) != value:
            raise ValueError(f"the config has {name} {arguments[name]}, but the tensors are those of {value}")
    if "num_frame" not in arguments and found["depth"] not in _RELEASED_DEPTHS:
        raise ValueError(
            f"has {found['depth']} blocks and an unknown number of frames; give a config with num_frame"
        )
    return VsrConfig(
        frames=arguments.get("num_frame", found["depth"]),
        features=found["num_feat"],
        blocks=found["depth"],
        heads=arguments.get("heads", 1),
        patch=arguments.get("patch_size", 8),
        extraction=found["num_extract_block"],
        propagation=_count(
            tensors, _FEED_FORWARD.replace(r"(\d+)", "0") + r"fn\.backward_resblocks\.main\.2\.(\d+)\."
        ),
        reconstruction=found["num_reconstruct_block"],
        tail=found["num_feat"],
    )


def _count(names: Mapping[str, Tensor], pattern: str) -> int:
    return len({match[1] for name in names if (match := re.match(pattern, name))})
