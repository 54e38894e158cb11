"""Whole restorations: what comes out is the source with other pixels and nothing else changed, or there is no
output at all.
"""

import itertools
import threading
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from fake_restorer import Fake, request_of
from rgb_networks import keeping, write_weights
from sample_videos import write_video
from written_videos import pictures

import vidrestore
from vidrestore.errors import MediaError, VidRestoreError
from vidrestore.events import Event, Progressed, Warned
from vidrestore.jobs import frame_progress
from vidrestore.jobs import job as jobs
from vidrestore.jobs.batch import Batch
from vidrestore.jobs.request import Step
from vidrestore.jobs.run import open_job, restore_request
from vidrestore.media.reading.reader import VideoReader
from vidrestore.media.writing.segment_file import SegmentWriter
from vidrestore.settings.options import EncoderOptions

LOSSLESS = EncoderOptions(lossless=True)
IDENTITY = "<identity>"


class Overflowing(Fake):
    """Gives NaN in one clip; in fp32 too if `hopeless`."""

    def __init__(self, hopeless: bool = False) -> None:
        super().__init__()
        self.hopeless = hopeless

    def restore(
        self, clip: Any, sigma: Any, *, precision: Any = None, **more: Any
    ) -> Any:
        self.calls.append((sigma, precision))
        if len(self.calls) == 2 or (self.hopeless and precision == "fp32"):
            return tuple(plane * torch.nan for plane in clip)
        return clip


def restore_with(
    restorer: Any, source: Path, output: Path, **options: Any
) -> vidrestore.Summary:
    request = request_of(
        source, output, encoder=LOSSLESS, scene_detect=False, **options
    )
    return restore_request(request, lambda _: restorer)


def luma(path: Path) -> list[np.ndarray]:
    """The first plane of every frame."""
    with VideoReader(str(path)) as reader:
        return [frame.planes[0].astype(int) for frame in reader.frames()]


@pytest.mark.parametrize("threads", [1, 3])
def test_clips_are_joined_in_order_whatever_number_is_restored_at_once(
    tmp_path, monkeypatch, threads
):
    monkeypatch.setattr("vidrestore.working.available_cores", lambda: 3)
    source, output = tmp_path / "in.mkv", tmp_path / "out.mkv"
    write_video(source, 10, pix_fmt="gray10le")
    restore_with(Fake(), source, output, sigma=5, threads=threads)
    # by clips [0, 6) and [4, 10); they share frames 4 and 5
    added = [0, 1, 2, 3, None, None, 2, 3, 4, 5]
    for after, before, levels in zip(luma(output), luma(source), added, strict=True):
        if levels is not None:
            np.testing.assert_array_equal(after, np.minimum(before + 4 * levels, 1023))


def test_any_range_gives_the_frames_of_a_complete_run(tmp_path):
    source, output = tmp_path / "in.mkv", tmp_path / "out.mkv"
    write_video(
        source, 23, "libx264", options={"g": "7", "bf": "2"}, pix_fmt="yuv420p10le"
    )
    restore_with(Fake(), source, output, sigma=5)
    whole = [(pts, planes) for pts, _, planes in pictures(output)]
    request = request_of(
        source, tmp_path / "other.mkv", sigma=5, encoder=LOSSLESS, scene_detect=False
    )
    with open_job(request, lambda _: Fake()) as job:
        jobs.plan_source(job)
        for first, stop in [
            (0, 1),
            (0, 6),
            (0, 23),
            (5, 7),
            (10, 18),
            (22, 23),
            (6, 23),
        ]:
            part = job.restored_part(first, stop)
            found = [
                (frame.pts, [plane.tobytes() for plane in frame.planes])
                for frame in part
            ]
            assert found == whole[first:stop]


def test_the_plan_pass_and_the_restoration_come_to_the_same_plan(tmp_path):
    source = tmp_path / "in.mkv"
    write_video(source, 23)
    plans = []
    request = request_of(source, tmp_path / "out.mkv")
    for work in (jobs.plan_source, lambda job: list(job.restored())):
        with open_job(request, lambda _: Fake()) as job:
            work(job)
            plans.append(job.plan)
    assert plans[0] == plans[1]


def test_a_given_sigma_reaches_the_model_for_each_plane(tmp_path):
    write_video(tmp_path / "in.mkv", 3)
    restorer = Fake()
    restore_with(restorer, tmp_path / "in.mkv", tmp_path / "out.mkv", sigma=12.5)
    assert restorer.calls == [((12.5, 12.5, 12.5), None)]


def test_strength_mixes_with_the_source(tmp_path):
    source = tmp_path / "in.mkv"
    write_video(source, 6, pix_fmt="gray10le")
    for strength, share in ((0.0, 0), (0.5, 2), (1.0, 4)):
        output = tmp_path / f"{strength}.mkv"
        restore_with(Fake(), source, output, sigma=5, strength=strength)
        for index, (after, before) in enumerate(
            zip(luma(output), luma(source), strict=True)
        ):
            np.testing.assert_array_equal(
                after, np.minimum(before + index * share, 1023)
            )


def test_alpha_passes_through(tmp_path):
    write_video(tmp_path / "in.mkv", 6, pix_fmt="yuva420p")
    restore_with(Fake(), tmp_path / "in.mkv", tmp_path / "out.mkv", sigma=5)
    *_, (*_, before) = pictures(tmp_path / "in.mkv")
    *_, (*_, after) = pictures(tmp_path / "out.mkv")
    assert after[3] == before[3] and after[0] != before[0]


def test_a_clip_beyond_half_precision_is_restored_again_in_fp32_and_counted(tmp_path):
    write_video(tmp_path / "in.mkv", 14)
    restorer = Overflowing()
    summary = restore_with(
        restorer, tmp_path / "in.mkv", tmp_path / "out.mkv", sigma=5, threads=1
    )
    assert summary.retried == 1
    assert [precision for _, precision in restorer.calls].count("fp32") == 1
    assert pictures(tmp_path / "out.mkv") == pictures(tmp_path / "in.mkv")


def test_nan_in_fp32_is_an_error_and_leaves_no_file(tmp_path):
    write_video(tmp_path / "in.mkv", 14)
    before = threading.active_count()
    with pytest.raises(
        VidRestoreError,
        match=r"frames \d+ to \d+: fake produced NaN or infinity, in fp32",
    ):
        restore_with(
            Overflowing(hopeless=True),
            tmp_path / "in.mkv",
            tmp_path / "out.mkv",
            sigma=5,
        )
    assert [path.name for path in tmp_path.iterdir()] == ["in.mkv"]
    assert threading.active_count() == before


def test_a_failing_encoder_leaves_nothing_behind_and_no_thread_running(
    tmp_path, monkeypatch
):
    write_video(tmp_path / "in.mkv", 30)
    before, writes = threading.active_count(), iter(range(5))

    def write(self: object, frame: object) -> None:
        if next(writes, None) is None:
            raise MediaError("the disk is full")

    monkeypatch.setattr(SegmentWriter, "write", write)
    with pytest.raises(MediaError, match="the disk is full"):
        vidrestore.restore(tmp_path / "in.mkv", tmp_path / "out.mkv", task=IDENTITY)
    assert [path.name for path in tmp_path.iterdir()] == ["in.mkv"]
    assert threading.active_count() == before


def test_frames_in_which_nothing_was_found_are_counted_in_a_warning(tmp_path):
    source, events = tmp_path / "in.mkv", []
    write_video(source, 5)
    model = write_weights(tmp_path, keeping(), "derain")
    options = {
        "task": "derain",
        "model": model,
        "device": "cpu",
        "on_event": events.append,
    }
    (task, changes), *others = vidrestore.restore(
        source, tmp_path / "out.mkv", **options
    ).changes
    assert (task, changes.frames, changes.unchanged, others) == ("derain", 5, 5, [])
    said = [event.message for event in events if isinstance(event, Warned)]
    assert said == ["no rain was found in 5 of 5 frames, which stay as they are"]


def test_events_tell_the_job_from_its_start_to_its_end(tmp_path, monkeypatch):
    write_video(tmp_path / "in.mkv", 5)
    monkeypatch.setattr(frame_progress, "PROGRESS_SECONDS", 0)
    events: list[Event] = []
    vidrestore.restore(tmp_path / "in.mkv", task=IDENTITY, on_event=events.append)
    names = [name for name, _ in itertools.groupby(event.name for event in events)]
    assert names == ["start", "progress", "plan", "progress", "done"]
    shown = [
        (event.stage, event.done) for event in events if isinstance(event, Progressed)
    ]
    for stage, each in itertools.groupby(shown, lambda item: item[0]):
        done = [number for _, number in each]
        assert done == sorted(done) and (done[0], done[-1]) == (0, 5), stage


def test_a_batch_loads_its_model_once_and_names_its_outputs(tmp_path, monkeypatch):
    folder, loaded = tmp_path / "films", list[str]()
    folder.mkdir()
    for name in ("a.mkv", "b.mkv", "a.denoised.mkv"):
        write_video(folder / name, 3)
    monkeypatch.setattr(
        "vidrestore.restorers.base.load_restorer",
        lambda task, options: loaded.append(task) or Fake(),
    )
    batch = Batch([str(folder)], f"{tmp_path}/out/", [Step("denoise")])
    assert [
        batch.restore(batch.request(source)).frames for source in batch.sources
    ] == [3, 3]
    again = batch.request(batch.sources[0]).with_options(restart=True, overwrite=True)
    assert batch.restore(again).frames == 3
    assert loaded == ["denoise"]
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == [
        "a.denoised.mkv",
        "b.denoised.mkv",
    ]


def test_names_that_clash_keep_their_suffixes(tmp_path):
    sources = [f"{tmp_path}/a.{suffix}" for suffix in ("ts", "avi", "mp4")]
    outputs = Batch(sources, None, [Step("denoise")]).outputs.values()
    names = [target.path.name for target in outputs]
    assert names == ["a.ts.denoised.mkv", "a.avi.denoised.mkv", "a.denoised.mp4"]


@pytest.mark.parametrize("name", ["out.mkv", "out.mp4"])
def test_sound_that_an_edit_list_hides_is_not_heard_in_the_result(tmp_path, name):
    write_video(
        tmp_path / "whole.mkv", 50, "libx264", options={"bf": "0"}, sound=Fraction(2)
    )
    hidden = Fraction(1)
    with (
        av.open(str(tmp_path / "whole.mkv")) as source,
        av.open(str(tmp_path / "in.mp4"), "w") as output,
    ):
        streams = {
            stream.index: output.add_stream_from_template(stream)
            for stream in source.streams
        }
        for packet in source.demux():
            if packet.size:
                early = round(hidden / packet.time_base)
                packet.dts = (packet.pts if packet.dts is None else packet.dts) - early
                packet.pts -= early
                packet.stream = streams[packet.stream_index]
                output.mux(packet)
    vidrestore.restore(tmp_path / "in.mp4", tmp_path / name, task=IDENTITY)
    with av.open(str(tmp_path / name)) as made:
        heard = [
            (frame.time, frame.samples / frame.sample_rate)
            for frame in made.decode(audio=0)
        ]
    warm_up = 0.05  # a packet or two, which a decoder begins with
    assert -warm_up < heard[0][0] and sum(
        length for _, length in heard
    ) == pytest.approx(1, abs=2 * warm_up)
