"""The restorer of RGB pictures: whole frames and tiles, memory and weights."""

import pytest
import torch
from rgb_networks import image_restorer, keeping, whole_clip, write_weights
from taylor_networks import restored, small
from torch import Tensor, nn
from vsr_networks import recurrent

from vidrestore.errors import CheckpointError, OptionError
from vidrestore.models.mb_taylorformer import SIZES
from vidrestore.restorers.base import load_restorer
from vidrestore.restorers.picture_restorer import PictureRestorer
from vidrestore.settings.options import RestoreOptions

GB = 1e9


def clip(frames: int = 3, height: int = 27, width: int = 35) -> Tensor:
    return torch.rand(
        frames, 3, height, width, generator=torch.Generator().manual_seed(4)
    )


class Brighter(nn.Module):
    """Local to the pixel: tiles can't differ from the whole. Notes the sizes that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.config = SIZES["t"]
        self.seen: set[tuple[int, ...]] = set()

    def forward(self, images: Tensor) -> Tensor:
        self.seen.add(tuple(images.shape))
        return images.sqrt() + 0.1


@pytest.mark.parametrize("height, width", [(27, 35), (8, 8), (5, 3), (1, 1), (64, 9)])
def test_frames_are_reflected_to_multiples_of_8_and_cut_again(tmp_path, height, width):
    network, frames = small(), clip(2, height, width)
    done = list(image_restorer(tmp_path, network).frames(frames, (0, 2)))
    if min(height, width) > 8:
        torch.testing.assert_close(
            torch.stack(done), restored(network, frames), atol=1e-5, rtol=0
        )
    assert [frame.shape for frame in done] == [(3, height, width)] * 2 and all(
        frame.isfinite().all() for frame in done
    )


@pytest.mark.parametrize("height, width", [(200, 150), (64, 500), (16, 300), (130, 64)])
def test_tiles_equal_the_frame_where_the_network_is_local(tmp_path, height, width):
    restorer = image_restorer(tmp_path, keeping(), tile=64)
    restorer.network = Brighter()
    (frame,) = clip(1, height, width)
    torch.testing.assert_close(whole_clip(restorer, frame[None])[0], frame.sqrt() + 0.1)
    assert len(restorer.network.seen) == 1
    ((_, _, high, wide),) = restorer.network.seen
    assert high <= 64 and wide <= 64 and high % 8 == wide % 8 == 0


def test_a_frame_is_restored_at_once_if_memory_allows_else_in_even_tiles(tmp_path):
    restorer = image_restorer(tmp_path, small())
    for size, pixels in (("t", 8e6), ("b", 2.1e6)):  # of a frame that fits whole
        restorer.pixel_memory = SIZES[size].pixel_memory
        assert restorer.tile_size(1080, 1920) == (1080, 1920)
        assert SIZES[size].pixel_memory * pixels < restorer.budget
    # 2 by 3 tiles that share 32 pixels
    assert restorer.tile_size(2160, 3840) == (1096, 1304)
    assert restorer.memory(2160, 3840) < 4 * GB
    assert restorer.memory(1080, 1920) < 3.1 * GB


def test_weights_of_several_tasks_restore_for_the_task_that_is_asked_for(tmp_path):
    network, (frame,) = small(tasks=["derain", "dehaze"]), clip(1, 24, 32)
    model = write_weights(tmp_path, network, "all")
    for index, task in enumerate(("derain", "dehaze")):
        for tile in (None, 64):
            restorer = PictureRestorer(
                task,
                RestoreOptions(model=model, device="cpu", tile=tile, precision="fp32"),
            )
            with torch.no_grad():
                expected = network(frame[None], torch.tensor([index]))[0]
            torch.testing.assert_close(
                whole_clip(restorer, frame[None])[0], expected, atol=1e-5, rtol=0
            )


def test_half_precision_stays_near_full_precision_and_full_can_be_asked_for(tmp_path):
    restorer, (frame,) = image_restorer(tmp_path, small(), precision="bf16"), clip(1)
    half, full = (
        whole_clip(restorer, frame[None])[0],
        whole_clip(restorer, frame[None], "fp32")[0],
    )
    assert 0 < (half - full).square().mean().sqrt() < 0.02 * full.std()
    assert half.dtype == torch.float32
    torch.testing.assert_close(
        full,
        whole_clip(image_restorer(tmp_path, small(), precision="fp32"), frame[None])[0],
        atol=0,
        rtol=0,
    )


def test_denoise_takes_either_family_and_refuses_the_options_of_the_other(tmp_path):
    model = write_weights(tmp_path, small(), "denoise")
    assert (
        load_restorer("denoise", RestoreOptions(model=model, device="cpu")).input_kind
        == "rgb"
    )
    assert load_restorer("denoise", RestoreOptions(device="cpu")).input_kind == "planes"
    with pytest.raises(OptionError, match="estimates noise itself, without `sigma`"):
        load_restorer("denoise", RestoreOptions(model=model, sigma=20, device="cpu"))
    with pytest.raises(OptionError, match="^`tile`: .* DUST sees patches"):
        load_restorer("denoise", RestoreOptions(device="cpu", tile=128))


def test_the_bundled_network_for_camera_noise_is_chosen_by_its_name_and_restores_alone():
    restorer = load_restorer(
        "denoise", RestoreOptions(model="mb-taylorformer-h-denoise", device="cpu")
    )
    assert (restorer.input_kind, restorer.facts.name) == (
        "rgb",
        "mb-taylorformer-h-denoise",
    )
    assert not restorer.facts.needs_sigma


def test_a_network_of_three_frames_sees_neighbours_reflected_at_the_ends_of_the_scene(
    tmp_path,
):
    restorer = image_restorer(tmp_path, small(frames=3))
    seen: list[list[float]] = []

    def middle(images: Tensor) -> Tensor:
        seen.append(images.mean((0, 2, 3, 4)).tolist())
        return images[:, 1]

    restorer.network.forward = middle
    frames = torch.arange(4.0)[:, None, None, None].expand(4, 3, 16, 16) / 4
    assert torch.equal(torch.stack(list(restorer.frames(frames, (0, 4)))), frames)
    assert seen == [
        [0.25, 0, 0.25],
        [0, 0.25, 0.5],
        [0.25, 0.5, 0.75],
        [0.5, 0.75, 0.5],
    ]


REFUSED = {
    "another family": (
        lambda: recurrent().float(),
        "dehaze",
        "of the family 'vsr-transformer', but dehaze",
    ),
    "another task": (small, "derain", "are for 'derain', not 'dehaze'"),
    "other tasks": (
        lambda: small(tasks=["derain", "desnow"]),
        "all",
        "derain, desnow, not 'dehaze'",
    ),
    "its own tasks": (
        lambda: small(tasks=["derain", "desnow"]),
        "dehaze",
        "derain, desnow, not 'dehaze'",
    ),
    "to train from": (small, "all", "are to train others from, not for 'dehaze'"),
}


@pytest.mark.parametrize("network, task, message", REFUSED.values(), ids=REFUSED)
def test_weights_for_something_else_are_refused(tmp_path, network, task, message):
    with pytest.raises(CheckpointError, match=message):
        PictureRestorer(
            "dehaze",
            RestoreOptions(
                model=write_weights(tmp_path, network(), task), device="cpu"
            ),
        )


def test_imported_weights_without_a_task_suit_every_task(tmp_path):
    imported = write_weights(tmp_path, small(), "restore")
    assert (
        PictureRestorer(
            "dehaze", RestoreOptions(model=imported, device="cpu")
        ).input_kind
        == "rgb"
    )


@pytest.mark.parametrize(
    "tile, message", [(100, "a multiple of 8"), (8, "greater than or equal to 64")]
)
def test_tiles_that_the_network_cannot_take_are_refused(tmp_path, tile, message):
    with pytest.raises(OptionError, match=message):
        image_restorer(tmp_path, small(), tile=tile)


def test_a_frame_is_the_same_however_its_scene_is_cut_into_clips(tmp_path):
    restorer, frames = (
        image_restorer(tmp_path, small(frames=3, unshuffle=2)),
        clip(6, 32, 32),
    )
    assert (restorer.facts.radius, restorer.facts.overlap) == (1, 2)
    whole = torch.stack(list(restorer.frames(frames, (0, 6))))
    parts = [*restorer.frames(frames[:4], (0, 3)), *restorer.frames(frames[2:], (1, 4))]
    torch.testing.assert_close(torch.stack(parts), whole, atol=1e-6, rtol=0)
