"""Networks restore what nothing was trained with better than what one could run instead: `pytest -m
held_out`, some minutes.

That is left out otherwise. `examples/experiments/held_out_table.py` prints the figures.
"""

import pytest
import torch
from classical_restoration import FRAMES, METHODS
from held_out_degradations import MODELS
from held_out_table import (
    Figures,
    Gallery,
    Verdict,
    beside,
    bundled,
    eval_clips,
    measure,
    network,
    rgb_picture,
    write_png,
)
from rgb_networks import keeping, write_weights
from torch import Tensor


@pytest.mark.held_out
@pytest.mark.data
@pytest.mark.slow
@pytest.mark.parametrize("task", MODELS)
def test_the_bundled_network_beats_the_degraded_frames_and_every_classical_method(task, shared_data):
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
    frames = frames.repeat_interleave(8, 3).repeat_interleave(8, 4).mul(255).round().div(255)
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
        -10 * float(torch.log10((given - wanted)[FRAMES // 2].square().mean())) for given, wanted in pairs
    ]
    assert verdict.given.psnr == pytest.approx(sum(expected) / 2, abs=1e-4)


def test_the_best_classical_figures_are_bold_each_by_itself():
    classical = {"one": Figures(21.0, 0.7), "two": Figures(20.0, 0.8)}
    verdict = Verdict("derain", Figures(19.0, 0.6), classical, {"net": Figures(25.0, 0.9)})
    assert verdict.strongest == "one"
    assert list(verdict.rows()) == [
        "| derain | degraded | 19.00 | 0.6000 |",
        "| derain | one | **21.00** | 0.7000 |",
        "| derain | two | 20.00 | **0.8000** |",
        "| derain | net | 25.00 | 0.9000 |",
    ]


def test_pictures_stand_side_by_side_as_they_are(tmp_path):
    gallery = Gallery(tmp_path / "pictures")
    shown = {
        name: torch.full((3, 4, 5), value / 255)
        for name, value in (("degraded", 10), ("one", 20), ("two", 25), ("net", 30), ("clean", 40))
    }
    gallery.add("clip-0", shown)
    gallery.write(
        Verdict("derain", Figures(1, 1), {"one": Figures(2, 1), "two": Figures(1, 2)}, {"net": Figures(3, 3)})
    )
    row = rgb_picture(tmp_path / "pictures" / "derain-clip-0.png")[1, 2].mul(255).round().tolist()
    assert row == [10.0] * 5 + [255.0] * 4 + [20.0] * 5 + [255.0] * 4 + [30.0] * 5 + [255.0] * 4 + [40.0] * 5


def test_a_picture_is_written_and_read_without_loss(tmp_path):
    picture = torch.randint(0, 256, (3, 7, 9), dtype=torch.uint8, generator=torch.Generator().manual_seed(1))
    write_png(tmp_path / "a.png", beside([picture]))
    assert torch.equal(rgb_picture(tmp_path / "a.png").mul(255).round().byte(), picture)


@pytest.mark.data
def test_clips_are_spread_over_all_sequences(shared_data):
    names = [name for name, clip in eval_clips(shared_data, 1) if clip.shape == (FRAMES, 3, 480, 854)]
    assert names == ["car-shadow-00020", "dog-00030", "kite-surf-00024"]
