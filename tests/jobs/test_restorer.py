"""A `Restorer` keeps its weights for arrays, iterables of frames and files; keywords are checked."""

from __future__ import annotations

import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from sample_videos import write_video

import vidrestore
from vidrestore.errors import Cancelled, OptionError, VidRestoreError
from vidrestore.events import Event, Progressed
from vidrestore.media.reader import VideoReader
from vidrestore.options import EncoderOptions, RestoreOptions


def frames_of(path):
    with VideoReader(str(path)) as reader:
        return np.stack([np.stack(frame.planes, axis=-1) for frame in reader.frames()])


@pytest.fixture
def video(tmp_path):
    write_video(tmp_path / "in.mkv", 30, "ffv1", "bgr0", (32, 16))
    return tmp_path / "in.mkv"


def test_arrays_iterables_and_files_give_the_same_frames_with_weights_loaded_once(
    video: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    restorer = vidrestore.Restorer("denoise", sigma=20)

    def again(*arguments: object) -> None:
        raise AssertionError("loaded again")

    monkeypatch.setattr("vidrestore.restorers.base.load_restorer", again)
    frames = frames_of(video)
    whole = restorer(frames)
    np.testing.assert_array_equal(np.stack(list(restorer(iter(frames)))), whole)
    tensors = list(restorer(torch.from_numpy(frame) for frame in frames))
    np.testing.assert_array_equal(torch.stack(tensors).numpy(), whole)
    summary = restorer(video, video.with_name("out.mkv"))
    assert summary.frames == 30
    np.testing.assert_array_equal(frames_of(video.with_name("out.mkv")), whole)


def test_an_iterable_is_read_no_further_than_needed() -> None:
    read = 0

    def camera():
        nonlocal read
        while True:
            read += 1
            yield np.zeros((256, 256, 3), np.uint8)

    restored = vidrestore.Restorer("<identity>")(camera())
    for _ in range(5):
        next(restored)
    assert read < 300
    restored.close()


def test_frames_of_sr_are_larger_and_no_frame_gives_none() -> None:
    restorer = vidrestore.Restorer("sr", scale=2)
    assert [frame.shape for frame in restorer(np.zeros((1, 16, 16, 3), np.uint8))] == [(32, 32, 3)]
    assert list(restorer(iter(()))) == []


def test_it_does_one_thing_at_a_time() -> None:
    restorer, frames = vidrestore.Restorer("<identity>"), np.zeros((4, 16, 16, 3), np.uint8)
    running = restorer(iter(frames))
    next(running)
    with pytest.raises(VidRestoreError, match="this Restorer is at work"):
        restorer(frames)
    running.close()
    assert restorer(frames).shape == frames.shape


@pytest.mark.parametrize("way", ["event", "thread", "raise"])
def test_a_call_is_cancelled_and_a_file_resumes(video: Path, way: str) -> None:
    restorer = vidrestore.Restorer("<identity>")
    output = video.with_name("out.mkv")

    def listen(event: Event) -> None:
        if isinstance(event, Progressed) and event.stage == "restore":
            if way == "raise":
                raise InterruptedError
            if way == "thread":
                thread = threading.Thread(target=restorer.cancel)
                thread.start()
                thread.join()
            else:
                restorer.cancel()

    with pytest.raises(InterruptedError if way == "raise" else Cancelled):
        restorer(video, output, on_event=listen)
    assert not output.exists()
    assert restorer(video, output).frames == 30


def test_frames_in_memory_have_progress_and_are_cancelled() -> None:
    restorer, frames = vidrestore.Restorer("<identity>"), np.zeros((4, 16, 16, 3), np.uint8)
    events: list[Event] = []
    restorer(frames, on_event=events.append)
    assert isinstance(events[-1], Progressed) and (events[-1].done, events[-1].total) == (4, 4)
    running = restorer(iter(frames))
    next(running)
    restorer.cancel()
    with pytest.raises(Cancelled):
        list(running)


@pytest.mark.parametrize(
    "frames, message",
    [
        ([np.zeros((8, 8, 3), np.uint8), np.zeros((8, 9, 3), np.uint8)], "frame 1 is .8, 9, 3. uint8"),
        ([np.zeros((8, 8), np.uint8)], r"a frame must be \(H, W, 3\), got \(8, 8\)"),
        (["a"], "a frame must be .H, W, 3., got str"),
        ([np.full((8, 8, 3), 255.0)], "float frames hold 0 to 1, these 255 to 255"),
    ],
    ids=["size", "gray", "text", "grey levels"],
)
def test_wrong_frames_of_an_iterable_are_refused(frames: list, message: str) -> None:
    with pytest.raises(OptionError, match=message):
        list(vidrestore.Restorer("<identity>")(iter(frames)))


@pytest.mark.parametrize(
    "keywords, message",
    [
        ({"seed": 3}, "unknown: seed; there are: "),
        ({"stength": 3}, "unknown: stength; there are: strength, sigma, model, "),
        ({"sigma": "x"}, "sigma must be a valid number or 'auto', found 'x'"),
    ],
    ids=str,
)
def test_wrong_options_are_explained_and_similar_names_suggested(
    video: Path, keywords: dict, message: str
) -> None:
    for call in (vidrestore.restore, vidrestore.restore_frames):
        with pytest.raises(OptionError, match=message.replace("?", r"\?")):
            call(video, **keywords)


def test_errors_and_events_are_exported() -> None:
    assert issubclass(vidrestore.Cancelled, vidrestore.VidRestoreError)
    assert vidrestore.errors.OptionError is OptionError and vidrestore.events.Progressed is Progressed
    for name in vidrestore.__all__:
        assert getattr(vidrestore, name) is not None
    assert RestoreOptions(encoder=EncoderOptions(crf=18)) == RestoreOptions(
        encoder=vidrestore.EncoderOptions(crf=18)
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda: vidrestore.Restorer(["denoise"]),
        lambda: vidrestore.Restorer("<identity>", options={"strength": 1}),
        lambda: vidrestore.Restorer("<identity>", fps="24." + "9" * 400),
        lambda: vidrestore.Restorer("<identity>")(None),
        lambda: vidrestore.Restorer("<identity>")(""),
        lambda: vidrestore.Restorer("<identity>")("a\0.mkv"),
        lambda: vidrestore.Restorer("<identity>")("a.mkv", 5),
        lambda: vidrestore.Restorer("<identity>")("a.mkv", b"b.mkv"),
        lambda: vidrestore.Restorer("<identity>")(torch.zeros(2, 16, 16, 3, device="meta")),
        lambda: vidrestore.Restorer("<identity>")(torch.zeros(2, 16, 16, 3).to_sparse()),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(call):
    with pytest.raises(VidRestoreError):
        call()
