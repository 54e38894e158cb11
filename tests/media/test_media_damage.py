"""Damaged sources are found out, whole ones are not accused."""

import logging
import random
import re
import zlib
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from fractions import Fraction
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import av
import pytest
from odd_videos import Content, write_content
from sample_videos import copy_packets, write_video

from vidrestore.errors import MediaError
from vidrestore.media.formats.damage import PictureCount
from vidrestore.media.formats.log import collect_errors
from vidrestore.media.reading.probe import packets_of, probe
from vidrestore.media.reading.reader import VideoReader


def read(path: Path, threads: int = 0):
    with VideoReader(str(path), threads=threads) as reader:
        times = [frame.pts for frame in reader.frames()]
        return times, reader.damage


B_FRAMES = {"g": "10", "bf": "3"}
IRREGULAR = [0, 40, 41, 200, 233, 500, 512, 600, 610, 900, 1000, 5000, 5040, 5080]
MS = {"time_base": Fraction(1, 1000)}
HIDDEN = {"auto-alt-ref": "1", "lag-in-frames": "16"}
FRAGMENTS = {"movflags": "frag_keyframe+empty_moov"}
FAST_START = {"movflags": "faststart"}
OPEN_HEVC = {"x265-params": "keyint=8:open-gop=1:log-level=none", "preset": "ultrafast"}
WHOLE = {
    **{f"B-frames in {kind}": (f"a.{kind}", "libx264", {"options": B_FRAMES})
       for kind in ("mp4", "mov", "mkv", "ts", "flv")},
    "fragments": ("a.mp4", "libx264", {"options": B_FRAMES, "container": FRAGMENTS}),
    "fast start": ("a.mp4", "libx264", {"options": B_FRAMES, "container": FAST_START}),
    "open groups": ("a.mp4", "libx264", {"options": {"g": "8", "bf": "3", "x264-params": "open-gop=1"}}),
    "open groups of hevc": ("a.mkv", "libx265", {"options": OPEN_HEVC}),
    "intra refresh": ("a.ts", "libx264", {"options": {"g": "10", "x264-params": "intra-refresh=1"}}),
    "fields": ("a.ts", "libx264", {"options": {"x264-params": "tff=1"}}),
    "a late start": ("a.mp4", "libx264", {"times": range(100, 130), "options": B_FRAMES}),
    **{f"irregular times in {kind}": (f"a.{kind}", "libx264",
                                      {"frames": 14, "times": IRREGULAR, "options": B_FRAMES, **MS})
       for kind in ("mkv", "mp4")},
    "a long last frame": ("a.mkv", "mpeg4", {"frames": 3, "times": [0, 40, 80], "last_duration": 9000, **MS}),
    "sound that is longer": ("a.mkv", "libx264", {"sound": Fraction(3), "options": B_FRAMES}),
    "sound that is longer in mp4": ("a.mp4", "libx264", {"sound": Fraction(3), "options": B_FRAMES}),
    "sound that is longer in ts": ("a.ts", "mpeg2video", {"sound": Fraction(3), "options": {"bf": "2"}}),
    "an irregular transport stream": (
        "a.ts", "libx264",
        {"frames": 11, "times": [90 * time for time in IRREGULAR[:11]], "time_base": Fraction(1, 90000)}),
    "one frame": ("a.mp4", "libx264", {"frames": 1}),
    "two frames": ("a.mkv", "libx264", {"frames": 2}),
    "hidden frames of vp8": ("a.webm", "libvpx", {"options": HIDDEN | {"b": "200k"}}),
    "hidden frames of vp9": ("a.webm", "libvpx-vp9", {"options": HIDDEN | {"cpu-used": "8"}}),
    "av1": ("a.mp4", "libsvtav1", {"options": {"preset": "12"}}),
    "mpeg4 in avi": ("a.avi", "mpeg4", {"options": {"bf": "2"}}),
    "h264 in avi": ("a.avi", "libx264", {"options": {"bf": "0"}}),
    "mpeg2 program stream": ("a.mpg", "mpeg2video", {"options": {"bf": "2", "g": "12"}}),
    "mjpeg": ("a.avi", "mjpeg", {"pix_fmt": "yuvj420p"}),
    "prores": ("a.mov", "prores_ks", {"pix_fmt": "yuv422p10le"}),
}  # fmt: skip


@pytest.mark.parametrize("kind", WHOLE)
def test_an_undamaged_file_is_not_reported_as_damaged(tmp_path, kind):
    name, codec, settings = WHOLE[kind]
    path = tmp_path / name
    count = settings.get("frames", 30)
    write_video(path, codec=codec, **{"frames": count, **settings})
    for threads in (0, 1):
        times, damage = read(path, threads)
        assert len(times) == count
        assert damage.sentence is None


@pytest.mark.parametrize("count", [1, 2, 3])
def test_a_video_shorter_than_its_subtitles_is_not_reported_as_damaged(tmp_path, count):
    """FFmpeg gives it the times of the subtitles."""
    path = write_content(
        tmp_path / "short.mkv",
        Content(texts=("subrip",), times=range(0, 40 * count, 40)),
    )
    with VideoReader(str(path)) as reader:
        assert (reader.info.video.start, reader.info.video.end) == (0, 40 * count)
        assert len(list(reader.frames())) == count
        assert not reader.damage.found


def test_a_long_last_packet_that_is_not_shown_last_is_not_damage(tmp_path):
    path = write_content(
        tmp_path / "quick.mov", Content(times=range(3), time_base=Fraction(1, 600))
    )
    times, damage = read(path)
    assert len(times) == 3 and not damage.found


def test_a_stream_without_length_or_duration_is_not_reported_as_damaged(tmp_path):
    path, data = tmp_path / "piped.mkv", bytearray()
    # a writer can't go back in it
    pipe = SimpleNamespace(write=lambda part: data.extend(part) or len(part))
    write_video(path, 30, "libx264", options=B_FRAMES, file=pipe, format="matroska")
    path.write_bytes(data)
    assert probe(str(path)).video.duration is None
    times, damage = read(path)
    assert len(times) == 30 and not damage.found


def test_packets_of_a_screen_recording_that_change_nothing_are_not_damage(tmp_path):
    """TSCC compresses changes by zlib; packets of anything else have no picture."""
    path, changed = tmp_path / "screen.avi", [0, 1, 4, 5]
    with av.open(str(path), "w") as output:
        stream = output.add_mux_stream("tscc", rate=10, width=64, height=48)
        for number in range(8):
            lines = (bytes([64, 20 * number, 10, 200]) + bytes(2)) * 48 + b"\0\1"
            data = packet(
                zlib.compress(lines) if number in changed else bytes(4), number
            )
            data.dts, data.duration, data.time_base, data.stream = (
                number,
                1,
                Fraction(1, 10),
                stream,
            )
            output.mux(data)
    with VideoReader(str(path)) as reader:
        frames = list(reader.frames())
        tick = reader.info.video.time_base
        assert [frame.pts * tick * 10 for frame in frames] == changed
        assert [frame.duration * tick * 10 for frame in frames] == [1, 3, 1, 3]
        assert not reader.damage.found, reader.damage.sentence


def test_a_large_packet_without_a_picture_is_damage(tmp_path):
    path = tmp_path / "zeroed.avi"
    write_video(path, 12, "cinepak", "rgb24")
    data = path.read_bytes()
    with av.open(str(path)) as container:
        packets = [bytes(packet) for packet in container.demux(video=0) if packet.size]
    path.write_bytes(data.replace(packets[5], bytes(len(packets[5]))))
    with VideoReader(str(path)) as reader:
        assert len(list(reader.frames())) == 11 and reader.damage.found


def packet(data: bytes, pts: int) -> av.Packet:
    made = av.Packet(data)
    made.pts, made.is_keyframe = pts, True
    return made


PICTURE = b"\x10" + bytes(20)


@pytest.mark.parametrize(
    "codec, hidden",
    # an alternate reference frame; a picture that was not coded
    [("vp8", b"\x00" + bytes(20)), ("mpeg4", b"\x00\x00\x01\xb6\x10")],
)
def test_packets_without_a_picture_do_not_count_as_missing(codec, hidden):
    count = PictureCount(codec)
    for pts, data in enumerate((PICTURE, hidden, PICTURE)):
        count.add_packet(packet(data, pts), pts)
    for pts in (0, 2):
        count.add_frame(pts, False)
    assert count.missing(finished=True) == 0


def test_two_fields_in_packets_of_their_own_make_one_frame():
    count = PictureCount("h264")
    for pts in range(10):
        count.add_packet(packet(bytes(20), pts), pts)
    for pts in range(0, 10, 2):
        count.add_frame(pts, True)
    assert count.missing(finished=True) == 0


@pytest.mark.parametrize("first", [3, 12])
def test_an_edit_list_that_hides_frames_is_not_damage(tmp_path, first):
    whole, path = tmp_path / "whole.mkv", tmp_path / "trimmed.mp4"
    write_video(whole, 30, "libx264", options={"g": "10", "bf": "2"})

    def earlier(packet: av.Packet) -> list[av.Packet]:
        packet.pts -= first * 40  # what ends up before 0 is hidden by an edit list
        packet.dts = None if packet.dts is None else packet.dts - first * 40
        if packet.dts is None and packet.is_keyframe:
            packet.dts = packet.pts - 120
        return [packet]

    copy_packets(whole, path, earlier)
    times, damage = read(path)
    assert len(times) == 30 - first
    assert not damage.found, damage.sentence


def test_a_recording_that_begins_between_key_frames_is_not_damage(tmp_path):
    whole, path = tmp_path / "whole.ts", tmp_path / "cut.ts"
    write_video(whole, 40, "libx264", options={"g": "10", "bf": "2"})
    data = whole.read_bytes()
    path.write_bytes(data[len(data) // 188 // 3 * 188 :])
    times, damage = read(path)
    assert 20 <= len(times) < 40
    assert not damage.found, damage.sentence


def flip(path: Path, count: int, where: float = 0.3) -> None:
    """Flip bits of the coded pictures, from the part `where` of an MP4 (index in front) or MKV on."""
    data = bytearray(path.read_bytes())
    begin = max(data.find(b"mdat"), 0)
    begin += int((len(data) - begin) * where)
    end = len(data) if path.suffix == ".mp4" else len(data) * 9 // 10
    chance = random.Random(9)
    for _ in range(count):
        data[chance.randrange(begin, end)] ^= 1 << chance.randrange(8)
    path.write_bytes(data)


def test_frames_of_damaged_packets_are_marked(tmp_path):
    path = tmp_path / "flipped.mp4"
    options = {"g": "10", "bf": "0", "slices": "4"}
    write_video(
        path, 60, "libx264", options=options, size=(160, 120), container=FAST_START
    )
    flip(path, 60)
    with VideoReader(str(path), threads=2) as reader:
        marked = [frame.pts for frame in reader.frames() if frame.corrupt]
        assert marked and marked == reader.damage.corrupt_pts


# at the end, the decoder fails while it is being emptied
@pytest.mark.parametrize("where", [0.3, 0.9])
@pytest.mark.parametrize("options", [B_FRAMES, {"g": "100", "bf": "0"}])
def test_every_number_of_threads_finds_the_same_frames_of_a_damaged_file(
    tmp_path, where, options
):
    path = tmp_path / "flipped.mp4"
    write_video(
        path, 40, "libx264", options=options, size=(160, 120), container=FAST_START
    )
    flip(path, 8000, where)
    found = {threads: read(path, threads) for threads in (1, 2, 4, 7)}
    times, damage = found[1]
    assert len(times) + damage.missing_frames == 40 and damage.missing_frames > 0
    for other_times, other_damage in found.values():
        assert other_times == times
        assert other_damage.missing_frames == damage.missing_frames


def test_messages_that_ffmpeg_logs_again_are_collected_again():
    """A damaged file that is read twice gives the same messages; PyAV would leave out what was just said."""
    messages: list[str] = []
    for _ in range(2):
        with (
            collect_errors(frozenset({"h264"}), messages.append) as errors,
            errors.calling(),
        ):
            av.logging.log(av.logging.ERROR, "h264", "bad macroblock")
    assert messages == ["h264: bad macroblock"] * 2


def fragmented(path: Path) -> list[bytes]:
    """A file of fragments in its parts: what comes before them, each fragment, and the index behind them."""
    container = {"movflags": "frag_keyframe+empty_moov+default_base_moof"}
    write_video(path, 40, "libx264", options=B_FRAMES, container=container)
    # before the length of each
    return re.split(rb"(?s)(?=.{4}(?:moof|mfra))", path.read_bytes())


@pytest.mark.parametrize("lost", [1, 3, -2])
def test_a_lost_fragment_is_found(tmp_path, lost):
    path = tmp_path / "a.mp4"
    parts = fragmented(path)
    del parts[lost]
    path.write_bytes(b"".join(parts))
    times, damage = read(path)
    assert 20 < len(times) < 40
    assert "1 of its fragments are missing" in damage.sentence


def test_a_hole_between_fragments_is_found_by_their_times(tmp_path):
    path = tmp_path / "a.mp4"
    parts = fragmented(path)
    del parts[3]
    # no numbers, and no index
    after = [part.replace(b"mfhd", b"free") for part in parts[:-1]]
    path.write_bytes(b"".join(after))
    assert "the video lacks 0." in " ".join(read(path)[1].messages)


@pytest.mark.parametrize("codec", ["libx264", "libx265", "mpeg2video"])
def test_a_transport_stream_cut_short_or_out_of_step_is_found(tmp_path, codec):
    path = tmp_path / "a.ts"
    write_video(path, frames=40, codec=codec)
    data = path.read_bytes()
    path.write_bytes(data[: len(data) * 3 // 4 // 188 * 188 + 100])
    assert "88 bytes of its last packet are missing" in read(path)[1].messages[0]
    path.write_bytes(data[: 188 * 60 + 50] + data[188 * 60 + 51 :])
    with VideoReader(str(path)) as reader, suppress(MediaError):
        list(reader.frames())
    assert "out of step" in reader.damage.messages[0]


@pytest.mark.parametrize(
    "name, mark, harm",
    [
        ("a.mkv", b"\xa3", b"\xa1"),  # no element of a cluster
        ("a.mkv", b"\xa3", b"\xab"),  # one that is a number
        ("a.mkv", b"\x81\x01\x40", b"\x82"),  # a block of track 2
        ("a.avi", b"00dc", b"01"),  # a chunk of stream 1
        ("a.avi", b"00dc", b"00dc\xff\xff\xff\xff"),  # longer than the file
        ("a.avi", b"00dc", b"\0"),
    ],
)
def test_packets_whose_heads_were_overwritten_are_found(tmp_path, name, mark, harm):
    path = tmp_path / name
    write_video(path, 10)
    data = bytearray(path.read_bytes())
    fifth = (
        data.rindex(b"\x81\x01\x40")
        if name == "a.mkv"
        else data.rindex(b"00dc", 0, data.rindex(b"idx1"))
    )
    place = data.rindex(mark, 0, fifth + 4)  # of the block at 0.32 s, or the last chunk
    data[place : place + len(harm)] = harm
    path.write_bytes(data)
    times, damage = read(path)
    assert len(times) < 10
    assert (
        "something other than a packet lies between the packets, at byte"
        in damage.sentence
    )


def test_packets_of_a_stream_that_begins_within_the_file_are_left_out_and_counted():
    found = iter([1, 2, None, 3, None, None, 4])

    def demux(streams):
        for packet in found:
            if packet is None:
                raise IndexError("list index out of range")  # as PyAV 18 does
            yield packet

    late = Mock()
    assert list(packets_of(Mock(demux=demux), None, late)) == [1, 2, 3, 4]
    assert late.call_count == 3


def test_a_long_hole_in_a_transport_stream_is_found_but_a_low_frame_rate_is_not_damage(
    tmp_path,
):
    path = tmp_path / "a.ts"
    rate = Fraction(1, 90000)
    times = [3600 * (number + 50 * (number >= 20)) for number in range(40)]
    write_video(path, frames=40, codec="libx264", times=times, time_base=rate)
    assert "the video lacks 2.0" in read(path)[1].sentence
    slow = [180000 * number for number in range(8)]
    write_video(path, frames=8, codec="libx264", times=slow, time_base=rate)
    assert not read(path)[1].found


def test_a_packet_that_its_container_marks_corrupt_is_damage(tmp_path):
    path = tmp_path / "marked.ts"
    write_video(path, 12, "libx264", options={"bf": "0"})
    data = bytearray(path.read_bytes())
    video = [
        at
        for at in range(0, len(data), 188)
        if data[at + 1] & 0x1F == 1 and data[at + 2] == 0
    ]
    # the bit that a receiver sets where it could not correct the packet
    data[video[40] + 1] |= 0x80
    path.write_bytes(data)
    times, damage = read(path)
    assert len(times) == 12
    assert "is marked corrupt" in damage.sentence


def test_a_stream_that_ends_before_its_own_duration_is_found(tmp_path):
    """Whole to the last byte, but a third of the pictures was left out when it was copied."""
    whole, path = tmp_path / "whole.mkv", tmp_path / "less.mkv"
    write_video(whole, 60, "libx264")
    copy_packets(
        whole, path, lambda packet: [packet] * (packet.dts is None or packet.dts < 1600)
    )
    tag = b"00:00:01.680000000"
    data = path.read_bytes()
    if tag not in data:
        pytest.skip("this FFmpeg writes no such tag")
    path.write_bytes(data.replace(tag, b"00:00:02.400000000"))
    _, damage = read(path)
    assert damage.early_end == Fraction(72, 100)
    assert "0.720 s before its own promised end" in damage.sentence


def test_the_settings_of_ffmpegs_log_are_restored(tmp_path):
    path = tmp_path / "plain.mkv"
    write_video(path, 5, "libx264")
    handlers = list(logging.getLogger("libav").handlers)
    for level in (None, av.logging.WARNING):
        av.logging.set_level(level)
        try:
            with VideoReader(str(path)) as first, VideoReader(str(path)) as second:
                frames = first.frames()
                next(frames)
                next(second.frames())
                first.close()  # not the one opened last
                next(second.frames())
            assert av.logging.get_level() == level
            assert logging.getLogger("libav").handlers == handlers
        finally:
            av.logging.set_level(None)


def test_errors_of_another_component_are_not_damage_of_the_source(tmp_path):
    path = tmp_path / "plain.mkv"
    write_video(path, 10, "libx264")
    with VideoReader(str(path)) as reader:
        for _ in reader.frames():
            av.logging.log(av.logging.ERROR, "libx264", "an encoder's own trouble")
        assert not reader.damage.found


@pytest.mark.parametrize("threads", [1, 3])
def test_errors_of_a_video_in_another_thread_are_not_damage_of_the_source(
    tmp_path, threads
):
    paths = [
        tmp_path / name
        for name in ("whole.mp4", "broken.mp4", "whole2.mp4", "broken2.mp4")
    ]
    for path, flips in zip(paths, (0, 60, 0, 30), strict=True):  # x264 varies
        write_video(path, 60, "libx264", options=B_FRAMES, container=FAST_START)
        flip(path, flips)
    alone = [read(path, threads) for path in paths]
    assert [damage.found for _, damage in alone] == [False, True, False, True]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(8):
            together = pool.map(read, paths, [threads] * 4)
            for (times, damage), (found_times, found) in zip(
                alone, together, strict=True
            ):
                assert found_times == times
                assert set(found.messages) == set(damage.messages)


def test_errors_of_more_decoders_than_marks_are_separated(tmp_path):
    whole, broken = tmp_path / "whole.mkv", tmp_path / "broken.mkv"
    for path, flips in ((whole, 0), (broken, 30)):
        write_video(path, 30, "libx264", options=B_FRAMES)
        flip(path, flips)
    with ExitStack() as stack:
        readers = [
            stack.enter_context(VideoReader(str(path))) for path in [whole, broken] * 6
        ]
        assert (
            len(list(zip(*(reader.frames() for reader in readers), strict=True))) == 30
        )
        assert [reader.damage.found for reader in readers] == [False, True] * 6


def test_leaving_a_damaged_file_early_does_not_hang(tmp_path):
    """A decoder's thread that wants to log needs the GIL, which PyAV holds while it closes the decoder."""
    path = tmp_path / "flipped.mp4"
    write_video(
        path, 60, "libx264", options=B_FRAMES, size=(160, 120), container=FAST_START
    )
    flip(path, 200)
    for count in range(0, 60, 4):
        with VideoReader(str(path), threads=8) as reader:
            for _, _ in zip(range(count), reader.frames(), strict=False):
                pass
