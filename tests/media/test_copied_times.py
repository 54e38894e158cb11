"""Sound whose time stamps are odd: repaired where nothing is lost by it, else refused before work."""

from fractions import Fraction

import pytest
from written_videos import extras, made_frames, packets, rich_video, write

from vidrestore.errors import MediaError
from vidrestore.media.formats.source import Target
from vidrestore.media.reading.probe import probe
from vidrestore.media.writing.streams import check_packets, check_streams

DELAY = 21  # ms, of AAC


def with_times(tmp_path, changes):
    """A Matroska file whose packets of AAC have other times, in ms, by number.

    A block begins with its track, 2, its time in 16 bits, counted from its cluster's (0 here), and flags.
    """
    path = tmp_path / "in.mkv"
    rich_video(path, extras(codec="mpeg4"))  # one group of pictures, so one cluster
    data = path.read_bytes()
    sound = packets(path)[1]
    for number, time in changes.items():
        old = round(1000 * sound[number][1])
        before, after = ((each + DELAY).to_bytes(2, "big") for each in (old, time))
        assert data.count(b"\x82" + before + b"\x80") == 1
        data = data.replace(b"\x82" + before + b"\x80", b"\x82" + after + b"\x80")
    path.write_bytes(data)
    return probe(str(path))


def restored(source, output):
    copy = check_streams(source, output)
    warnings = check_packets(source, output, copy)
    times = [(41 * number, 41) for number in range(12)]
    write(source, output.path, made_frames(source, times), copy=copy)
    return warnings


@pytest.mark.parametrize("name", ["out.mkv", "out.mp4"])
@pytest.mark.parametrize("number, time", [(5, 64), (5, 20), (1, -21), (22, 10)])
def test_one_wrong_time_is_moved_behind_the_one_before_and_reported_once(
    name, number, time, tmp_path
):
    source, output = with_times(tmp_path, {number: time}), Target(str(tmp_path / name))
    warnings = restored(source, output)
    # Matroska takes equal times
    if (name, time) not in {("out.mkv", 64), ("out.mkv", -21)}:
        assert len(warnings) == 1
        assert (
            "stream 1 (audio: aac): 1 packet has a time before the one that it follows"
            in warnings[0]
        )
    before, after = packets(tmp_path / "in.mkv")[1], packets(output.path)[1]
    assert [data for data, _ in after] == [data for data, _ in before]
    times = [time for _, time in after]
    assert times == sorted(times)
    others = [each for each in range(len(before)) if each != number]
    assert all(
        abs(before[each][1] - times[each]) <= Fraction(1, 1000) for each in others
    )


def test_sound_that_begins_again_is_refused_before_work_with_stream_time_and_advice(
    tmp_path,
):
    source = with_times(tmp_path, {1: 500})
    output = Target(str(tmp_path / "out.mp4"))
    words = r"stream 1 \(audio: aac .*\) can't be copied at 0.\d* s: .*drop=audio"
    with pytest.raises(MediaError, match=words):
        check_packets(source, output, (1,))


def test_sound_with_rising_times_is_not_repaired(tmp_path):
    source = rich_video(
        tmp_path / "in.mkv", extras(audio=("aac", "flac"), subtitles=("subrip",))
    )
    assert check_packets(source, Target(str(tmp_path / "out.mkv")), (1, 2, 3)) == ()
