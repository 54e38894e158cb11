"""VSR-Transformer N: what a frame takes from its neighbours, and along which way."""

import math

import pytest
import torch
import torch.nn.functional as F
from stand_in import Rehearsal
from torch import Tensor
from vsr_networks import recurrent

from vidrestore.models import vsr_recurrent
from vidrestore.models.spynet import sampled
from vidrestore.models.vsr_recurrent import (
    FrameContext,
    PatchAttention,
    VsrRecurrent,
    large_grid,
)
from vidrestore.restorers.base import load_restorer
from vidrestore.settings.options import RestoreOptions


def clips(count: int, frames: int, height: int = 12, width: int = 16) -> Tensor:
    generator = torch.Generator().manual_seed(3)
    return torch.rand(
        count, frames, 3, height, width, dtype=torch.float64, generator=generator
    )


def patch(large: Tensor, row: int, column: int) -> Tensor:
    """A patch (48,) of a large frame (3, 4H, 4W), whose border goes on."""
    rows, columns = (
        torch.arange(4 * at, 4 * at + 4).clamp(0, side - 1)
        for at, side in ((row, large.shape[1]), (column, large.shape[2]))
    )
    return large[:, rows][:, :, columns].flatten()


def attended(
    layer: PatchAttention,
    large: Tensor,
    shared: Tensor,
    neighbour: Tensor,
    stray: Tensor,
) -> Tensor:
    """Return what large frames take from their aligned neighbours (B, 3, 4H, 4W)."""
    patches = F.pixel_unshuffle(large, 4)
    known = FrameContext(
        patches, patches, shared, stray, *layer.queries(patches, shared, stray)
    )
    return F.pixel_shuffle(layer(known, neighbour), 4)


def test_attention_is_a_softmax_over_patches_beside_the_end_of_the_flow_and_none():
    torch.manual_seed(0)
    layer = PatchAttention(2, 3).double()
    for parameter in layer.parameters():
        torch.nn.init.normal_(parameter, 0, 0.3)
    large, neighbour = torch.rand(2, 1, 3, 20, 24, dtype=torch.float64)
    shared = torch.randn(1, 2, 5, 6, dtype=torch.float64)
    stray = torch.rand(1, 1, 5, 6, dtype=torch.float64)
    with torch.no_grad():
        patches = F.pixel_unshuffle(large, 4)
        found = attended(layer, large, shared, neighbour, stray)
        query = layer.query(
            torch.cat((patches - patches.mean(1, keepdim=True), shared), 1)
        )
        wide = F.pad(neighbour, (1, 1, 1, 1), mode="replicate")[0]

        def gap(place: int, row: int, column: int) -> Tensor:
            x, y = [(0, 0), (-1, 0), (1, 0), (0, -1), (0, 1)][place]
            inside = (min(max(row, 0), 4), min(max(column, 0), 5))
            moved = wide[:, 1 + y : 21 + y, 1 + x : 25 + x]
            return patch(moved, *inside) - patch(large[0], *inside)

        def unlike(place: int, row: int, column: int) -> float:
            around = [
                gap(place, row + down, column + right)
                for down in (-1, 0, 1)
                for right in (-1, 0, 1)
            ]
            return (
                sum(float(each.view(3, 16).mean(0).square().mean()) for each in around)
                / 9
            )

        def variance(row: int, column: int) -> float:
            near = ((row + y, column + x) for y in (-1, 0, 1) for x in (-1, 0, 1))
            inside = [(min(max(y, 0), 4), min(max(x, 0), 5)) for y, x in near]
            return (
                sum(float(patch(large[0], *at).var(correction=0)) for at in inside) / 9
            )

        grid = [[(row, column) for column in range(6)] for row in range(5)]
        doubts = [
            torch.tensor(
                [[math.log(unlike(0, *at) + 1e-4) / 4 for at in row] for row in grid]
            ),
            torch.tensor(
                [[math.log(variance(*at) + 1e-4) / 4 for at in row] for row in grid]
            ),
        ]
        maps = torch.cat(
            (shared, *(each.double()[None, None] for each in doubts), stray), 1
        )
        nothing = F.conv2d(maps, layer.doubt.weight, layer.doubt.bias, padding=1)
        for row, column in [(0, 0), (2, 3), (4, 5)]:
            logits, differences = (
                [float(nothing[0, 0, row, column])],
                [torch.zeros(48, dtype=torch.float64)],
            )
            for place in range(5):
                difference = gap(place, row, column)
                key = layer.key.weight.flatten(1) @ difference + layer.key.bias
                logits.append(
                    4 * float(query[0, :, row, column] @ key)
                    - 20 * math.exp(float(layer.likeness)) * unlike(place, row, column)
                    + float(layer.place[place])
                )
                differences.append(difference)
            weights = torch.tensor(logits, dtype=torch.float64).softmax(0)
            expected = sum(
                weight * each for weight, each in zip(weights, differences, strict=True)
            )
            # the doubts above are in single precision
            torch.testing.assert_close(
                patch(found[0], row, column), expected, atol=1e-6, rtol=0
            )


def test_untrained_attention_takes_from_equal_neighbours_and_not_from_others():
    layer, large = PatchAttention(2, 3), torch.rand(1, 3, 16, 16)
    shared, here, lost = (
        torch.zeros(1, 2, 4, 4),
        torch.zeros(1, 1, 4, 4),
        torch.full((1, 1, 4, 4), 4.0),
    )
    with torch.no_grad():
        near = attended(layer, large, shared, large + 0.01, here)
        assert near.mean() > 0.004
        assert attended(layer, large, shared, 1 - large, here).abs().max() < 0.01
        # the way along the flow and back ends elsewhere
        assert (
            attended(layer, large, shared, large + 0.01, lost).mean() < near.mean() / 4
        )


def test_a_large_frame_is_moved_by_four_times_the_flow_of_small_pixels():
    ramp = torch.arange(48.0).expand(1, 3, 32, 48)
    flow = torch.tensor([1.25, -0.5]).view(1, 2, 1, 1).expand(1, 2, 8, 12)
    moved = sampled(ramp, large_grid(flow), border="border")
    torch.testing.assert_close(moved[..., 4:40], ramp[..., 4:40] + 5, atol=1e-3, rtol=0)


def changed(network: VsrRecurrent, clip: Tensor, frame: int) -> list[bool]:
    """Which restored frames depend on a frame of the clip."""
    other = clip.clone()
    other[:, frame] += 0.05
    with torch.no_grad():
        return ((network(other) - network(clip)).abs().amax((0, 2, 3, 4)) > 0).tolist()


@pytest.mark.parametrize("frame", [0, 1, 3])
def test_content_of_a_frame_reaches_all_frames_in_both_directions(frame):
    assert changed(recurrent(), clips(1, 4), frame) == [True] * 4


def test_a_network_without_neighbours_restores_frames_one_by_one():
    network, clip = recurrent(neighbours=False), clips(1, 4)
    assert network.config.radius == 0 and recurrent().config.radius == 3
    assert changed(network, clip, 2) == [False, False, True, False]
    with torch.no_grad():
        alone = torch.cat([network(clip[:, at : at + 1]) for at in range(4)], 1)
        assert torch.equal(alone, network(clip))


def test_some_frames_of_a_clip_equal_those_of_the_full_clip():
    network, clip = recurrent(), clips(2, 6)
    with torch.no_grad():
        whole = network(clip)
        part = list(network.frames(clip.unbind(1), (2, 5)))
    assert torch.equal(torch.stack(part, 1), whole[:, 2:5])


def test_motion_found_for_a_few_pairs_at_once_is_that_of_the_clip(monkeypatch):
    network, clip = recurrent(), [*clips(1, 6).float().unbind(1)]
    whole = network._flows(clip)
    monkeypatch.setattr(vsr_recurrent, "FLOW_PIXELS", 2 * 12 * 16)
    for part, expected in zip(network._flows(clip), whole, strict=True):
        torch.testing.assert_close(
            torch.cat(part), torch.cat(expected), atol=1e-4, rtol=0
        )


@pytest.mark.parametrize("config", [{}, {"neighbours": False}])
def test_frames_computed_together_are_those_computed_one_by_one(config):
    network, clip = recurrent(**config), clips(2, 5).unbind(1)
    with torch.no_grad():
        one, three = (
            torch.stack(list(network.frames(clip, (1, 5), at_once)))
            for at_once in (1, 3)
        )
    torch.testing.assert_close(three, one, atol=1e-4, rtol=0)


def test_a_gpu_that_compares_patches_in_fp16_takes_from_neighbours_what_a_cpu_does():
    restorer = load_restorer("sr", RestoreOptions(device="cpu"))
    network = restorer.networks[torch.float32].for_inference(torch.bfloat16)
    clip = F.interpolate(
        clips(1, 4, 9, 10)[0].float(), scale_factor=3.0, mode="bilinear"
    )[None]
    with torch.inference_mode():
        expected = network(clip)
        with Rehearsal():
            result = network.to("cuda")(clip.to("cuda")).cpu()
    assert -10 * (result - expected).square().mean((0, 2, 3, 4)).max().log10() > 84


def test_two_clips_in_one_batch_do_not_influence_each_other():
    network, both = recurrent(), clips(2, 4)
    with torch.no_grad():
        alone = torch.cat([network(both[:1]), network(both[1:])])
        torch.testing.assert_close(network(both), alone, atol=1e-4, rtol=0)


def test_gradients_reach_every_parameter():
    network = recurrent()
    network(clips(1, 3)).square().mean().backward()
    assert not [
        name
        for name, part in network.named_parameters()
        if part.grad is None or not part.grad.any()
    ]


def test_half_precision_keeps_motion_and_large_frames_nearly_exact():
    network, clip = recurrent().float(), clips(1, 3, 24, 24).float()
    with torch.no_grad():
        flows, restored = network._flows(clip.unbind(1)), network(clip)
        halved = network.for_inference(torch.bfloat16)
        assert torch.equal(
            torch.cat(flows[0]), torch.cat(halved._flows(clip.unbind(1))[0])
        )
        assert halved.dtype == torch.bfloat16 and halved(clip).dtype == torch.float32
        assert (halved(clip) - restored).abs().max() < 0.1 * restored.std()


def test_weights_of_a_network_without_neighbours_start_one_with_neighbours():
    network, inputs = recurrent(), recurrent(neighbours=False)
    parts = network.parts_of(inputs)
    assert (
        parts
        and parts.keys() == inputs.state_dict().keys() < network.state_dict().keys()
    )
    assert (
        inputs.parts_of(network) is None
        and recurrent(features=16).parts_of(inputs) is None
    )
