"""A file that ends early, or has a hole, is found to do so by what its container itself promises."""

import struct
from collections.abc import Iterator
from contextlib import closing
from fractions import Fraction
from functools import cache
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory

import av
import numpy as np
import pytest
from sample_videos import sound_packets

from vidrestore.errors import MediaError
from vidrestore.media.containers.structure import broken_structure
from vidrestore.media.formats.source import Target
from vidrestore.media.reading.probe import probe
from vidrestore.media.reading.reader import VideoReader
from vidrestore.media.writing.stream_copier import StreamCopier
from vidrestore.media.writing.streams import check_streams

KINDS = {  # suffix -> video codec, sound codec
    "flv": ("flv1", "mp3"),
    "wmv": ("wmv2", "wmav2"),
    "ogv": ("libvpx", "libopus"),
    "gif": ("gif", None),
    "apng": ("apng", None),
    "ivf": ("libvpx", None),
    "mxf": ("mpeg2video", "pcm_s16le"),
    "rm": ("rv10", "ac3"),
    "mp4": ("libx264", "aac"),
    "ts": ("mpeg2video", "mp2"),
    "mkv": ("mpeg4", "mp2"),
    "mpg": ("mpeg1video", "mp2"),
    "avi": ("mpeg4", "mp2"),
}


def written(path: Path, frames: int = 12, **options: str) -> Path:
    """Write a video of noise, which each packet of has some size, with silent sound."""
    video_codec, sound_codec = KINDS[path.suffix[1:]]
    noise = np.random.default_rng(7)
    with av.open(path, "w", container_options=options) as container:
        video = container.add_stream(video_codec, rate=25, width=176, height=144)
        video.pix_fmt = {"gif": "rgb8", "apng": "rgb24"}.get(video_codec, "yuv420p")
        video.codec_context.gop_size = 4
        sound = (
            container.add_stream(sound_codec, rate=48000, layout="stereo")
            if sound_codec
            else None
        )
        if sound:
            sound.bit_rate = 128_000
        for number in range(frames):
            picture = av.VideoFrame.from_ndarray(
                noise.integers(0, 255, (144, 176, 3), np.uint8), "rgb24"
            )
            picture.pts = number
            container.mux(video.encode(picture))
        if sound:
            container.mux(sound_packets(sound, 48000 * frames // 25))
        container.mux(video.encode(None))
    return path


def packet_places(path: Path) -> list[int]:
    with av.open(path) as container:
        return sorted(
            {
                packet.pos
                for packet in container.demux()
                if packet.size and (packet.pos or 0) > 0
            }
        )


@cache
def of_kind(kind: str) -> bytes:
    fragments = {"movflags": "frag_keyframe+empty_moov"} if kind == "fragmented" else {}
    with TemporaryDirectory() as folder:
        return written(
            Path(folder, f"a.{'mp4' if fragments else kind}"), **fragments
        ).read_bytes()


@pytest.fixture(params=sorted({*KINDS, "fragmented"}))
def whole(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / f"whole.{request.param.replace('fragmented', 'mp4')}"
    path.write_bytes(of_kind(request.param))
    return path


def test_the_structure_of_a_complete_file_is_not_broken(whole):
    assert list(broken_structure(str(whole))) == []
    with whole.open("ab") as file:  # as some recorders and disks leave them
        file.write(bytes(188))
    if whole.suffix != ".ts":
        assert list(broken_structure(str(whole))) == []


@pytest.mark.parametrize(
    "whole", sorted({*KINDS, "fragmented"} - {"ts", "mpg"}), indirect=True
)
def test_a_file_that_was_cut_where_a_packet_begins_is_found_cut(whole):
    data, places = whole.read_bytes(), packet_places(whole)
    for place in {*places[1:-1:5], places[-1]}:
        whole.write_bytes(data[:place])
        assert list(broken_structure(str(whole))), f"cut at {place} of {len(data)}"


@pytest.mark.parametrize(
    "whole", sorted({*KINDS, "fragmented"} - {"gif", "mp4"}), indirect=True
)
def test_bytes_that_are_missing_in_the_middle_are_found(whole):
    data = whole.read_bytes()
    middle = len(data) // 2
    whole.write_bytes(data[:middle] + data[middle + 700 :])
    assert list(broken_structure(str(whole)))


def asf_packet(data: bytes) -> int:
    """A place within the third packet of ASF."""
    (size,) = struct.unpack_from(
        "<I", data, data.index(bytes.fromhex("a1dcab8c47a9cf11")) + 92
    )
    return data.index(bytes.fromhex("3626b2758e66cf11")) + 50 + 2 * size + 3


@pytest.mark.parametrize(
    "whole, place, length",
    [
        # over its border
        ("fragmented", lambda data: data.index(b"moof", len(data) // 2) - 200, 400),
        ("mp4", lambda data: data.rindex(b"trak") - 4, 100),
        ("wmv", asf_packet, 697),
    ],
    indirect=["whole"],
)
def test_zeros_over_the_structure_of_a_container_are_found(whole, place, length):
    data = whole.read_bytes()
    start = place(data)
    whole.write_bytes(data[:start] + bytes(length) + data[start + length :])
    assert "something other than a packet" in "".join(broken_structure(str(whole)))


FOREIGN = "something other than a packet"


def essence(data: bytes) -> int:
    """A place within the key of a picture in the middle of an MXF."""
    return data.index(bytes.fromhex("060e2b34010201010d010301 15"), len(data) // 2) + 6


@pytest.mark.parametrize(
    "kind, place, by, sign",
    [
        ("avi", lambda data: data.index(b"00dc", len(data) // 2) + 3, b"\x9c", FOREIGN),
        ("gif", lambda data: data.index(b"\x21\xf9\x04", len(data) // 2) + 1, b"\0", FOREIGN),
        ("fragmented", lambda data: data.index(b"moof", len(data) // 2) - 4, bytes(4), FOREIGN),
        ("ts", lambda data: data.index(b"\0\0\1\xe0", len(data) // 2) + 2, b"\x41", "lack the code"),
        ("mxf", essence, b"\xff\xf9", "the video lacks 0.040 s"),
        ("mkv", lambda data: data.index(b"\x16\x54\xae\x6b") + 12, bytes(4), "matroska,webm: "),
    ],
)  # fmt: skip
def test_a_few_wrong_bytes_where_a_packet_begins_are_found_when_it_was_read(
    tmp_path, kind, place, by, sign
):
    data = of_kind(kind)
    path, start = tmp_path / f"wrong.{kind.replace('fragmented', 'mp4')}", place(data)
    path.write_bytes(data[:start] + by + data[start + len(by) :])
    with VideoReader(str(path)) as reader:
        list(reader.frames())
    assert sign in " ".join(reader.damage.messages)


@pytest.fixture
def packets() -> list[bytes]:
    data = of_kind("ts")
    return [data[at : at + 188] for at in range(0, len(data), 188)]


def of_stream(packets: list[bytes], pid: int) -> list[int]:
    return [
        at
        for at, each in enumerate(packets)
        if int.from_bytes(each[1:3], "big") & 0x1FFF == pid
    ]


@pytest.mark.parametrize("pid", [0x100, 0x101])
def test_a_packet_that_a_transport_stream_lacks_is_found(tmp_path, packets, pid):
    del packets[of_stream(packets, pid)[2]]
    path = tmp_path / "lacking.ts"
    path.write_bytes(b"".join(packets))
    assert "missing in 1 places" in "".join(broken_structure(str(path)))


def test_repeated_packets_and_joined_recordings_are_not_damage(tmp_path, packets):
    for at in reversed(of_stream(packets, 0x100)[3:9]):
        packets.insert(at, packets[at])
    path = tmp_path / "joined.ts"
    path.write_bytes(b"".join([*packets, *packets[:-1], *packets]))
    assert list(broken_structure(str(path))) == []


def test_hidden_frames_of_vp8_with_the_time_of_the_one_before_are_neither_damage_nor_frames(
    tmp_path,
):
    data, frames = of_kind("ivf"), list[bytes]()
    path, place = tmp_path / "hidden.ivf", 32
    while place < len(data):
        (size,) = struct.unpack_from("<I", data, place)
        frames.append(data[place + 12 : place + 12 + size])
        place += 12 + size
    hidden = bytes([frames[5][0] & 0xEF]) + frames[5][1:]  # decoded, never shown
    parts = [(time, frame) for time, frame in enumerate(frames)]
    parts[6:6] = [(5, hidden)] * 3
    blocks = (struct.pack("<IQ", len(frame), time) + frame for time, frame in parts)
    path.write_bytes(
        data[:24] + struct.pack("<I", len(parts)) + data[28:32] + b"".join(blocks)
    )
    with VideoReader(str(path)) as reader:
        assert [frame.pts for frame in reader.frames()] == [*range(12)]
    assert not reader.damage.found


def test_realmedia_that_was_written_to_a_pipe_is_not_damaged(tmp_path):
    path = written(tmp_path / "live.rm")
    data = path.read_bytes()
    length = data.index(b"DATA") + 4
    # of its head alone
    path.write_bytes(data[:length] + (18).to_bytes(4) + data[length + 4 :])
    assert list(broken_structure(str(path))) == []


def with_encoding(path, encoding, track=2):
    """Write Matroska whose sound, or video, is said to be encoded so; the packets stay as they are."""
    with av.open(
        path, "w", format="matroska", container_options={"write_crc32": "0"}
    ) as container:
        video = container.add_stream("mpeg4", rate=25, width=64, height=48)
        sound = container.add_stream("pcm_s16le", rate=8000, layout="mono")
        container.mux(video.encode(av.VideoFrame(64, 48, "yuv420p")))
        container.mux([*sound_packets(sound, 400, step=400), *video.encode(None)])
    data = path.read_bytes()
    # behind the track's number; its UID and flag make room for encodings
    entry = data.index(b"\xd7\x81" + bytes([track]) + b"\x73\xc5\x88") + 3
    encodings = bytes.fromhex(encoding)
    path.write_bytes(data[:entry] + encodings + data[entry + len(encodings) :])
    return str(path)


COMPRESSED = "6d80 400a 6240 87 5034 84 4254 81 "  # without the number of the way
ENCRYPTED = "6d80 8e 6240 8b 5033 81 01 5035 84 47e2 81 6b ec 82 0000"


@pytest.mark.parametrize(
    "encoding, words",
    [
        (COMPRESSED + "01", "compressed by bzip2"),
        (COMPRESSED + "09", "compressed by method 9"),
        (ENCRYPTED, "encrypted"),
    ],
)
def test_a_track_that_ffmpeg_cannot_decode_is_refused_before_work(
    tmp_path, encoding, words
):
    path, output = (
        with_encoding(tmp_path / "odd.mkv", encoding),
        Target(str(tmp_path / "out.mkv")),
    )
    with pytest.raises(
        MediaError, match=rf"stream 1 \(audio: pcm_s16le.*\) is {words}.*drop=audio"
    ):
        check_streams(probe(path), output)
    assert check_streams(probe(path), output, frozenset({"audio"})) == ()


def test_a_track_that_is_compressed_by_lzo_is_copied_as_it_was(tmp_path):
    path = Path(with_encoding(tmp_path / "odd.mkv", COMPRESSED + "02"))
    before, sound, after = path.read_bytes().rpartition(bytes(800))
    # of LZO1X, and its end
    literals = bytes([0, 0, 0, 0, 9]) + b"\1" * 792 + b"\x11\0\0"
    path.write_bytes(before + literals.ljust(len(sound)) + after)
    assert check_streams(probe(str(path)), Target(str(tmp_path / "out.mkv"))) == (1,)
    with (
        av.open(tmp_path / "out.mkv", "w") as output,
        closing(StreamCopier(str(path))) as copier,
    ):
        copier.add(output, 1)
        output.start_encoding()
        copier.start()
        assert [bytes(packet) for packet in copier.up_to(None)] == [b"\1" * 792]


def test_errors_of_ffmpeg_about_a_copied_stream_are_damage(tmp_path):
    path, data = tmp_path / "wrong.mkv", of_kind("mkv")
    middle = len(data) // 2
    path.write_bytes(data[:middle] + bytes(9000) + data[middle + 9000 :])
    with (
        av.open(tmp_path / "out.mkv", "w") as output,
        closing(StreamCopier(str(path))) as copier,
    ):
        copier.add(output, 1)
        output.start_encoding()
        copier.start()
        list(copier.up_to(None))
        assert "invalid as first byte of an EBML number" in (copier.damage or "")


def dv_frames(frames: int = 3) -> bytes:
    """Frames of DV for 625 lines: their header, and the signal's type in the pack at byte 448."""
    frame = bytearray(144_000)
    frame[:4], frame[448:452] = b"\x1f\x07\x00\xbf", b"\x60\xff\xff\xe0"
    return bytes(frame) * frames


def roq_chunks() -> bytes:
    """A codebook and a picture, three times."""
    kinds = (0x1001, *(0x1002, 0x1011) * 3)
    chunks = (struct.pack("<HIH", kind, 300, 0) + bytes(300) for kind in kinds)
    return bytes.fromhex("8410ffffffff1e00") + b"".join(chunks)


def obu_units() -> bytes:
    """A delimiter and a frame of 300 bytes, three times."""
    return (b"\x12\0" + b"\x32\xac\x02" + bytes([7]) * 300) * 3


@pytest.mark.parametrize("made", [dv_frames, roq_chunks, obu_units])
def test_raw_dv_roq_and_av1_are_checked_by_the_sizes_that_they_state(tmp_path, made):
    path, data = tmp_path / "a", made()

    def signs(content: bytes) -> str:
        path.write_bytes(content)
        return "; ".join(broken_structure(str(path)))

    assert signs(data) == "" == signs(data + bytes(188))
    assert "its last" in signs(data[:-100]) and "incomplete" in signs(data[:-100])
    third = len(data) // 3
    assert "something other than a packet" in signs(data[:third] + data[third + 50 :])


def test_raw_av1_in_which_bytes_are_wrong_is_damaged(tmp_path):
    path = tmp_path / "a.obu"
    with av.open(str(path), "w", format="obu") as container:
        video = container.add_stream(
            "libsvtav1", rate=25, width=64, height=64, options={"preset": "13"}
        )
        video.pix_fmt = "yuv420p"
        noise = np.random.default_rng(0)
        for number in range(12):
            picture = av.VideoFrame.from_ndarray(
                noise.integers(0, 255, (64, 64, 3), np.uint8), "rgb24"
            )
            picture.pts = number
            container.mux(video.encode(picture))
        container.mux(video.encode(None))
    data = path.read_bytes()
    unit = data.rindex(b"\x12\0\x32") - 100  # over the beginning of a unit
    for content in (data[:unit], data[:unit] + noise.bytes(300) + data[unit + 300 :]):
        path.write_bytes(content)
        with VideoReader(str(path), fps=Fraction(25)) as reader:
            assert sum(1 for _ in reader.frames()) < 12
            assert reader.damage.found


def test_the_structure_is_walked_once_in_the_pass_that_reads_all(tmp_path, monkeypatch):
    walks = list[str]()

    def noted(path: str) -> Iterator[str]:
        walks.append(path)
        yield "a part is missing"

    monkeypatch.setattr("vidrestore.media.reading.reader.broken_structure", noted)
    path = written(tmp_path / "a.ts")
    with VideoReader(str(path)) as reader:
        first, second, *_ = islice(reader.frames(), 3)
        list(reader.frames(second.pts))
        list(islice(reader.frames(None, second.pts), 1))
        assert not walks and not reader.damage.messages
        assert next(reader.frames()).pts == first.pts
        list(reader.frames())
        assert reader.damage.messages == ["a part is missing"] and reader.damage.found
    assert walks == [str(path)]


def nested(kind: bytes, levels: int) -> bytes:
    """Boxes of one kind within each other, the innermost empty."""
    box = b""
    for _ in range(levels):
        box = struct.pack(">I", 8 + len(box)) + kind + box
    return box


@pytest.mark.parametrize("levels, is_sound", [(9, True), (5000, False)])
def test_boxes_nested_deeper_than_ffmpeg_reads_are_damage(tmp_path, levels, is_sound):
    path, tree = tmp_path / "nested.mp4", nested(b"trak", levels)
    path.write_bytes(of_kind("mp4") + struct.pack(">I", 8 + len(tree)) + b"moov" + tree)
    assert (list(broken_structure(str(path))) == []) == is_sound


@pytest.mark.parametrize(
    "encoding, words",
    [(ENCRYPTED, "encrypted"), (COMPRESSED + "01", "compressed by bzip2")],
)
def test_a_video_that_ffmpeg_cannot_undo_is_named_so(tmp_path, encoding, words):
    path = Path(with_encoding(tmp_path / "odd.mkv", encoding, track=1))
    # no picture begins
    path.write_bytes(path.read_bytes().replace(b"\0\0\1\xb6", b"\x55\x66\x77\x88"))
    with pytest.raises(
        MediaError,
        match=f"the video is {words}, which FFmpeg can't undo; decrypt it first",
    ):
        probe(str(path))
