"""MB-TaylorFormer V2: the golden numbers of the release and mistakes that they catch; strips, gradients,
half precision and tasks.
"""

import json
from itertools import product
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from taylor_networks import INPUTS, PRINTED, golden, released, restored, small
from torch import Tensor, nn

from vidrestore.models import deform_conv, fast_maps, mb_taylorformer
from vidrestore.models.fast_maps import spans
from vidrestore.models.mb_taylorformer import (
    SIZES,
    ConvolutionPair,
    MBTaylorFormer,
    MBTaylorFormerConfig,
    TaskVectors,
    TransformerStage,
    build,
    config_from,
    settings_of,
)
from vidrestore.models.taylor_attention import Attention, FeedForward

# The release's numbers


@pytest.mark.parametrize("which", INPUTS)
@pytest.mark.parametrize("branches", [2, 3])
def test_float64_equals_the_release_up_to_the_rounding_of_the_stored_numbers(
    branches, which
):
    numbers = golden(branches)
    stored = numbers[f"output{which}"]
    rounding = (
        torch.nextafter(stored.abs(), torch.tensor(torch.inf)).double()
        - stored.abs().double()
    ) / 2
    error = (
        restored(released(branches, torch.float64), numbers[f"input{which}"])
        - stored.double()
    )
    assert float((error.abs() - rounding).max()) < 1e-9


def swapped(maps: Tensor, offsets: Tensor, *rest: Any) -> Tensor:
    """Sampling that takes each pair of offsets for (right, down)."""
    return sampling_of_the_release(
        maps, offsets.unflatten(1, (9, 2)).flip(2).flatten(1, 2), *rest
    )


def repeating(
    maps: Tensor,
    offsets: Tensor,
    weight: Tensor,
    span: tuple[int, int],
    reach: float | None,
) -> Tensor:
    """Sampling of a map that its border continues."""
    padded = F.pad(maps, (8, 8, 8, 8), mode="replicate")
    inner = F.pad(offsets, (8, 8, 8 + span[0], 8 + maps.shape[2] - span[1]))
    return sampling_of_the_release(padded, inner, weight)[
        :, :, 8 + span[0] : 8 + span[1], 8:-8
    ]


sampling_of_the_release = deform_conv.deformable_depthwise
MISTAKES = {
    "power 4": {"attention": {"focus_power": 4}},
    "limit 1": {"offset_clamp": [-1, 1]},
    "no limit": {"offset_clamp": None},
    "no remainder": {"attention": {"remainder": "plain"}},
    "residual": {"first_residual": True},
}


@pytest.mark.parametrize("mistake", MISTAKES)
@pytest.mark.parametrize("branches", [2, 3])
def test_another_rule_than_the_releases_changes_the_output(branches, mistake):
    numbers = golden(branches)
    error = (
        restored(released(branches, **MISTAKES[mistake]), numbers["input"])
        - numbers["output"]
    )
    assert float(error.abs().max()) > 1e-3


@pytest.mark.parametrize("sampling", [swapped, repeating])
@pytest.mark.parametrize("branches", [2, 3])
def test_another_order_of_offsets_or_another_border_changes_the_output(
    monkeypatch, branches, sampling
):
    numbers = golden(branches)
    monkeypatch.setattr(deform_conv, "deformable_depthwise", sampling)
    error = restored(released(branches), numbers["input"]) - numbers["output"]
    assert float(error.abs().max()) > 1e-2


@pytest.mark.parametrize(
    "size, count", [("b", 2_629_458), ("l", 7_295_572), ("xl", 16_257_900)]
)
def test_parameters_are_as_many_as_in_the_release(size, count):
    assert (
        sum(parameter.numel() for parameter in MBTaylorFormer(SIZES[size]).parameters())
        == count
    )


# The same in place and in strips as all at once with gradients


@pytest.mark.parametrize("rows", [1, 3, 7])
@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attention": vars(PRINTED)},
        {"offset_limit": []},
        {"norm": "layer"},
        {"offset_limit": [-1.5, 0.5]},
        {"embedding": "dilated", "chain": False},
        {"attention": {"position": "none"}},
    ],
    ids=str,
)
def test_strips_of_any_height_equal_the_full_map(monkeypatch, rows, changes):
    network, images = (
        small(**changes).double(),
        torch.rand(2, 3, 24, 16, dtype=torch.float64),
    )
    expected = network(images)
    monkeypatch.setattr(fast_maps, "spans", lambda height, most: spans(height, rows))
    with torch.no_grad():
        torch.testing.assert_close(
            network(images), expected.detach(), atol=1e-11, rtol=0
        )


def test_the_input_is_not_altered_and_its_layout_does_not_matter():
    network, images = small(), torch.rand(1, 3, 16, 24)
    before = images.clone()
    with torch.no_grad():
        plain = network(images)
        assert torch.equal(images, before)
        torch.testing.assert_close(
            network(images.contiguous(memory_format=torch.channels_last)), plain
        )


def test_gradients_reach_every_trained_parameter():
    network = small()
    network(torch.rand(2, 3, 16, 16)).square().mean().backward()
    for name, parameter in network.named_parameters():
        assert parameter.requires_grad == (not name.endswith("one")), name
        if parameter.requires_grad:
            assert torch.isfinite(parameter.grad).all(), name
            assert parameter.grad.abs().sum() > 0, name


def test_gradients_are_those_of_finite_differences():
    network = small(blocks=[1, 1, 1, 1], branches=[1, 1, 1, 1]).double()
    images = torch.rand(1, 3, 8, 8, dtype=torch.float64, requires_grad=True)
    direction, step = torch.randn_like(images), 1e-6
    (slope,) = torch.autograd.grad(network(images).square().sum(), images)
    with torch.no_grad():
        ahead, behind = (
            network(images + sign * step * direction).square().sum() for sign in (1, -1)
        )
    assert float((slope * direction).sum()) == pytest.approx(
        float((ahead - behind) / (2 * step)), rel=1e-5
    )


# Half precision


@pytest.mark.parametrize(
    "dtype, most", [(torch.bfloat16, 0.03), (torch.float16, 0.005)]
)
def test_half_precision_stays_close(dtype, most):
    numbers = golden(3)
    error = restored(released(3, dtype), numbers["input"]).float() - numbers["output"]
    assert float(error.abs().mean()) < most


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_stays_finite_where_powers_of_its_own_would_not(dtype):
    """Queries of 20 and more: 20^8 is 400,000 times the largest number of float16."""
    network = small().to(dtype)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, Attention):
                module.qkv *= 20
        assert torch.isfinite(network(torch.rand(1, 3, 32, 32, dtype=dtype))).all()


def test_mixed_precision_trains_with_finite_gradients():
    network = small()
    with torch.autocast("cpu", torch.bfloat16):
        output = network(torch.rand(1, 3, 16, 16))
    output.float().square().mean().backward()
    assert all(
        torch.isfinite(parameter.grad).all()
        for parameter in network.parameters()
        if parameter.requires_grad
    )


def test_mixed_precision_restores_as_it_trains():
    network, images = small(), torch.rand(1, 3, 16, 16)
    with torch.autocast("cpu", torch.bfloat16):
        trained = network(images)
        with torch.no_grad():
            torch.testing.assert_close(
                network(images), trained.detach(), atol=0.1, rtol=0.1
            )


# Parts


def test_the_feed_forward_is_the_printed_one_whatever_the_vectors_hold():
    """Five hidden channels, which leave three of a vector's places empty."""
    torch.manual_seed(2)
    network, maps = FeedForward(4, 5, 2), torch.rand(1, 4, 6, 7)
    deviation = (maps.var(1, unbiased=False, keepdim=True) + 1e-5).sqrt()
    expanded = F.conv2d(
        maps / deviation * network.norm[1][:, None, None],
        network.expand[1][..., None, None],
    )
    a, b = F.conv2d(expanded, network.expand_depthwise[1], padding=1, groups=10).chunk(
        2, 1
    )
    expected = maps + F.conv2d(F.gelu(a) * b, network.contract[1][..., None, None])
    torch.testing.assert_close(network(maps, 1), expected)


@pytest.mark.parametrize("slope", [0.0, 0.01, 0.5])
def test_negative_values_between_two_convolutions_are_multiplied_by_the_slope(slope):
    torch.manual_seed(3)
    pair, maps = ConvolutionPair(6, slope), torch.randn(2, 6, 5, 7)
    for parameter in pair.parameters():
        nn.init.normal_(parameter)
    between = F.conv2d(maps, pair.first.weight, pair.first.bias, padding=1)
    between = between.clamp(min=0) - slope * (-between).clamp(min=0)
    expected = maps + F.conv2d(between, pair.second.weight, pair.second.bias, padding=1)
    for gradients in (True, False):
        with torch.set_grad_enabled(gradients):
            torch.testing.assert_close(
                pair(maps.clone()), expected, rtol=1e-5, atol=1e-4
            )


# Ablations


@pytest.mark.parametrize(
    "settings, millions",
    [({"embedding": "plain"}, 2.60), ({"attention": {"position": "none"}}, 2.58)],
    ids=str,
)
def test_networks_of_the_ablations_have_the_parameters_of_the_papers_tables(
    settings, millions
):
    assert sum(
        parameter.numel() for parameter in build(settings).parameters()
    ) / 1e6 == pytest.approx(millions, abs=0.01)


@pytest.mark.parametrize("kind, dilation", [("plain", 1), ("dilated", 2)])
def test_fixed_taps_of_the_second_branch_lie_that_far_apart(kind, dilation):
    part = mb_taylorformer.embedding(2, 1, small(embedding=kind).config)
    maps, expected = torch.rand(1, 2, 9, 9), torch.zeros(2)
    for row, column in product(range(3), repeat=2):
        seen = maps[0, :, 4 + (row - 1) * dilation, 4 + (column - 1) * dilation]
        expected += part.depthwise[:, 0, row, column] * seen
    torch.testing.assert_close(
        part(maps)[0, :, 4, 4], F.hardswish(part.pointwise @ expected)
    )


def test_branches_side_by_side_all_see_the_input_of_their_stage():
    stage = small(chain=False).encoder[3]
    maps = torch.rand(1, 16, 8, 8)
    for embed, branch in zip(stage.embeddings, stage.embedded(maps), strict=True):
        torch.testing.assert_close(branch, embed(maps))


# Configurations


def test_a_configuration_builds_its_network_again():
    network = small(attention=vars(PRINTED), first_residual=True, offset_limit=None)
    again = build(settings_of(network.config))
    assert again.load_state_dict(network.state_dict())
    assert again.config == network.config


@pytest.mark.parametrize(
    "settings, message",
    [
        ({"size": "m"}, "unknown size 'm'; there are t, h, b, l, xl"),
        ({"widths": [8, 20, 24, 32]}, "widths must double from level 1 to 2"),
        (
            {"heads": [1, 2, 3, 8]},
            "heads must be 1, 2, 4, 8 and divide the width, got 3 for 72",
        ),
        ({"blocks": [1, 2, 3]}, "blocks must be four numbers of at least 1"),
        ({"offset_limit": [3, -3]}, "offset_limit must be two increasing numbers"),
        (
            {"embedding": "wide"},
            "embedding must be deformable, plain or dilated, got 'wide'",
        ),
        ({"frames": 1, "aligned": True}, "aligned is for several frames"),
        ({"slope": -0.1}, "slope must be at least 0 and below 1"),
        ({"slope": 1.0}, "slope must be at least 0 and below 1"),
        ({"attention": {"focus_power": 0}}, "focus_power must be at least 1"),
        ({"attention": {"eps_length": 0}}, "eps_length must be positive"),
    ],
)
def test_impossible_sizes_are_refused(settings, message):
    with pytest.raises(ValueError, match=message):
        build(settings)


def test_several_frames_at_half_the_size_are_a_network_on_their_unshuffled_channels():
    network = small(frames=3, unshuffle=2, norm="layer")
    clips = torch.rand(2, 3, 3, 32, 48, generator=torch.Generator().manual_seed(1))
    # (2, 36, 16, 24)
    channels = torch.cat(
        [F.pixel_unshuffle(clips[:, frame], 2) for frame in range(3)], 1
    )
    seen = []
    network.encoder[0].register_forward_pre_hook(
        lambda stage, given: seen.append(given[0])
    )
    with torch.no_grad():
        restored = network(clips)
        network.head.zero_()
        assert torch.equal(network(clips), clips[:, 1])
    assert restored.shape == (2, 3, 32, 48) and not torch.equal(restored, clips[:, 1])
    torch.testing.assert_close(seen[0], F.conv2d(channels, network.stem, padding=1))


def test_sides_that_cannot_be_halved_three_times_are_refused():
    with pytest.raises(
        ValueError, match=r"sides that are multiples of 8, got \(1, 3, 16, 20\)"
    ):
        small()(torch.rand(1, 3, 16, 20))
    assert MBTaylorFormerConfig() == SIZES["b"]


# One network for several tasks: the vector of a picture's task, and nothing else, makes the difference

TASKS = ["derain", "desnow"]
FORMS = [{}, {"frames": 3, "unshuffle": 2, "norm": "layer", "embedding": "dilated"}]


def vectors(network: nn.Module) -> list[nn.Parameter]:
    return [part.vectors for part in network.modules() if isinstance(part, TaskVectors)]


def untasked(network: MBTaylorFormer) -> MBTaylorFormer:
    """The same network without its vectors."""
    same = build({**settings_of(network.config), "tasks": []})
    same.load_state_dict(
        {name: network.state_dict()[name] for name in same.state_dict()}
    )
    return same


def pictures(form: dict[str, object], count: int = 2) -> Tensor:
    frames = (3,) if form else ()
    return torch.rand(
        count, *frames, 3, 32, 16, generator=torch.Generator().manual_seed(2)
    )


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_vectors_of_zero_change_nothing_and_a_fresh_network_has_such(form):
    assert all(not part.any() for part in vectors(build({"size": "t", "tasks": TASKS})))
    network, images = small(tasks=TASKS, **form), pictures(form)
    for part in vectors(network):
        nn.init.zeros_(part)
    torch.testing.assert_close(
        network(images, torch.tensor([0, 1])), untasked(network)(images), atol=0, rtol=0
    )


def test_every_stage_has_a_vector_per_task_of_its_width_that_changes_that_task_alone():
    network, images = small(tasks=TASKS), pictures({}, 1)
    stages = [part for part in network.modules() if isinstance(part, TransformerStage)]
    assert len(vectors(network)) == len(stages) == 8
    assert [part.shape for part in vectors(network)] == [
        (2, width) for width in (4, 8, 12, 16, 8, 8, 12, 8)
    ]
    with torch.no_grad():
        for part in vectors(network):
            before = [network(images, torch.tensor([task])) for task in (0, 1)]
            part[1] += 0.5
            after = [network(images, torch.tensor([task])) for task in (0, 1)]
            assert torch.equal(after[0], before[0]) and not torch.allclose(
                after[1], before[1]
            )


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_picture_of_a_batch_is_restored_for_its_own_task(form):
    network, images = small(tasks=TASKS, **form), pictures(form, 3)
    with torch.no_grad():
        together = network(images, torch.tensor([1, 0, 1]))
        alone = [
            network(images[at, None], torch.tensor([task]))
            for at, task in enumerate((1, 0, 1))
        ]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_strips_equal_the_full_map_and_do_not_alter_the_input(monkeypatch, form):
    network, tasks = small(tasks=TASKS, **form).double(), torch.tensor([1, 0])
    images = pictures(form).double()
    given, expected = images.clone(), network(images, tasks).detach()
    monkeypatch.setattr(fast_maps, "spans", lambda height, most: spans(height, 3))
    with torch.no_grad():
        torch.testing.assert_close(network(images, tasks), expected, atol=1e-11, rtol=0)
    assert torch.equal(images, given)


def test_in_half_precision_maps_keep_their_type_with_and_without_gradients():
    network, images = small(tasks=TASKS), pictures({})
    for part in vectors(network):
        nn.init.zeros_(part)
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients), torch.autocast("cpu", torch.bfloat16):
            inputs, expected = (
                network(images, torch.tensor([1, 0])),
                untasked(network)(images),
            )
        torch.testing.assert_close(inputs, expected, atol=0, rtol=0)


def test_tasks_that_are_missing_unwanted_or_not_one_per_picture_are_refused():
    network, images = small(tasks=TASKS), pictures({})
    with pytest.raises(
        ValueError,
        match="tasks must be given: one index per picture into derain, desnow",
    ):
        network(images)
    with pytest.raises(ValueError, match="tasks must be None"):
        small()(images, torch.tensor([0, 0]))
    for wrong in (torch.tensor([0]), torch.tensor([0.0, 1.0])):
        with pytest.raises(ValueError, match="tasks must be 2 integers"):
            network(images, wrong)


def test_names_of_tasks_are_stored_in_the_configuration_and_must_differ():
    config = MBTaylorFormerConfig(tasks=("derain", "desnow"))
    assert config_from(json.loads(json.dumps(settings_of(config)))) == config
    for wrong in (["derain", "derain"], [""], "derain"):
        with pytest.raises(ValueError, match="tasks must be different names"):
            build({"tasks": wrong})
