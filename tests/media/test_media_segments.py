"""Segment files, and the videos that are joined from them."""

import io
import zlib
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import pytest
from sample_videos import cut_short
from written_videos import (
    CONSTANT,
    VARYING,
    described,
    extras,
    fast_choice,
    made_frames,
    read,
    rich_video,
    write,
)

from vidrestore.errors import MediaError
from vidrestore.media.formats.encoder_table import ENCODERS, EncoderChoice
from vidrestore.media.formats.source import SUFFIXES
from vidrestore.media.reading.probe import SourceInfo
from vidrestore.media.writing.muxer import Muxer
from vidrestore.media.writing.segment_file import (
    SegmentFacts,
    SegmentWriter,
    check_segment,
    join_segments,
)
from vidrestore.pixels.frames import Frame
from vidrestore.settings.options import EncoderOptions

LONG = [(number * 1001, 1001) for number in range(14)]
PIX_FMT = {"prores_ks": "yuv422p10le"}
NAMES = ["libx264", "libx265", "libsvtav1", "libvpx-vp9", "ffv1"]
HOMES = [
    (name, SUFFIXES[container])
    for name in [*NAMES, "prores_ks"]
    for container in ENCODERS[name].containers
]


def segment(
    path: Path,
    source: SourceInfo,
    choice: EncoderChoice,
    frames: list[Frame],
    first: int = 0,
) -> SegmentFacts:
    writer = SegmentWriter(path, source, choice, first=first)
    for frame in frames:
        writer.write(frame)
    return writer.finish({"first": first})


def join(
    output: Path,
    source: SourceInfo,
    choice: EncoderChoice,
    frames: list[Frame],
    cuts: list[int],
    **more: Any,
) -> None:
    """Encode the frames in segments that begin at 0 and at `cuts`, and join them."""
    edges = [0, *cuts, len(frames)]
    paths = [output.with_name(f"{first}.segment") for first in edges[:-1]]
    spans = list(zip(paths, edges, edges[1:], strict=False))
    facts = [
        segment(path, source, choice, frames[first:stop], first)
        for path, first, stop in spans
    ]
    muxer = Muxer(str(output), source, choice, **({"copy": ()} | more))
    segments = [
        (path, first, fact) for (path, first, _), fact in zip(spans, facts, strict=True)
    ]
    put = sum(1 for _ in join_segments(muxer, segments, spans_of(frames)))
    muxer.finish()
    assert put == len(frames)


@pytest.mark.parametrize(
    "times",
    [LONG, [*VARYING, *((20000 + 1500 * number, 1500) for number in range(7))]],
    ids=["steady", "varying"],
)
@pytest.mark.parametrize("encoder, suffix", HOMES)
def test_a_joined_video_has_every_frame_at_its_time(tmp_path, encoder, suffix, times):
    pix_fmt, base = (
        PIX_FMT.get(encoder, "yuv420p"),
        Fraction(30) if times != LONG else None,
    )
    source = described(pix_fmt, base_rate=base)
    choice = fast_choice(source, Path(f"x{suffix}"), EncoderOptions(encoder=encoder))
    frames = made_frames(source, times)
    join(tmp_path / f"joined{suffix}", source, choice, frames, [5, 6, 12])
    write(source, tmp_path / f"whole{suffix}", frames, choice=choice)
    joined, whole = (
        read(tmp_path / f"joined{suffix}"),
        read(tmp_path / f"whole{suffix}"),
    )
    assert spans_of(joined.frames) == spans_of(whole.frames)
    assert joined.end == whole.end
    infos = (joined.info, whole.info)
    one, other = (replace(each.video, frame_bits=0) for each in infos)
    assert one == other
    one, other = (
        replace(each, path="", size=0, metadata={}, video=one) for each in infos
    )
    assert one == other


def spans_of(frames: list[Frame]) -> list[tuple[int, int]]:
    return [(frame.pts, frame.duration) for frame in frames]


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv"])
@pytest.mark.parametrize("encoder", ["libx264", "libx265"])
def test_pictures_are_decoded_in_rising_time_and_before_they_are_shown(
    tmp_path, encoder, name
):
    source = described()
    choice = fast_choice(
        source, Path(name), EncoderOptions(encoder=encoder, options={"bf": "3"})
    )
    join(tmp_path / name, source, choice, made_frames(source, LONG), [5, 6])
    with av.open(str(tmp_path / name)) as container:
        result = (
            packet
            for packet in container.demux(video=0)
            if packet.size and packet.dts is not None
        )
        times = [(packet.dts, packet.pts) for packet in result]
    assert all(dts <= pts for dts, pts in times)
    assert [dts for dts, _ in times] == sorted({dts for dts, _ in times})
    assert any(dts < pts for dts, pts in times)  # there are B-frames


def test_one_segment_is_the_video_that_is_encoded_in_one_go(tmp_path):
    source = described()
    choice = fast_choice(source, Path("x.mp4"))
    join(tmp_path / "joined.mp4", source, choice, made_frames(source, LONG), [])
    write(source, tmp_path / "whole.mp4", made_frames(source, LONG), choice=choice)
    assert (tmp_path / "joined.mp4").read_bytes() == (
        tmp_path / "whole.mp4"
    ).read_bytes()


@pytest.mark.parametrize("encoder", NAMES)
@pytest.mark.parametrize("count", [1, 2, 3])
def test_the_shortest_videos_and_segments_are_joined(tmp_path, encoder, count):
    source = described()
    choice = fast_choice(source, Path("a.mp4"), EncoderOptions(encoder=encoder))
    join(
        tmp_path / "a.mp4",
        source,
        choice,
        made_frames(source, CONSTANT[:count]),
        list(range(1, count)),
    )
    assert [frame.pts for frame in read(tmp_path / "a.mp4").frames] == [
        pts for pts, _ in CONSTANT[:count]
    ]


@pytest.fixture
def written(tmp_path: Path) -> Path:
    source = described()
    path = tmp_path / "0.segment"
    segment(path, source, fast_choice(source, Path("x.mp4")), made_frames(source, LONG))
    assert [each.name for each in tmp_path.iterdir()] == ["0.segment"]
    return path


def test_a_segment_states_its_frames_label_and_delay(written):
    facts = check_segment(written)
    assert (facts.frames, facts.label) == (14, {"first": 0}) and facts.delay >= 1


@pytest.mark.parametrize("share", [0, 0.001, 0.5, 0.9, 0.999])
def test_a_segment_that_is_cut_short_is_found(written, share):
    cut_short(written, share)
    with pytest.raises(MediaError, match=r"0\.segment: not a whole segment"):
        check_segment(written)


def test_any_byte_that_is_altered_is_found(written):
    data = written.read_bytes()
    for at in [*range(40), *range(40, len(data), 97), len(data) - 1]:
        written.write_bytes(data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :])
        with pytest.raises(MediaError):
            check_segment(written)


def test_a_segment_with_a_picture_less_is_found(written):
    data = written.read_bytes()
    size = int.from_bytes(data[5:9], "big")
    second = 13 + size
    third = second + 13 + int.from_bytes(data[second + 5 : second + 9], "big")
    written.write_bytes(data[:second] + data[third:])
    with pytest.raises(MediaError, match="13 of 14 pictures are there"):
        check_segment(written)


def test_a_picture_beyond_the_last_is_found(written):
    """Its check sum is right; it would be put where no frame is."""
    data = written.read_bytes()
    size = int.from_bytes(data[5:9], "big")
    head = data[:1] + (14).to_bytes(4, "big") + data[5:9]
    check = zlib.crc32(data[13 : 13 + size], zlib.crc32(head)).to_bytes(4, "big")
    written.write_bytes(head + check + data[13:])
    with pytest.raises(MediaError, match="14 of 14 pictures are there"):
        check_segment(written)


def test_a_record_of_four_gigabytes_is_not_read(written, monkeypatch):
    asked = []

    class Noted(io.BufferedReader):
        def read(self, size: int | None = -1, /) -> bytes:
            asked.append(size)
            return super().read(size)

    monkeypatch.setattr(
        "vidrestore.media.writing.segment_file.open_regular",
        lambda path: Noted(io.FileIO(path)),
    )
    data = written.read_bytes()
    written.write_bytes(data[:5] + b"\xff" * 4 + data[9:])
    with pytest.raises(MediaError, match="a check sum is wrong"):
        check_segment(written)
    assert asked == [9, 4]


@pytest.mark.parametrize(
    "head, frames, message",
    [
        ("0", 14, "another version of libx264"),
        (None, 16, "14 pictures were joined, but the plan has 16"),
    ],
)
def test_segments_that_lack_pictures_or_are_of_another_encoder_are_not_joined(
    tmp_path, written, head, frames, message
):
    source, facts = described(), check_segment(written)
    muxer = Muxer(
        str(tmp_path / "a.mp4"), source, fast_choice(source, Path("a.mp4")), ()
    )
    segments = [(written, 0, replace(facts, head=head or facts.head))]
    with pytest.raises(MediaError, match=message):
        list(
            join_segments(
                muxer, segments, [(number * 1001, 1001) for number in range(frames)]
            )
        )
    muxer.abort()
    assert [path.name for path in tmp_path.iterdir()] == ["0.segment"]


@pytest.mark.parametrize("name", ["out.mkv", "out.mp4"])
def test_chapters_move_with_a_video_that_begins_before_0(tmp_path, name):
    source = rich_video(tmp_path / "in.mkv", extras())
    early = round(Fraction(1, 10) / source.video.time_base)
    frames = [
        replace(frame, pts=frame.pts - early)
        for frame in read(tmp_path / "in.mkv").frames
    ]
    join(
        tmp_path / name,
        source,
        fast_choice(source, Path(name)),
        frames,
        [5],
        first=frames[0].pts,
    )
    with av.open(str(tmp_path / name)) as after:
        result, ends = after.chapters(), ("start", "end")
        times = [
            [chapter[end] * chapter["time_base"] for end in ends] for chapter in result
        ]
    # MP4's chapters are a track that begins with the video
    begins = Fraction(0 if name.endswith("mp4") else 1, 10)
    assert times == [[begins, Fraction(3, 10)], [Fraction(3, 10), Fraction(58, 100)]]
    assert read(tmp_path / name).frames[0].pts == 0


@pytest.mark.parametrize("suffix", [".mp4", ".mkv"])
def test_two_frames_of_one_time_are_an_error_with_their_place(tmp_path, suffix):
    source = described()
    frames = made_frames(source, [(0, 1001), (1001, 1001), (1001, 1001)])
    message = "frame 9: its time 1001 x 1/24000 s is"
    with pytest.raises(MediaError, match=message):
        segment(
            tmp_path / "a", source, fast_choice(source, Path(f"a{suffix}")), frames, 7
        )
