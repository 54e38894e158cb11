"""Files in seven containers, cut, holed and with flipped bits: the reader finds what FFmpeg's decoder does.

The decoder runs in one thread; it logs or raises errors, marks or lacks frames in 1337 of the 1554 files.
The default run takes a few files of each container, `-m faults` the others.
"""

import random
from collections.abc import Callable
from functools import cache
from pathlib import Path

import av
import av.logging
import pytest
from sample_videos import write_video

from vidrestore.errors import MediaError
from vidrestore.media.reading.reader import VideoReader

FRAMES = 30
B_FRAMES = {"g": "10", "bf": "2"}
CONTAINERS = {
    "mkv": ("libx264", {"options": B_FRAMES}),
    "mp4": ("libx264", {"options": B_FRAMES, "container": {"movflags": "faststart"}}),
    "mov": ("mpeg4", {"options": {"g": "10"}, "container": {"movflags": "faststart"}}),
    "avi": ("mpeg4", {"options": {"g": "10"}}),
    "ts": ("libx264", {"options": B_FRAMES}),
    "webm": ("libvpx", {"options": {"g": "10", "deadline": "realtime"}}),
    "mpg": ("mpeg2video", {"options": {"g": "10", "bf": "2"}}),
}


def cut(data: bytearray, chance: random.Random) -> None:
    del data[chance.randrange(len(data) // 10, len(data)) :]


def hole(data: bytearray, chance: random.Random) -> None:
    begin = chance.randrange(len(data) // 10, len(data))
    del data[begin : begin + chance.choice([1, 7, 188, 500, 4096])]


def erase(data: bytearray, chance: random.Random) -> None:
    begin = chance.randrange(len(data) // 10, len(data))
    end = min(len(data), begin + chance.choice([16, 188, 1000]))
    data[begin:end] = bytes(end - begin)


def flip(data: bytearray, chance: random.Random) -> None:
    for _ in range(chance.choice([1, 5, 50])):
        data[chance.randrange(len(data) // 10, len(data))] ^= 1 << chance.randrange(8)


HARMS: tuple[Callable[[bytearray, random.Random], None], ...] = (cut, hole, erase, flip)


@cache
def whole(suffix: str, folder: Path) -> bytes:
    codec, settings = CONTAINERS[suffix]
    path = folder / f"whole.{suffix}"
    write_video(path, FRAMES, codec, size=(96, 80), **settings)
    return path.read_bytes()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("whole")


def judged(path: Path) -> str | None:
    """What FFmpeg's own decoder finds wrong; None if nothing."""
    av.logging.set_level(av.logging.ERROR)
    av.logging.set_skip_repeated(False)
    frames = 0
    try:
        with av.open(str(path)) as container, av.logging.Capture() as logs:
            stream = container.streams.video[0]
            stream.codec_context.thread_type = "NONE"
            for packet in container.demux(stream):
                for frame in packet.decode():
                    frames += 1
                    if frame.is_corrupt:
                        return "a frame marked corrupt"
            if errors := [
                message for level, _, message in logs if level <= av.logging.ERROR
            ]:
                return f"an error: {errors[0].strip()}"
    except (av.error.FFmpegError, IndexError) as error:
        return f"raised {error}"
    finally:
        av.logging.set_level(None)
    return f"{FRAMES - frames} frames fewer" if frames < FRAMES else None


def found(path: Path) -> str | None:
    """What the reader finds wrong."""
    try:
        with VideoReader(str(path), threads=1) as reader:
            frames = sum(1 for _ in reader.frames())
            damage = reader.damage
    except MediaError as error:
        return f"refused: {error}"
    return damage.sentence or (None if frames >= FRAMES else "")


@pytest.mark.parametrize("suffix", CONTAINERS)
def test_undamaged_files_are_not_reported_as_damaged(suffix, folder):
    whole(suffix, folder)
    assert judged(folder / f"whole.{suffix}") is None
    assert found(folder / f"whole.{suffix}") is None


@pytest.mark.parametrize(
    "seeds",
    [range(8), pytest.param(range(8, 222), marks=pytest.mark.faults)],
    ids=["few", "all"],
)
@pytest.mark.parametrize("suffix", CONTAINERS)
def test_no_loss_is_silent(suffix, seeds, folder, tmp_path):
    path, silent = tmp_path / f"a.{suffix}", []
    for seed in seeds:
        data = bytearray(whole(suffix, folder))
        harm = HARMS[seed % len(HARMS)]
        harm(data, random.Random(f"{suffix} {seed}"))
        path.write_bytes(data)
        if (wrong := judged(path)) and not found(path):
            silent.append(f"{harm.__name__}, seed {seed}: {wrong}")
    assert not silent, "\n".join(silent)
