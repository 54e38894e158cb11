"""Checkpoints of the authors' code, imported by the command, or refused."""

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from command_line import run
from taylor_networks import INPUTS, golden, restored, their_weights
from torch import Tensor

from vidrestore.errors import CheckpointError
from vidrestore.weights import import_checkpoint, load_model


def command(*arguments: str) -> int:
    return run("weights", "import", *arguments, "--family", "mb-taylorformer")


def imported(folder: Path, tensors: dict[str, Tensor], **config: Any) -> Any:
    torch.save({"params": tensors}, folder / "ITS.pth")
    return import_checkpoint(
        folder / "ITS.pth",
        folder / "its.safetensors",
        family="mb-taylorformer",
        config=config,
        overwrite=True,
    )


@pytest.mark.parametrize("branches", [2, 3])
def test_a_checkpoint_of_the_release_comes_through_the_command_with_its_numbers(
    tmp_path, branches
):
    numbers = golden(branches)
    torch.save({"params": their_weights(branches)}, tmp_path / "net.pth")
    assert (
        command(str(tmp_path / "net.pth"), "-o", str(tmp_path / "net.safetensors")) == 0
    )
    network = load_model(tmp_path / "net.safetensors").network
    for which in INPUTS:
        torch.testing.assert_close(
            restored(network, numbers[f"input{which}"]),
            numbers[f"output{which}"],
            atol=1e-4,
            rtol=0,
        )


def test_tasks_are_not_in_a_checkpoint_but_may_be_given(tmp_path):
    assert imported(tmp_path, their_weights(2)).task == "restore"
    (tmp_path / "its.json").write_text(json.dumps({"offset_clamp": [-1, 1]}))
    options = ["--task", "dehaze", "--config", str(tmp_path / "its.json")]
    assert (
        command(
            str(tmp_path / "ITS.pth"),
            "-o",
            str(tmp_path / "dehaze.safetensors"),
            *options,
        )
        == 0
    )
    card = load_model(tmp_path / "dehaze.safetensors").card
    assert (card.task, card.config["offset_limit"]) == ("dehaze", [-1, 1])


def test_the_whole_released_config_is_taken_and_compared_with_the_tensors(tmp_path):
    plain = imported(tmp_path, their_weights(2)).config
    released = {
        "type": "MB_TaylorFormer",
        "inp_channels": 3,
        "out_channels": 3,
        "bias": False,
    }
    released |= {
        "dim": plain["widths"],
        "num_blocks": plain["blocks"],
        "num_path": plain["branches"],
    }
    released |= {
        "heads": plain["heads"],
        "ffn_expansion_factor": 2.66,
        "offset_clamp": [-3, 3],
    }
    released |= {
        "num_refinement_blocks": 4,
        "LayerNorm_type": "WithBias",
        "qk_norm": 0.5,
        "model_name": 16,
    }
    assert imported(tmp_path, their_weights(2), **released).config == plain


def test_options_that_tensors_do_not_show_are_taken_from_the_arguments(tmp_path):
    card = imported(
        tmp_path, their_weights(2), offset_clamp=[-1, 1], attention={"focus_power": 4}
    )
    assert (card.config["offset_limit"], card.config["attention"]["focus_power"]) == (
        [-1, 1],
        4,
    )
    assert (
        imported(tmp_path, their_weights(2), offset_clamp=None).config["offset_limit"]
        == []
    )
    assert imported(tmp_path, their_weights(2)).config["offset_limit"] == [-3.0, 3.0]


def without(name: str) -> dict[str, Tensor | None]:
    return {name: None}


LATENT = "latent.mhca_blk.MHCA_layers.0."


@pytest.mark.parametrize(
    ("change", "config", "message"),
    [
        (
            without(LATENT + "ffn.project_in_2.weight"),
            {},
            r"feed_forward.expand: shape \[2, 85, 32\], but the config asks for \[2, 170, 32\]",
        ),
        (
            without("patch_embed_latent.patch_embeds.0.patch_conv.dcn.weight"),
            {},
            "is not a checkpoint of MB-TaylorFormer V2.* lacks 'patch_embed",
        ),
        (
            {LATENT + "attn.qkv.weight": torch.zeros(191, 32, 1, 1)},
            {},
            r"attention.qkv: shape \[191, 32\] can't be divided among 2 branches",
        ),
        (
            {LATENT + "ffn.project_in_1.weight": torch.zeros(0)},
            {},
            r"feed_forward.expand: its parts can't be joined, their shapes are \[0\], \[",
        ),
        (
            {},
            {"dim": [8, 16, 24, 40]},
            r"has dim \[8, 16, 24, 40\], but the tensors are of dim \(8, 16, 24, 32\)",
        ),
        (
            {},
            {"depth": 3},
            "has depth, which the authors' constructor doesn't; it has: .*num_blocks",
        ),
        ({}, {"offset_clamp": [3, -3]}, "offset_limit must be two increasing numbers"),
        ({}, {"attention": {"power": 4}}, "unexpected keyword argument 'power'"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_reported_and_nothing_is_written(
    tmp_path, change, config, message
):
    tensors = {
        name: tensor
        for name, tensor in (their_weights(2) | change).items()
        if tensor is not None
    }
    with pytest.raises(CheckpointError, match=rf"ITS\.pth.*{message}"):
        imported(tmp_path, tensors, **config)
    assert not (tmp_path / "its.safetensors").exists()
