"""Warnings of what the output lacks: side data that encoding leaves out, other streams that are broken."""

import struct
import zlib
from fractions import Fraction
from itertools import count as counting
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from command_line import python
from long_videos import long_video
from sample_pictures import write_rgb
from sample_videos import copy_packets, with_bytes, write_video
from written_videos import described

import vidrestore
from vidrestore.errors import MediaError, PlanError
from vidrestore.events import Event, Warned
from vidrestore.media.formats.encoder_table import EncoderChoice
from vidrestore.media.formats.side_data import read_side_data
from vidrestore.media.reading import probe as probing
from vidrestore.media.reading.probe import probe
from vidrestore.media.writing.stream_copier import StreamCopier
from vidrestore.media.writing.writer import lost_warning

X265 = EncoderChoice("libx265", "yuv420p10le", "matroska", {})
FFV1 = EncoderChoice("ffv1", "yuv420p10le", "matroska", {})


def captioned_video(path: Path, place: int = 0, count: int = 5) -> Path:
    """H.264 whose picture `place` carries closed captions: an SEI of ITU-T T.35 user data (ATSC A/53)."""
    captions = bytes.fromhex("b50031") + b"GA94" + bytes.fromhex("03 41 ff fc 94 2c ff")
    unit = bytes([6, 4, len(captions)]) + captions + b"\x80"
    plain, numbers = path.with_name("plain.mkv"), counting()
    write_video(plain, count, "libx264", options={"preset": "ultrafast"})

    def captioned(packet: av.Packet) -> list[av.Packet]:
        data = len(unit).to_bytes(4) + unit if next(numbers) == place else b""
        return [with_bytes(packet, data + bytes(packet))]

    return copy_packets(plain, path, captioned)


@pytest.mark.parametrize(
    "profile, full_range, refused", [(0, 1, True), (0, 0, False), (1, 1, False)]
)
def test_dolby_vision_without_a_base_layer_that_others_show_is_refused(
    tmp_path, monkeypatch, profile, full_range, refused
):
    """No encoder here writes it, so that its metadata are put into a decoded frame: header and offset as in
    FFmpeg's AVDOVIMetadata, 4 bytes up to the profile, 6 from there to the range.
    """
    write_video(tmp_path / "in.mkv", 2)
    header = bytes([2, 0, 18, 0, profile, 6, 0, 0, 23, 1, full_range])
    metadata = {
        "DOVI_METADATA": struct.pack("@N", 64).ljust(64, b"\0") + header + bytes(8)
    }
    monkeypatch.setattr(
        probing, "read_side_data", lambda *given: read_side_data(*given) | metadata
    )
    if refused:
        with pytest.raises(
            MediaError, match="in.mkv: Dolby Vision of profile 5.*HDR10"
        ):
            probe(str(tmp_path / "in.mkv"))
    else:
        assert "DOVI_METADATA" in probe(str(tmp_path / "in.mkv")).video.side_data


@pytest.mark.parametrize("place, count", [(0, 5), (20, 40)], ids=["first", "late"])
def test_captions_are_warned_about_once_and_refused_when_strict(tmp_path, place, count):
    source, output = (
        captioned_video(tmp_path / "in.mkv", place, count),
        tmp_path / "out.mkv",
    )
    assert ("A53_CC" in probe(str(source)).video.side_data) == (place == 0)
    events: list[Event] = []
    summary = vidrestore.restore(
        source, output, task="<identity>", on_event=events.append
    )
    assert summary.exit_code == 0
    assert [event.message for event in events if isinstance(event, Warned)] == [
        "the source carries closed captions, which encoding it again leaves out"
    ]
    with pytest.raises(PlanError, match="closed captions.*leave `strict` out"):
        vidrestore.restore(
            source, tmp_path / "strict.mkv", task="<identity>", strict=True
        )
    assert not (tmp_path / "strict.mkv").exists()


@pytest.mark.parametrize(
    "names, words",
    [
        ({"DYNAMIC_HDR_PLUS"}, "HDR10+"),
        (
            {"DOVI_METADATA", "DOVI_RPU_BUFFER", "A53_CC"},
            "Dolby Vision, closed captions",
        ),
        ({"ALPHA_LAYER"}, "the transparency"),
    ],
)
def test_lost_side_data_is_named_and_strict_refuses_it(names, words):
    source = described("yuv420p10le", side_data=frozenset(names))
    assert f"the source carries {words}" in str(
        lost_warning(source, X265, strict=False)
    )
    with pytest.raises(PlanError, match="leave `strict` out"):
        lost_warning(source, X265, strict=True)


def test_side_data_that_is_written_or_of_no_use_does_not_count_as_lost():
    written = frozenset(
        {
            "SEI_UNREGISTERED",
            "DISPLAYMATRIX",
            "MASTERING_DISPLAY_METADATA",
            "FILM_GRAIN_PARAMS",
        }
    )
    assert lost_warning(described(side_data=written), X265, strict=True) is None


def test_hdr_that_the_encoder_cannot_write_is_a_loss_when_strict():
    source = described("yuv420p10le", content_light=(1000, 400))
    assert lost_warning(source, X265, strict=True) is None
    with pytest.raises(PlanError, match="ffv1 can't write the HDR"):
        lost_warning(source, FFV1, strict=True)


def test_packets_of_the_sound_that_are_marked_corrupt_are_damage(tmp_path):
    source = tmp_path / "in.ts"
    long_video(source, sound="mp2", times=list(range(0, 2000, 500)))
    data = bytearray(source.read_bytes())
    places = range(0, len(data), 188)
    continued = [
        at
        for at in places
        if int.from_bytes(data[at + 1 : at + 3], "big") & 0x5FFF == 0x101
    ]
    # the bit that a receiver sets where it could not correct the packet
    data[continued[9] + 1] |= 0x80
    source.write_bytes(data)
    summary = vidrestore.restore(source, tmp_path / "out.mkv", task="<identity>")
    assert summary.exit_code == 4
    assert "of the sound and other streams are marked corrupt" in (summary.damage or "")


def test_other_streams_that_break_off_are_damage(tmp_path, monkeypatch):
    source, output = tmp_path / "in.mkv", tmp_path / "out.mkv"
    write_video(source, 10, sound=Fraction(1, 2))

    def broken(copier: StreamCopier) -> Any:
        raise av.error.InvalidDataError(1, "Invalid data", "in.mkv")

    monkeypatch.setattr(StreamCopier, "_seek", broken)
    summary = vidrestore.restore(source, output, task="<identity>")
    assert summary.exit_code == 4 and output.exists()
    assert "the source is damaged: the sound and other streams break off" in (
        summary.damage or ""
    )


def test_colour_profiles_that_have_a_name_are_seen_and_nothing_is_freed_twice(tmp_path):
    picture = tmp_path / "a.png"
    write_rgb(picture, np.zeros((3, 16, 16), np.uint8))
    profile = b"iCCP" + b"sRGB\0\0" + zlib.compress(bytes(300))
    data = picture.read_bytes()
    after_header = 8 + 25
    chunk = (
        struct.pack(">I", len(profile) - 4)
        + profile
        + struct.pack(">I", zlib.crc32(profile))
    )
    picture.write_bytes(data[:after_header] + chunk + data[after_header:])
    code = (  # in a process of its own, which memory freed twice would kill
        "import gc, sys\nfrom vidrestore.media.reading.reader import VideoReader\n"
        "for _ in range(20):\n"
        "    with VideoReader(sys.argv[1]) as reader:\n"
        "        assert len(list(reader.frames())) == 1\n"
        "        assert 'ICC_PROFILE' in reader.info.video.side_data\n"
        "    del reader\n    gc.collect()"
    )
    python("-c", code, str(picture), check=True)
