"""VideoWriter: whole or not at all, the picture's times exact, everything else of the source copied packet
for packet.
"""

import errno
import os
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import replace
from fractions import Fraction
from io import BytesIO
from pathlib import Path

import av
import numpy as np
import pytest
from sample_videos import write_video
from written_videos import (
    CONSTANT,
    VARYING,
    described,
    extras,
    fast_choice,
    made_frames,
    packets,
    read,
    rich_video,
    write,
)

from vidrestore.errors import MediaError
from vidrestore.media.containers.matroska import display_size
from vidrestore.media.formats.encoding import full_duration
from vidrestore.media.formats.source import Target
from vidrestore.media.reading.probe import probe
from vidrestore.media.writing import muxer
from vidrestore.media.writing.stream_copier import StreamCopier
from vidrestore.media.writing.streams import check_streams, pipe_warning
from vidrestore.media.writing.writer import VideoWriter
from vidrestore.media.writing.y4m_output import Y4mOutput
from vidrestore.pixels.frames import Frame


def writer_for(output, source=None, **more):
    source = source or described()
    choice = fast_choice(source, Path("x.mp4"))
    return VideoWriter(str(output), source=source, encoder=choice, copy=(), **more)


def test_a_file_gets_its_name_only_when_it_is_complete(tmp_path):
    with writer_for(tmp_path / "a.mp4") as writer:
        for frame in made_frames(described()):
            writer.write(frame)
            assert [path.suffix for path in tmp_path.iterdir()] == [".partial"]
    assert [path.name for path in tmp_path.iterdir()] == ["a.mp4"]
    assert writer.frames == len(CONSTANT)


def test_an_error_while_writing_leaves_nothing_behind(tmp_path):
    with (
        pytest.raises(RuntimeError, match="model"),
        writer_for(tmp_path / "a.mp4") as writer,
    ):
        writer.write(made_frames(described())[0])
        raise RuntimeError("the model failed")
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_takes_the_name_meanwhile_is_not_overwritten(tmp_path):
    output = tmp_path / "a.mp4"
    taken = pytest.raises(MediaError, match="appeared while it was being made")
    with taken, writer_for(output) as writer:
        writer.write(made_frames(described())[0])
        output.write_text("theirs")
    assert output.read_text() == "theirs"
    assert list(tmp_path.iterdir()) == [output]


@pytest.mark.parametrize("link", [os.symlink, os.link, lambda source, name: None])
def test_the_input_is_never_the_output(link, tmp_path):
    path, name = tmp_path / "in.mp4", tmp_path / "other.mp4"
    source = rich_video(path, extras())
    before = path.read_bytes()
    link(path, name)
    output = name if name.exists() else tmp_path / "." / "in.mp4"
    with pytest.raises(MediaError, match="the output is the input"):
        writer_for(output, source, overwrite=True)
    assert path.read_bytes() == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_without_permission_is_named(tmp_path):
    tmp_path.chmod(0o500)
    with pytest.raises(
        MediaError, match="can't be written to; choose another `output`"
    ):
        writer_for(tmp_path / "a.mp4")


@pytest.mark.parametrize(
    "count, message",
    [(0, "no frame was written"), (4, "4 frames were written, but 6 were expected")],
)
def test_a_wrong_number_of_frames_is_an_error(count, message, tmp_path):
    with pytest.raises(MediaError, match=message):
        write(
            described(), tmp_path / "a.mp4", made_frames(described())[:count], frames=6
        )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "found, message",
    [
        (
            muxer.Times(5, 15015, 0, 5005, 6006),
            "written 6 frames .* but the file reads as 5 frames",
        ),
        (
            muxer.Times(6, 15015, 0, 5005, 10),
            "written up to tick 6006, but the file ends at 10",
        ),
    ],
)
def test_a_file_that_reads_otherwise_than_written_is_discarded(
    tmp_path, monkeypatch, found, message
):
    monkeypatch.setattr(muxer, "read_times", lambda path, container: {"video": [found]})
    with pytest.raises(MediaError, match=message):
        write(described(), tmp_path / "a.mp4", made_frames(described()))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "width, kind, message",
    [
        (32, np.uint8, r"frame 0: planes of .*\(48, 32\).* expected"),
        (64, np.uint16, "frame 0: samples of uint16, .* 8 bits"),
    ],
)
def test_a_frame_that_does_not_fit_is_named(width, kind, message, tmp_path):
    frame = Frame(
        (np.zeros((48, width), kind), *(np.zeros((24, 32), kind) for _ in range(2))), 0
    )
    with (
        pytest.raises(MediaError, match=message),
        writer_for(tmp_path / "a.mp4") as writer,
    ):
        writer.write(frame)


@pytest.mark.parametrize("lacking, is_kept", [(7, True), (300, False)])
def test_the_end_may_lack_a_part_of_a_frame(tmp_path, monkeypatch, lacking, is_kept):
    monkeypatch.setattr(
        muxer,
        "read_times",
        lambda *file: {"video": [muxer.Times(6, 15015, 0, 5005, 6006 - lacking)]},
    )
    with (
        nullcontext()
        if is_kept
        else pytest.raises(MediaError, match="but the file ends at")
    ):
        write(described(), tmp_path / "a.mp4", made_frames(described()))
    assert bool([*tmp_path.iterdir()]) == is_kept


def test_two_frames_in_one_tick_are_an_error_in_mkv_but_not_in_mp4(tmp_path):
    frames = made_frames(described(), [(0, 10), (10, 1001), (1011, 1001)])
    message = "frame 1: its time 10 x 1/24000 s is the tick of the frame before it; .mkv counts 1/1000 s, use"
    with pytest.raises(MediaError, match=message):
        write(described(), tmp_path / "a.mkv", frames)
    write(described(), tmp_path / "a.mp4", frames)
    assert [frame.pts for frame in read(tmp_path / "a.mp4").frames] == [0, 10, 1011]


def test_two_frames_of_one_time_are_an_error_that_names_no_other_container(tmp_path):
    frames = made_frames(described(), [(0, 10), (10, 1001), (10, 1001)])
    message = (
        "frame 2: its time 10 x 1/24000 s is not after the one of the frame before it$"
    )
    with pytest.raises(MediaError, match=message):
        write(described(), tmp_path / "a.mp4", frames)


@pytest.mark.parametrize("name", ["a.mp4", "a.mkv", "a.webm"])
def test_a_video_that_begins_before_0_is_moved_to_0_with_a_warning(name, tmp_path):
    frames = made_frames(
        described(), [(pts - 2400, duration) for pts, duration in CONSTANT]
    )
    (warning,) = write(described(), tmp_path / name, frames)
    assert (
        "the video begins 0.100 s before 0, so all times were moved by 0.100 s"
        in warning
    )
    result = read(tmp_path / name).frames
    assert result[0].pts == 0 and len(result) == len(CONSTANT)


def copied(source, output, drop=frozenset()):
    """Write the source's own frames back, with all it carries."""
    with av.open(source.path) as container:
        stream = container.streams[source.video.index]
        times = [(frame.pts, frame.duration) for frame in container.decode(stream)]
    copy = check_streams(source, Target(str(output)), drop)
    write(source, output, made_frames(source, times), copy=copy, overwrite=True)
    return packets(Path(source.path)), packets(output)


PLAIN = extras(audio=("aac", "flac"))
LETTERS = extras(
    audio=("aac", "libopus"),
    subtitles=("subrip",),
    font=True,
    metadata={"title": "A video", "ODDITY": "kept"},
)


COPIES = [
    *(
        ("in.mp4", PLAIN, "out.mp4"),
        ("in.mp4", PLAIN, "out.mkv"),
        ("in.mkv", PLAIN, "out.mp4"),
    ),
    ("in.mkv", LETTERS, "out.mkv"),
    ("in.mov", extras(audio=("pcm_s16le", "aac")), "out.mov"),
    ("in.mov", extras(audio=("pcm_s16le",)), "out.mkv"),
    ("in.mp4", extras(subtitles=("mov_text",)), "out.mp4"),
    ("in.mkv", extras(audio=("libopus",)), "out.webm"),
]


@pytest.mark.parametrize("origin, extras, target", COPIES)
def test_copied_packets_are_the_sources_own(origin, extras, target, tmp_path):
    source = rich_video(tmp_path / origin, extras)
    before, after = copied(source, tmp_path / target)
    tick = 0 if target.endswith(("mp4", "mov")) else Fraction(1, 2000)
    for index in [
        info.index for info in source.streams if info.kind in ("audio", "subtitle")
    ]:
        assert [data for data, _ in before[index]] == [data for data, _ in after[index]]
        assert all(
            abs(old - new) <= tick
            for (_, old), (_, new) in zip(before[index], after[index], strict=True)
        )


@pytest.mark.parametrize(
    "origin, target",
    [
        ("in.mp4", "out.mp4"),
        ("in.mkv", "out.mkv"),
        ("in.mp4", "out.mkv"),
        ("in.mov", "out.mov"),
    ],
)
def test_titles_languages_chapters_and_metadata_are_copied(origin, target, tmp_path):
    written = {"title": "A video", "artist": "Somebody", "com.example.key": "odd"}
    source = rich_video(
        tmp_path / origin,
        extras(metadata=written, container={"movflags": "+use_metadata_tags"}),
    )
    copied(source, tmp_path / target)
    with av.open(str(tmp_path / target)) as container:
        metadata, chapters = container.metadata, container.chapters()
        assert [chapter["metadata"]["title"] for chapter in chapters] == [
            "part 1",
            "part 2",
        ]
        ends = [
            tuple(each[end] * each["time_base"] for end in ("start", "end"))
            for each in chapters
        ]
        sound = container.streams.audio[0]
        assert sound.metadata["language"] == "ita"
        assert sound.metadata.get("title", sound.metadata.get("name")) == "Sound 0"
    assert ends == [(0, Fraction(20, 100)), (Fraction(20, 100), Fraction(48, 100))]
    assert (
        written.items()
        <= {key.lower(): value for key, value in metadata.items()}.items()
    )


def test_a_stream_encoded_without_its_transparency_is_not_marked_as_having_some(
    tmp_path,
):
    path, output = tmp_path / "in.webm", tmp_path / "out.mkv"
    write_video(path, 3, "libvpx-vp9", "yuva420p", options={"cpu-used": "8"})
    copied(probe(str(path)), output)
    # the element AlphaMode of Matroska, and the tag that FFmpeg copies it to
    data = output.read_bytes()
    assert b"\x53\xc0\x81\x01" in path.read_bytes()
    assert b"\x53\xc0\x81\x01" not in data and b"ALPHA_MODE" not in data.upper()


@pytest.mark.parametrize(
    "targets", [("a.mp4",), ("a.mkv",), ("a.mkv", "b.mkv"), ("a.mkv", "b.mp4")]
)
def test_cover_art_stays_cover_art(targets, tmp_path):
    source = rich_video(tmp_path / "in.mp4", extras(cover=True))
    picture = [data for data, time in packets(tmp_path / "in.mp4")[3]]
    for target in targets:
        copied(source, tmp_path / target)
        source = read(tmp_path / target).info
    cover = next(info for info in source.streams if info.attached_picture)
    assert [data for data, _ in packets(tmp_path / targets[-1])[cover.index]] == picture
    assert len(read(tmp_path / targets[-1]).frames) == 12


def test_dispositions_and_attachments_are_copied_to_mkv(tmp_path):
    source = rich_video(tmp_path / "in.mkv", LETTERS)
    copied(source, tmp_path / "out.mkv")
    with av.open(str(tmp_path / "out.mkv")) as after:
        assert [int(stream.disposition) for stream in after.streams] == [4, 0, 0, 64, 0]
        letters = next(
            stream for stream in after.streams if stream.type == "attachment"
        )
        assert (letters.name, letters.mimetype, letters.data) == (
            "letters.ttf",
            "font/ttf",
            b"glyphs" * 20,
        )


OPUS, TEXT = extras(audio=("libopus",), font=True), extras(subtitles=("mov_text",))
UNHELD = [
    ("in.mkv", LETTERS, "out.mp4", r"stream 3 \(subtitle: .* fra .*stream 4 \(attachment: letters.ttf\); use "
     r"`output=.*out.mkv` or `drop=subtitles,att"),
    ("in.mkv", LETTERS, "in.mp4", r"use `output=.*in.restored.mkv` or `drop="),
    ("in.mp4", TEXT, "out.mkv", r".mkv can't hold stream 2 \(subtitle: mov_text fra.*; use "
     r"`output=.*out.mp4` or `drop=subtitles`"),
    ("in.mkv", OPUS, "out.webm", r".webm can't hold stream 2 \(attachment: letters.ttf\)"),
    ("in.mkv", extras(audio=("libopus",), subtitles=("webvtt", "ass")), "out.webm",
     r"stream 3 \(subtitle: ass.*; use `output=.*out.mkv` or `drop=3`"),
    ("in.mp4", extras(cover=True), "out.mov", r"stream 3 \(cover: mjpeg\); use `output=.*out.mkv` or `drop="),
]  # fmt: skip


@pytest.mark.parametrize("origin, extras, target, message", UNHELD)
def test_streams_that_a_container_cannot_hold_are_refused_before_work_with_advice(
    origin, extras, target, message, tmp_path
):
    source = rich_video(tmp_path / origin, extras)
    with pytest.raises(MediaError, match=message):
        check_streams(source, Target(str(tmp_path / target)))
    drop = {"subtitles", "attachments", "audio", "cover"}
    assert check_streams(source, Target(str(tmp_path / target)), frozenset(drop)) == ()


def test_packets_are_copied_up_to_the_time_of_the_picture(tmp_path):
    source = rich_video(tmp_path / "in.mkv", PLAIN)
    copier = StreamCopier(source.path)
    with av.open(str(tmp_path / "out.mkv"), "w") as output:
        copier.add(output, 1)
        copier.start()
        output.start_encoding()
        early = [
            packet.dts * packet.time_base for packet in copier.up_to(Fraction(1, 10))
        ]
        late = [packet.dts * packet.time_base for packet in copier.up_to(None)]
    copier.close()
    assert max(early) <= Fraction(1, 10) < min(late)
    assert len(early) + len(late) == len(packets(tmp_path / "in.mkv")[1])


def piped(source, frames, **more):
    stream = BytesIO()
    output = Y4mOutput(stream, source, **more)
    for frame in frames:
        output.write(frame)
    output.finish()
    return stream.getvalue()


PIPED = [
    "yuv420p",
    "yuv422p",
    "yuv444p",
    "gray",
    "yuv420p10le",
    "yuv422p10le",
    "yuv444p12le",
    "gray16le",
]


@pytest.mark.parametrize("pix_fmt", PIPED)
@pytest.mark.parametrize("size", [(64, 48), (33, 25)])
def test_a_y4m_pipe_holds_every_sample(pix_fmt, size):
    source = described(pix_fmt, *size, sample_aspect_ratio=Fraction(4, 3))
    frames = made_frames(source)
    data = piped(source, frames)
    assert data.startswith(b"YUV4MPEG2 W%d H%d F24000:1001 Ip A4:3 C" % size)
    with av.open(BytesIO(data), format="yuv4mpegpipe") as container:
        result = list(container.decode(video=0))
        assert container.streams.video[0].average_rate == Fraction(24000, 1001)
    assert result[0].format.name == pix_fmt
    for output, decoded in zip(frames, result, strict=True):
        for plane, stored in zip(output.planes, decoded.planes, strict=True):
            rows = np.frombuffer(stored, plane.dtype).reshape(stored.height, -1)[
                :, : stored.width
            ]
            assert (rows == plane).all()


@pytest.mark.parametrize(
    "location, name",
    [(0, b"420jpeg"), (1, b"420mpeg2"), (2, b"420jpeg"), (3, b"420paldv")],
)
def test_the_header_of_a_pipe_states_the_chroma_location_and_the_range(location, name):
    from vidrestore.pixels.frames import ColourTags

    header = piped(
        described(colour=ColourTags(range=2, chroma_location=location)), []
    ).split(b"\n")[0]
    assert b"C" + name + b" " in header
    assert header.endswith(b"XCOLORRANGE=FULL")


def test_a_varying_rate_is_refused_for_a_pipe_or_converted_to_a_given_rate():
    source = described()
    with pytest.raises(MediaError, match="the frame rate varies .*give one with `cfr`"):
        piped(source, made_frames(source, VARYING))
    with pytest.raises(MediaError, match="12 frames per second on average, 30 at most"):
        piped(described(rate=Fraction(12), base_rate=Fraction(30)), [])
    frames = made_frames(
        source, [(0, 2000), (2000, 1000), (3000, 400), (3400, 600), (4000, 1000)]
    )
    data = piped(source, frames, rate=Fraction(24))
    luma = [part[: 64 * 48] for part in data.split(b"FRAME\n")[1:]]
    assert luma == [frames[number].planes[0].tobytes() for number in (0, 0, 1, 3, 4)]


def test_a_pipe_whose_reader_ended_is_an_error_with_the_reason():
    class Gone(BytesIO):
        def write(self, data):
            if self.tell() > 5000:
                raise BrokenPipeError(errno.EPIPE, "Broken pipe")
            return super().write(data)

    output = Y4mOutput(Gone(), described())
    with pytest.raises(
        MediaError, match="the y4m pipe broke .the program that read it ended"
    ):
        for frame in made_frames(described()):
            output.write(frame)
    output.abort()


def test_a_pipe_warns_of_the_streams_and_tags_that_it_leaves_out(tmp_path):
    source = rich_video(tmp_path / "in.mkv", LETTERS)
    assert str(pipe_warning(source)).endswith(
        "; left out: attachments, audio, chapters, subtitles"
    )
    assert pipe_warning(described()) is None
    turned = str(pipe_warning(described(rotation=-90, content_light=(1000, 400))))
    assert (
        "the rotation by -90 degrees" in turned
        and "HDR's mastering display and light level" in turned
    )


@pytest.mark.parametrize(
    "width, height, ratio, expected",
    [
        (720, 576, Fraction(64, 45), (1024, 576, 0)),
        (720, 480, Fraction(8, 9), (640, 480, 0)),
        (64, 48, Fraction(4, 3), (64, 36, 0)),
        (63, 47, Fraction(10, 11), (630, 517, 3)),
    ],
)
def test_display_sizes_have_the_exact_ratio(width, height, ratio, expected):
    across, down, unit = display_size(width, height, ratio)
    assert (across, down, unit) == expected
    assert Fraction(across, down) == Fraction(width, height) * ratio


def test_the_aspect_of_the_picture_is_written_to_its_track_where_a_cover_comes_first(
    tmp_path,
):
    rich_video(tmp_path / "in.mp4", extras(cover=True))
    (tmp_path / "in.mp4").write_bytes(
        with_tags_first((tmp_path / "in.mp4").read_bytes())
    )
    source = probe(str(tmp_path / "in.mp4"))
    assert source.streams[0].attached_picture
    source = replace(
        source, video=replace(source.video, sample_aspect_ratio=Fraction(4, 3))
    )
    copied(source, tmp_path / "out.mkv")
    assert probe(str(tmp_path / "out.mkv")).video.sample_aspect_ratio == Fraction(4, 3)


def with_tags_first(data: bytes) -> bytes:
    """An MP4 file whose `moov` has its tags, the cover among them, before the tracks."""

    def boxes(start: int, stop: int) -> Iterator[tuple[bytes, int, int]]:
        while start < stop:
            end = start + int.from_bytes(data[start : start + 4], "big")
            yield data[start + 4 : start + 8], start, end
            start = end

    (begin, end), *_ = [
        (start + 8, stop)
        for name, start, stop in boxes(0, len(data))
        if name == b"moov"
    ]
    inside = sorted(
        boxes(begin, end),
        key=lambda box: (box[0] != b"mvhd", box[0] != b"udta", box[1]),
    )
    return (
        data[:begin]
        + b"".join(data[start:stop] for _, start, stop in inside)
        + data[end:]
    )


@pytest.mark.parametrize(
    ("rate", "clock", "durations"),
    [
        (Fraction(24), 1000, {0: 42, 41: 42, 42: 42, 83: 83}),  # 41 2/3
        # 1.1: frames of one tick, the last of two
        (Fraction(300, 11), 30, {0: 1, 1: 1, 2: 2}),
        (Fraction(25), 1000, {0: 40, 40: 40, 39: 39, 41: 41}),
    ],
)
def test_only_an_unknown_duration_or_the_usual_one_cut_short_is_made_the_usual_one(
    rate, clock, durations
):
    video = replace(described().video, rate=rate, time_base=Fraction(1, clock))
    assert {inputs: full_duration(inputs, video) for inputs in durations} == durations
