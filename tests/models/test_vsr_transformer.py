"""VSR-Transformer: the golden numbers of the release and mistakes that they catch, and what holds besides."""

import math
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from vsr_networks import golden, released, tiny

from vidrestore.models import vsr_transformer
from vidrestore.models.vsr_recurrent import build, config_of
from vidrestore.models.vsr_transformer import (
    SIZES,
    Tail,
    VsrAttention,
    VsrTransformer,
    positional_encoding,
)

NUMBERS = golden("vsr_tiny.safetensors")
TOLERANCES = [(torch.float32, 1e-4), (torch.float64, 1e-9)]


def close(found: Tensor, expected: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(
        found.double(), expected.double(), atol=tolerance, rtol=0
    )


@cache
def golden_run(dtype: torch.dtype) -> tuple[Tensor, dict[str, Tensor]]:
    """Output for the golden input, and what the parts gave on the way."""
    network, seen = released(dtype), {}
    parts = {"feat": network.extractor, "recon": network.reconstruction}
    for index, block in enumerate(network.blocks):
        parts |= {f"attn{index}": block.attention, f"ff{index}": block.feed_forward}
    for name, part in parts.items():
        part.register_forward_hook(
            lambda part, given, output, name=name: seen.update({name: output.clone()})
        )
    with torch.no_grad():
        clip = NUMBERS["input"].to(dtype)
        output = network(clip)
        # the release has those to the frame before first
        seen["flows"] = torch.stack(network.flows(clip[0], 1)[::-1])
    return output, seen


@pytest.mark.parametrize("dtype, tolerance", TOLERANCES)
def test_all_frames_are_those_of_the_golden_numbers(dtype, tolerance):
    output, _ = golden_run(dtype)
    close(output[..., 1::3, 2::3], NUMBERS["output_s3"], tolerance)
    close(output[:, 2, :, 96:160, 96:160], NUMBERS["output_c"], tolerance)
    close(output.double().mean((-2, -1)), NUMBERS["output_mean"], tolerance)
    close(output.double().std((-2, -1)), NUMBERS["output_std"], tolerance)
    close(
        output.double().abs().sum((-2, -1)) / 256**2,
        NUMBERS["output_abs_sum"] / 256**2,
        tolerance,
    )


@pytest.mark.parametrize("name", ["feat", "attn0", "ff0", "attn1", "ff1", "recon"])
def test_every_part_gives_the_golden_numbers(name):
    _, seen = golden_run(torch.float32)
    expected = NUMBERS[f"mid/{name}_s5"]
    close(seen[name][..., 1::5, 2::5].view(expected.shape), expected, 1e-4)


def test_flows_and_positions_are_those_of_the_golden_numbers():
    _, seen = golden_run(torch.float32)
    close(seen["flows"][:, None, ..., 1::3, 2::3], NUMBERS["mid/flows_s3"], 1e-4)
    waves = torch.stack(
        [wave.expand(8, 64, 64) for wave in positional_encoding(5, 8, 64, 64)]
    )
    close(waves[:, :6, :6, :6], NUMBERS["mid/pe"], 1e-7)


WARP, PAIR_FLOW, FLOWS = (
    vsr_transformer.warp,
    VsrTransformer.pair_flow,
    VsrTransformer.flows,
)
SINES = [torch.full((1,), math.sin(t)) for t in range(5)]
WAVES = "positional_encoding"


def continued(maps: Tensor, flow: Tensor) -> Tensor:
    return WARP(maps, flow, border="border")


def reversed_waves(*sizes: int) -> list[Tensor]:
    return positional_encoding(*sizes)[::-1]


MISTAKES: dict[str, Any] = {
    "features warped with their border continued": (vsr_transformer, "warp", continued),
    "flow with x and y swapped": (
        vsr_transformer,
        "warp",
        lambda maps, flow: WARP(maps, flow.flip(1)),
    ),
    "flow from the other frame": (
        VsrTransformer,
        "pair_flow",
        lambda self, a, b: PAIR_FLOW(self, b, a),
    ),
    "flows to both sides swapped": (
        VsrTransformer,
        "flows",
        lambda *given: FLOWS(*given)[::-1],
    ),
    "no positions": (
        vsr_transformer,
        WAVES,
        lambda *sizes: [torch.zeros(1)] * sizes[0],
    ),
    "time encoded": (vsr_transformer, WAVES, lambda *sizes: SINES),
    "positions in another order": (vsr_transformer, WAVES, reversed_waves),
    "the slope of the paper": (vsr_transformer, "SLOPE", 0.01),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_likely_mistakes_differ_from_the_golden_numbers(monkeypatch, mistake):
    place, name, wrong = MISTAKES[mistake]
    monkeypatch.setattr(place, name, wrong)
    with torch.no_grad():
        output = released()(NUMBERS["input"])
    assert (output[..., 1::3, 2::3] - NUMBERS["output_s3"]).abs().max() > 0.1


def test_seven_frames_get_the_waves_of_the_library_that_the_release_used():
    rows = torch.arange(5, dtype=torch.float64)
    waves = positional_encoding(7, 5, 5, 5)
    slow = rows * float(torch.tensor(0.01))
    four = [rows.sin(), slow.sin(), rows.cos(), slow.cos()]
    for wave, expected in zip(waves, [*four, *four[:3]], strict=True):
        close(wave.flatten(), expected, 1e-15)
    assert [wave.shape.index(5) for wave in waves] == [0, 0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize(
    "size, parameters", [("reds", 32_564_335), ("vimeo", 43_845_615)]
)
def test_released_sizes_have_their_parameters(size, parameters):
    with torch.device("meta"):
        network = build({"size": size})
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters


def reference_attention(attention: VsrAttention, normal: Tensor) -> Tensor:
    """Attention over all patches of all frames (T, C, H, W) of one clip, by unfold and fold as the paper
    writes it.
    """
    frames, channels, height, width = normal.shape
    patch, heads = attention.patch, attention.heads
    tokens = []
    for project in (attention.query, attention.key, attention.value):
        vectors = F.unfold(project(normal), patch, stride=patch)  # (T, C * p * p, N)
        # (heads, T * N, d)
        tokens.append(
            vectors.transpose(0, 1).reshape(heads, -1, frames * vectors.shape[-1]).mT
        )
    query, key, value = tokens
    mixed = (query @ key.mT / math.sqrt(query.shape[-1])).softmax(-1) @ value
    vectors = mixed.mT.reshape(channels * patch**2, frames, -1).transpose(0, 1)
    return F.fold(vectors, (height, width), patch, stride=patch)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_attention_over_everything_is_unfold_attend_fold(heads):
    attention = tiny(heads=heads).blocks[0].attention
    maps = torch.randn(2, 8, 64, 64, dtype=torch.float64)
    normal = attention.norm(maps)
    expected = maps + normal + attention.output(reference_attention(attention, normal))
    close(attention(maps, 2), expected, 1e-12)


def test_two_clips_in_one_batch_do_not_influence_each_other():
    network, clips = tiny(), torch.rand(2, 2, 3, 64, 64, dtype=torch.float64)
    with torch.no_grad():
        together = network(clips)
        close(torch.cat([network(clips[:1]), network(clips[1:])]), together, 1e-12)


@pytest.mark.parametrize(
    "spans", [[(0, 9)], [(0, 1), (1, 2), (2, 9)], [(0, 4), (4, 8), (8, 9)]], ids=str
)
def test_strips_of_the_tail_equal_the_tail_at_once(spans):
    torch.manual_seed(0)
    part, maps = Tail(6, 5).double(), torch.randn(2, 6, 9, 7, dtype=torch.float64)
    assert part(maps).shape == (2, 3, 36, 28)
    close(part.in_strips(maps, spans), part(maps), 1e-12)


@pytest.mark.parametrize(
    "attention, alignment", [(True, True), (True, False), (False, True), (False, False)]
)
def test_gradients_reach_every_parameter(attention, alignment):
    network = tiny(attention=attention, alignment=alignment)
    network(torch.rand(1, 2, 3, 64, 64, dtype=torch.float64)).square().mean().backward()
    assert not [
        name
        for name, part in network.named_parameters()
        if part.grad is None or not part.grad.any()
    ]


def test_half_precision_keeps_flow_in_single():
    network, clip = tiny().float(), torch.rand(1, 2, 3, 64, 64)
    with torch.no_grad():
        flow, restored = network.pair_flow(clip[:, 0], clip[:, 1]), network(clip)
        halved = network.for_inference(torch.bfloat16)
        assert torch.equal(halved.pair_flow(clip[:, 0], clip[:, 1]), flow)
        assert halved.dtype == torch.bfloat16 and halved(clip).dtype == torch.float32
        assert (halved(clip) - restored).abs().max() < 0.1 * restored.std()


def test_frames_of_another_size_are_refused():
    with pytest.raises(
        ValueError,
        match="takes 64x64 pixels and at most 5 frames, got 128x64 and 5 frames",
    ):
        released()(torch.rand(1, 5, 3, 64, 128))
    with pytest.raises(ValueError, match="at most 5 frames, got 64x64 and 7 frames"):
        released()(torch.rand(1, 7, 3, 64, 64))


@pytest.mark.parametrize("size", [*SIZES, "n"])
def test_a_configuration_builds_its_network_again(size):
    with torch.device("meta"):
        network = build(
            {"size": size, "reconstruction": 2}
            | ({"propagation": 1} if size != "n" else {})
        )
        again = build(config_of(network))
    assert again.config == network.config and network.config.reconstruction == 2


@pytest.mark.parametrize(
    "config, message",
    [
        ({"size": "xl"}, "unknown size 'xl'; there are reds, vimeo, n"),
        ({"features": 9, "heads": 2}, "multiple of heads"),
        ({"patch": 7}, "patch must divide 64"),
        ({"blocks": 0}, "must be at least 1"),
        ({"tail": 0}, "tail must be at least 1"),
        ({"attention": {}}, "attention and alignment must be true or false"),
        (
            {"size": "n", "keys": 0},
            "features, shared, keys and hidden must be at least 1",
        ),
        ({"size": "n", "context": -1}, "context must be at least 0"),
    ],
)
def test_impossible_configurations_are_refused(config, message):
    with pytest.raises(ValueError, match=message):
        build(config)


def test_a_network_has_as_many_blocks_as_frames_unless_their_number_is_set():
    """Section 5 of the paper: "the number of Transformer blocks to be the number of frames"."""
    small = {
        "features": 4,
        "patch": 32,
        "extraction": 0,
        "propagation": 0,
        "reconstruction": 0,
        "tail": 4,
    }
    for settings, blocks in (
        ({}, 5),
        ({"size": "vimeo"}, 7),
        ({"frames": 3}, 3),
        ({"frames": 3, "blocks": 5}, 5),
    ):
        assert build(small | settings).config.blocks == blocks
