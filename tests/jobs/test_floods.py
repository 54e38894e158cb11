"""Small files with very many subtitles, chapters or notes of an encoder take no longer than they should: what
is done for each of them is done once.
"""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest
from sample_videos import write_video

import vidrestore
from vidrestore.media.reading.reader import VideoReader

FRAMES, MANY = 12, 5000
X264 = {"preset": "ultrafast", "bf": "0", "g": "6"}


def packets(path: Path, stream: int = 0) -> Iterator[av.Packet]:
    with av.open(str(path)) as container:
        yield from (packet for packet in container.demux(stream) if packet.size)


def plain(folder: Path) -> Path:
    write_video(folder / "plain.mkv", FRAMES, "libx264", options=X264)
    return folder / "plain.mkv"


def muxed(path: Path, *sources: Path, chapters: Sequence[dict[str, Any]] = ()) -> Path:
    """Copy the first stream of each source into one file."""
    with ExitStack() as stack, av.open(str(path), "w") as output:
        opened = [stack.enter_context(av.open(str(source))) for source in sources]
        streams = [output.add_stream_from_template(each.streams[0]) for each in opened]
        output.set_chapters(chapters)
        for stream, source in zip(streams, sources, strict=True):
            for packet in packets(source):
                packet.stream = stream
                output.mux(packet)
    return path


def with_subtitles(folder: Path) -> Path:
    text = folder / "in.srt"
    lines = (
        f"{n + 1}\n00:00:00,{n // 12:03} --> 00:00:00,480\nx{n}\n\n"
        for n in range(MANY)
    )
    text.write_text("".join(lines))
    return muxed(folder / "in.mkv", plain(folder), text)


def with_chapters(folder: Path) -> Path:
    tick: dict[str, Any] = {"time_base": Fraction(1, 10_000), "metadata": {}}
    chapters = [tick | {"id": n, "start": n, "end": n + 1} for n in range(MANY)]
    return muxed(folder / "in.mkv", plain(folder), chapters=chapters)


def note(size: int) -> bytes:
    """An H.264 unit of user data that nobody has registered."""
    content, length = bytes(16) + b"\x55" * size, b""
    length = b"\xff" * (len(content) // 255) + bytes([len(content) % 255])
    return b"\0\0\0\1\x06\x05" + length + content + b"\x80"


def with_notes(folder: Path, count: int, size: int) -> Path:
    """A transport stream with so many of them before each picture."""
    path, raw = folder / "in.ts", folder / "in.h264"
    write_video(raw, FRAMES, "libx264", options=X264)
    with av.open(str(path), "w") as output, av.open(str(raw)) as first:
        stream = output.add_stream_from_template(first.streams[0])
        stream.time_base = Fraction(1, 90_000)
        for number, packet in enumerate(packets(raw)):
            made = av.Packet(note(size) * count + bytes(packet))
            made.stream, made.time_base, made.is_keyframe = (
                stream,
                Fraction(1, 25),
                packet.is_keyframe,
            )
            made.pts = made.dts = number
            output.mux(made)
    return path


@pytest.mark.parametrize("make", [with_subtitles, with_chapters])
def test_many_subtitles_and_chapters_are_all_copied(tmp_path, make):
    source, output = make(tmp_path), tmp_path / "out.mkv"
    assert (
        vidrestore.restore(
            source, output, task="<identity>", device="cpu", threads=1
        ).frames
        == FRAMES
    )
    with av.open(str(output)) as container:
        chapters = len(container.chapters())
        texts = sum(
            bool(packet.size)
            for packet in container.demux()
            if packet.stream.type == "subtitle"
        )
    assert max(chapters, texts) == MANY


@pytest.mark.parametrize("count, size", [(1000, 10), (1, 500_000)])
def test_notes_of_an_encoder_are_read_over(tmp_path, monkeypatch, count, size):
    """FFmpeg would print each byte of them, and its log is read for where chroma samples lie."""
    logged: list[str] = []

    real = av.logging.Capture

    @contextmanager
    def noted() -> Iterator[Any]:
        with real() as messages:
            yield messages
            logged.extend(text for _, _, text in messages)

    monkeypatch.setattr(
        av.logging, "Capture", lambda local=True: noted() if local else real(local)
    )
    with VideoReader(str(with_notes(tmp_path, count, size))) as reader:
        assert sum(1 for _ in reader.frames()) == FRAMES
    assert 0 < sum(map(len, logged)) < 10_000
