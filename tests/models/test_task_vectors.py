"""One network for several tasks: the vector of a picture's task, and nothing else, makes the difference."""

from __future__ import annotations

import json

import pytest
import torch
from taylor_networks import small
from torch import Tensor, nn

from vidrestore.models import mb_taylorformer
from vidrestore.models.fast.maps import spans
from vidrestore.models.mb_taylorformer import (
    MBTaylorFormer,
    MBTaylorFormerConfig,
    Stage,
    TaskVectors,
    build,
    config_from,
    settings_of,
)

TASKS = ["derain", "desnow"]
FORMS = [{}, {"frames": 3, "unshuffle": 2, "norm": "layer", "embedding": "dilated"}]


def vectors(network: nn.Module) -> list[nn.Parameter]:
    return [part.vectors for part in network.modules() if isinstance(part, TaskVectors)]


def untasked(network: MBTaylorFormer) -> MBTaylorFormer:
    """The same network without its vectors."""
    same = build({**settings_of(network.config), "tasks": []})
    same.load_state_dict({name: network.state_dict()[name] for name in same.state_dict()})
    return same


def pictures(form: dict[str, object], count: int = 2) -> Tensor:
    frames = (3,) if form else ()
    return torch.rand(count, *frames, 3, 32, 16, generator=torch.Generator().manual_seed(2))


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_vectors_of_zero_change_nothing_and_a_fresh_network_has_such(form: dict[str, object]) -> None:
    assert all(not part.any() for part in vectors(build({"size": "t", "tasks": TASKS})))
    network, images = small(tasks=TASKS, **form), pictures(form)
    for part in vectors(network):
        nn.init.zeros_(part)
    torch.testing.assert_close(
        network(images, torch.tensor([0, 1])), untasked(network)(images), atol=0, rtol=0
    )


def test_every_stage_has_a_vector_per_task_of_its_width_that_changes_that_task_alone() -> None:
    network, images = small(tasks=TASKS), pictures({}, 1)
    stages = [part for part in network.modules() if isinstance(part, Stage)]
    assert len(vectors(network)) == len(stages) == 8
    assert [part.shape for part in vectors(network)] == [(2, width) for width in (4, 8, 12, 16, 8, 8, 12, 8)]
    with torch.no_grad():
        for part in vectors(network):
            before = [network(images, torch.tensor([task])) for task in (0, 1)]
            part[1] += 0.5
            after = [network(images, torch.tensor([task])) for task in (0, 1)]
            assert torch.equal(after[0], before[0]) and not torch.allclose(after[1], before[1])


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_picture_of_a_batch_is_restored_for_its_own_task(form: dict[str, object]) -> None:
    network, images = small(tasks=TASKS, **form), pictures(form, 3)
    with torch.no_grad():
        together = network(images, torch.tensor([1, 0, 1]))
        alone = [network(images[at, None], torch.tensor([task])) for at, task in enumerate((1, 0, 1))]
    torch.testing.assert_close(together, torch.cat(alone), atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_strips_give_what_the_whole_map_gives_and_do_not_alter_the_input(
    monkeypatch: pytest.MonkeyPatch, form: dict[str, object]
) -> None:
    network, images, tasks = (
        small(tasks=TASKS, **form).double(),
        pictures(form).double(),
        torch.tensor([1, 0]),
    )
    given, expected = images.clone(), network(images, tasks).detach()
    monkeypatch.setattr(
        mb_taylorformer, "strip_spans", lambda maps, channels, least=1: spans(maps.shape[2], 3)
    )
    with torch.no_grad():
        torch.testing.assert_close(network(images, tasks), expected, atol=1e-11, rtol=0)
    assert torch.equal(images, given)


def test_in_half_precision_maps_keep_their_type_with_and_without_gradients() -> None:
    network, images = small(tasks=TASKS), pictures({})
    for part in vectors(network):
        nn.init.zeros_(part)
    for gradients in (False, True):
        with torch.set_grad_enabled(gradients), torch.autocast("cpu", torch.bfloat16):
            given, expected = network(images, torch.tensor([1, 0])), untasked(network)(images)
        torch.testing.assert_close(given, expected, atol=0, rtol=0)


def test_tasks_that_are_missing_unwanted_or_not_one_per_picture_are_refused() -> None:
    network, images = small(tasks=TASKS), pictures({})
    with pytest.raises(ValueError, match="tasks must be given: one index per picture into derain, desnow"):
        network(images)
    with pytest.raises(ValueError, match="tasks must be None"):
        small()(images, torch.tensor([0, 0]))
    for wrong in (torch.tensor([0]), torch.tensor([0.0, 1.0])):
        with pytest.raises(ValueError, match="tasks must be 2 integers"):
            network(images, wrong)


def test_the_names_are_kept_in_the_configuration_and_must_differ() -> None:
    config = MBTaylorFormerConfig(tasks=("derain", "desnow"))
    assert config_from(json.loads(json.dumps(settings_of(config)))) == config
    for wrong in (["derain", "derain"], [""], "derain"):
        with pytest.raises(ValueError, match="tasks must be different names"):
            build({"tasks": wrong})
