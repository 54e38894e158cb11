"""A part of a video: the frames that begin in it, and all other streams cut to the same moments."""

import io
from contextlib import closing
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from av.stream import Disposition
from command_line import run
from long_videos import long_video
from no_change import IDENTITY_DENOISE
from odd_videos import Content, write_content
from sample_videos import write_video
from written_videos import frames_of

import vidrestore
from vidrestore.errors import OptionError
from vidrestore.events import Event, Warned
from vidrestore.media.formats.cut import Cut, later_code
from vidrestore.media.reading.reader import VideoReader
from vidrestore.media.writing.stream_copier import StreamCopier
from vidrestore.pixels.frames import Frame, Span
from vidrestore.settings.options import EncoderOptions, RestoreOptions
from vidrestore.settings.tasks import TASKS

LOSSLESS = EncoderOptions(lossless=True)


def packets_of(
    path: Path, kind: str, number: int = 0
) -> list[tuple[bytes, Fraction, Fraction]]:
    """(bytes, begin, duration) in seconds of a stream's packets, without MP4's empty subtitles."""
    with av.open(str(path)) as container:
        stream = [each for each in container.streams if each.type == kind][number]
        found = [packet for packet in container.demux(stream) if packet.size > 2]
        return [
            (
                bytes(each),
                each.pts * each.time_base,
                (each.duration or 0) * each.time_base,
            )
            for each in found
        ]


def part(source: Path, output: Path, **options: Any) -> vidrestore.Summary:
    return vidrestore.restore(
        source, output, task="<identity>", encoder=LOSSLESS, **options
    )


def assert_same_pixels(found: list[Frame], expected: list[Frame]) -> None:
    assert len(found) == len(expected)
    for after, before in zip(found, expected, strict=True):
        for plane, other in zip(after.planes, before.planes, strict=True):
            np.testing.assert_array_equal(plane, other)


@pytest.mark.parametrize(
    "start, stop", [("12.2", "15"), ("12.3", "15.001"), ("0.5", "3"), ("23", "40")]
)
@pytest.mark.parametrize("suffix", [".mkv", ".mp4", ".mov"])
def test_a_part_has_exactly_the_frames_and_packets_that_begin_in_it(
    tmp_path, suffix, start, stop
):
    codec = {".mkv": "pcm_s16le", ".mp4": "flac", ".mov": "alac"}[suffix]
    source, output = (
        long_video(tmp_path / f"in{suffix}", sound=codec),
        tmp_path / f"out{suffix}",
    )
    first, last = Fraction(start), Fraction(stop)
    summary = part(source, output, start=first, duration=last - first)
    with VideoReader(str(source)) as reader:
        tick = reader.info.video.time_base
        wanted = [
            frame for frame in reader.frames() if first <= frame.pts * tick < last
        ]
    found = frames_of(output)
    assert summary.frames == len(wanted) and summary.exit_code == 0
    begin = wanted[0].pts
    times = [(frame.pts - begin, frame.duration) for frame in wanted]
    assert [(frame.pts, frame.duration) for frame in found] == times
    assert_same_pixels(found, wanted)
    shift = begin * tick
    sound = [
        (data, time - shift)
        for data, time, _ in packets_of(source, "audio")
        if shift <= time < last
    ]
    assert (
        [(data, time) for data, time, _ in packets_of(output, "audio")] == sound != []
    )


def test_sound_of_a_transport_stream_is_cut_to_the_part(tmp_path):
    source = long_video(
        tmp_path / "in.ts", sound="mp2", times=list(range(0, 26000, 500))
    )
    output = tmp_path / "out.mkv"
    part(source, output, start=Fraction(13), duration=Fraction(2))
    whole, found = frames_of(source), frames_of(output)
    assert_same_pixels(found, whole[26:30])
    begin, end = (whole[index].pts * Fraction(1, 90000) for index in (26, 30))
    sound = [
        (data, time - begin)
        for data, time, _ in packets_of(source, "audio")
        if begin <= time < end
    ]
    copied = packets_of(output, "audio")
    assert [data for data, _, _ in copied] == [data for data, _ in sound]
    pairs, tick = zip(copied, sound, strict=True), Fraction(1, 1000)  # of Matroska
    assert all(abs(after[1] - before[1]) <= tick for after, before in pairs)


@pytest.mark.parametrize("suffix, text", [(".mkv", "subrip"), (".mp4", "mov_text")])
def test_subtitles_on_screen_when_it_begins_or_ends_are_shortened(
    tmp_path, suffix, text
):
    source, output = (
        long_video(tmp_path / f"in{suffix}", text=text),
        tmp_path / f"out{suffix}",
    )
    part(source, output, start=Fraction(12), duration=Fraction(6))
    texts = [
        (float(begin), float(length))
        for _, begin, length in packets_of(output, "subtitle")
    ]
    # the part begins with the frame at 12.1 s and ends at 18 s
    assert texts == [(0, 0.4), (0.9, 0.5), (3.4, 2.5)]


@pytest.mark.parametrize("suffix", [".mkv", ".mp4"])
def test_chapters_are_cut_and_count_from_its_beginning(tmp_path, suffix):
    source, output = long_video(tmp_path / f"in{suffix}"), tmp_path / f"out{suffix}"
    part(source, output, start=Fraction("12.1"), duration=Fraction("3.9"))
    with av.open(str(output)) as container:
        first, second = container.chapters()
    times = [
        each[key] * each["time_base"]
        for each in (first, second)
        for key in ("start", "end")
    ]
    assert times == [0, Fraction(4, 10), Fraction(4, 10), Fraction(39, 10)]
    assert (first["metadata"]["title"], second["metadata"]["title"]) == ("1", "2")


def test_a_further_video_begins_at_a_key_frame_and_decodes(tmp_path):
    source, output = long_video(tmp_path / "in.mkv", angle=True), tmp_path / "out.mkv"
    # up to 23 s; the picture at 22 s needs the one at 24 s
    part(source, output, start=Fraction("12.1"), duration=Fraction("10.9"))
    with av.open(str(source)) as before, av.open(str(output)) as after:
        wanted = {
            frame.pts: frame.to_ndarray()
            for frame in before.decode(before.streams.video[1])
        }
        found = [
            (frame.pts, frame.to_ndarray(), frame.key_frame)
            for frame in after.decode(after.streams.video[1])
        ]
    assert found[0][2] and [pts + 12100 for pts, _, _ in found][:5] == [
        18000,
        19000,
        20000,
        21000,
        22000,
    ]
    for pts, picture, _ in found:
        np.testing.assert_array_equal(picture, wanted[pts + 12100])


def test_a_part_keeps_cover_art_and_titles_but_not_statistics_of_the_source(tmp_path):
    source, output = (
        long_video(tmp_path / "in.mp4", sound="aac", cover=True),
        tmp_path / "out.mp4",
    )
    part(source, output, start=Fraction(13), duration=Fraction(1))
    with av.open(str(output)) as container:
        assert any(
            each.disposition & Disposition.attached_pic
            for each in container.streams.video
        )
    source, output = long_video(tmp_path / "in.mkv"), tmp_path / "out.mkv"
    part(source, output, start=Fraction(13), duration=Fraction(1))
    with av.open(str(output)) as container:
        metadata = container.streams.audio[0].metadata
        assert metadata["language"] == "ita" and "BPS" not in metadata


@pytest.mark.parametrize("suffix", [".mkv", ".mov", ".mp4"])
def test_a_time_code_is_copied_and_counted_on_if_the_part_begins_later(
    tmp_path, suffix
):
    source, output = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    write_content(
        source, Content(times=range(0, 160, 40), track={"timecode": "01:00:00:24"})
    )
    part(source, output)
    assert time_codes(source) == time_codes(output) == {"01:00:00:24"}
    events: list[Event] = []
    part(source, output, start=Fraction("0.08"), overwrite=True, on_event=events.append)
    assert time_codes(output) == {"01:00:01:01"}
    assert not [event for event in events if isinstance(event, Warned)]


def test_a_time_code_that_is_none_is_left_out_of_a_later_part_with_a_warning(tmp_path):
    source, output, events = tmp_path / "in.mkv", tmp_path / "out.mkv", list[Event]()
    write_content(
        source, Content(times=range(0, 160, 40), track={"timecode": "reel 7"})
    )
    part(source, output, start=Fraction("0.04"), on_event=events.append)
    (warning,) = (event.message for event in events if isinstance(event, Warned))
    assert "the time code reel 7 can't be counted on, so it is left out" in warning
    assert time_codes(output) == set()


@pytest.mark.parametrize(
    "rate, omitted", [(Fraction(30000, 1001), 2), (Fraction(60000, 1001), 4)]
)
def test_time_codes_that_leave_numbers_out_follow_each_other_as_if_written_one_by_one(
    rate, omitted
):
    """From 10:08:58 on, over two minutes with omitted numbers and one of ten without."""
    expected = [
        f"10:{minute:02}:{second:02};{number:02}"
        for minute, second in [
            (8, 58),
            (8, 59),
            *((9, second) for second in range(60)),
            (10, 0),
            (10, 1),
        ]
        for number in range(round(rate))
        if second or number >= omitted or minute % 10 == 0
    ]
    assert [
        later_code("10:08:58;00", count, rate) for count in range(len(expected))
    ] == expected
    assert later_code("23:59:59:24", 1, Fraction(25)) == "00:00:00:00"
    assert later_code("00:00:00:25", 1, Fraction(25)) is None


def time_codes(path: Path) -> set[str]:
    with av.open(str(path)) as container:
        found = [item for each in container.streams for item in each.metadata.items()]
        return {value for key, value in found if key.lower() == "timecode"}


def test_a_duration_alone_leaves_the_beginning_as_it_is(tmp_path):
    source, output = (
        long_video(tmp_path / "in.mkv", times=[200, 240, 280, 320, 5000]),
        tmp_path / "out.mkv",
    )
    part(source, output, duration=Fraction("0.12"))
    assert [frame.pts for frame in frames_of(output)] == [200, 240, 280]
    assert [begin for _, begin, _ in packets_of(output, "audio")] == [
        begin
        for _, begin, _ in packets_of(source, "audio")
        if begin < Fraction(32, 100)
    ]


def test_times_count_from_the_first_frame(tmp_path):
    source, output = tmp_path / "in.mkv", tmp_path / "out.mkv"
    write_video(
        source, 5, times=[3000, 3040, 3080, 3120, 3160], time_base=Fraction(1, 1000)
    )
    part(source, output, start=Fraction("0.05"))
    assert_same_pixels(frames_of(output), frames_of(source)[2:])


def copied_by(copier: StreamCopier) -> list[tuple[bytes, int | None]]:
    """Packets of the first stream beside the picture."""
    with av.open(io.BytesIO(), "w", format="matroska") as output, closing(copier):
        copier.add(output, 1)
        copier.start()
        return [(bytes(packet), packet.pts) for packet in copier.up_to(None)]


def test_seeking_finds_the_packets_that_reading_all_finds(tmp_path, monkeypatch):
    source = long_video(tmp_path / "in.mkv")

    def copied() -> list[tuple[bytes, int | None]]:
        return copied_by(
            StreamCopier(str(source), Cut(Span(23000, 26000), Fraction(1, 1000)))
        )

    sought = copied()
    monkeypatch.setattr(StreamCopier, "_seek", lambda self: None)
    assert sought == copied() != []


def test_the_rest_of_a_long_video_is_not_read(tmp_path):
    source = long_video(tmp_path / "in.mkv")
    read = []

    class Watched(Cut):
        def is_passed_by(self, packet: Any) -> bool:
            read.append(packet.pts * packet.time_base if packet.pts is not None else 0)
            return super().is_passed_by(packet)

    copier = StreamCopier(str(source), Watched(Span(None, 1000), Fraction(1, 1000)))
    assert [pts for _, pts in copied_by(copier)] == [0, 250, 500, 750]
    assert max(read) < 13


LATE = r"no frame begins at 30 s or later \(it lasts 2\d\.\d+ s\); choose an earlier `start`"
NEXT = "no frame begins in the chosen part, the next one at 9.000 s"


@pytest.mark.parametrize(
    "options, message",
    [
        ({"start": Fraction(30)}, LATE),
        ({"start": Fraction(5), "duration": Fraction(1)}, NEXT),
    ],
)
def test_a_part_without_a_frame_is_refused_before_work(tmp_path, options, message):
    source = long_video(tmp_path / "in.mkv")
    with pytest.raises(OptionError, match=message):
        part(source, tmp_path / "out.mkv", **options)
    assert not (tmp_path / "out.mkv").exists()


@pytest.mark.parametrize(
    "options", [{"start": Fraction(-1)}, {"duration": Fraction(0)}]
)
def test_a_negative_part_is_refused(options):
    with pytest.raises(OptionError, match="must be"):
        RestoreOptions(**options)


def test_damage_after_the_part_is_not_reported(tmp_path):
    source = tmp_path / "in.mkv"
    write_video(source, 60, "libx264", options={"g": "5"}, size=(128, 96))
    data = bytearray(source.read_bytes())
    for at in range(len(data) * 3 // 4, len(data) - 2000, 997):
        data[at] ^= 0xFF
    source.write_bytes(data)
    with VideoReader(str(source), threads=1) as reader:
        assert len(list(reader.frames(400, 800))) == 10
        assert not reader.damage.found
        list(reader.frames())
        assert reader.damage.found


def test_a_preview_begins_at_the_time_given(tmp_path, monkeypatch):
    monkeypatch.setitem(TASKS, "denoise", IDENTITY_DENOISE)
    source = long_video(tmp_path / "in.mkv")
    assert (
        run("denoise", source, "--preview", "2", "--start", "12.1", "--lossless", "-q")
        == 0
    )
    found = frames_of(tmp_path / "in.preview.mkv")
    assert [frame.pts for frame in found] == [0, 200, 800, 1200, 1900]
    np.testing.assert_array_equal(
        found[0].planes[0], np.hstack([frames_of(source)[8].planes[0]] * 2)
    )
