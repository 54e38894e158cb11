"""Videos restored in segments: for any length of a segment and any end of a run, the frames are those of an
undisturbed run.
"""

import json
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from itertools import groupby
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from fake_restorer import Fake, request_of
from long_videos import long_video
from rgb_networks import write_weights
from sample_videos import cut_short, noise, sound_packets, write_video
from scenes_of_noise import scene_frames
from taylor_networks import small
from vsr_networks import recurrent
from written_videos import packets, pictures

import vidrestore
from vidrestore.errors import Cancelled, MediaError, PlanError
from vidrestore.events import Event, Planned, Progressed, Warned, ignore_event
from vidrestore.files.atomic import Partial
from vidrestore.jobs import plan_ahead, segmented
from vidrestore.jobs.resume import VERSION, DifferentJobError, WorkFolder
from vidrestore.jobs.run import open_job, restore_request
from vidrestore.jobs.segmented import Segment, SegmentedWork, consecutive, segments_of
from vidrestore.media.reading.reader import VideoReader
from vidrestore.media.writing import encoders
from vidrestore.media.writing.segment_file import SegmentWriter
from vidrestore.pipeline.plan import Clip, Timeline
from vidrestore.settings.options import EncoderOptions
from vidrestore.working import HERE

FFV1 = EncoderOptions(lossless=True)
X264 = EncoderOptions(encoder="libx264", preset="veryfast")


class Killed(Exception):
    """What ends a run in these tests, as SIGKILL does: the segment that was begun is lost."""


@pytest.fixture(autouse=True)
def short_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segmented, "LENGTH", 8)


def restore(
    source: Path, output: Path, told: list[Event] | None = None, **options: Any
) -> vidrestore.Summary:
    """Clips of 6 frames with 2 shared, each frame brighter by its place in the clip, so that a wrong join
    shows.
    """
    request = request_of(source, output, **{"encoder": FFV1, "sigma": 5} | options)
    return restore_request(
        request, lambda _: Fake(), ignore_event if told is None else told.append
    )


def stop_after(monkeypatch: pytest.MonkeyPatch, segments: int, frames: int = 3) -> None:
    """End the run when so many segments are finished and `frames` of the next are written."""
    finish, write = SegmentWriter.finish, SegmentWriter.write
    finished = 0

    def counting(self: SegmentWriter, *arguments: Any) -> Any:
        nonlocal finished
        finished += 1
        return finish(self, *arguments)

    def stopping(self: SegmentWriter, frame: Any) -> None:
        if finished == segments and self.frames == frames:
            raise Killed
        write(self, frame)

    monkeypatch.setattr(SegmentWriter, "finish", counting)
    monkeypatch.setattr(SegmentWriter, "write", stopping)


def stop_run(source: Path, output: Path, segments: int, **options: Any) -> Path:
    """Run until `segments` segments are finished; gives the work folder."""
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        stop_after(patch, segments)
        restore(source, output, **options)
    assert not output.exists()
    return WorkFolder(str(output), options.get("work_dir")).path


def warnings_of(events: list[Event]) -> list[str]:
    return [event.message for event in events if isinstance(event, Warned)]


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """46 frames of two scenes in H.264 with B-frames, at varying times, with sound."""
    path = tmp_path / "in.mkv"
    times = [frame * 40 + (frame % 3) * 7 for frame in range(46)]
    scenes = scene_frames([19, 27])
    with av.open(str(path), "w") as output:
        stream = output.add_stream(
            "libx264", rate=25, options={"qp": "0", "g": "11", "bf": "2"}
        )
        stream.width, stream.height, stream.pix_fmt = 64, 48, "yuv420p"
        stream.time_base = stream.codec_context.time_base = Fraction(1, 1000)
        sound = output.add_stream("pcm_s16le", rate=16000, layout="mono")
        made = []
        for time, frame in zip(times, scenes, strict=True):
            shown = av.VideoFrame.from_ndarray(
                np.concatenate([plane.reshape(-1, 64) for plane in frame.planes]),
                "yuv420p",
            )
            shown.pts, shown.time_base = time, Fraction(1, 1000)
            made += stream.encode(shown)
        made += stream.encode(None)
        made += sound_packets(sound, 2 * 16000, step=800, fill=noise())
        for packet in sorted(made, key=lambda packet: packet.dts * packet.time_base):
            output.mux(packet)
    return path


# Where segments begin


@pytest.mark.parametrize(
    "length, cuts, stops",
    [(9, [], [10, 22]), (12, [6, 14], [6, 14, 22]), (13, [6], [14, 22])],
    ids=["long enough", "half as long and a scene", "less than half"],
)
def test_a_segment_ends_with_the_clip_that_makes_it_long_enough(length, cuts, stops):
    clips = [Clip(max(0, stop - 6), stop, (0.0,)) for stop in (6, 10, 14, 18, 22)]
    found = list(segments_of(Timeline(6, 2, cuts=cuts, clips=clips), length))
    assert found == [
        Segment(*each) for each in zip(range(9), [0, *stops], stops, strict=False)
    ]


def test_runs_are_segments_that_follow_each_other():
    segments = [Segment(0, first, first + 2) for first in (0, 2, 6, 10, 12)]
    found = [[segment.first for segment in run] for run in consecutive(segments)]
    assert found == [[0, 2], [6], [10, 12]]


# The same video for any length of a segment


@pytest.mark.parametrize("length", [1, 7, 12, 23])
def test_restored_frames_are_the_same_whatever_the_length_of_a_segment(
    tmp_path, source, length, monkeypatch
):
    for frames, name in ((1000, "whole.mkv"), (length, "cut.mkv")):
        monkeypatch.setattr(segmented, "LENGTH", frames)
        restore(source, tmp_path / name)
    assert pictures(tmp_path / "cut.mkv") == pictures(tmp_path / "whole.mkv")
    assert packets(tmp_path / "cut.mkv")[1] == packets(tmp_path / "whole.mkv")[1] != []
    assert names(tmp_path) == ["cut.mkv", "in.mkv", "whole.mkv"]


@pytest.mark.parametrize("sigma", [5, "auto"])
@pytest.mark.parametrize(
    "encoder, name",
    [(FFV1, "out.mkv"), (X264, "out.mkv"), (X264, "out.mp4")],
    ids=["ffv1", "x264-mkv", "x264-mp4"],
)
def test_a_run_that_was_stopped_resumes_to_the_file_of_an_undisturbed_one(
    tmp_path, source, encoder, name, sigma
):
    restore(source, tmp_path / f"whole.{name}", encoder=encoder, sigma=sigma)
    for segments in (1, 3):
        stop_run(source, tmp_path / name, segments, encoder=encoder, sigma=sigma)
    told: list[Event] = []
    summary = restore(source, tmp_path / name, told, encoder=encoder, sigma=sigma)
    assert (tmp_path / name).read_bytes() == (tmp_path / f"whole.{name}").read_bytes()
    assert summary.frames == 46 and 0 < summary.reused < 46
    assert [event.reused for event in told if isinstance(event, Planned)] == [
        summary.reused
    ]
    assert names(tmp_path) == sorted(["in.mkv", name, f"whole.{name}"])


def test_only_what_is_missing_is_restored_again(tmp_path, source, monkeypatch):
    folder = stop_run(source, tmp_path / "out.mkv", 4)
    before = {path.name: path.stat().st_mtime_ns for path in folder.glob("*.segment")}
    lost = sorted(before)[1]
    (folder / lost).unlink()
    made: list[str] = []
    finish = SegmentWriter.finish
    monkeypatch.setattr(
        SegmentWriter,
        "finish",
        lambda self, label: made.append(self.path.name) or finish(self, label),
    )
    restore(source, tmp_path / "out.mkv")
    assert len(before) == 4 and made[0] == lost and not {*before} & {*made[1:]}


def test_encoders_get_the_durations_of_the_plan_whatever_a_decoder_gives_after_a_jump(
    tmp_path, source, monkeypatch
):
    stop_run(source, tmp_path / "out.mkv", 2)
    frames, write, given = VideoReader.frames, SegmentWriter.write, dict[int, int]()

    def odd(
        self: VideoReader, start_pts: int | None = None, stop_pts: int | None = None
    ) -> Iterator[Any]:
        for frame in frames(self, start_pts, stop_pts):
            frame.duration = frame.duration if start_pts is None else 400
            yield frame

    monkeypatch.setattr(VideoReader, "frames", odd)

    def noted(self: SegmentWriter, frame: Any) -> None:
        given[frame.pts] = frame.duration
        write(self, frame)

    monkeypatch.setattr(SegmentWriter, "write", noted)
    restore(source, tmp_path / "out.mkv")
    expected = {pts: duration for pts, duration, _ in pictures(source)}
    assert 20 < len(given) < 46 and given.items() <= expected.items()


def test_pieces_of_a_video_are_restored_the_same_when_stopped(tmp_path):
    path = long_video(tmp_path / "in.mkv", times=[40 * number for number in range(60)])
    part = {"start": Fraction(1, 2), "duration": Fraction(3, 2)}
    restore(path, tmp_path / "whole.mkv", **part)
    stop_run(path, tmp_path / "out.mkv", 2, **part)
    restore(path, tmp_path / "out.mkv", **part)
    assert (tmp_path / "out.mkv").read_bytes() == (tmp_path / "whole.mkv").read_bytes()


def test_a_damaged_video_has_the_same_frames_and_warning_after_a_stop(tmp_path, source):
    cut_short(source, 0.8)
    whole = restore(source, tmp_path / "whole.mkv")
    stop_run(source, tmp_path / "out.mkv", 2)
    summary = restore(source, tmp_path / "out.mkv")
    assert (summary.exit_code, summary.damage) == (4, whole.damage)
    assert (tmp_path / "out.mkv").read_bytes() == (tmp_path / "whole.mkv").read_bytes()


# While the plan is unfinished


@contextmanager
def planning_paused(clips: int, until: Callable[[], object]) -> Iterator[None]:
    """When so many clips are planned, planning calls `until`."""
    count, check_stop = 0, plan_ahead.check_stop

    def pausing() -> None:
        nonlocal count
        count += 1
        if count == clips:
            until()
        check_stop()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan_ahead, "check_stop", pausing)
        yield


def test_the_first_segment_is_restored_while_the_rest_is_planned(
    tmp_path, source, monkeypatch
):
    restore(source, tmp_path / "whole.mkv")
    is_written, finish, told = threading.Event(), SegmentWriter.finish, list[Event]()

    def finishing(self: SegmentWriter, label: Any) -> Any:
        is_written.set()
        return finish(self, label)

    monkeypatch.setattr(SegmentWriter, "finish", finishing)
    waits: list[bool] = []
    with planning_paused(8, lambda: waits.append(is_written.wait(60))):
        restore(source, tmp_path / "out.mkv", told, threads=1)
    assert waits == [True]
    assert (tmp_path / "out.mkv").read_bytes() == (tmp_path / "whole.mkv").read_bytes()
    stages = [event.stage for event in told if isinstance(event, Progressed)]
    assert list(dict.fromkeys(stages)) == [stage for stage, _ in groupby(stages)]


@pytest.mark.parametrize("sigma", [5, "auto"])
def test_a_run_that_was_killed_while_it_planned_resumes_to_the_same_file(
    tmp_path, source, sigma
):
    restore(source, tmp_path / "whole.mkv", sigma=sigma)
    # until planning is to end
    with planning_paused(8, lambda: HERE.flag and HERE.flag.wait(60)):
        stop_run(source, tmp_path / "out.mkv", 1, sigma=sigma, threads=1)
    assert names(tmp_path / "out.mkv.vidrestore") == [
        "00000000-00000010.segment",
        "job.json",
    ]
    assert restore(source, tmp_path / "out.mkv", sigma=sigma).reused == 10
    assert (tmp_path / "out.mkv").read_bytes() == (tmp_path / "whole.mkv").read_bytes()


def test_an_error_of_planning_ends_the_run_and_what_was_restored_stays(
    tmp_path, source, monkeypatch
):
    restore(source, tmp_path / "whole.mkv")
    is_written, finish = threading.Event(), SegmentWriter.finish

    def failing() -> None:
        assert is_written.wait(60)
        raise MediaError("frame 30: 640x352, but the stream began at 640x360")

    def finishing(self: SegmentWriter, label: Any) -> Any:
        facts = finish(self, label)
        is_written.set()
        return facts

    monkeypatch.setattr(SegmentWriter, "finish", finishing)
    told: list[Event] = []
    with (
        planning_paused(8, failing),
        pytest.raises(MediaError, match="frame 30: 640x352"),
    ):
        restore(source, tmp_path / "out.mkv", told, threads=1)
    assert "the same command resumes from there" in warnings_of(told)[-1]
    assert restore(source, tmp_path / "out.mkv").reused >= 10
    assert (tmp_path / "out.mkv").read_bytes() == (tmp_path / "whole.mkv").read_bytes()


# What is left behind


@pytest.mark.parametrize("error", [KeyboardInterrupt, Cancelled])
@pytest.mark.parametrize("frames", [1, 5, 6, 13])
def test_a_run_that_is_stopped_keeps_every_frame_that_it_has_restored(
    tmp_path, source, monkeypatch, frames, error
):
    restore(source, tmp_path / "whole.mkv")
    output, write, written = tmp_path / "out.mkv", SegmentWriter.write, list[int]()

    def counted(given: Iterator[Any], *more: Any) -> Iterator[Any]:
        for frame in given:
            if len(written) == frames:
                raise error
            yield frame

    with monkeypatch.context() as patch, pytest.raises(error):
        patch.setattr(segmented, "counted", counted)
        patch.setattr(
            SegmentWriter,
            "write",
            lambda self, frame: written.append(frame.pts) or write(self, frame),
        )
        restore(source, output)
    told: list[Event] = []
    assert restore(source, output, told).reused == frames
    assert pictures(output) == pictures(tmp_path / "whole.mkv")
    assert names(tmp_path) == ["in.mkv", "out.mkv", "whole.mkv"]


def test_a_segment_holds_a_minute_of_work_and_ends_with_a_clip(
    tmp_path, source, monkeypatch
):
    restore(source, tmp_path / "whole.mkv")
    monkeypatch.setattr(segmented, "LENGTH", 1000)
    monkeypatch.setattr(segmented, "MINUTE", 0)
    stops = [
        int(name[9:17])
        for name in names(stop_run(source, tmp_path / "out.mkv", 3))
        if name[0] == "0"
    ]
    assert stops == [6, 10, 14]
    assert restore(source, tmp_path / "out.mkv").reused == 14
    assert pictures(tmp_path / "out.mkv") == pictures(tmp_path / "whole.mkv")


def test_a_job_that_was_begun_keeps_its_encoders_threads(tmp_path, source, monkeypatch):
    events: list[Event] = []
    for cores, run in ((8, stop_run), (2, restore)):
        monkeypatch.setattr(
            encoders, "encoder_threads", lambda *given, cores=cores: cores
        )
        run(source, tmp_path / "out.mkv", 2 if cores == 8 else events, encoder=X264)
    assert [
        event.details["encoder_threads"]
        for event in events
        if isinstance(event, Planned)
    ] == [8]


def test_unfinished_work_lies_in_the_folder_asked_for(tmp_path, source):
    (tmp_path / "work").mkdir()
    folder = stop_run(source, tmp_path / "out.mkv", 2, work_dir=str(tmp_path / "work"))
    assert folder.parent == tmp_path / "work" and folder.is_dir()
    restore(source, tmp_path / "out.mkv", work_dir=str(tmp_path / "work"))
    assert (
        names(tmp_path) == ["in.mkv", "out.mkv", "work"]
        and names(tmp_path / "work") == []
    )
    with pytest.raises(MediaError, match="the folder for the work does not exist"):
        restore(source, tmp_path / "other.mkv", work_dir=str(tmp_path / "none"))


def test_what_others_put_into_the_work_folder_stays(tmp_path, source):
    folder = stop_run(source, tmp_path / "out.mkv", 1)
    (folder / "notes.txt").write_text("mine")
    restore(source, tmp_path / "out.mkv")
    assert names(folder) == ["notes.txt"]


@pytest.mark.parametrize(
    "name", ["00000000-00000008.segment", "job.json", "plan.json", "1-2.lock"]
)
def test_a_folder_with_the_name_of_a_file_of_the_job_is_named_and_stays(
    tmp_path, source, name
):
    inner = tmp_path / "out.mkv.vidrestore" / name / "inner"
    inner.parent.mkdir(mode=0o700, parents=True)
    inner.parent.parent.chmod(0o700)
    inner.write_text("precious")
    with pytest.raises(MediaError, match=f"{name}: .*(a folder|a directory)"):
        restore(source, tmp_path / "out.mkv")
    assert inner.read_text() == "precious"


def test_work_folders_have_names_that_file_systems_take():
    longest = WorkFolder("é" * 120 + ".mkv").path.name
    assert len(os.fsencode(longest)) <= 255 and longest.endswith(".vidrestore")
    assert WorkFolder("a/x.mkv", ".").path != WorkFolder("b/x.mkv", ".").path


# The same command, and others


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"sigma": 6}, "sigma was 5, now 6"),
        ({"encoder": X264}, r'encoder.encoder was "ffv1", now "libx264"'),
        ({"strength": 0.5}, "strength was 1, now 0.5"),
        ({"scene_detect": False}, "scene_detect was true, now false"),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else None,
)
def test_another_job_in_the_same_folder_is_refused_with_the_differences(
    tmp_path, source, changes, message
):
    folder = stop_run(source, tmp_path / "out.mkv", 2)
    before = names(folder)
    with pytest.raises(DifferentJobError, match=f"{message}.*`restart`"):
        restore(source, tmp_path / "out.mkv", **changes)
    assert names(folder) == before
    assert restore(source, tmp_path / "out.mkv", **changes, restart=True).reused == 0


def test_overwrite_discards_an_unfinished_job_that_differs_with_a_warning(
    tmp_path, source
):
    stop_run(source, tmp_path / "out.mkv", 2)
    events: list[Event] = []
    summary = restore(source, tmp_path / "out.mkv", events, sigma=6, overwrite=True)
    assert summary.reused == 0
    (warning,) = warnings_of(events)
    assert "sigma was 5, now 6; it was discarded" in warning


def test_frames_are_reused_if_other_streams_are_to_be_copied(tmp_path, source):
    without = frozenset({"audio"})
    for drop in (frozenset[str](), without):  # both, so that it can be changed twice
        stop_run(source, tmp_path / "out.mkv", 1, drop=drop)
    assert restore(source, tmp_path / "out.mkv", drop=without).reused > 0
    restore(source, tmp_path / "whole.mkv", drop=without)
    assert (tmp_path / "out.mkv").read_bytes() == (tmp_path / "whole.mkv").read_bytes()


def test_processes_that_share_a_video_drop_the_same_streams(tmp_path):
    folder, identity = WorkFolder(str(tmp_path / "out.mkv")), {"task": "denoise"}
    with folder.locked():
        folder.begin(identity, {"clip": 8}, {"audio"})
        folder.begin(identity, {"clip": 8}, {"audio"}, shared=True)
        with pytest.raises(DifferentJobError, match=r'drop was \["audio"\], now \[\]'):
            folder.begin(identity, {"clip": 8}, shared=True)


def test_a_source_that_has_changed_is_another_job(tmp_path, source):
    stop_run(source, tmp_path / "out.mkv", 2)
    os.utime(source, (0, 0))
    with pytest.raises(
        DifferentJobError, match="the source was written or touched since"
    ):
        restore(source, tmp_path / "out.mkv")


def test_a_source_that_changes_under_way_is_not_joined(tmp_path, source, monkeypatch):
    run = SegmentedWork.run
    monkeypatch.setattr(
        SegmentedWork, "run", lambda self: (run(self), os.utime(source, (0, 0)))
    )
    with pytest.raises(PlanError, match="the source has changed since the work began"):
        restore(source, tmp_path / "out.mkv")
    assert not (tmp_path / "out.mkv").exists()


# Damage to the work itself


WRONG_JSON = [
    "",
    "{",
    "[]",
    "[" * 100_000,
    '{"version": 1, "name": 5}',
    '{"version": true}',
]
WRONG_JSON += [f'{{"version": {VERSION}, "identity": []}}']
NOT_OURS = "not as vidrestore wrote it"


Change = Callable[[bytes, bytes], bytes]


def cut(share: float) -> Change:
    return lambda content, other: content[: int(len(content) * share)]


def with_text(text: str) -> Change:
    return lambda content, other: text.encode()


def with_values(**values: Any) -> Change:
    """As by an error of the disk: the content has the right types, and not its checksum."""
    return lambda content, other: json.dumps(json.loads(content) | values).encode()


@pytest.mark.parametrize(
    "name, change, problem",
    [
        *(
            (
                "*.segment",
                lambda content, other, share=share: content[
                    : int(len(content) * share)
                ],
                "not a whole",
            )
            for share in (0, 0.5, 0.99)
        ),
        (
            "*.segment",
            lambda content, other: other,
            "made for another part of the video",
        ),
        *(
            (name, with_text(text), NOT_OURS)
            for name in ("job.json", "plan.json")
            for text in WRONG_JSON
        ),
        (
            "job.json",
            with_values(clips=[[1 << 40, 4]]),
            f"{NOT_OURS} (its checksum is wrong)",
        ),
        (
            "job.json",
            with_values(encoder_threads=1 << 70),
            f"{NOT_OURS} (its checksum is wrong)",
        ),
        ("plan.json", with_values(damage=""), f"{NOT_OURS} (its checksum is wrong)"),
    ],
)
def test_a_damaged_file_of_the_work_costs_work_but_no_frame_and_is_named(
    tmp_path, source, name, change, problem
):
    restore(source, tmp_path / "whole.mkv")
    folder = stop_run(source, tmp_path / "out.mkv", 3)
    *_, path = sorted(folder.glob(name))[:2]
    other = min(folder.glob("*.segment"))
    path.write_bytes(change(path.read_bytes(), other.read_bytes()))
    told: list[Event] = []
    restore(source, tmp_path / "out.mkv", told)
    assert (tmp_path / "out.mkv").read_bytes() == (tmp_path / "whole.mkv").read_bytes()
    assert f"{path.name}: {problem}" in " ".join(warnings_of(told))


def test_a_run_stopped_while_it_joined_only_joins_again(tmp_path, source, monkeypatch):
    restore(source, tmp_path / "whole.mkv")
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(
            segmented.Muxer, "finish", lambda self: (_ for _ in ()).throw(Killed)
        )
        restore(source, tmp_path / "out.mkv")
    assert names(tmp_path) == ["in.mkv", "out.mkv.vidrestore", "whole.mkv"]
    monkeypatch.setattr(Fake, "restore", None)
    assert restore(source, tmp_path / "out.mkv").reused == 46
    assert (tmp_path / "out.mkv").read_bytes() == (tmp_path / "whole.mkv").read_bytes()


@pytest.mark.parametrize("linked", [False, True])
def test_a_run_killed_when_its_video_had_its_name_is_done(tmp_path, source, linked):
    output = tmp_path / "out.mkv"
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(WorkFolder, "remove", lambda self: (_ for _ in ()).throw(Killed))
        restore(source, output)
    if linked:  # between the two steps of naming
        partial = Partial(output)
        partial.discard()
        os.link(output, partial.path)
    assert (tmp_path / "out.mkv.vidrestore").is_dir()
    assert restore(source, output).frames == 46
    assert names(tmp_path) == ["in.mkv", "out.mkv"]
    assert restore(source, output).before


# Real networks


@pytest.mark.parametrize("task", ["denoise", "sr", "dehaze"])
def test_what_networks_restore_is_the_same_whatever_the_segments(
    tmp_path, task, monkeypatch
):
    path = tmp_path / "in.mkv"
    monkeypatch.setattr("vidrestore.restorers.vsr_restorer.KEPT", 2)
    write_video(path, {"denoise": 45, "sr": 20, "dehaze": 5}[task], size=(64, 48))
    model = {"sr": ("sr", recurrent()), "dehaze": ("dehaze", small())}.get(task)
    more: dict[str, Any] = {"sigma": 20, "quality": "fast"}
    if model:
        more = {"model": write_weights(tmp_path, model[1].float(), model[0])}
    more |= {"task": task, "encoder": FFV1, "device": "cpu", "threads": 1}
    for name, length in (("whole.mkv", 1000), ("cut.mkv", 3), ("out.mkv", 3)):
        monkeypatch.setattr(segmented, "LENGTH", length)
        if name == "out.mkv":
            with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
                stop_after(patch, 1, frames=1)
                vidrestore.restore(path, tmp_path / name, **more)
        vidrestore.restore(path, tmp_path / name, **more)
    assert pictures(tmp_path / "cut.mkv") == pictures(tmp_path / "whole.mkv")
    assert (tmp_path / "cut.mkv").read_bytes() == (tmp_path / "out.mkv").read_bytes()


# What shards build on


def test_runs_restored_by_themselves_in_any_order_give_the_same_video(tmp_path, source):
    restore(source, tmp_path / "whole.mkv")
    request = request_of(source, tmp_path / "out.mkv", encoder=FFV1, sigma=5)
    folder = WorkFolder(str(tmp_path / "out.mkv"))
    with folder.locked(shared=True):
        with open_job(request, lambda _: Fake()) as job:
            first = SegmentedWork.begin(job, folder, ignore_event)
            first.plan()
            segments = first.missing()
        for segment in reversed(segments):
            with open_job(request, lambda _: Fake()) as job:
                SegmentedWork.begin(job, folder, ignore_event).restore([segment])
        with open_job(request, lambda _: Fake()) as job:
            last = SegmentedWork.begin(job, folder, ignore_event)
            assert last.missing() == [] and len(segments) > 3
            last.join()
    assert (tmp_path / "out.mkv").read_bytes() == (tmp_path / "whole.mkv").read_bytes()
