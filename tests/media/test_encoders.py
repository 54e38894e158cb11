"""The table of encoders: each cell really encodes what it promises, each hole is a refusal that names a way
which works.
"""

import re
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from written_videos import CONSTANT, described, fast_choice, made_frames, read, write

from vidrestore.errors import MediaError, OptionError
from vidrestore.media.formats.encoder_table import ENCODERS, TABLE, EncoderChoice
from vidrestore.media.formats.encoding import picture, try_encoder
from vidrestore.media.formats.pixel_formats import layout_of, planes_of
from vidrestore.media.formats.source import SUFFIXES, Target
from vidrestore.media.reading.reader import VideoReader
from vidrestore.media.writing import encoders
from vidrestore.media.writing.encoders import choose_encoder, usual_crf
from vidrestore.pixels.frames import ColourTags
from vidrestore.settings.options import EncoderOptions

CELLS = [
    (row.name, container, pix_fmt)
    for row in TABLE
    for container in row.containers
    for pix_fmt in row.formats
]
ORDINARY = [
    *(
        "yuv420p",
        "yuv422p",
        "yuv444p",
        "gray",
        "gbrp",
        "yuv420p10le",
        "yuv422p10le",
        "yuv444p10le",
    ),
    *("gray10le", "yuv420p12le", "yuva420p"),
]


def named(container: str) -> Path:
    return Path(f"out{SUFFIXES[container]}")


@pytest.mark.parametrize("encoder, container, pix_fmt", CELLS)
def test_every_cell_of_the_table_gives_back_its_pixel_format(
    encoder, container, pix_fmt, tmp_path
):
    source = described(pix_fmt, 64, 24)
    output = tmp_path / named(container)
    write(
        source,
        output,
        made_frames(source, CONSTANT[:1]),
        EncoderOptions(encoder=encoder),
    )
    stored = ENCODERS[encoder].formats[pix_fmt] if encoder == "ffv1" else pix_fmt
    assert read(output).info.video.format == layout_of(stored).format


@pytest.mark.parametrize("pix_fmt", ["yuva444p12le", "yuva422p12le", "gbrap14le"])
def test_samples_that_older_decoders_of_ffv1_lack_are_stored_in_16_bits(
    tmp_path, pix_fmt
):
    source = described(pix_fmt)
    frames, largest = (
        made_frames(source, CONSTANT[:2]),
        2**source.video.format.depth - 1,
    )
    frames[0].planes[-1][0, 0] = largest  # opaque
    write(source, tmp_path / "a.mkv", frames, EncoderOptions(lossless=True))
    with VideoReader(str(tmp_path / "a.mkv")) as reader:
        assert reader.info.video.format.depth == 16
        for result, frame in zip(reader.frames(), frames, strict=True):
            for deep, plane in zip(result.planes, frame.planes, strict=True):
                assert np.array_equal(deep >> 16 - source.video.format.depth, plane)
            assert frame is frames[1] or result.planes[-1][0, 0] == 65535


@pytest.mark.parametrize("pix_fmt", ["yuv410p", "yuv411p", "yuv420p"])
@pytest.mark.parametrize("size", [(190, 48), (189, 50), (191, 51), (67, 48)])
def test_ffv1_keeps_chroma_that_does_not_fill_the_picture(tmp_path, pix_fmt, size):
    source = described(pix_fmt, *size)
    frames = made_frames(source, CONSTANT[:1])
    write(source, tmp_path / "a.mkv", frames, EncoderOptions(encoder="ffv1"))
    with VideoReader(str(tmp_path / "a.mkv")) as reader:
        (result,) = reader.frames()
    for one, other in zip(result.planes, frames[0].planes, strict=True):
        assert np.array_equal(one, other)


@pytest.mark.parametrize("pix_fmt", ORDINARY)
@pytest.mark.parametrize("container", list(SUFFIXES))
@pytest.mark.parametrize("lossless", [False, True])
@pytest.mark.parametrize("size", [(64, 48), (65, 49)])
def test_every_cell_has_an_encoder_or_a_refusal_whose_advice_works(
    pix_fmt, container, lossless, size
):
    source = described(pix_fmt, *size)
    output = named(container)
    try:
        choice = fast_choice(source, output, EncoderOptions(lossless=lossless))
    except MediaError as error:
        name = re.search(r"`output=NAME(\.\w+)` works", str(error))
        assert name, error
        choice = fast_choice(
            source, Path(f"out{name.group(1)}"), EncoderOptions(lossless=lossless)
        )
    try_encoder(choice, source.video, str(output))


@pytest.mark.parametrize(
    "codec, pix_fmt, name, encoder",
    [
        ("h264", "yuv420p", "a.mp4", "libx264"),
        ("h264", "yuv420p10le", "a.mkv", "libx264"),
        ("hevc", "yuv420p", "a.mp4", "libx265"),
        ("vp9", "yuv420p", "a.webm", "libvpx-vp9"),
        ("av1", "yuv420p10le", "a.mp4", "libsvtav1"),
        ("prores", "yuv422p10le", "a.mov", "prores_ks"),
        ("ffv1", "yuv420p", "a.mkv", "ffv1"),
        ("ffv1", "yuv420p", "a.mp4", "libx264"),
        ("mpeg2video", "yuv420p", "a.mkv", "libx264"),
        ("mpeg2video", "yuv420p10le", "a.mov", "libx265"),
        ("h264", "yuv420p", "a.webm", "libsvtav1"),
        ("h264", "yuv444p", "a.webm", "libvpx-vp9"),
        ("h264", "gray", "a.mp4", "libx265"),
        ("png", "gbrp", "a.mp4", "libx264rgb"),
        ("png", "gray16le", "a.mkv", "ffv1"),
    ],
)
def test_the_default_is_the_sources_codec_or_the_usual_one_of_the_container(
    codec, pix_fmt, name, encoder
):
    assert fast_choice(described(pix_fmt, codec=codec), Path(name)).encoder == encoder


@pytest.mark.parametrize(
    "name, pix_fmt, encoder",
    [
        ("a.mkv", "yuv420p", "ffv1"),
        ("a.mp4", "yuv420p", "libx264"),
        ("a.mov", "yuv420p12le", "libx265"),
        ("a.webm", "yuv420p", "libvpx-vp9"),
    ],
)
def test_lossless_is_ffv1_in_mkv_and_the_usual_encoder_without_loss_elsewhere(
    name, pix_fmt, encoder
):
    assert (
        fast_choice(
            described(pix_fmt), Path(name), EncoderOptions(lossless=True)
        ).encoder
        == encoder
    )


@pytest.mark.parametrize(
    "encoder", [row.name for row in TABLE if row.lossless is not None]
)
def test_lossless_output_has_every_sample_of_its_input(encoder, tmp_path):
    row = ENCODERS[encoder]
    for pix_fmt in [name for name in row.formats if name in ORDINARY]:
        source = described(pix_fmt, 64, 24)
        output = tmp_path / f"{pix_fmt}{SUFFIXES[row.containers[0]]}"
        frames = made_frames(source, CONSTANT[:3])
        write(source, output, frames, EncoderOptions(encoder=encoder, lossless=True))
        for made, result in zip(frames, read(output).frames, strict=True):
            pairs = zip(made.planes, result.planes, strict=True)
            assert all((ours == theirs).all() for ours, theirs in pairs), pix_fmt


given = EncoderOptions
LIBVPX, SVT, X264, PRORES = "libvpx-vp9", "libsvtav1", "libx264", "prores_ks"
HOLES = [  # in the table, by the source: refused with a way out
    ("a.webm", ["yuv420p"], given(encoder=X264), "libx264: .webm can't hold h264; `encoder=libsvtav1` can"),
    ("a.mp4", ["yuv444p"], given(encoder=SVT), "can't keep the pixel format yuv444p; `encoder=libx264` can"),
    ("a.mov", ["yuv420p"], given(encoder=LIBVPX), "can't hold vp9; `encoder=libx264` can"),
    ("a.mov", ["yuv422p10le"], given(encoder=PRORES, lossless=True), "no lossless mode; `encoder=libx264`"),
    ("a.webm", ["yuv420p12le"], given(), r"yuv420p12le at 64x48; `output=NAME.mkv` works \(with libx265\)"),
    ("a.mp4", ["yuv420p", 33, 25], given(encoder=X264), "libx264: it can't hold the odd size 33x25 at "
     "yuv420p; `encoder=libsvtav1` can"),
    ("a.mp4", ["yuv420p", 48, 64], given(encoder="libx265"), "libx265: it needs at least 64x16 pixels, the "
     "video has 48x64; `encoder=libx264` can"),
    ("a.mp4", ["yuv420p", 24, 64], given(encoder=SVT), "libsvtav1: it needs at least 32x16 pixels, the video "
     "has 24x64; `encoder=libx264` can"),
    ("-", ["gbrp"], given(), "a y4m pipe can't hold gbrp; write a file instead"),
    ("-", ["yuv420p"], given(encoder=X264), "a y4m pipe holds raw frames only"),
    ("a.mp4", ["yuv420p"], given(options={"profile": "warp"}), "can't encode yuv420p with .*profile=warp"),
    *(("a.mkv", ["yuv420p"], given(encoder=name, options={"foo": "bar"}), f"a.mkv: {name} has no option foo")
      for name in (X264, "libx265", SVT, "ffv1")),
]  # fmt: skip
WRONG = [  # options
    (
        "a.mp4",
        given(encoder="hevc_nvenc"),
        r"no encoder 'hevc_nvenc': encoders of GPUs are not used; did you mean libx265\? this version has",
    ),
    ("a.mp4", given(encoder="h265"), r"no encoder 'h265'; did you mean libx265\? this version has: libx264"),
    ("a.mkv", given(encoder="ffv1", crf=10), "ffv1 has no crf"),
    ("a.mkv", given(encoder="ffv1", preset="fast"), "ffv1 has no presets"),
    ("a.mkv", given(lossless=True, crf=10), "lossless output has no quality to set"),
    ("a.mp4", given(preset="warp"), "`preset=warp`: libx264 has no such preset; expected ultrafast"),
    ("a.mp4", given(encoder=X264, crf=52), "`crf=52`: libx264's scale ends at 51"),
    ("a.mp4", given(options={"pix_fmt": "yuv444p"}), "the pixel format is the source's own"),
    *(("a.mp4", given(encoder=X264, lossless=True, options=options), "sets a quality, and lossless")
      for options in ({"crf": "30"}, {"qp": "30"}, {"x264-params": "keyint=9:crf=30"})),
    *(("-", given(**options), "a y4m pipe holds raw frames, there is nothing to encode")
      for options in ({"crf": 20}, {"preset": "slow"}, {"options": {"g": "3"}})),
]  # fmt: skip


@pytest.mark.parametrize("name, source, options, message", HOLES)
def test_a_hole_in_the_table_is_refused_with_a_way_out(name, source, options, message):
    with pytest.raises(MediaError, match=message):
        choose_encoder(described(*source), Target(name), options)


@pytest.mark.parametrize("name, options, message", WRONG)
def test_an_option_that_an_encoder_lacks_is_refused_before_any_work(
    name, options, message
):
    with pytest.raises(OptionError, match=message):
        choose_encoder(described(), Target(name), options)


@pytest.mark.parametrize(
    "size",
    [
        (1, 1),
        (1, 300),
        (4, 4),
        (2, 4098),
        (4098, 2),
        (8, 15),
        (67, 48),
        (67, 67),
        (447, 319),
    ],
)
@pytest.mark.parametrize(
    "pix_fmt", ["gray16le", "yuv410p", "yuv420p", "yuv422p", "yuv444p10le", "gbrp"]
)
def test_ffv1_holds_every_size(pix_fmt, size):
    choice = choose_encoder(
        described(pix_fmt, *size), Target("a.mkv"), EncoderOptions(lossless=True)
    )
    assert choice.encoder == "ffv1"
    assert choice.options == {"level": "1"} or choice.options["slicecrc"] == "1"


def test_an_odd_source_is_even_at_twice_its_size():
    source, options = described("yuv420p", 33, 25), EncoderOptions(preset="ultrafast")
    assert (
        choose_encoder(source, Target("a.mp4"), options, scale=2).encoder == "libx264"
    )


def test_the_users_options_come_last_and_lists_of_parameters_grow():
    options = EncoderOptions(
        crf=20, options={"x264-params": "keyint=24", "tune": "grain"}
    )
    chosen = fast_choice(described(), Path("a.mp4"), options).options
    assert chosen["crf"] == "20"
    assert chosen["tune"] == "grain"
    assert chosen["x264-params"].endswith("keyint=24")


@pytest.mark.parametrize(("options", "preset"), [
    ({"crf": 16}, "faster"), ({"crf": 17, "preset": "slow"}, "slow"), ({"crf": 18}, None),
    ({"crf": 16, "options": {"preset": "veryslow"}}, "veryslow"), ({"lossless": True}, None),
])  # fmt: skip
def test_x264_is_faster_at_high_quality_unless_a_preset_is_given(options, preset):
    choice = choose_encoder(
        described(), Target("a.mp4"), EncoderOptions(encoder=X264, **options)
    )
    assert choice.options.get("preset") == preset


def test_hevc_in_mp4_is_tagged_for_apple_players():
    assert fast_choice(described(codec="hevc"), Path("a.mp4")).codec_tag == "hvc1"
    assert fast_choice(described(codec="hevc"), Path("a.mkv")).codec_tag is None


def moving_frames(source, count):
    """A blurred texture that moves under fresh noise: frames that an encoder predicts from each other, as
    pure noise is not.
    """
    rows, columns = np.mgrid[0 : source.video.height, 0 : source.video.width]
    frames = made_frames(source, [(number * 1001, 1001) for number in range(count)])
    for number, frame in enumerate(frames):
        waves = 60 * np.sin((columns + number) / 9) * np.cos((rows - 2 * number) / 13)
        luma = 128 + waves + frame.planes[0] / 16
        frame.planes = (
            luma.astype(np.uint8),
            *(plane // 32 + 112 for plane in frame.planes[1:]),
        )
    return frames


@pytest.mark.parametrize(
    "name, rounds",
    [("libx264", 8), ("libx265", 3), ("libsvtav1", 3), ("libvpx-vp9", 3), ("ffv1", 2)],
)
def test_the_same_frames_give_the_same_file_each_time(name, rounds, tmp_path):
    source = described("yuv420p", 320, 192)
    frames = moving_frames(source, 20 if name == "libx264" else 8)
    output = tmp_path / named(ENCODERS[name].containers[0])
    files = set()
    for _ in range(rounds):
        options = EncoderOptions(encoder=name)
        choice = (
            choose_encoder(source, Target(str(output)), options)
            if name == "libx264"
            else None
        )
        write(source, output, frames, options, overwrite=True, choice=choice)
        files.add(output.read_bytes())
    assert len(files) == 1


@pytest.mark.parametrize(
    "frame_bits, codec, expected",
    [
        (None, "h264", 18),
        (307, "h264", 20),  # 0.1 bits of each of 64 x 48 pixels
        (614, "h264", 18),
        (614, "mjpeg", 21),
        (0.4, "h264", 24),
        (10**8, "h264", 16),
    ],
)
def test_the_usual_quality_follows_the_bits_of_the_source(frame_bits, codec, expected):
    source = described(frame_bits=frame_bits, codec=codec)
    assert usual_crf(source) == expected
    choice = choose_encoder(source, Target("a.mkv"), EncoderOptions(encoder="libx264"))
    assert choice.options["crf"] == str(expected)


@pytest.mark.parametrize(
    "cores, size, scale, threads",
    [
        (1, (854, 480), 1, 4),
        (2, (1920, 1080), 1, 4),
        (8, (1920, 1080), 1, 12),
        (16, (854, 480), 1, 7),
        (16, (1920, 1080), 1, 16),
        (16, (854, 480), 4, 24),
    ],
)
def test_threads_follow_from_cores_and_height(cores, size, scale, threads, monkeypatch):
    monkeypatch.setattr(encoders, "try_encoder", lambda *given: None)
    source, options = described("yuv420p", *size), EncoderOptions()
    assert (
        choose_encoder(
            source, Target("a.mp4"), options, scale=scale, cores=cores
        ).threads
        == threads
    )


@pytest.mark.parametrize(
    "encoder, option", [("libx265", "x265-params"), ("libsvtav1", "svtav1-params")]
)
def test_settings_by_threads_come_before_those_of_the_user(encoder, option):
    settings = EncoderChoice(
        encoder, "yuv420p", "mp4", {option: "keyint=9"}, threads=12
    ).settings
    assert re.fullmatch(".*(pools=12|lp=6).*:keyint=9", settings[option])


@pytest.mark.parametrize(
    "pix_fmt, fed", [("yuv420p", "nv12"), ("yuv420p10le", "p010le")]
)
def test_samples_are_the_same_in_the_formats_that_devices_take(pix_fmt, fed):
    (frame, *_) = made_frames(described(pix_fmt))
    output = picture(frame, fed, Fraction(1, 25), ColourTags())
    for result, expected in zip(planes_of(output), frame.planes, strict=True):
        assert np.array_equal(result, expected)
