"""The same video: what VideoWriter writes, VideoReader reads, with every time, tag and (without loss) every
sample as it was.
"""

from dataclasses import replace
from fractions import Fraction

import pytest
from written_videos import (
    CONSTANT,
    VARYING,
    described,
    made_frames,
    read,
    write,
)

from vidrestore.media.formats.encoder_table import ENCODERS, TABLE
from vidrestore.media.formats.source import SUFFIXES
from vidrestore.media.reading.reader import VideoReader
from vidrestore.media.writing.encoders import obstacle
from vidrestore.pixels.frames import ColourTags
from vidrestore.settings.options import EncoderOptions

FORMATS = ["yuv420p", "yuv422p", "yuv444p", "gray", "gbrp"]
FORMATS += ["yuv420p10le", "yuv422p10le", "yuv444p10le", "gray10le"]
TAGS = ColourTags(matrix=9, primaries=9, transfer=16, range=1, chroma_location=3)
QUARTER_TURN = (0, -65536, 0, 65536, 0, 0, 0, 0, 1 << 30)
MIRRORED = (-65536, 0, 0, 0, 65536, 0, 0, 0, 1 << 30)
LOSSLESS = EncoderOptions(lossless=True)


def holdable(
    pix_fmt: str, container: str, size: tuple[int, int], lossless: bool
) -> bool:
    video = described(pix_fmt, *size).video
    return any(obstacle(row, video, container, lossless) is None for row in TABLE)


GRID = [
    (pix_fmt, container, size)
    for pix_fmt in FORMATS
    for container in SUFFIXES
    for size in ((64, 48), (65, 49))
    if holdable(pix_fmt, container, size, True)
]


@pytest.mark.parametrize("pix_fmt, container, size", GRID)
def test_identity_keeps_every_sample_time_and_tag(pix_fmt, container, size, tmp_path):
    shape = {"sample_aspect_ratio": Fraction(64, 45), "display_matrix": QUARTER_TURN}
    source = described(pix_fmt, *size, base_rate=Fraction(30), **shape)
    frames = made_frames(source, VARYING)
    output = tmp_path / f"out{SUFFIXES[container]}"
    write(source, output, frames, LOSSLESS)
    with VideoReader(str(output)) as reader:
        result = list(reader.frames())
        video = reader.info.video
    assert [frame.pts for frame in result] == nearest_ticks(
        [pts for pts, _ in VARYING], video.time_base
    )
    end = (result[-1].pts + result[-1].duration) * video.time_base
    near = 0 if container in ("mp4", "mov") else Fraction(2, 1000)
    assert abs(end - Fraction(sum(VARYING[-1]), 24000)) <= near
    assert (video.width, video.height, video.format) == (*size, source.video.format)
    assert (video.sample_aspect_ratio, video.display_matrix) == (
        Fraction(64, 45),
        QUARTER_TURN,
    )
    for made, decoded in zip(frames, result, strict=True):
        assert all(
            (ours == theirs).all()
            for ours, theirs in zip(made.planes, decoded.planes, strict=True)
        )


def nearest_ticks(times, time_base):
    return [round(time * Fraction(1, 24000) / time_base) for time in times]


LOSSY = [(row.name, container) for row in TABLE for container in row.containers]


@pytest.mark.parametrize(
    "times",
    [CONSTANT, VARYING, tuple((pts + 5555, duration) for pts, duration in VARYING)],
)
@pytest.mark.parametrize("encoder, container", LOSSY)
def test_each_encoder_keeps_times_in_each_container(
    encoder, container, times, tmp_path
):
    pix_fmt = next(iter(ENCODERS[encoder].formats))
    source = described(
        pix_fmt, base_rate=Fraction(24000, 1001) if times == CONSTANT else Fraction(30)
    )
    output = tmp_path / f"out{SUFFIXES[container]}"
    write(source, output, made_frames(source, times), EncoderOptions(encoder=encoder))
    result = read(output)
    ticks = nearest_ticks([pts for pts, _ in times], result.info.video.time_base)
    assert [frame.pts for frame in result.frames] == ticks
    assert result.end == pytest.approx(sum(times[-1]) / 24000, abs=0.0011)
    # FFmpeg's parser gives VP9 the average duration
    if container in ("mp4", "mov") and encoder != "libvpx-vp9":
        assert [frame.duration for frame in result.frames] == [
            duration for _, duration in times
        ]


@pytest.mark.parametrize("encoder", ["libx264", "libx265"])
def test_mp4_ends_on_time_with_b_frames_too(encoder, tmp_path):
    source = described()  # whose rate is not known to vary
    write(
        source,
        tmp_path / "a.mp4",
        made_frames(source, VARYING),
        EncoderOptions(encoder=encoder),
    )
    assert read(tmp_path / "a.mp4").end == pytest.approx(
        sum(VARYING[-1]) / 24000, abs=1e-6
    )


@pytest.mark.parametrize("matrix", [QUARTER_TURN, MIRRORED])
@pytest.mark.parametrize("encoder, container", LOSSY)
def test_each_encoder_keeps_tags_in_each_container(
    encoder, container, matrix, tmp_path
):
    pix_fmt = next(iter(ENCODERS[encoder].formats))
    tags = replace(TAGS, matrix=0, range=2) if pix_fmt == "gbrp" else TAGS
    source = described(
        pix_fmt, colour=tags, sample_aspect_ratio=Fraction(4, 3), display_matrix=matrix
    )
    output = tmp_path / f"out{SUFFIXES[container]}"
    write(source, output, made_frames(source), EncoderOptions(encoder=encoder))
    video = read(output).info.video
    assert replace(video.colour, chroma_location=0) == replace(tags, chroma_location=0)
    assert (video.sample_aspect_ratio, video.display_matrix) == (Fraction(4, 3), matrix)
    assert video.rate == Fraction(24000, 1001)


@pytest.mark.parametrize(
    "name, range",
    [("a.mp4", 0), ("a.mkv", 0), ("a.mp4", 2), ("a.mkv", 2), ("a.webm", 2)],
)
def test_colour_tags_are_not_added_and_full_range_keeps_the_pixel_format(
    name, range, tmp_path
):
    source = described(colour=ColourTags(range=range))
    write(source, tmp_path / name, made_frames(source))
    video = read(tmp_path / name).info.video
    assert video.format.name == "yuv420p"
    assert replace(video.colour, chroma_location=0) == ColourTags(range=range)


@pytest.mark.parametrize(
    "time_base",
    [
        Fraction(1, 90000),
        Fraction(1, 1000),
        Fraction(1001, 30000),
        Fraction(1, 25),
        Fraction(1, 10_000_000),
    ],
)
def test_mp4_counts_in_the_sources_own_ticks(time_base, tmp_path):
    step = max(1, round(1 / (25 * time_base)))
    times = [(7 * step + number * step, step) for number in range(5)]
    source = described(time_base=time_base, rate=1 / (step * time_base))
    write(source, tmp_path / "a.mp4", made_frames(source, times))
    result = read(tmp_path / "a.mp4")
    tick = Fraction(1, time_base.denominator)
    assert result.info.video.time_base == tick
    assert [frame.pts * tick for frame in result.frames] == [
        pts * time_base for pts, _ in times
    ]


CHROMATICITIES = (34_000, 16_000, 13_250, 34_500, 7_500, 3_000, 15_635, 16_450)
MASTERING = (
    *(Fraction(value, 50_000) for value in CHROMATICITIES),
    Fraction(1, 200),
    Fraction(1000),
)


@pytest.mark.parametrize(
    "encoder, name",
    [
        ("libx265", "a.mp4"),
        ("libx265", "a.mkv"),
        ("libx264", "a.mp4"),
        ("libsvtav1", "a.webm"),
    ],
)
def test_hdr_metadata_is_written(encoder, name, tmp_path):
    source = described(
        "yuv420p10le", mastering_display=MASTERING, content_light=(1000, 400)
    )
    write(source, tmp_path / name, made_frames(source), EncoderOptions(encoder=encoder))
    video = read(tmp_path / name).info.video
    assert video.content_light == (1000, 400)
    expected = pytest.approx(list(map(float, MASTERING)), rel=1e-3, abs=1e-4)
    assert list(map(float, video.mastering_display)) == expected


def test_hdr_metadata_that_an_encoder_cannot_write_is_reported(tmp_path):
    source = described("yuv420p10le", content_light=(1000, 400))
    (warning,) = write(source, tmp_path / "a.mkv", made_frames(source), LOSSLESS)
    assert "ffv1 can't write the HDR mastering display and light level" in warning


SITED = [
    (encoder, container, pix_fmt)
    for encoder, container in LOSSY
    for pix_fmt in ("yuv420p", "yuv422p", "yuv422p10le")
    if pix_fmt in ENCODERS[encoder].formats
]


@pytest.mark.parametrize("encoder, container, pix_fmt", SITED)
def test_a_chroma_location_is_written_or_reported_as_lost(
    tmp_path, encoder, container, pix_fmt
):
    source, output = (
        described(pix_fmt, colour=TAGS),
        tmp_path / f"a{SUFFIXES[container]}",
    )
    warnings = write(
        source, output, made_frames(source), EncoderOptions(encoder=encoder)
    )
    stored = read(output).info.video.colour.chroma_location == TAGS.chroma_location
    lost = any(
        f"can't write where the chroma samples of {pix_fmt} lie" in each
        for each in warnings
    )
    assert stored != lost
