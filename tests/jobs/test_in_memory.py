"""Frames in memory come out as the frames of a video with the same pixels, and a `Restorer` keeps its weights
for arrays, iterables of frames and files.
"""

import threading
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
from fresh_interpreter import HEAVY, loaded_by
from numpy.typing import NDArray
from sample_videos import write_video

import vidrestore
from vidrestore.cli import main
from vidrestore.errors import Cancelled, OptionError, VidRestoreError
from vidrestore.events import Event, Progressed
from vidrestore.media.reading.reader import VideoReader
from vidrestore.restorers.denoise import DenoiseRestorer
from vidrestore.settings.options import EncoderOptions, RestoreOptions

IDENTITY = "<identity>"
FOUR = np.zeros((4, 16, 16, 3), np.uint8)


def pictures(path: Path) -> NDArray[Any]:
    """The frames of an RGB video, (T, H, W, 3)."""
    with VideoReader(str(path)) as reader:
        return np.stack([np.stack(frame.planes, axis=-1) for frame in reader.frames()])


@pytest.fixture
def video(tmp_path: Path) -> Path:
    write_video(tmp_path / "in.mkv", 30, "ffv1", "bgr0", (32, 16))
    return tmp_path / "in.mkv"


@pytest.mark.parametrize(
    "options", [{}, {"sigma": 20, "quality": "fast", "strength": 0.5}]
)
def test_an_array_of_bytes_gives_the_frames_of_the_command(tmp_path, options):
    arguments = [
        part for name, value in options.items() for part in (f"--{name}", str(value))
    ]
    source, output = tmp_path / "in.mkv", tmp_path / "out.mkv"
    write_video(source, 4, "ffv1", "bgr0", (64, 48))
    with pytest.raises(SystemExit) as end:
        main(
            ["denoise", *arguments, str(source), "-o", str(output), "--lossless", "-q"]
        )
    assert not end.value.code
    frames = pictures(source)
    assert frames.shape == (4, 48, 64, 3) and frames.dtype == np.uint8
    np.testing.assert_array_equal(
        vidrestore.restore_frames(frames, **options), pictures(output)
    )


def test_arrays_iterables_and_files_give_the_same_frames_with_weights_loaded_once(
    video, monkeypatch
):
    restorer = vidrestore.Restorer("denoise", sigma=20)
    monkeypatch.setattr("vidrestore.restorers.base.load_restorer", None)
    frames = pictures(video)
    whole = restorer(frames)
    np.testing.assert_array_equal(np.stack(list(restorer(iter(frames)))), whole)
    tensors = list(restorer(torch.from_numpy(frame) for frame in frames))
    np.testing.assert_array_equal(torch.stack(tensors).numpy(), whole)
    assert restorer(video, video.with_name("out.mkv")).frames == 30
    np.testing.assert_array_equal(pictures(video.with_name("out.mkv")), whole)


def test_an_iterable_is_read_no_further_than_needed():
    read = 0

    def camera():
        nonlocal read
        while True:
            read += 1
            yield np.zeros((256, 256, 3), np.uint8)

    restored = vidrestore.Restorer(IDENTITY)(camera())
    for _ in range(5):
        next(restored)
    assert read < 300
    restored.close()


def test_frames_of_sr_are_larger_and_no_frame_gives_none():
    assert vidrestore.restore_frames(FOUR[:1], task="sr").shape == (1, 64, 64, 3)
    restorer = vidrestore.Restorer("sr", scale=2)
    assert [frame.shape for frame in restorer(FOUR[:1])] == [(32, 32, 3)]
    assert list(restorer(iter(()))) == []


def test_floats_are_not_rounded(video):
    frames = torch.from_numpy(pictures(video)[:4])
    rounded = vidrestore.restore_frames(frames, sigma=20, precision="fp32")
    floats = vidrestore.restore_frames(
        frames.double() / 255, sigma=20, precision="fp32"
    )
    assert (rounded.dtype, floats.dtype) == (torch.uint8, torch.float64)
    assert 0 < (255 * floats.clamp(0, 1) - rounded).abs().max() <= 0.5 + 0.02


def test_colours_are_denoised_together():
    """Noise of red, green and blue goes further than from each alone: most of a picture is in its luma."""
    rows, columns = np.mgrid[:48, :64] / 3
    squares = np.sign(np.sin(rows) * np.cos(columns))
    clean = np.stack([120 + (50 - 8 * band) * squares for band in range(3)], -1)
    noisy = clean + np.random.default_rng(3).normal(0, 25, (8, *clean.shape))
    given = np.rint(noisy).clip(0, 255).astype(np.uint8)

    together = vidrestore.restore_frames(
        given, task="denoise", sigma=25.0, device="cpu"
    )
    restorer = DenoiseRestorer(RestoreOptions(device="cpu"))
    planes = [torch.from_numpy(given[..., band]).float() for band in range(3)]
    apart = np.stack(
        [restorer.restore((plane,), (25.0,))[0].numpy() for plane in planes], -1
    )
    assert np.square(together - clean).mean() < 0.8 * np.square(apart - clean).mean()


# One call at a time, and its end


def test_it_does_one_thing_at_a_time():
    restorer = vidrestore.Restorer(IDENTITY)
    running = restorer(iter(FOUR))
    next(running)
    with pytest.raises(VidRestoreError, match="this Restorer is at work"):
        restorer(FOUR)
    running.close()
    assert restorer(FOUR).shape == FOUR.shape


def test_a_restorer_closes_at_the_end_of_its_context():
    with vidrestore.Restorer(IDENTITY) as restorer:
        assert restorer(FOUR).shape == FOUR.shape
        running = restorer(iter(FOUR))
        next(running)
    with pytest.raises(Cancelled):
        list(running)
    with pytest.raises(
        VidRestoreError, match="this Restorer is closed; make another one"
    ):
        restorer(FOUR)


@pytest.mark.parametrize("way", ["event", "thread", "raise"])
def test_a_call_is_cancelled_and_a_file_resumes(video, way):
    restorer, output = vidrestore.Restorer(IDENTITY), video.with_name("out.mkv")

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


def test_frames_in_memory_have_progress_and_are_cancelled():
    restorer, events = vidrestore.Restorer(IDENTITY), list[Event]()
    restorer(FOUR, on_event=events.append)
    assert isinstance(events[-1], Progressed) and (
        events[-1].done,
        events[-1].total,
    ) == (4, 4)
    running = restorer(iter(FOUR))
    next(running)
    restorer.cancel()
    with pytest.raises(Cancelled):
        list(running)


# What is refused


@pytest.mark.parametrize(
    "frames, message",
    [
        (
            [np.zeros((8, 8, 3), np.uint8), np.zeros((8, 9, 3), np.uint8)],
            "frame 1 is .8, 9, 3. uint8",
        ),
        ([np.zeros((8, 8), np.uint8)], r"a frame must be \(H, W, 3\), got \(8, 8\)"),
        (["a"], "a frame must be .H, W, 3., got str"),
        (
            [np.full((8, 8, 3), 255.0)],
            "hold 0 to 1, these 255 to 255; divide 0 to 255 by 255",
        ),
        ([np.linspace(-1, 1, 192).reshape(8, 8, 3)], "hold 0 to 1, these -1 to 1"),
        ([torch.full((8, 8, 3), float("nan"))], "hold 0 to 1, these nan"),
        (np.zeros((3, 8, 8), np.uint8), r"shape \(T, H, W, 3\), got \(3, 8, 8\)"),
        (np.zeros((3, 3, 8, 8), np.uint8), r"shape \(T, H, W, 3\)"),
        (np.zeros((3, 8, 8, 3), np.int64), "uint8 .* or floats .*, got int64"),
    ],
    ids=[
        "size",
        "gray",
        "text",
        "grey levels",
        "around 0",
        "NaN",
        "no clip",
        "channels first",
        "integers",
    ],
)
def test_wrong_frames_are_refused_with_a_reason(frames, message):
    with pytest.raises(OptionError, match=message):
        list(
            vidrestore.Restorer(IDENTITY)(
                frames if isinstance(frames, np.ndarray) else iter(frames)
            )
        )


@pytest.mark.parametrize(
    "keywords, message",
    [
        ({"seed": 3}, "unknown: seed; there are: "),
        ({"stength": 3}, "unknown: stength; there are: strength, sigma, model, "),
        ({"sigma": "x"}, "sigma must be a valid number or 'auto', found 'x'"),
        ({"task": "potato"}, "no task named 'potato'; there are: denoise"),
        ({"start": 1, "overwrite": True}, "start, overwrite: only for files"),
    ],
    ids=str,
)
def test_wrong_options_are_explained_and_similar_names_suggested(
    video, keywords, message
):
    with pytest.raises(OptionError, match=message):
        vidrestore.restore_frames(FOUR, **keywords)
    if "start" not in keywords:
        with pytest.raises(OptionError, match=message):
            vidrestore.restore(video, **keywords)


@pytest.mark.parametrize(
    "call",
    [
        lambda: vidrestore.Restorer(["denoise"]),
        lambda: vidrestore.Restorer(IDENTITY, options={"strength": 1}),
        lambda: vidrestore.Restorer(IDENTITY, fps="24." + "9" * 400),
        lambda: vidrestore.Restorer(IDENTITY)(None),
        lambda: vidrestore.Restorer(IDENTITY)(""),
        lambda: vidrestore.Restorer(IDENTITY)("."),
        lambda: vidrestore.Restorer(IDENTITY)("a\0.mkv"),
        lambda: vidrestore.Restorer(IDENTITY)("a.mkv", 5),
        lambda: vidrestore.Restorer(IDENTITY)("a.mkv", b"b.mkv"),
        lambda: vidrestore.Restorer(IDENTITY)(torch.zeros(2, 16, 16, 3, device="meta")),
        lambda: vidrestore.Restorer(IDENTITY)(torch.zeros(2, 16, 16, 3).to_sparse()),
    ],
)
def test_what_makes_no_sense_is_refused_in_a_sentence(call):
    with pytest.raises(VidRestoreError):
        call()


# The package


def test_the_package_offers_its_parts_lazily():
    for name in vidrestore.__all__:
        assert getattr(vidrestore, name) is not None
    assert (
        vidrestore.EncoderOptions is EncoderOptions
        and vidrestore.errors.OptionError is OptionError
    )
    assert {"restore", "restore_frames", "weights"} <= set(dir(vidrestore))
    assert not loaded_by("import vidrestore; dir(vidrestore)") & HEAVY


@pytest.mark.parametrize(
    "frames, words",
    [
        (
            np.zeros((5, 3, 16, 24), np.uint8),
            "got (5, 3, 16, 24); channels come last: transpose(0, 2, 3, 1)",
        ),
        (torch.zeros((5, 3, 16, 24)), "channels come last: permute(0, 2, 3, 1)"),
        (np.zeros((16, 24, 3), np.uint8), "got (16, 24, 3); one frame is frames[None]"),
        (
            np.zeros((5, 16, 24, 4), np.uint8),
            "without transparency it is frames[..., :3]",
        ),
        (np.zeros((0, 16, 24, 3), np.uint8), "got (0, 16, 24, 3); no pixels are in it"),
        (
            np.zeros((5, 16, 24, 3), np.uint16),
            "got uint16; of 16 bits, divide by 65535",
        ),
        (
            [av.VideoFrame(24, 16, "rgb24")],
            'got VideoFrame; of PyAV it is frame.to_ndarray(format="rgb24")',
        ),
        (
            [np.zeros((3, 16, 24), np.uint8)],
            "got (3, 16, 24); channels come last: transpose(1, 2, 0)",
        ),
    ],
    ids=[
        "channels before the size",
        "a tensor with channels before the size",
        "one frame",
        "transparency",
        "no frame",
        "16 bits",
        "PyAV",
        "a list with channels before the size",
    ],
)
def test_frames_of_another_form_are_refused_with_what_makes_them_fit(frames, words):
    with pytest.raises(OptionError) as error:
        list(vidrestore.Restorer(IDENTITY)(frames))
    assert words in str(error.value)


def test_a_device_of_torch_is_its_name_and_a_restorer_shows_its_settings():
    restorer = vidrestore.Restorer(IDENTITY, device=torch.device("cpu"), strength=0.5)
    assert restorer.options.device == "cpu"
    assert repr(restorer) == "Restorer(task='<identity>', strength=0.5, device='cpu')"
