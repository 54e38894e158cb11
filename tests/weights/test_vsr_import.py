"""Bringing in the authors' checkpoints of VSR-Transformer and SPyNet, strictly."""

from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import run
from torch import Tensor
from vsr_networks import ARGUMENTS, golden, released_tensors, spynet_tensors

from vidrestore.errors import CheckpointError
from vidrestore.weights import import_checkpoint, load_model, read_card
from vidrestore.weights.manifest import Card
from vidrestore.weights.releases import adopt_vsr


def imported(
    folder: Path,
    tensors: Any,
    family: str = "vsr-transformer",
    config: dict[str, Any] | None = None,
) -> Card:
    folder.mkdir(exist_ok=True)
    torch.save(tensors, folder / "theirs.pth")
    return import_checkpoint(
        folder / "theirs.pth", folder / "ours.safetensors", family=family, config=config
    )


@pytest.mark.parametrize("prefix", ["", "module."])
def test_a_released_checkpoint_becomes_the_network_of_the_golden_numbers(
    tmp_path, prefix
):
    state = {prefix + name: tensor for name, tensor in released_tensors().items()}
    released = {
        "type": "vsrTransformer",
        "image_ch": 3,
        "feat_size": 64,
        "depth": 2,
        "spynet_path": "x.pth",
    }
    card = imported(tmp_path, {"params": state}, config=ARGUMENTS | released)
    assert (card.task, card.parameters) == ("sr", {"scale": 4})
    network, numbers = (
        load_model(tmp_path / "ours.safetensors").network,
        golden("vsr_tiny.safetensors"),
    )
    with torch.no_grad():
        result = network(numbers["input"])
    torch.testing.assert_close(
        result[..., 1::3, 2::3], numbers["output_f32_s3"], atol=1e-4, rtol=0
    )


OPTIONS = """\
name: train  # network_g: in a comment
network_g:
  type: vsrTransformer
  image_ch: 3
  # heads: 4
  num_frame: 5   # frames
  heads: 1

  spynet_path: 'experiments/spynet.pth'
path:
  pretrain_network_g: ~
  heads: 9
"""


def test_the_option_file_of_a_release_is_read(tmp_path, capsys):
    torch.save(released_tensors(), tmp_path / "theirs.pth")
    options, output = tmp_path / "options.yml", tmp_path / "ours.safetensors"
    given = (
        "--family",
        "vsr-transformer",
        "--config",
        options,
        "-o",
        output,
        "--overwrite",
    )

    def code(text: str) -> int:
        options.write_text(text)
        return run("weights", "import", tmp_path / "theirs.pth", *given)

    assert code(OPTIONS) == 0
    expected = imported(tmp_path / "json", released_tensors(), config=ARGUMENTS).config
    assert read_card(output).config == expected
    capsys.readouterr()
    for text, message in (
        (OPTIONS.replace("num_frame: 5", "num_frames: 5"), "the config has num_frames"),
        (OPTIONS.replace("heads: 1", "- 2"), "can't read '- 2'"),
        ("network_d:\n  type: x\n", "has no section network_g"),
    ):
        assert code(text) != 0 and message in capsys.readouterr().err.replace("\n", " ")


def as_basicsr(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """BasicSR's names: layers are counted, ReLUs too."""
    renamed = {}
    for name, tensor in tensors.items():
        if name.startswith("basic_module"):
            _, level, _, index, _, kind = name.split(".")
            name = f"basic_module.{level}.basic_module.{2 * int(index)}.{kind}"
        renamed[name] = tensor
    return renamed


def without_constants(tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    return {
        name: tensor for name, tensor in tensors.items() if name not in ("mean", "std")
    }


@pytest.mark.parametrize(
    "content",
    [
        spynet_tensors(),
        without_constants(spynet_tensors()),
        {"params": as_basicsr(spynet_tensors())},
    ],
    ids=["mmediting", "without constants", "basicsr"],
)
def test_both_layouts_of_spynet_become_the_same_network(tmp_path, content):
    assert imported(tmp_path, content, "spynet").task == "flow"
    numbers = golden("spynet_tiny.safetensors")
    with torch.no_grad():
        flow = load_model(tmp_path / "ours.safetensors").network(
            numbers["a/ref"], numbers["a/supp"]
        )
    torch.testing.assert_close(flow, numbers["a/flow_f32"], atol=1e-4, rtol=0)


def changed(**changes: Tensor | None) -> dict[str, Tensor]:
    """A released state dict with tensors replaced, or left out where None; "." is written "__" here."""
    state: dict[str, Tensor | None] = {
        **released_tensors(),
        **{name.replace("__", "."): tensor for name, tensor in changes.items()},
    }
    return {name: tensor for name, tensor in state.items() if tensor is not None}


@pytest.mark.parametrize(
    "tensors, config, message",
    [
        (spynet_tensors(), {}, "is not a checkpoint of VSR-Transformer.s authors"),
        (released_tensors(), {}, "has 2 blocks and an unknown number of frames; give a config with "
                                 "num_frame"),
        (released_tensors(), ARGUMENTS | {"depth": 3}, "has depth 3, but the tensors are of depth 2"),
        (released_tensors(), ARGUMENTS | {"num_frame": 7}, r"inv_freq is \[1.0\], but this network computes "
                                                           r"with \[1.0, 0.0"),
        (released_tensors(), ARGUMENTS | {"patch_size": 7}, "patch must divide 64"),
        (changed(spynet__spynet__mean=torch.zeros(1, 3, 1, 1)), ARGUMENTS, r"mean is \[0.0, 0.0, 0.0\], but "
                                                                           r"this network computes with"),
        (changed(spynet__spynet__conv__weight=torch.zeros(1)), ARGUMENTS, "is not a SPyNet of mmediting or "
                                                                          "BasicSR: conv.weight"),
    ],
)  # fmt: skip
def test_a_checkpoint_that_is_not_the_network_is_refused(
    tmp_path, tensors, config, message
):
    with pytest.raises(CheckpointError, match=message):
        imported(tmp_path, tensors, config=config)
    assert not (tmp_path / "ours.safetensors").exists()


@pytest.mark.parametrize(
    "tensors, config, message",
    [
        (released_tensors(), {}, "is not a SPyNet of mmediting or BasicSR"),
        ({name: each for name, each in spynet_tensors().items() if ".3." not in name}, {}, "lacks levels"),
        (spynet_tensors(), {"levels": 5}, "has levels, but a published SPyNet has no options"),
    ],
)  # fmt: skip
def test_a_file_that_is_not_a_published_spynet_is_refused(
    tmp_path, tensors, config, message
):
    with pytest.raises(CheckpointError, match=message):
        imported(tmp_path, tensors, "spynet", config)


def test_released_sizes_are_imported_without_a_config():
    with torch.device("meta"):
        state = {"conv_first.weight": torch.empty(64, 3, 3, 3)}
        state |= {
            f"transformer.layers.{index}.0.fn.norm.weight": torch.empty(64, 64, 64)
            for index in range(7)
        }
        state |= {
            f"feature_extraction.{index}.conv1.bias": torch.empty(64)
            for index in range(5)
        }
        state |= {
            f"reconstruction.{index}.conv1.bias": torch.empty(64) for index in range(30)
        }
        state |= {
            f"transformer.layers.0.1.fn.fn.backward_resblocks.main.2.{index}.conv1.bias": torch.empty(
                64
            )
            for index in range(30)
        }
        config = adopt_vsr(state, {}).config
    assert (
        config["frames"],
        config["blocks"],
        config["features"],
        config["propagation"],
        config["reconstruction"],
    ) == (7, 7, 64, 30, 30)
