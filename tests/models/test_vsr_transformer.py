"""VSR-Transformer: the golden numbers of the release and mistakes that they catch, and what holds for compact
networks.
"""

import math
from functools import cache
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from vsr_networks import compact, golden, released

from vidrestore.models import vsr_transformer
from vidrestore.models.vsr_transformer import (
    SIZES,
    Attention,
    KeysAndValues,
    Locality,
    MatchedAttention,
    Tail,
    TokenGrid,
    VsrConfig,
    VsrTransformer,
    build,
    config_of,
    positional_encoding,
)

NUMBERS = golden("vsr_tiny.safetensors")
TOLERANCES = [(torch.float32, 1e-4), (torch.float64, 1e-9)]


def close(found: Tensor, expected: Tensor, tolerance: float) -> None:
    torch.testing.assert_close(found.double(), expected.double(), atol=tolerance, rtol=0)


@cache
def golden_run(dtype: torch.dtype) -> tuple[Tensor, dict[str, Tensor]]:
    """Output for the golden input, and what the parts gave on the way."""
    network, seen = released(dtype), {}
    parts = {"feat": network.extractor, "recon": network.reconstruction}
    for index in range(2):
        parts |= {
            f"attn{index}": network.blocks[index].attention,
            f"ff{index}": network.blocks[index].feed_forward,
        }
    for name, part in parts.items():
        part.register_forward_hook(lambda part, given, output, name=name: seen.update({name: output.clone()}))
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
    close(output.double().abs().sum((-2, -1)) / 256**2, NUMBERS["output_abs_sum"] / 256**2, tolerance)


@pytest.mark.parametrize("name", ["feat", "attn0", "ff0", "attn1", "ff1", "recon"])
def test_every_part_gives_the_golden_numbers(name):
    _, seen = golden_run(torch.float32)
    expected = NUMBERS[f"mid/{name}_s5"]
    close(seen[name][..., 1::5, 2::5].view(expected.shape), expected, 1e-4)


def test_flows_and_positions_are_those_of_the_golden_numbers():
    _, seen = golden_run(torch.float32)
    close(seen["flows"][:, None, ..., 1::3, 2::3], NUMBERS["mid/flows_s3"], 1e-4)
    waves = torch.stack([wave.expand(8, 64, 64) for wave in positional_encoding(5, 8, 64, 64)])
    close(waves[:, :6, :6, :6], NUMBERS["mid/pe"], 1e-7)


SINES = [torch.full((1,), math.sin(t)) for t in range(5)]
MISTAKES: dict[str, Any] = {
    "features warped with their border continued": (
        vsr_transformer,
        "warp",
        lambda x, flow: WARP(x, flow, border="border"),
    ),
    "flow with x and y swapped": (vsr_transformer, "warp", lambda maps, flow: WARP(maps, flow.flip(1))),
    "flow from the other frame": (VsrTransformer, "pair_flow", lambda self, a, b: PAIR_FLOW(self, b, a)),
    "flows to the frames before and after swapped": (
        VsrTransformer,
        "flows",
        lambda *given: FLOWS(*given)[::-1],
    ),
    "no positions": (vsr_transformer, "positional_encoding", lambda *sizes: [torch.zeros(1)] * sizes[0]),
    "time encoded": (vsr_transformer, "positional_encoding", lambda *sizes: SINES),
    "positions in another order": (
        vsr_transformer,
        "positional_encoding",
        lambda *sizes: POSITIONS(*sizes)[::-1],
    ),
    "the slope of the paper": (vsr_transformer, "SLOPE", 0.01),
}
WARP, PAIR_FLOW, FLOWS, POSITIONS = (
    vsr_transformer.warp,
    VsrTransformer.pair_flow,
    VsrTransformer.flows,
    positional_encoding,
)


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_likely_mistake_is_seen_in_the_golden_numbers(monkeypatch, mistake):
    place, name, wrong = MISTAKES[mistake]
    monkeypatch.setattr(place, name, wrong)
    with torch.no_grad():
        output = released()(NUMBERS["input"])
    assert (output[..., 1::3, 2::3] - NUMBERS["output_s3"]).abs().max() > 0.1


def test_seven_frames_get_the_waves_of_the_library_that_the_release_used():
    rows = torch.arange(5, dtype=torch.float64)
    waves = positional_encoding(7, 5, 5, 5)
    slow = rows * float(torch.tensor(0.01))
    for wave, expected in zip(
        waves,
        [rows.sin(), slow.sin(), rows.cos(), slow.cos(), rows.sin(), slow.sin(), rows.cos()],
        strict=True,
    ):
        close(wave.flatten(), expected, 1e-15)
    assert [wave.shape.index(5) for wave in waves] == [0, 0, 0, 0, 1, 1, 1]


@pytest.mark.parametrize("size, parameters", [("reds", 32_564_335), ("vimeo", 43_845_615)])
def test_released_sizes_have_their_parameters(size, parameters):
    with torch.device("meta"):
        network = build({"size": size})
    assert sum(parameter.numel() for parameter in network.parameters()) == parameters


@pytest.mark.parametrize("size, megabytes", [("s", 15), ("t", 6)])
def test_compact_sizes_fit_their_files_in_half_precision(size, megabytes):
    with torch.device("meta"):
        network = build({"size": size})
    assert sum(tensor.numel() for tensor in network.state_dict().values()) * 2 < megabytes * 1e6


def reference_attention(attention: Attention, normal: Tensor) -> Tensor:
    """Attention over all patches of all frames (T, C, H, W) of one clip, by unfold and fold as the paper
    writes it.
    """
    frames, channels, height, width = normal.shape
    patch, heads = attention.grid.patch, attention.grid.heads
    tokens = []
    for project in (attention.query, attention.key, attention.value):
        vectors = F.unfold(project(normal), patch, stride=patch)  # (T, C * p * p, N)
        # (heads, T * N, d)
        tokens.append(vectors.transpose(0, 1).reshape(heads, -1, frames * vectors.shape[-1]).mT)
    query, key, value = tokens
    mixed = (query @ key.mT / math.sqrt(query.shape[-1])).softmax(-1) @ value
    vectors = mixed.mT.reshape(channels * patch**2, frames, -1).transpose(0, 1)
    return F.fold(vectors, (height, width), patch, stride=patch)


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_attention_over_everything_is_unfold_attend_fold(heads):
    attention = compact(heads=heads, local=Locality(window=5, reach=9)).blocks[0].attention
    attention.distance_bias.data.zero_()
    maps = torch.randn(3, 8, 20, 12, dtype=torch.float64)
    normal = F.layer_norm(maps.movedim(1, -1), (8,), attention.norm.weight, attention.norm.bias).movedim(
        -1, 1
    )
    # a compact network adds no normalised maps
    expected = maps + attention.output(reference_attention(attention, normal))
    close(attention(maps, 3), expected, 1e-12)


def test_two_clips_in_one_batch_don_t_see_each_other():
    network, clips = compact(), torch.rand(2, 4, 3, 16, 24, dtype=torch.float64)
    with torch.no_grad():
        together = network(clips)
        close(torch.cat([network(clips[:1]), network(clips[1:])]), together, 1e-12)


@pytest.mark.parametrize("height, width", [(4, 4), (12, 24), (20, 8), (28, 16)])
@pytest.mark.parametrize("window, shift", [(None, 0), (3, 0), (3, 1), (4, 2)])
def test_tokens_go_back_to_where_they_came_from(height, width, window, shift):
    grid, maps = TokenGrid(4, 2, window, shift), torch.rand(2, 6, height, width)
    tokens = grid.cut(maps)
    assert torch.equal(grid.join(tokens, maps.shape), maps)
    outside = grid.outside(height, width)
    assert (~outside).sum() == height * width // 16
    assert not tokens.view(2, *outside.shape[:1], 2, *outside.shape[1:], -1).movedim(2, 3)[:, outside].any()


def changed_frames(network: VsrTransformer, clip: Tensor, frame: int) -> list[bool]:
    """Which restored frames depend on a frame of the clip."""
    other = clip.clone()
    other[:, frame] = torch.rand_like(other[:, frame])
    with torch.no_grad():
        return ((network(other) - network(clip)).abs().amax((0, 2, 3, 4)) > 1e-9).tolist()


@pytest.mark.parametrize("blocks, reach", [(1, 0), (1, 1), (2, 1), (1, 2)])
def test_a_restored_frame_depends_on_the_frames_within_its_radius_and_no_others(blocks, reach):
    network, clip = (
        compact(blocks=blocks, local=Locality(3, reach)),
        torch.rand(1, 11, 3, 8, 12, dtype=torch.float64),
    )
    radius = network.config.radius
    assert radius == blocks * (reach + 1)
    assert changed_frames(network, clip, 5) == [abs(frame - 5) <= radius for frame in range(11)]


@pytest.mark.parametrize(
    "attention, alignment, radius", [(True, False, 4), (False, True, 2), (False, False, 0)]
)
def test_a_network_without_a_part_sees_as_far_as_the_other_does(attention, alignment, radius):
    network = compact(local=Locality(3, 2), attention=attention, alignment=alignment)
    assert network.config.radius == radius
    clip = torch.rand(1, 11, 3, 8, 12, dtype=torch.float64)
    assert changed_frames(network, clip, 5) == [abs(frame - 5) <= radius for frame in range(11)]


def test_without_alignment_a_feed_forward_layer_is_twice_its_residual_blocks_on_each_frame():
    network, maps = compact(alignment=False, propagation=3), torch.randn(2, 8, 12, 12, dtype=torch.float64)
    assert network.flow is None and len(network.blocks[0].alone) == 6
    expected = maps
    for block in network.blocks[0].alone:
        inner = F.conv2d(expected, block.conv1.weight, block.conv1.bias, padding=1).clamp(min=0)
        expected = expected + F.conv2d(inner, block.conv2.weight, block.conv2.bias, padding=1)
    close(network.blocks[0].feed_alone(maps), expected, 1e-12)


def test_attention_stays_in_its_window_and_the_next_block_joins_windows():
    blocks = compact().blocks
    maps, other = torch.rand(2, 1, 8, 24, 24, dtype=torch.float64)
    other[..., 2:, :] = maps[..., 2:, :]  # they differ in the first rows
    reached = [
        (block.attention(maps, 1) - block.attention(other, 1)).abs().amax((0, 1, 3)) > 1e-12
        for block in blocks
    ]
    # the window's last row, and one that its convolutions reach
    assert [int(rows.nonzero().max()) for rows in reached] == [12, 8]


def test_far_frames_weigh_by_the_learned_distance():
    network = compact(heads=1)
    attention = network.blocks[0].attention
    attention.distance_bias.data[:] = torch.tensor([[-1e9, 0.0, -1e9]])  # its own frame alone
    maps = torch.randn(3, 8, 8, 8, dtype=torch.float64)
    alone = torch.cat([attention(frame, 1) for frame in maps.split(1)])
    close(attention(maps, 3), alone, 1e-9)
    attention.distance_bias.data[:] = torch.tensor([[-1e9, 0.0, 0.0]])  # no frame before its own
    changed = (attention(maps, 3) - attention(torch.cat([maps[:1].flip(1), maps[1:]]), 3)).abs().amax(
        (1, 2, 3)
    ) > 1e-9
    assert changed.tolist() == [True, False, False]


def test_brightness_of_an_untrained_residual_is_that_of_the_enlarged_frame():
    network, clip = compact(), torch.rand(1, 2, 3, 8, 12, dtype=torch.float64)
    for parameter in network.tail.parameters():
        parameter.data.zero_()
    expected = F.interpolate(clip[0], scale_factor=4, mode="bilinear", align_corners=False)
    close(network(clip)[0], expected, 1e-12)


@pytest.mark.parametrize("tail", [0, 5])
@pytest.mark.parametrize("spans", [[(0, 9)], [(0, 1), (1, 2), (2, 9)], [(0, 4), (4, 8), (8, 9)]], ids=str)
def test_strips_of_the_tail_are_the_whole(tail, spans):
    torch.manual_seed(0)
    part, maps = Tail(6, tail).double(), torch.randn(2, 6, 9, 7, dtype=torch.float64)
    assert part(maps).shape == (2, 3, 36, 28)
    close(part.in_strips(maps, spans), part(maps), 1e-12)


@pytest.mark.parametrize("attention, alignment", [(True, True), (True, False), (False, True), (False, False)])
def test_gradients_reach_every_parameter(attention, alignment):
    network = compact(tail=4, attention=attention, alignment=alignment)
    network(torch.rand(1, 3, 3, 16, 16, dtype=torch.float64)).square().mean().backward()
    assert not [
        name
        for name, parameter in network.named_parameters()
        if parameter.grad is None or not parameter.grad.any()
    ]


@pytest.mark.parametrize("attention", [False, True])
def test_a_few_features_of_neighbours_reach_a_frame_and_their_gradients_come_back(attention):
    network, clip = compact(shared=3, attention=attention), torch.rand(1, 3, 3, 16, 16, dtype=torch.float64)
    network(clip).square().mean().backward()
    assert not [
        name
        for name, parameter in network.named_parameters()
        if parameter.grad is None or not parameter.grad.any()
    ]
    other = clip.clone()
    other[:, 2] += 0.1
    with torch.no_grad():
        # two frames away: a layer of neighbours for each
        assert not torch.equal(network(clip)[:, 0], network(other)[:, 0])
    with pytest.raises(ValueError, match="shared must be 0 in the released form, got 3"):
        VsrConfig(shared=3)


def test_matched_attention_mixes_the_pixels_around_where_the_flow_points_and_the_frame_s_own():
    torch.manual_seed(0)
    layer = MatchedAttention(8).double()
    nn.init.normal_(layer.bias)
    query, own_key, key = (F.normalize(torch.randn(1, 16, 5, 6).double(), dim=1) for _ in range(3))
    own_value, value = torch.randn(1, 2, 5, 6).double(), torch.randn(1, 2, 5, 6).double()
    found = layer(query, KeysAndValues(own_key, own_value), KeysAndValues(key, value))
    for row, column in [(0, 0), (2, 3), (4, 5)]:
        around = [
            (min(max(row + down, 0), 4), min(max(column + right, 0), 5))
            for down in (-1, 0, 1)
            for right in (-1, 0, 1)
        ]
        asked = query[0, :, row, column]
        logits = [asked @ key[0, :, y, x] for y, x in around] + [asked @ own_key[0, :, row, column]]
        weights = [math.exp(logit + bias) for logit, bias in zip(logits, layer.bias.detach(), strict=True)]
        values = [value[0, :, y, x] for y, x in around] + [own_value[0, :, row, column]]
        mean = sum(weight * each for weight, each in zip(weights, values, strict=True)) / sum(weights)
        close(found[0, :, row, column], mean, 1e-12)


def test_fresh_matched_attention_gives_what_lies_where_the_flow_points():
    torch.manual_seed(0)
    layer, shared = build({"size": "n"}).blocks[0].feed_forward, torch.rand(1, 40, 12, 12)
    key, value = layer._tokens(shared)
    mixed = layer.attention(torch.zeros_like(key), KeysAndValues(key, 0 * value), KeysAndValues(key, value))
    assert (mixed - value).square().mean() < 0.05 * value.square().mean()


@pytest.mark.parametrize("distances, reach", [((1, 1), {1, 2}), ((1, 2), {1, 2, 3}), ((3, 1), {1, 2, 3, 4})])
def test_blocks_join_neighbours_at_their_distances(distances, reach):
    network = compact(shared=3, patch=1, distances=distances)
    assert network.config.radius == sum(distances)
    clip = torch.rand(1, 11, 3, 8, 12, dtype=torch.float64)
    steps = {a * x + b * y for a in (-1, 0, 1) for b in (-1, 0, 1) for x, y in [distances]}
    assert changed_frames(network, clip, 5) == [frame - 5 in steps for frame in range(11)]
    assert {abs(step) for step in steps} - {0} == reach | ({0} if 0 in reach else set())


def test_half_precision_keeps_flow_in_single():
    network, clip = compact().float(), torch.rand(1, 3, 3, 24, 24)
    with torch.no_grad():
        flow, restored = network.pair_flow(clip[:, 0], clip[:, 1]), network(clip)
        halved = network.for_inference(torch.bfloat16)
        assert torch.equal(halved.pair_flow(clip[:, 0], clip[:, 1]), flow)
        assert halved.dtype == torch.bfloat16 and halved(clip).dtype == torch.float32
        assert (halved(clip) - restored).abs().max() < 0.1 * restored.std()


def test_sizes_that_a_network_can_t_take_are_refused():
    with pytest.raises(ValueError, match="takes 64x64 pixels and at most 5 frames, got 128x64 and 5 frames"):
        released()(torch.rand(1, 5, 3, 64, 128))
    with pytest.raises(ValueError, match="at most 5 frames, got 64x64 and 7 frames"):
        released()(torch.rand(1, 7, 3, 64, 64))
    with pytest.raises(ValueError, match="sides must be multiples of 4, got 18x16"):
        compact()(torch.rand(1, 1, 3, 16, 18).double())


@pytest.mark.parametrize("size", SIZES)
def test_a_configuration_builds_its_network_again(size):
    with torch.device("meta"):
        network = build({"size": size, "propagation": 2})
        again = build(config_of(network))
    assert again.config == network.config != SIZES[size]


@pytest.mark.parametrize(
    "config, message",
    [
        ({"size": "xl"}, "unknown size 'xl'; there are reds, vimeo, s, t, c, n"),
        ({"features": 9, "heads": 2}, "multiple of heads"),
        ({"patch": 7}, "patch must divide 64"),
        ({"blocks": 0}, "must be at least 1"),
        ({"size": "n", "distances": [1]}, r"distances must be 2 numbers from 1 on.*got \(1,\)"),
        ({"distances": [1] * 5}, "distances must be empty in the released form"),
        ({"size": "c", "attention": {}}, "attention and alignment must be true or false"),
        ({"local": {"window": 0, "reach": 1}}, "window must be at least 1"),
    ],
)
def test_configurations_that_no_network_has_are_refused(config, message):
    with pytest.raises(ValueError, match=message):
        build(config)


def test_released_positions_and_norms_tie_the_default_configuration_to_its_size():
    assert VsrConfig().local is None and vsr_transformer.SIDE == 64
    assert (
        VsrConfig().radius == 2
        and SIZES["vimeo"].radius == 3
        and SIZES["t"].radius == 2
        and SIZES["s"].radius == 6
    )


def test_what_a_compact_block_adds_to_fresh_maps_is_small():
    torch.manual_seed(0)
    network = build({"size": "t"})
    maps, frames = torch.rand(3, 32, 24, 24), torch.rand(3, 3, 24, 24)
    block = network.blocks[0]
    assert (block.attention(maps, 3) - maps).square().mean() < 0.01 * maps.square().mean()
    assert (block.feed_forward(maps, frames, maps, maps) - maps).square().mean() < 0.01 * maps.square().mean()
    layer, maps = build({"size": "c"}).blocks[0].feed_forward, torch.rand(3, 64, 24, 24)
    given = layer.shared(maps)
    assert given.shape == (3, 24, 24, 24)
    assert (layer(maps, frames, given, given) - maps).square().mean() < 0.01 * maps.square().mean()
