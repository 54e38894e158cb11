"""Networks restore what nothing was trained with better than what one could run instead: `pytest -m
held_out`, some minutes.

That is left out otherwise. `examples/experiments/held_out_table.py` prints the figures.
"""

import pytest
import torch
from classical_restoration import FRAMES, METHODS
from held_out_degradations import MODELS
from held_out_table import Figures, bundled, eval_clips, measure, network
from rgb_networks import keeping, write_weights
from torch import Tensor


@pytest.mark.held_out
@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("task", MODELS)
def test_the_bundled_network_beats_the_degraded_frames_and_every_classical_method(
    task, shared_data
):
    name = bundled(task)
    if name is None:
        pytest.skip(f"no weights for {task} are bundled")
    verdict = measure(task, eval_clips(shared_data, 3), {name: network(task, name)})
    ours = verdict.networks[name]
    for other, figures in {"degraded": verdict.given, **verdict.classical}.items():
        assert ours.psnr > figures.psnr, other
        assert ours.ssim > figures.ssim, other


def clips(count: int = 2) -> list[tuple[str, Tensor]]:
    """Coloured squares, in each frame brighter than before."""
    shapes = torch.rand(count, 1, 3, 6, 8, generator=torch.Generator().manual_seed(1))
    frames = shapes * torch.linspace(0.5, 1, FRAMES).view(-1, 1, 1, 1)
    frames = (
        frames.repeat_interleave(8, 3).repeat_interleave(8, 4).mul(255).round().div(255)
    )
    return [(f"clip-{number}", clip) for number, clip in enumerate(frames)]


def test_a_network_that_changes_nothing_scores_as_the_degraded_frames(tmp_path):
    restore = network("dehaze", write_weights(tmp_path, keeping(), "dehaze"))
    verdict = measure("dehaze", clips(), {"keeping": restore})
    assert verdict.networks["keeping"] == verdict.given
    assert list(verdict.classical) == [method.name for method in METHODS["dehaze"]]


def test_a_perfect_frame_scores_without_end_and_each_clip_counts_the_same():
    pairs = [MODELS["derain"](clip, number) for number, (_, clip) in enumerate(clips())]
    clean = iter([clean[FRAMES // 2] for _, clean in pairs])
    verdict = measure("derain", clips(), {"perfect": lambda degraded: next(clean)})
    assert verdict.networks["perfect"] == Figures(float("inf"), pytest.approx(1))
    expected = [
        -10 * float(torch.log10((given - wanted)[FRAMES // 2].square().mean()))
        for given, wanted in pairs
    ]
    assert verdict.given.psnr == pytest.approx(sum(expected) / 2, abs=1e-4)


@pytest.mark.data
def test_clips_are_spread_over_all_sequences(shared_data):
    names = [
        name
        for name, clip in eval_clips(shared_data, 1)
        if clip.shape == (FRAMES, 3, 480, 854)
    ]
    assert names == ["car-shadow-00020", "dog-00030", "kite-surf-00024"]
