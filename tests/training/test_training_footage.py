"""Windows of clips and photos: their length, their order, their motion, and that they come again."""

from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from sample_videos import write_video

from vidrestore.errors import ConfigError, MediaError
from vidrestore.training.data import footage
from vidrestore.training.data.footage import (
    CLIP_SUFFIXES,
    Footage,
    Move,
    Place,
    Window,
    back_and_forth,
    decode_clip,
    find_footage,
    pan_over,
    random_move,
    slide_over,
)


def luma(path: Path, frames: int, **settings: object) -> torch.Tensor:
    planes = write_video(path, frames=frames, **settings)  # type: ignore[arg-type]
    return torch.from_numpy(np.stack([picture[0] for picture in planes]))


@pytest.mark.parametrize("count", [1, 2, 3, 7])
def test_numbers_run_back_and_forth_between_the_first_and_the_last_frame(count):
    there_and_back = [*range(count), *range(count - 2, 0, -1)]
    expected = np.resize(there_and_back, 25)
    assert list(back_and_forth(np.arange(25), count)) == list(expected)


def test_a_window_is_a_stretch_of_the_clip(tmp_path):
    clip = luma(tmp_path / "a.mkv", 9)
    source = Footage([tmp_path / "a.mkv"], [], frames=5, still_share=0.5)
    for seed in range(8):
        window = source.window(np.random.default_rng(seed))
        assert [plane.shape for plane in window] == [(5, 48, 64), (5, 24, 32), (5, 24, 32)]
        assert any(torch.equal(window[0], clip[first : first + 5]) for first in range(5))


def test_a_long_clip_is_sometimes_taken_at_half_its_rate(tmp_path):
    clip = luma(tmp_path / "a.mkv", 12)
    source = Footage([tmp_path / "a.mkv"], [], frames=4, still_share=0)
    windows = [source.window(np.random.default_rng(seed))[0] for seed in range(24)]
    steps = [
        next(step for step in (1, 2) for first in range(10) if torch.equal(window, clip[first::step][:4]))
        for window in windows
    ]
    assert 0 < steps.count(2) < steps.count(1)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_short_clip_runs_back_and_forth(tmp_path, count):
    clip = luma(tmp_path / "a.mkv", count)
    window = Footage([tmp_path / "a.mkv"], [], frames=7, still_share=0).window(np.random.default_rng(0))
    order = np.resize([*range(count), *range(count - 2, 0, -1)], 7)
    assert torch.equal(window[0], clip[order])


def test_the_same_generator_gives_the_same_windows(tmp_path, monkeypatch):
    for name in ("a.mkv", "b.mkv"):
        luma(tmp_path / name, 6)
    monkeypatch.setattr(footage, "SHOT", (32, 48))
    monkeypatch.setattr(
        footage.pictures,
        "read_picture",
        lambda path: tuple(np.random.default_rng(1).integers(0, 255, (3, 90, 120))),
    )

    def some(seed: int) -> list[torch.Tensor]:
        rng = np.random.default_rng(seed)
        source = Footage(
            [tmp_path / "a.mkv", tmp_path / "b.mkv"], [tmp_path / "a.jpg"], frames=3, still_share=0.5
        )
        return [plane for _ in range(6) for plane in source.window(rng)]

    assert all(map(torch.equal, some(1), some(1)))
    assert {plane.shape for plane in some(1)} == {(3, 48, 64), (3, 24, 32), (3, 32, 48), (3, 16, 24)}
    assert not all(
        one.shape == other.shape and torch.equal(one, other)
        for one, other in zip(some(1), some(2), strict=True)
    )


def test_decoded_clips_are_kept_up_to_a_size_the_latest_used(tmp_path, monkeypatch):
    decoded: list[str] = []

    def decode(path: Path) -> tuple[torch.Tensor, ...]:
        decoded.append(path.name)
        return (torch.zeros(4, 10, 10, dtype=torch.uint8),)

    monkeypatch.setattr(footage, "decode_clip", decode)
    source = Footage([Path(name) for name in "abc"], [], frames=2, still_share=0, cache_bytes=900)
    for name in "abacab":
        source.clips = [Path(name)]
        source.window(np.random.default_rng(0))
        assert source.cached_bytes <= 900
    assert decoded == ["a", "b", "c", "b"]


def test_one_clip_is_kept_even_where_it_is_larger_than_the_cache(tmp_path):
    luma(tmp_path / "a.mkv", 4)
    source = Footage([tmp_path / "a.mkv"], [], frames=2, still_share=0, cache_bytes=10)
    source.window(np.random.default_rng(0))
    assert source.cached_bytes == 4 * 64 * 48 * 3 // 2


def test_ten_bit_and_gray_clips_become_8_bit_grey_levels(tmp_path):
    ten = luma(tmp_path / "ten.mkv", 2, pix_fmt="yuv420p10le")
    assert torch.equal(
        decode_clip(tmp_path / "ten.mkv")[0], (ten.float() / 4).round().clamp(0, 255).to(torch.uint8)
    )
    gray = luma(tmp_path / "gray.mkv", 2, pix_fmt="gray")
    assert len(decode_clip(tmp_path / "gray.mkv")) == 1
    assert torch.equal(decode_clip(tmp_path / "gray.mkv")[0], gray)


def test_a_clip_smaller_than_a_patch_is_named(tmp_path):
    luma(tmp_path / "small.mkv", 2, size=(32, 12))
    with pytest.raises(MediaError, match="small.mkv: frames of 32x12 are smaller than a patch of 16x16"):
        Footage([tmp_path / "small.mkv"], [], frames=2, still_share=0).window(
            np.random.default_rng(0), side=16
        )


def test_a_clip_smaller_than_a_patch_is_replaced_by_others(tmp_path):
    luma(tmp_path / "small.mkv", 2, size=(32, 12))
    luma(tmp_path / "large.mkv", 2)
    source = Footage([tmp_path / "small.mkv", tmp_path / "large.mkv"], [], frames=2, still_share=0)
    assert {source.window(np.random.default_rng(seed), side=16)[0].shape for seed in range(6)} == {
        (2, 48, 64)
    }


def test_footage_is_found_by_suffix_in_order_of_name_without_what_is_held_out(tmp_path):
    for name in ("c.mp4", "B.MKV", "a.webm", "a.txt", "held.mp4"):
        (tmp_path / name).touch()
    assert [path.name for path in find_footage(tmp_path, ["held.mp4"], CLIP_SUFFIXES)] == [
        "B.MKV",
        "a.webm",
        "c.mp4",
    ]
    with pytest.raises(ConfigError, match="nowhere: no such folder; paths .* are relative"):
        find_footage(tmp_path / "nowhere", [], CLIP_SUFFIXES)


# Pans over photos


def test_a_folder_that_can_not_be_read_is_named(tmp_path, monkeypatch):
    def refused(self: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(ConfigError, match=r"the folder can't be read \(Permission denied\)"):
        find_footage(tmp_path, (), CLIP_SUFFIXES)


def as_window(planes: Iterable[np.ndarray]) -> Window:
    """Planes (H, W) as a picture has them."""
    return tuple(torch.from_numpy(plane.astype(np.uint8))[None] for plane in planes)


def ramp(height: int = 300, width: int = 400) -> Window:
    """Luma that falls with the row and rises with the column, so that a place can be read off its value."""
    rows, columns = np.mgrid[:height, :width]
    return as_window((100 - rows / 6 + columns / 4, 0 * rows + 90, 0 * rows + 160))


def test_a_steady_camera_shifts_the_picture_by_the_same_step_in_every_frame(monkeypatch):
    monkeypatch.setattr(footage, "SHOT", (40, 60))
    texture = np.random.default_rng(0).integers(0, 255, (3, 200, 300)).astype(np.uint8)
    shot, *_ = pan_over(as_window(texture), Move((100.0, 150.0), 1.0, drift=(2.0, -3.0)), 6)
    for before, after in pairwise(shot):
        assert torch.equal(after[:-2, 3:], before[2:, :-3])


def test_a_camera_at_rest_sees_the_photo_itself(monkeypatch):
    monkeypatch.setattr(footage, "SHOT", (40, 60))
    texture = np.random.default_rng(0).integers(0, 255, (3, 200, 300)).astype(np.uint8)
    luma, blue, _ = pan_over(as_window(texture), Move((100.0, 150.0), 1.0), 2)
    assert torch.equal(luma[1], torch.from_numpy(texture[0, 80:120, 120:180]))
    means = texture[1, 80:120, 120:180].reshape(20, 2, 30, 2).mean((1, 3))
    assert np.abs(blue[0].numpy() - means).max() <= 0.5


def test_a_growing_zoom_shows_more_of_the_photo_and_a_turn_moves_what_is_off_centre(monkeypatch):
    monkeypatch.setattr(footage, "SHOT", (40, 60))
    grown = pan_over(ramp(), Move((150.0, 200.0), 1.0, growth=0.1), 9)[0].float()
    spans = grown[:, 20, -1] - grown[:, 20, 0]
    assert torch.all(spans[1:] >= spans[:-1])
    assert spans[-1] > 1.5 * spans[0]
    turned = pan_over(ramp(), Move((150.0, 200.0), 1.0, turn=0.05), 9)[0].float()
    assert float(turned[:, 20, 30].std()) < 1  # the centre stays
    # the right border looks down, where the ramp is darker
    assert torch.all(turned[1:, 20, -1] <= turned[:-1, 20, -1])
    assert float(turned[0, 20, -1] - turned[-1, 20, -1]) > 1


def test_drawn_moves_look_at_the_middle_of_the_photo_and_are_slow():
    rng = np.random.default_rng(0)
    moves = [random_move((300, 400), rng) for _ in range(200)]
    assert all(
        90 <= move.centre[0] <= 210 and 120 <= move.centre[1] <= 280 and 1 <= move.zoom <= 2 for move in moves
    )
    assert max(abs(step) for move in moves for step in move.drift) < 20
    assert 0.2 < sum(move.drift == (0, 0) for move in moves) / 200 < 0.5


def test_a_part_of_a_shot_is_what_the_whole_shot_has_there(monkeypatch):
    monkeypatch.setattr(footage, "SHOT", (40, 60))
    picture = as_window(np.random.default_rng(0).integers(0, 255, (3, 200, 300)))
    move = Move((90.3, 140.7), 1.3, drift=(2.2, -0.4), growth=0.01, turn=0.02)
    whole, part = pan_over(picture, move, 3), pan_over(picture, move, 3, Place(6, 20, 16))
    assert torch.equal(part[0], whole[0][:, 6:22, 20:36])
    assert torch.equal(part[2], whole[2][:, 3:11, 10:18])


def test_crops_that_slide_over_a_photo_are_its_own_pixels_moved_by_whole_ones(monkeypatch):
    monkeypatch.setattr(footage, "REDUCED_SHARE", 0)
    texture = np.random.default_rng(0).integers(30, 220, (120, 150)).astype(np.uint8)
    grey = np.full_like(texture, 128)
    shown = (texture.astype(float) - 16) / 219  # luma of video range, without colour
    speeds = set()
    for seed in range(12):
        crops = slide_over(as_window((texture, grey, grey)), 24, 3, np.random.default_rng(seed)).numpy()
        assert crops.shape == (3, 3, 24, 24)
        places = []
        for crop in crops:
            near = np.abs(shown[:97, :127] - crop[0, 0, 0]) < 1e-5
            found = [
                (row, column)
                for row, column in zip(*near.nonzero(), strict=True)
                if np.abs(shown[row : row + 24, column : column + 24] - crop).max() < 1e-5
            ]
            places += found
        first, second, third = np.array(places)
        assert np.abs((third - second) - (second - first)).max() <= 1  # a steady speed, to whole pixels
        speeds.add(tuple(second - first))
    assert (0, 0) in speeds and len(speeds) > 4


def test_crops_that_slide_over_a_small_or_a_reduced_photo_keep_their_size():
    for size, side in [((40, 30), 24), ((20, 30), 24), ((200, 300), 24)]:
        small = as_window(np.full((3, *size), 100, np.uint8))
        for seed in range(4):
            assert slide_over(small, side, 5, np.random.default_rng(seed)).shape == (5, 3, side, side)


def test_a_single_frame_of_a_photo_is_often_its_own_pixels(tmp_path):
    texture = np.random.default_rng(0).integers(100, 140, 96 * 128).astype(np.uint8).reshape(96, 128)
    picture = as_window((texture, 0 * texture + 128, 0 * texture + 128))
    source = Footage([], [tmp_path / "a.png"], 1, 1)
    source._picture = lambda path: picture  # type: ignore[method-assign]
    luma = [source.rgb_crop(np.random.default_rng(seed), 32, 1)[0, 1] * 219 + 16 for seed in range(12)]
    places = picture[0][0].float().unfold(0, 32, 2).unfold(1, 32, 2)
    exact = [float((places - crop).abs().amax((2, 3)).min()) < 0.1 for crop in luma]
    assert 2 <= sum(exact) <= 10
