"""Random times, sizes and streams go through a restoration that changes nothing."""

import tempfile
from collections.abc import Callable
from fractions import Fraction
from itertools import accumulate
from pathlib import Path
from typing import Any

import av
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from odd_inputs import shown, tags_differ
from odd_videos import Content, Sound, write_content

import vidrestore
from vidrestore.settings.options import EncoderOptions

TICKS = {
    ".mp4": (600, 1000, 12800, 24000, 90000),
    ".mov": (600, 1000, 12800, 24000, 90000),
    ".mkv": (1000,),
}
SOUNDS = {
    ".mp4": ("aac", "ac3", "libmp3lame"),
    ".mov": ("aac", "pcm_s16le"),
    ".mkv": ("aac", "flac", "libopus", "pcm_s16le", "libmp3lame"),
}
TEXTS = {".mp4": ("mov_text",), ".mov": (), ".mkv": ("ass", "subrip")}
RANDOM = settings(
    deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)


@st.composite
def contents(rng: Callable[[Any], Any]) -> tuple[str, Content]:
    """A container and a video that fits into it; every time lies on the container's grid."""
    suffix = rng(st.sampled_from(sorted(TICKS)))
    ticks = rng(st.sampled_from(TICKS[suffix]))
    steps = rng(st.lists(st.integers(1, 3 * ticks), max_size=7))
    times = tuple(
        accumulate(steps, initial=rng(st.one_of(st.just(0), st.integers(0, 5 * ticks))))
    )
    exact = suffix == ".mkv" and rng(st.booleans())
    side = (
        st.integers(1, 40) if exact else st.integers(1, 20).map(lambda half: 2 * half)
    )
    formats = ["yuv420p", "yuv422p", "yuv444p", "yuv420p10le"]
    formats += ["gray", "gray16le", "yuva420p", "bgr0"] if exact else []
    turns = st.tuples(st.sampled_from((90, 180, -90)), st.booleans())
    words = st.text(WORDS, min_size=1, max_size=20)
    content = Content(
        sounds=tuple(rng(st.lists(sounds(SOUNDS[suffix]), max_size=3))),
        texts=tuple(rng(st.lists(st.sampled_from(TEXTS[suffix]), max_size=2)))
        if TEXTS[suffix]
        else (),
        times=times,
        codec="ffv1" if exact else "libx264",
        size=(rng(side), rng(side))
        if exact
        else (max(16, rng(side)), max(16, rng(side))),
        pix_fmt=rng(st.sampled_from(formats)),
        time_base=Fraction(1, ticks),
        settings=rng(tags()),
        turned=rng(st.one_of(st.none(), turns)),
        font=suffix == ".mkv" and rng(st.booleans()),
        chapters=rng(st.booleans()),
        first=rng(st.booleans()),
        metadata=rng(st.dictionaries(st.sampled_from(TITLES), words)),
    )
    return suffix, content


TITLES = ("title", "artist", "comment")
WORDS = st.characters(codec="utf-8", exclude_categories=("Cs", "Cc"))


@st.composite
def sounds(rng: Callable[[Any], Any], codecs: tuple[str, ...]) -> Sound:
    milliseconds = Fraction(1, 1000)
    start, length = rng(st.integers(0, 3000)), rng(st.integers(40, 1500))
    return Sound(
        rng(st.sampled_from(codecs)), start * milliseconds, length * milliseconds
    )


@st.composite
def tags(rng: Callable[[Any], Any]) -> dict[str, Any]:
    """Some of the tags of the picture."""
    every = {
        "colorspace": st.sampled_from((1, 5, 6, 9)),
        "color_primaries": st.sampled_from((1, 5, 6, 9)),
        "color_trc": st.sampled_from((1, 6, 13, 16, 18)),
        "color_range": st.sampled_from((1, 2)),
        "sample_aspect_ratio": st.sampled_from(
            (Fraction(64, 45), Fraction(4, 3), Fraction(8, 9))
        ),
    }
    chosen = rng(st.sets(st.sampled_from(sorted(every))))
    return {name: rng(every[name]) for name in sorted(chosen)}


def check_round_trip(case: tuple[str, Content]) -> None:
    suffix, content = case
    with tempfile.TemporaryDirectory() as folder:
        source, output = Path(folder, f"in{suffix}"), Path(folder, f"out{suffix}")
        write_content(source, content)
        summary = vidrestore.restore(
            source, output, task="<identity>", encoder=EncoderOptions(lossless=True)
        )
        assert (summary.frames, summary.damage) == (len(content.times), None)
        assert shown(output) == shown(source)
        assert end(output) == end(source) or end(source) <= shown(source)[-1].time
        assert tags_differ(source, output) is None
        assert beside(output) == beside(source)


def end(path: Path) -> Fraction:
    """The time at which the picture ends, in seconds; 0 for Matroska, which says it of the whole file."""
    with av.open(str(path)) as container:
        stream = container.streams.video[0]
        whole = path.suffix == ".mkv"
        return (
            Fraction(0)
            if whole
            else (stream.start_time + stream.duration) * stream.time_base
        )


def beside(path: Path) -> list[Any]:
    """The description and the packets of each other stream, chapters, and titles."""
    with av.open(str(path)) as container:
        # of type "data" are the tracks that QuickTime makes for chapters
        others = [
            stream
            for stream in container.streams
            if stream.type not in ("video", "data")
        ]
        packets: dict[int, list[Any]] = {stream.index: [] for stream in others}
        for packet in container.demux():
            empty = not packet.size or (
                packet.duration == 0 and bytes(packet) == b"\0\0"
            )
            if packet.stream_index in packets and not empty:
                packets[packet.stream_index].append(
                    (packet.pts * packet.time_base, bytes(packet))
                )
        for stream in others:
            if (
                stream.codec_context is not None
                and stream.codec_context.name.startswith("pcm")
            ):
                packets[stream.index] = whole(packets[stream.index])
        chapters = [
            (
                part["start"] * part["time_base"],
                part["end"] * part["time_base"],
                part["metadata"],
            )
            for part in container.chapters()
        ]
        titles = {key: container.metadata.get(key) for key in TITLES}
        return [
            [described(stream) for stream in others],
            list(packets.values()),
            chapters,
            titles,
        ]


def described(stream: Any) -> tuple[Any, ...]:
    title = stream.metadata.get("title", stream.metadata.get("name"))
    attached = stream.data if stream.type == "attachment" else None
    return stream.type, stream.language, title, stream.disposition, attached


def whole(packets: list[Any]) -> list[Any]:
    """Samples as they come; FFmpeg cuts them into packets by how streams lie in a file."""
    return [packets[0][0], b"".join(data for _, data in packets)] if packets else []


@settings(RANDOM, max_examples=20, derandomize=True)
@given(contents())
def test_every_time_tag_and_packet_of_a_random_video_is_unchanged(case):
    check_round_trip(case)


@pytest.mark.faults
@settings(RANDOM, max_examples=600)
@given(contents())
def test_every_time_tag_and_packet_of_hundreds_of_random_videos_is_unchanged(case):
    check_round_trip(case)
