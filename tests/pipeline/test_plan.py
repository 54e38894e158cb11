"""Planning while frames go by: clips, scenes, noise; and the plan as JSON."""

from collections.abc import Iterator

import numpy as np
import pytest
from scenes_of_noise import scene_frames

from vidrestore.errors import MediaError, PlanError
from vidrestore.media.formats.encoder_table import EncoderChoice
from vidrestore.media.formats.source import Source, SourceIdentity
from vidrestore.noise.meter import NoiseMeter, PlaneNoise
from vidrestore.pipeline.plan import (
    Clip,
    Plan,
    Scene,
    Timeline,
    loss_levels,
    planned_clips,
    planned_range,
)
from vidrestore.pixels.clips import clip_bounds, longest_clip
from vidrestore.pixels.frames import Frame, PixelFormat

YUV = PixelFormat("yuv420p", "yuv", 8, 1, 1)
LENGTH, OVERLAP = 8, 2
SCENES = {
    "one": [21],
    "two": [9, 30],
    "short ones": [5, 6, 8, 14],
    "a frame": [1],
    "nothing": [],
}


def empty() -> Timeline:
    return Timeline(LENGTH, OVERLAP)


def planned(frames: list[Frame], sigma: float | None = 5.0) -> Timeline:
    timeline = empty()
    for _ in planned_clips(frames, timeline, YUV, sigma):
        pass
    return timeline


def plan_of(timeline: Timeline) -> Plan:
    encoder = EncoderChoice("ffv1", "yuv420p", "matroska", {"level": "3"})
    return Plan(
        SourceIdentity("video.mkv", 1, 2, "ab"),
        "out.mkv",
        "denoise",
        encoder,
        (1, 2),
        timeline,
    )


def cuts_of(lengths: list[int]) -> list[int]:
    return list(np.cumsum(lengths[:-1])) if lengths else []


@pytest.mark.parametrize("lengths", SCENES.values(), ids=SCENES)
def test_clips_of_a_stream_are_those_of_the_video_at_once(lengths):
    frames = scene_frames(lengths)
    timeline = planned(frames)
    assert timeline.cuts == cuts_of(lengths)
    assert timeline.bounds == clip_bounds(len(frames), timeline.cuts, LENGTH, OVERLAP)
    assert list(timeline.pts) == [frame.pts for frame in frames]
    assert list(timeline.durations) == [10] * len(frames)


def test_every_clip_comes_with_its_own_frames_and_is_the_last_of_the_plan():
    frames, timeline = scene_frames([9, 30]), empty()
    for number, (clip, held) in enumerate(planned_clips(frames, timeline, YUV, 5.0), 1):
        assert [frame.pts for frame in held] == [
            frame.pts for frame in frames[clip.first : clip.stop]
        ]
        assert timeline.clips[-1] == clip and len(timeline.clips) == number
    assert timeline.clips[0] == Clip(0, 9, (5.0, 5.0, 5.0))


def test_without_scene_detection_there_are_no_cuts():
    timeline = empty()
    list(planned_clips(scene_frames([6, 6]), timeline, YUV, 5.0, detect=False))
    assert (timeline.cuts, timeline.bounds) == ([], [(0, 8), (6, 12)])


def test_a_clip_is_decided_after_the_detectors_look_ahead_and_no_later():
    read = 0

    def frames() -> Iterator[Frame]:
        nonlocal read
        for frame in scene_frames([40]):
            read += 1
            yield frame

    next(planned_clips(frames(), empty(), YUV, 5.0))
    assert read == longest_clip(LENGTH) + 1 + 3


def test_measured_sigma_is_near_the_truth_in_every_clip_of_every_scene():
    frames = scene_frames([20], noise=6, height=192, width=256) + scene_frames(
        [20], noise=18, height=192, width=256, seed=1
    )
    clips = planned(
        [Frame(frame.planes, index) for index, frame in enumerate(frames)], sigma=None
    ).clips
    for clip in clips:
        np.testing.assert_allclose(clip.sigma, 6 if clip.first < 20 else 18, rtol=0.1)
    assert {clip.first < 20 for clip in clips} == {True, False}


@pytest.mark.parametrize("parities", [(0, 0), (0, 1), (1, 0)])
def test_noise_of_deinterlaced_frames_is_that_of_their_real_rows(parities):
    frames = scene_frames([20], noise=10, height=192, width=256)
    for index, frame in enumerate(frames):
        frame.real_rows = parity = parities[index % 2]
        for plane in frame.planes:
            real = plane[parity::2].astype(int)
            plane[1 - parity :: 2] = (real + np.roll(real, 2 * parity - 1, 0)) // 2
    for clip in planned(frames, sigma=None).clips:
        np.testing.assert_allclose(clip.sigma, 10, rtol=0.1)
        np.testing.assert_allclose(clip.rms, 10, rtol=0.1)


def test_coarse_noise_of_colour_in_fields_is_taken_for_the_mean_of_its_strength_and_sigma(
    monkeypatch,
):
    monkeypatch.setattr(NoiseMeter, "noise", lambda meter: (PlaneNoise(20.0, 5.0),) * 3)
    frames = scene_frames([9])
    for frame in frames:
        frame.real_rows = 0
    for clip in planned(frames, sigma=None).clips:
        assert clip.sigma == (5, 10, 10)
        assert clip.rms == (5, 5, 5)


def test_measured_sigma_of_red_green_and_blue_is_theirs():
    rng = np.random.default_rng(4)
    rows, columns = np.mgrid[:192, :256]
    scene = 128 + 50 * np.sin(rows / 40) * np.cos(columns / 30)
    frames = [
        Frame(
            tuple(
                np.rint(scene + rng.normal(0, 12, scene.shape)).astype(np.uint8)
                for _ in range(3)
            ),
            at,
        )
        for at in range(9)
    ]
    timeline = empty()
    for _ in planned_clips(frames, timeline, PixelFormat("gbrp", "rgb", 8), None):
        pass
    for clip in timeline.clips:
        np.testing.assert_allclose(clip.sigma, 12, rtol=0.1)
        np.testing.assert_allclose(clip.rms, 12, rtol=0.1)


@pytest.mark.parametrize(
    "length, looks",
    [
        (1, [[0]]),
        (5, [[0, 1, 2, 3]]),  # the last frame alone shows no differences
        (8, [[0, 1, 2, 3], [4, 5, 6, 7]]),
        (18, [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [16, 17]]),
    ],
)
def test_noise_is_looked_at_twice_in_a_short_scene_and_then_every_eight_frames(
    length, looks, monkeypatch
):
    seen = []
    monkeypatch.setattr(
        NoiseMeter,
        "add",
        lambda _, frames: seen.append([int(f[0][0, 0]) for f in frames]),
    )
    frames = [Frame((np.full((16, 16), at, np.uint8),), at) for at in range(length)]
    list(
        planned_clips(
            frames, Timeline(20, 4), PixelFormat("gray", "gray", 8), None, detect=False
        )
    )
    assert seen == looks


def test_scenes_carry_the_noise_of_their_last_clip():
    timeline = planned(scene_frames([20, 9], noise=10), sigma=None)
    assert [(scene.first, scene.stop) for scene in timeline.scenes] == [
        (0, 20),
        (20, 29),
    ]
    assert [scene.sigma for scene in timeline.scenes] == [
        next(clip.sigma for clip in timeline.clips if clip.stop == stop)
        for stop in (20, 29)
    ]


def test_a_range_of_clips_gets_the_same_frames_as_in_a_complete_run():
    frames = scene_frames([9, 30])
    plan = plan_of(planned(frames))
    first = plan.timeline.clips[2].first
    for clip, held in planned_range(frames[first:], plan, range(2, 5)):
        assert [frame.pts for frame in held] == [
            10 * index for index in range(clip.first, clip.stop)
        ]


def test_a_range_from_a_source_that_has_changed_is_refused():
    frames = scene_frames([20])
    plan = plan_of(planned(frames))
    frames[5].pts += 1
    with pytest.raises(
        PlanError, match=r"frame 5: found time 51, but the plan has time 50"
    ):
        list(planned_range(frames, plan, range(2)))


def test_a_loss_of_chroma_alone_is_named():
    assert Scene(0, 9, (0.0, 2.5, 2.5), (0.0,) * 3, (0.0, 2.5, 2.5)).noise.endswith(
        "; coding 2.5"
    )


@pytest.mark.parametrize("factor, decided", [(1, False), (50, True)])
def test_the_larger_of_noise_and_coding_loss_is_removed_and_both_are_reported(
    factor, decided
):
    frames = scene_frames([12], noise=3)
    plain = planned(frames, sigma=None).scenes[0]
    for index, frame in enumerate(frames):
        frame.loss = (factor * 1.0, 0.0) if index % 2 else (factor * 2.0, 0.0)
    (scene,) = planned(frames, sigma=None).scenes
    assert scene.loss == (1.5 * factor, 0.0, 0.0) and scene.rms == plain.rms
    assert scene.sigma == (
        (1.5 * factor if decided else plain.sigma[0]),
        *plain.sigma[1:],
    )
    assert scene.noise.endswith(f"; coding {1.5 * factor:.1f}")
    assert scene.noise.startswith(
        f"luma {plain.rms[0]:.1f}; " if decided else plain.noise
    )


@pytest.mark.parametrize(
    ("losses", "levels"),
    [
        ([3, 3, 3, 3], ()),
        ([3, 5, 3, 5], ()),  # as those of pictures with and without references
        ([2, 2, 6, 6], (0.5, 0.5, 1.5, 1.5)),
        ([2, 4, 8, 6], (0.4, 0.8, 1.4, 1.4)),
        ([0, 0, 2, 2.2], (0, 0, 2, 2)),
        ([0, 0, 0, 0], ()),
    ],
)
def test_frames_of_a_clip_differ_by_at_most_three_levels_of_coding_loss(losses, levels):
    assert loss_levels(losses) == pytest.approx(levels)


def test_a_rising_quantiser_is_followed_within_a_scene():
    frames = scene_frames([13])
    for index, frame in enumerate(frames):
        frame.loss = (500.0, 300.0) if index >= 8 else (100.0, 60.0)
    first, second = planned(frames, sigma=None).clips  # frames 0 to 7 and 6 to 12
    assert first.loss == (100, 60, 60) and first.coding == ((1.0,) * 8,) * 3
    mean = (2 * 100 + 5 * 500) / 7
    assert second.loss == pytest.approx((mean, 0.6 * mean, 0.6 * mean))
    assert second.coding == (pytest.approx((100 / mean,) * 2 + (500 / mean,) * 5),) * 3


@pytest.mark.parametrize(
    ("count", "loss", "sigma"), [(12, 200.0, 300.0), (1, 200.0, 200.0), (12, 1.0, None)]
)
def test_several_jpegs_whose_coding_decides_are_denoised_more(count, loss, sigma):
    frames = scene_frames([count], noise=3)
    plain = planned(frames, sigma=None).clips[-1]
    for frame in frames:
        frame.loss, frame.steps = (loss, loss), (np.ones((8, 8)),) * 3
    clip = planned(frames, sigma=None).clips[-1]
    assert clip.sigma == (plain.sigma if sigma is None else (sigma,) * 3)
    assert clip.loss == ((sigma or loss),) * 3
    assert all(clip.coding) == (sigma == 300.0)


def test_planes_whose_noise_decides_have_the_same_sigma_in_all_frames():
    clip = Clip(0, 3, (9.0, 4.0), (8.0, 0.0), (2.0, 4.0), (0.5, 0.5, 2.0))
    assert clip.coding == ((), (0.5, 0.5, 2.0))
    assert Clip(0, 2, (4.0,), (), (4.0,)).coding == ((1.0, 1.0),)
    assert Clip(0, 1, (4.0,), (), (4.0,)).coding == ((),)  # a photograph


def test_a_given_sigma_is_all_that_is_removed():
    frames = scene_frames([12])
    for frame in frames:
        frame.loss = (5.0, 3.0)
    assert planned(frames, sigma=0.0).scenes[0].sigma == (0.0, 0.0, 0.0)


def test_a_source_that_is_gone_is_named(tmp_path):
    with pytest.raises(MediaError, match="gone.mkv: the file can't be read any more"):
        Source(str(tmp_path / "gone.mkv")).identity()
