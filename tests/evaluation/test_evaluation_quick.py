"""Videos without reference: flicker of known size, motion that is no flicker, and a restoration from end to
end.
"""

import shutil
from pathlib import Path

import av
import numpy as np
import pytest
import torch
from command_line import run

from vidrestore.errors import MediaError, OptionError
from vidrestore.evaluation import evaluate
from vidrestore.evaluation.quick import (
    MEDIAN_OF_NORMAL,
    SECONDS,
    Measurement,
    add_flicker,
    flicker,
    measure_both,
)
from vidrestore.models.matching import Grid, fixed_positions
from vidrestore.noise import NoiseEstimator
from vidrestore.options import RestoreOptions
from vidrestore.weights import locate, read_manifest


def texture(height: int = 96, width: int = 128) -> np.ndarray:
    smooth = np.random.default_rng(2).normal(0, 1, (height // 4, width // 4)).repeat(4, 0).repeat(4, 1)
    return 128 + 30 * smooth


def write_video(path: Path, frames: list[np.ndarray]) -> None:
    """Gray frames, stored without loss."""
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=25)
        stream.height, stream.width, stream.pix_fmt = *frames[0].shape, "gray"
        for frame in frames:
            stored = av.VideoFrame.from_ndarray(frame.round().clip(0, 255).astype(np.uint8), "gray")
            container.mux(stream.encode(stored))
        container.mux(stream.encode(None))


def test_flicker_is_what_patches_change_from_frame_to_frame():
    still = torch.from_numpy(texture()).float()
    pulsing = torch.stack([still + offset for offset in (0.0, 3.0, 1.0, 1.0)])
    positions = fixed_positions(4, Grid(96, 128, 16, 16))
    assert flicker(pulsing, positions) == pytest.approx(
        [3 / MEDIAN_OF_NORMAL, 2 / MEDIAN_OF_NORMAL, 0], abs=1e-4
    )


def test_of_normal_changes_it_is_their_standard_deviation():
    rng = torch.Generator().manual_seed(3)
    # a mean of 256 pixels deviates by 1, a difference of two by 1.41
    noise = torch.randn(2, 320, 480, generator=rng) * 16
    assert flicker(noise, fixed_positions(2, Grid(320, 480, 16, 16)))[0] == pytest.approx(2**0.5, rel=0.08)


def test_what_moves_does_not_flicker():
    large = texture(128, 256)
    moving = [torch.from_numpy(large[8:104, 3 * time : 128 + 3 * time]).float() for time in range(6)]
    side = Measurement(NoiseEstimator())
    add_flicker([side, side], [list(moving), list(moving)])
    assert len(side.flicker) == 10 and max(side.flicker) < 0.2
    at_one_place = flicker(torch.stack(moving), fixed_positions(6, Grid(96, 128, 16, 16)))
    assert min(at_one_place) > 2


def test_only_the_last_frame_is_kept_for_the_next_stretch():
    frames = [torch.from_numpy(texture()).float() + offset for offset in (0.0, 2.0)]
    held = [list(frames), list(frames)]
    sides = [Measurement(NoiseEstimator()), Measurement(NoiseEstimator())]
    add_flicker(sides, held)
    assert [len(planes) for planes in held] == [1, 1] and torch.equal(held[0][0], frames[1])
    assert sides[0].flicker == pytest.approx([2 / MEDIAN_OF_NORMAL], abs=1e-3)


def test_a_video_is_less_noisy_and_steadier_after_denoising(tmp_path):
    rng = np.random.default_rng(5)
    clean = 128 + 50 * np.sin(np.mgrid[:96, :128][0] / 30)
    write_video(tmp_path / "noisy.mkv", [clean + rng.normal(0, 20, clean.shape) for _ in range(23)])
    found = evaluate("quick", videos=[tmp_path / "noisy.mkv"], seconds=0.88, device="cpu")
    (row,) = found.rows
    assert (row.system, row.on, row.weights, row.count) == ("denoise", "noisy.mkv", "dust-denoise", 22)
    assert row.reference["noise"] == pytest.approx(20, rel=0.1) and row.measured["noise"] < 4
    assert row.measured["flicker"] < row.reference["flicker"] == pytest.approx(2**0.5 * 20 / 16, rel=0.15)
    given, restored = found.clips
    assert len(given.frames["flicker"]) == len(restored.frames["flicker"]) == 21
    assert (
        restored.comparison is not None
        and restored.comparison.given.shape == (96, 128, 3)
        and restored.comparison.clean is None
    )
    assert found.against == "before"


def test_videos_of_one_name_are_distinguished_and_damage_is_noted(tmp_path):
    videos = [tmp_path / folder / "video.mkv" for folder in ("a", "b")]
    for path in videos:
        path.parent.mkdir()
        write_video(path, [texture()] * 8)
    whole = videos[1].read_bytes()
    videos[1].write_bytes(whole[: len(whole) * 3 // 4])
    found = evaluate("quick", videos=videos, device="cpu")
    assert (
        [row.on for row in found.rows]
        == list(dict.fromkeys(clip.clip for clip in found.clips))
        == [str(path) for path in videos]
    )
    (note,) = found.notes
    assert note.startswith(f"{videos[1]}: the source is damaged")


def test_weights_of_one_name_are_distinguished_and_the_same_twice_counts_once(tmp_path):
    write_video(tmp_path / "video.mkv", [texture()] * 3)
    bundled = locate(read_manifest()["dust-denoise"])
    assert bundled is not None
    copy = shutil.copy(bundled, tmp_path)
    found = evaluate(
        "quick", videos=[tmp_path / "video.mkv"], weights=["dust-denoise", copy, copy], device="cpu"
    )
    assert [row.weights for row in found.rows] == ["dust-denoise", str(copy)]
    assert [clip.weights for clip in found.clips] == ["", "dust-denoise", "", str(copy)]


def test_a_cut_is_no_flicker(tmp_path):
    rng = np.random.default_rng(6)
    first, second = 60 + rng.integers(0, 40, (96, 128)), 180 - texture() / 2
    write_video(tmp_path / "video.mkv", [first] * 9 + [second] * 9)
    before, after = measure_both(tmp_path / "video.mkv", tmp_path / "video.mkv", 18, {0, 9})
    assert len(before.flicker) == 16 and max(before.flicker) == 0 and after.flicker == before.flicker
    (with_cut, _) = measure_both(tmp_path / "video.mkv", tmp_path / "video.mkv", 18, {0})
    assert len(with_cut.flicker) == 17 and max(with_cut.flicker) > 5


QUICK = {"suite": "quick", "videos": ["video.mp4"]}


@pytest.mark.parametrize(
    "given, message",
    [
        ({"suite": "quick"}, "name at least one video"),
        (QUICK | {"suite": "bundled"}, "videos are for `suite=quick`"),
        (QUICK | {"weights": ["dust-cs20"]}, "weights for 'recover'; quick compares videos of one size"),
        *((QUICK | {"seconds": bad}, "must be a number above 0, got") for bad in (np.nan, np.inf, 0.0)),
        (QUICK | {"data": "folder"}, "`data` is for the other suites; name videos"),
        ({"suite": "bundled", "seconds": 10.0}, "`seconds` is for `suite=quick`"),
        ({"suite": "vsr-table3", "data": "folder", "seconds": 10.0}, "`seconds` is for `suite=quick`"),
        ({"config": "a.toml", "seconds": 10.0}, "`seconds` is for `suite=quick`"),
    ],
)
def test_what_a_suite_lacks_or_has_no_use_for_is_refused(given, message):
    with pytest.raises(OptionError, match=message):
        evaluate(**given)


def test_the_command_restores_with_the_threads_that_it_is_given(tmp_path, monkeypatch):
    asked: list[RestoreOptions] = []

    def restore(*videos: Path, task: str, options: RestoreOptions) -> None:
        asked.append(options)
        raise MediaError("enough")

    monkeypatch.setattr("vidrestore.restore", restore)
    before = torch.get_num_threads()
    run("eval", "--suite", "quick", "video.mp4", "--threads", "1", "--device", "cpu")
    torch.set_num_threads(before)
    # as the help says
    assert [(options.threads, options.duration) for options in asked] == [(1, SECONDS)] == [(1, 10)]
