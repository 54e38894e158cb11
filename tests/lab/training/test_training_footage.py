"""Windows of clips and photos: their length, their order, their motion, and that they come again."""

from pathlib import Path

import numpy as np
import pytest
import torch
from sample_videos import write_video

from vidrestore.errors import ConfigError, MediaError
from vidrestore.lab.training.data import footage
from vidrestore.lab.training.data.footage import (
    CLIP_SUFFIXES,
    Footage,
    decode_clip,
    find_footage,
)


def luma(path: Path, frames: int, **settings: object) -> torch.Tensor:
    planes = write_video(path, frames=frames, **settings)
    return torch.from_numpy(np.stack([picture[0] for picture in planes]))


def test_a_window_is_a_stretch_of_the_clip(tmp_path):
    clip = luma(tmp_path / "a.mkv", 9)
    source = Footage([tmp_path / "a.mkv"], [], frames=5, still_share=0.5)
    for seed in range(8):
        window = source.window(np.random.default_rng(seed))
        assert [plane.shape for plane in window] == [
            (5, 48, 64),
            (5, 24, 32),
            (5, 24, 32),
        ]
        assert any(
            torch.equal(window[0], clip[first : first + 5]) for first in range(5)
        )


def test_a_long_clip_is_sometimes_taken_at_half_its_rate(tmp_path):
    clip = luma(tmp_path / "a.mkv", 12)
    source = Footage([tmp_path / "a.mkv"], [], frames=4, still_share=0)
    windows = [source.window(np.random.default_rng(seed))[0] for seed in range(24)]
    steps = [
        next(
            step
            for step in (1, 2)
            for first in range(10)
            if torch.equal(window, clip[first::step][:4])
        )
        for window in windows
    ]
    assert 0 < steps.count(2) < steps.count(1)


@pytest.mark.parametrize("count", [1, 2, 4])
def test_a_short_clip_runs_back_and_forth(tmp_path, count):
    clip = luma(tmp_path / "a.mkv", count)
    window = Footage([tmp_path / "a.mkv"], [], frames=7, still_share=0).window(
        np.random.default_rng(0)
    )
    order = np.resize([*range(count), *range(count - 2, 0, -1)], 7)
    assert torch.equal(window[0], clip[order])


def test_decoded_clips_are_kept_up_to_a_size_the_latest_used(tmp_path, monkeypatch):
    decoded: list[str] = []

    def decode(path: Path) -> tuple[torch.Tensor, ...]:
        decoded.append(path.name)
        return (torch.zeros(4, 10, 10, dtype=torch.uint8),)

    monkeypatch.setattr(footage, "decode_whole", decode)
    source = Footage(
        [Path(name) for name in "abc"], [], frames=2, still_share=0, cache_bytes=900
    )
    for name in "abacab":
        source.clips = [Path(name)]
        source.window(np.random.default_rng(0))
        assert source.cached_bytes <= 900
    assert decoded == ["a", "b", "c", "b"]


def test_ten_bit_and_gray_clips_become_8_bit_grey_levels(tmp_path):
    ten = luma(tmp_path / "ten.mkv", 2, pix_fmt="yuv420p10le")
    assert torch.equal(
        decode_clip(tmp_path / "ten.mkv")[0],
        (ten.float() / 4).round().clamp(0, 255).to(torch.uint8),
    )
    gray = luma(tmp_path / "gray.mkv", 2, pix_fmt="gray")
    assert len(decode_clip(tmp_path / "gray.mkv")) == 1
    assert torch.equal(decode_clip(tmp_path / "gray.mkv")[0], gray)


def test_a_clip_smaller_than_a_patch_is_named(tmp_path):
    luma(tmp_path / "small.mkv", 2, size=(32, 12))
    with pytest.raises(
        MediaError, match="small.mkv: frames of 32x12 are smaller than a patch of 16x16"
    ):
        Footage([tmp_path / "small.mkv"], [], frames=2, still_share=0).window(
            np.random.default_rng(0), side=16
        )


def test_a_clip_smaller_than_a_patch_is_replaced_by_others(tmp_path):
    luma(tmp_path / "small.mkv", 2, size=(32, 12))
    luma(tmp_path / "large.mkv", 2)
    source = Footage(
        [tmp_path / "small.mkv", tmp_path / "large.mkv"], [], frames=2, still_share=0
    )
    assert {
        source.window(np.random.default_rng(seed), side=16)[0].shape
        for seed in range(6)
    } == {(2, 48, 64)}


def test_footage_is_found_by_suffix_in_order_of_name_without_held_out_files(tmp_path):
    for name in ("c.mp4", "B.MKV", "a.webm", "a.txt", "held.mp4"):
        (tmp_path / name).touch()
    assert [
        path.name for path in find_footage(tmp_path, ["held.mp4"], CLIP_SUFFIXES)
    ] == [
        "B.MKV",
        "a.webm",
        "c.mp4",
    ]
    with pytest.raises(
        ConfigError,
        match="nowhere: no such folder; name .* by `data`, .* paths are relative",
    ):
        find_footage(tmp_path / "nowhere", [], CLIP_SUFFIXES)


def test_a_folder_that_can_not_be_read_is_named(tmp_path, monkeypatch):
    def refused(self: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", refused)
    with pytest.raises(
        ConfigError, match=r"the folder can't be read \(Permission denied\)"
    ):
        find_footage(tmp_path, (), CLIP_SUFFIXES)
