"""How a video was scanned is asked of its pictures: fields, film in fields, both fields of one moment."""

from fractions import Fraction
from itertools import count, pairwise

import av
import numpy as np
import pytest
from sample_videos import copy_packets, encoded, video_frame, write_video
from scanned_videos import (
    NTSC,
    SIZE,
    apart,
    interlaced,
    moments,
    telecined,
    write_frames,
)
from written_videos import frames_of

import vidrestore
from vidrestore.errors import MediaError, OptionError
from vidrestore.events import Event, Planned
from vidrestore.media.reading.reader import VideoReader
from vidrestore.media.reading.scan import look_at
from vidrestore.settings.options import EncoderOptions

LOSSLESS = EncoderOptions(lossless=True)


def read(path, start=None, stop=None, **options):
    """Luma of the frames, with their times and what their scan is called."""
    with VideoReader(str(path), **{"scan": "auto", **options}) as reader:
        frames = list(reader.frames(start, stop))
        return (
            [frame.planes[0] for frame in frames],
            [frame.pts for frame in frames],
            reader.scan.in_words,
        )


def same(frames, others):
    return len(frames) == len(others) and all(
        np.array_equal(*pair) for pair in zip(frames, others, strict=True)
    )


@pytest.mark.parametrize("order", [None, "tt", "bb"])
@pytest.mark.parametrize("top", [True, False])
def test_film_in_fields_is_whole_again_however_it_is_marked(tmp_path, order, top):
    pictures = moments(24)
    result, times, words = read(
        write_frames(tmp_path / "in.mkv", telecined(pictures, top), order=order)
    )
    assert same(result, pictures)
    assert words == "film, 4 frames of 5 (fields repeat as in 3:2 pulldown)"
    for time, number in zip(times, count()):  # quarters of a millisecond
        assert abs(time / 4000 - number * 1.001 / 24) < 0.001


@pytest.mark.parametrize("sigma", [4, 8])
def test_film_with_noise_of_each_field_has_24_different_frames_of_30(tmp_path, sigma):
    random = np.random.default_rng(1)
    clean = moments(24)
    noisy = [
        np.clip(frame + random.normal(0, sigma, SIZE), 0, 255)
        for frame in telecined(clean)
    ]
    result, _, _ = read(
        write_frames(tmp_path / "in.mkv", [frame.astype(np.uint8) for frame in noisy])
    )
    distances = np.array(
        [
            [np.abs(frame - picture.astype(float)).mean() for picture in clean]
            for frame in result
        ]
    )
    assert [*distances.argmin(1)] == [*range(24)]
    assert distances.min(1).max() < sigma, "no field of another moment"
    assert not any(
        np.array_equal(one[0::2], other[0::2]) for one, other in pairwise(result)
    )


@pytest.mark.parametrize("suffix", [".mkv", ".mp4"])
def test_any_part_of_film_has_the_frames_of_the_whole(tmp_path, suffix):
    path = write_frames(tmp_path / f"in{suffix}", telecined(moments(24)))
    frames, times, _ = read(path)
    for first in range(len(times)):
        part, part_times, _ = read(
            path, times[first], times[min(first + 3, len(times) - 1)]
        )
        stop = first + len(part)
        assert part_times == times[first:stop] and same(part, frames[first:stop])
        assert len(part) == min(3, len(times) - 1 - first)


@pytest.mark.parametrize("suffix", [".mkv", ".mp4"])
def test_restored_film_lasts_as_long_as_its_sound(tmp_path, suffix):
    source, output = tmp_path / f"in{suffix}", tmp_path / f"out{suffix}"
    write_frames(source, telecined(moments(24)), sound=True)
    events: list[Event] = []
    vidrestore.restore(
        source, output, task="<identity>", encoder=LOSSLESS, on_event=events.append
    )
    (planned,) = (event for event in events if isinstance(event, Planned))
    assert planned.frames == 24 and planned.details["decisions"]["scan"].startswith(
        "film, 4 frames of 5"
    )
    with VideoReader(str(output)) as reader, VideoReader(str(source)) as before:
        result, video = list(reader.frames()), reader.info.video
        stored = list(before.frames())
        end = (stored[-1].pts + stored[-1].duration) * before.info.video.time_base
    assert same([frame.planes[0] for frame in result], moments(24))
    assert video.rate is not None and abs(video.rate - Fraction(24000, 1001)) < 0.01
    tick = video.time_base
    assert abs((result[-1].pts + result[-1].duration) * tick - end) <= Fraction(1, 500)
    assert all(
        abs(frame.pts * tick - number * 1 / (NTSC * 4 / 5)) < 0.001
        for number, frame in enumerate(result)
    )
    with av.open(str(output)) as one, av.open(str(source)) as other:
        sounds = (
            [bytes(packet) for packet in each.demux(audio=0)] for each in (one, other)
        )
        assert next(sounds) == next(sounds)


def test_a_part_of_film_by_its_time_is_that_of_the_whole(tmp_path):
    source = write_frames(tmp_path / "in.mkv", telecined(moments(24)))
    settings = {"task": "<identity>", "encoder": LOSSLESS}
    vidrestore.restore(
        source,
        tmp_path / "out.mkv",
        **settings,
        start=Fraction(1, 3),
        duration=Fraction(1, 4),
    )
    assert same(
        [frame.planes[0] for frame in frames_of(tmp_path / "out.mkv")],
        moments(24)[8:14],
    )


@pytest.mark.parametrize("extra", [1, 2, 3, 4])
def test_frames_after_the_last_whole_cycle_of_film_all_stay(tmp_path, extra):
    frames = telecined(moments(28))[: 30 + extra]
    result, times, _ = read(write_frames(tmp_path / "in.mkv", frames))
    assert len(result) == 24 + extra and same(result[:24], moments(24))
    assert times == sorted(set(times))


def test_video_within_film_keeps_every_frame_at_its_time(tmp_path):
    pictures = moments(48)
    frames = (
        telecined(pictures[:16])
        + interlaced(pictures[16:36])
        + telecined(pictures[36:])
    )
    path = write_frames(tmp_path / "in.mkv", frames)
    result, times, _ = read(path, scan="film")
    assert len(result) == 16 + 10 + 12
    assert same(result[:15], pictures[:15]) and same(result[-11:], pictures[-11:])
    for index, time in enumerate(times[16:26]):
        assert abs(time / 4000 - (20 + index) / NTSC) < 0.002
    part, part_times, _ = read(path, times[20], scan="film")
    assert part_times == times[20:] and same(part, result[20:])


def test_a_hole_in_film_shifts_no_frame_after_it(tmp_path):
    frames = telecined(moments(24))
    path = tmp_path / "in.mkv"
    write_frames(path, frames)
    times = [frame.pts for frame in frames_of(path)]
    holed = copy_packets(
        path,
        tmp_path / "holed.mkv",
        lambda packet: [packet] * (packet.pts not in times[7:9]),
    )
    found, _, _ = read(holed, scan="film")
    assert same(found[-12:], moments(24)[-12:])


@pytest.mark.parametrize("rate", [Fraction(25), NTSC])
def test_both_fields_of_one_moment_are_left_alone_though_marked_interlaced(
    tmp_path, rate
):
    pictures = moments(24)
    path = write_frames(tmp_path / "in.mkv", pictures, rate, order="tt")
    result, times, words = read(path)
    assert same(result, pictures) and len(times) == 24
    assert (
        words
        == "frames left whole (marked interlaced, but both fields show one moment)"
    )


def test_fields_of_a_moment_in_two_frames_are_paired_anew(tmp_path):
    pictures = moments(24)
    result, _, words = read(
        write_frames(tmp_path / "in.mkv", apart(pictures), Fraction(25))
    )
    assert same(result[1:], pictures[1:-1]) and "a moment lie in two frames" in words


def test_film_and_video_by_turns_keep_every_frame_of_film(tmp_path):
    pictures = moments(76)
    frames = telecined(pictures[:16]) + interlaced(pictures[16:36])
    path = write_frames(tmp_path / "in.mkv", frames)
    result, _, words = read(path)
    assert (
        words
        == "fields matched, deinterlaced where they differ (whole frames and fields take turns)"
    )
    assert len(result) == 30
    assert {
        index
        for frame in result[:20]
        for index, picture in enumerate(pictures)
        if (frame == picture).all()
    } == {*range(16)}
    combed = sum(
        np.array_equal(frame, other)
        for frame, other in zip(result[20:], frames[20:], strict=True)
    )
    assert combed == 0
    assert [frame.real_rows for frame in frames_of(path, scan="auto")] == [
        None
    ] * 20 + [0] * 10


@pytest.mark.parametrize("top", [True, False])
def test_measured_fields_overrule_marks_of_the_other_order(tmp_path, top):
    pictures = moments(28, step=2)
    order = "bb" if top else "tt"
    path = write_frames(tmp_path / "in.mkv", interlaced(pictures, top), order=order)
    result, _, words = read(path, double_rate=True)
    one, other = ("top", "bottom") if top else ("bottom", "top")
    assert f"marked {other} field first, but the {one} field is earlier" in words
    places = [
        np.argmin(
            [np.abs(frame - picture.astype(float)).mean() for picture in pictures]
        )
        for frame in result
    ]
    assert places == [*range(28)]


@pytest.mark.parametrize(
    "count, step, sigma", [(14, 6, 12), (14, 0.4, 0), (24, 0.4, 6), (5, 2, 0)]
)
def test_short_calm_and_noisy_fields_are_found(tmp_path, count, step, sigma):
    frames = interlaced(moments(2 * count, step, sigma))
    _, _, words = read(write_frames(tmp_path / "in.mkv", frames, Fraction(25)))
    assert words == "deinterlaced (looks interlaced, top field first)"


def coded(pictures):
    """Luma of pictures behind MPEG-4 of progressive blocks."""
    chroma = np.full((SIZE[0] // 2, SIZE[1] // 2), 128, np.uint8)
    frames = [
        video_frame("yuv420p", (luma, chroma, chroma), pts)
        for pts, luma in enumerate(pictures)
    ]
    decoder = av.CodecContext.create("mpeg4", "r")
    packets = [*encoded("mpeg4", frames, {"b": "400000"}), None]
    results = [frame for packet in packets for frame in decoder.decode(packet)]
    return [frame.to_ndarray()[: SIZE[0]].astype(np.float32) for frame in results]


def as_large_as_tape(pictures):
    return [np.tile(picture, (4, 1)) for picture in pictures]


@pytest.mark.parametrize("sigma", [6, 12])
def test_calm_fields_of_a_tape_behind_a_progressive_coder_are_found(sigma):
    fields = coded(interlaced(moments(32, step=0.2, sigma=sigma)))
    look = look_at(iter(as_large_as_tape(fields)))
    assert look is not None and (look.kind, look.order) == ("fields", "tff")
    frames = coded(moments(16, step=0.2, sigma=sigma))
    assert look_at(iter(as_large_as_tape(frames))).kind == "whole"


@pytest.mark.parametrize("sigma", [0, 6, 12])
def test_small_fields_behind_a_progressive_coder_are_found_by_their_combs(sigma):
    look = look_at(iter(coded(interlaced(moments(32, step=1, sigma=sigma)))))
    assert look is not None and (look.kind, look.order) == ("fields", "tff")


@pytest.mark.parametrize("sigma", [0, 2, 6, 12, 20])
def test_drawn_shapes_that_move_by_whole_rows_are_not_fields(sigma):
    """More edges on even rows than on odd ones make one field nearer to the next frame than the other."""
    random, pictures = np.random.default_rng(0), []
    for number in range(16):
        picture = np.full((240, 320), 60, np.float32)
        for top, left, height, value in (
            (20, 20, 40, 200),
            (21, 120, 40, 130),
            (60, 220, 41, 180),
        ):
            picture[top + 2 * number :, left : left + 70][:height] = value
        noisy = picture + random.normal(0, sigma, picture.shape) if sigma else picture
        pictures.append(noisy.astype(np.float32))
    look = look_at(iter(pictures))
    assert look is None or look.kind == "whole"


@pytest.mark.parametrize("sigma", [0, 12])
@pytest.mark.parametrize("step", [0, 0.4, 6])
def test_progressive_video_is_left_alone(tmp_path, step, sigma):
    pictures = moments(16, step, sigma)
    result, _, words = read(write_frames(tmp_path / "in.mkv", pictures, Fraction(25)))
    assert same(result, pictures) and words is None


def test_even_bars_take_no_part():
    frames = []
    for picture in interlaced(moments(32, 0.1)):
        frame = np.full((480, 720), 16, np.float32)
        frame[180:300, 280:440] = picture
        frames.append(frame)
    look = look_at(iter(frames))
    assert look is not None and (look.kind, look.order) == ("fields", "tff")


def test_a_black_picture_with_a_dot_before_the_fields_hides_nothing(recwarn):
    dot = np.zeros(SIZE, np.float32)
    dot[60, 80:84] = 200
    pictures = [dot] + [frame.astype(np.float32) for frame in interlaced(moments(24))]
    look = look_at(iter(pictures))
    assert (look.kind, look.order) == ("fields", "tff")
    assert look_at(iter([dot] * 16)) is None
    assert not recwarn.list


def test_a_crop_changes_nothing_in_how_a_video_was_scanned(given):
    with VideoReader(str(given("mkv_pixelcrop.mkv")), scan="auto") as reader:
        assert reader.scan.in_words is None
        assert next(reader.frames()).planes[0].shape == (104, 136)


def test_the_lowest_lines_of_a_tape_take_no_part(tmp_path):
    frames = []
    for number, picture in enumerate(interlaced(moments(28, 0.4))):
        frame = np.tile(picture, (2, 1))
        # the same skew in both fields
        frame[-10:] = 255 * ((np.arange(160) // 9 + number) % 2)
        frames.append(frame)
    _, _, words = read(write_frames(tmp_path / "in.mkv", frames, Fraction(25)))
    assert words == "deinterlaced (looks interlaced, top field first)"


def test_noise_of_small_still_pictures_is_never_taken_for_fields():
    for seed in range(120):
        random = np.random.default_rng(seed)
        look = look_at(
            iter(
                random.normal(128, 12, (11 + 5 * (seed % 2), 64, 40)).astype(np.float32)
            )
        )
        assert look is None or look.kind == "whole"


@pytest.mark.parametrize(
    "options, error, message",
    [
        (
            {"scan": "film", "double_rate": True},
            OptionError,
            "leave out that, or `scan=film`",
        ),
        (
            {"scan": "progressive", "double_rate": True},
            OptionError,
            "leave out that, or `scan=progressive`",
        ),
        ({"double_rate": True}, OptionError, "the video is film.*leave it out"),
    ],
)
def test_film_has_no_frame_for_each_field(tmp_path, options, error, message):
    write_frames(tmp_path / "in.mkv", telecined(moments(24)))
    with pytest.raises(error, match=message):
        vidrestore.restore(tmp_path / "in.mkv", task="<identity>", **options)
    assert [path.name for path in tmp_path.iterdir()] == ["in.mkv"]


@pytest.mark.parametrize("order", [None, "tt"], ids=["unmarked", "marked"])
def test_whole_frames_have_no_frame_for_each_field(tmp_path, order):
    path = write_frames(tmp_path / "in.mkv", moments(28), order=order)
    message = "the video has whole frames, which have no fields of two moments; leave"
    with pytest.raises(OptionError, match=message):
        VideoReader(str(path), scan="auto", double_rate=True)
    way_out = "tff" if order else "bff"
    with VideoReader(str(path), scan=way_out, double_rate=True) as reader:
        assert sum(1 for _ in reader.frames()) == 56


def test_film_in_pixels_that_cannot_be_matched_is_deinterlaced_and_refused_if_forced(
    tmp_path,
):
    write_video(
        tmp_path / "in.mkv", 6, pix_fmt="yuv422p10le", options={"field_order": "tt"}
    )
    with pytest.raises(
        MediaError,
        match="fields of yuv422p10le can't be matched, only those of.*convert it",
    ):
        VideoReader(str(tmp_path / "in.mkv"), scan="film")
