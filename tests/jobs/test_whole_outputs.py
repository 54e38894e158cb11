"""What a rerun calls finished is whole, made from this source, and ours."""

import os
import shutil
from pathlib import Path
from typing import Any

import av
import pytest
from fake_restorer import request_of
from sample_pictures import write_picture
from sample_videos import write_video

import vidrestore
from vidrestore.errors import MediaError, OutputExistsError
from vidrestore.events import Event, Warned
from vidrestore.media.containers.structure import broken_structure
from vidrestore.media.formats.source import Source, Target
from vidrestore.media.writing.finished import (
    PACKET_SAMPLE,
    Tag,
    packets_checksum,
    read_tag,
)

IDENTITY = "<identity>"
CONTAINERS = (".mkv", ".mp4", ".mov", ".webm")
PLACES = (0.98, 0.9, 0.6, 0.3, 0.02)


@pytest.fixture(scope="module")
def film(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("films") / "film.mp4"
    write_video(path, 12, "libx264", size=(160, 96), sound=None)
    return path


@pytest.fixture(scope="module")
def finished(film: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The bytes of the finished output in each container."""
    folder = tmp_path_factory.mktemp("finished")
    for suffix in CONTAINERS:
        vidrestore.restore(film, folder / f"out{suffix}", task=IDENTITY)
    return {suffix: (folder / f"out{suffix}").read_bytes() for suffix in CONTAINERS}


def restored(source: Path, output: Path, **options: Any) -> tuple[bool, list[str]]:
    """Whether a run finds an output finished, and its warnings."""
    events: list[Event] = []
    summary = vidrestore.restore(
        source, output, task=IDENTITY, on_event=events.append, **options
    )
    return summary.before, [
        event.message for event in events if isinstance(event, Warned)
    ]


def decoded_frames(path: Path) -> int:
    with av.open(str(path)) as opened:
        return sum(1 for _ in opened.decode(video=0))


def zeroed(content: bytes, first: float, last: float) -> bytes:
    start, stop = int(len(content) * first), int(len(content) * last)
    return content[:start] + bytes(stop - start) + content[stop:]


def check_made_again(film: Path, output: Path, content: bytes) -> None:
    """Check that a broken output is made again, and said to be, or refused; never called finished."""
    output.write_bytes(content)
    try:
        before, warnings = restored(film, output)
    except MediaError as error:
        assert "already exists, but" in str(error) or isinstance(
            error, OutputExistsError
        )
        assert output.read_bytes() == content
        return
    assert not before and [line for line in warnings if "it is made again" in line]
    assert decoded_frames(output) == 12 and not list(broken_structure(str(output)))
    assert restored(film, output) == (True, [])


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("suffix", CONTAINERS)
def test_a_cut_output_is_made_again(film, finished, tmp_path, suffix, place):
    content = finished[suffix]
    check_made_again(
        film, tmp_path / f"out{suffix}", content[: int(len(content) * place)]
    )


@pytest.mark.parametrize("span", [(0.5, 0.53), (0.9, 1), (0.4, 0.8)])
@pytest.mark.parametrize("suffix", CONTAINERS)
def test_an_output_with_zeros_in_it_is_made_again(
    film, finished, tmp_path, suffix, span
):
    check_made_again(film, tmp_path / f"out{suffix}", zeroed(finished[suffix], *span))


@pytest.mark.parametrize("suffix", CONTAINERS)
def test_a_large_output_is_compared_at_places_from_its_first_to_its_last_packet(
    film, finished, tmp_path, suffix, monkeypatch
):
    for name, value in (("small", 0), ("window", 1)):
        monkeypatch.setitem(PACKET_SAMPLE.__dict__, name, value)
    output = tmp_path / f"out{suffix}"
    vidrestore.restore(film, output, task=IDENTITY)
    assert restored(film, output) == (True, [])
    content = output.read_bytes()
    with av.open(str(output)) as opened:
        packets = [
            (packet.pos, packet.size) for packet in opened.demux(video=0) if packet.size
        ]
    for position, size in (packets[0], packets[-1]):
        start = position + size // 2
        check_made_again(
            film, output, content[:start] + b"\0\1\2\3" + content[start + 4 :]
        )


@pytest.mark.parametrize("name", ["out.png", "out.jpg", "out.tiff", "%02d.png"])
@pytest.mark.parametrize("size", [0, 50, 0.5, 0.98])
def test_a_cut_picture_is_made_again_or_refused(film, tmp_path, name, size):
    photo = tmp_path / "photo.png"
    write_picture(photo, (10, 100, 200))
    folder = tmp_path / "made"
    folder.mkdir()
    source = film if "%" in name else photo
    output = (
        folder / name if "%" in name else folder / name.replace("out", "photo.denoised")
    )
    assert restored(source, output)[0] is False
    path = sorted(folder.glob("[!.]*"))[-1]
    content = path.read_bytes()
    path.write_bytes(
        content[: size if isinstance(size, int) else int(size * len(content))]
    )
    before, warnings = restored(source, output)
    assert not before and [line for line in warnings if "it is made again" in line]
    assert path.read_bytes() == content


def test_a_broken_file_of_another_name_is_refused_and_stays(tmp_path):
    write_picture(tmp_path / "photo.png", (10, 100, 200))
    (tmp_path / "scan.png").write_bytes((tmp_path / "photo.png").read_bytes()[:60])
    with pytest.raises(
        MediaError, match="scan.png: already exists, but it is cut short; remove it"
    ):
        restored(tmp_path / "photo.png", tmp_path / "scan.png")
    assert (tmp_path / "scan.png").stat().st_size == 60


@pytest.mark.parametrize("suffix", [".mkv", ".mp4", ".mov"])
def test_a_finished_output_stays_finished_with_another_title_and_as_another_file(
    film, finished, tmp_path, suffix
):
    first, second = tmp_path / f"first{suffix}", tmp_path / f"out{suffix}"
    first.write_bytes(finished[suffix])
    keys = {"export_xmp": "1"} if suffix == ".mov" else {}
    with (
        av.open(str(first), container_options=keys) as opened,
        av.open(str(second), "w") as copy,
    ):
        copy.metadata.update(opened.metadata | {"title": "Holidays"})
        if suffix == ".mp4":
            copy.metadata["encoding_tool"] = opened.metadata["encoder"]
        copy.flags |= av.container.Flags.bitexact.value
        stream = opened.streams.video[0]
        target = copy.add_stream_from_template(stream)
        for packet in opened.demux(stream):
            if packet.size:
                packet.stream = target
                copy.mux(packet)
    assert second.read_bytes() != finished[suffix]
    assert restored(film, second) == (True, [])


# The source


def y4m(path: Path, changed: range = range(0)) -> None:
    """Write an uncompressed video that is black but for its `changed` frames."""
    black, other = b"FRAME\n" + bytes(6144), b"FRAME\n" + bytes([90]) * 6144
    frames = [other if number in changed else black for number in range(400)]
    path.write_bytes(b"YUV4MPEG2 W64 H64 F25:1 C420jpeg\n" + b"".join(frames))


@pytest.mark.parametrize("changed", [range(180, 200), range(399, 400)])
def test_a_source_of_the_same_size_and_beginning_is_another_one(tmp_path, changed):
    y4m(tmp_path / "x.y4m")
    assert restored(tmp_path / "x.y4m", tmp_path / "out.mkv", duration=1)[0] is False
    y4m(tmp_path / "x.y4m", changed)
    with pytest.raises(OutputExistsError, match="or from another video"):
        restored(tmp_path / "x.y4m", tmp_path / "out.mkv", duration=1)


# The tag


def test_mov_keeps_the_damage_of_the_source(given, tmp_path):
    source, output = given("damaged.mov"), tmp_path / "out.mov"
    summaries = [vidrestore.restore(source, output, task=IDENTITY) for _ in range(2)]
    assert [summary.before for summary in summaries] == [False, True]
    assert [summary.exit_code for summary in summaries] == [4, 4]
    assert summaries[0].frames == summaries[1].frames == 39
    assert summaries[0].damage == summaries[1].damage is not None


FORGED = "vidrestore 0123456789abcdef 0.1: denoise; " + "9" * 5000 + " frames"


@pytest.mark.parametrize("suffix", CONTAINERS)
@pytest.mark.parametrize(
    "text", [FORGED, "vidrestore 0123456789abcdef was here", "vidrestore preview"]
)
def test_a_title_like_our_tag_is_left_out_and_ends_nothing(tmp_path, suffix, text):
    source, output = tmp_path / "film.mkv", tmp_path / f"out{suffix}"
    write_video(source, 6)
    with (
        av.open(str(source)) as opened,
        av.open(str(tmp_path / "titled.mkv"), "w") as copy,
    ):
        copy.metadata.update(
            {"title": text, "artist": "me", "VIDRESTORE": text, "encoder": text}
        )
        stream = copy.add_stream_from_template(opened.streams.video[0])
        for packet in opened.demux(video=0):
            if packet.size:
                packet.stream = stream
                copy.mux(packet)
    before, warnings = restored(tmp_path / "titled.mkv", output)
    assert not before and [
        line for line in warnings if "title: left out, as the text looks like" in line
    ]
    assert restored(tmp_path / "titled.mkv", output)[0]
    with av.open(str(output)) as opened:
        keys = {key.lower(): text for key, text in opened.metadata.items()}
        assert "title" not in keys and keys["artist"] == "me"
    assert not restored(
        tmp_path / "titled.mkv", tmp_path / f"plain{suffix}", tags=False
    )[0]
    assert read_tag(Target(str(tmp_path / f"plain{suffix}"))) is None


def test_a_number_of_frames_has_at_most_twelve_digits():
    assert Tag.parse(
        "vidrestore 0123456789abcdef+01234567 0.1: x; 999999999999 frames"
    ) == Tag("0123456789abcdef", "01234567", 999_999_999_999)
    tag = Tag.parse(f"vidrestore 0123456789abcdef+01234567 0.1: x; {'9' * 13} frames")
    assert tag and tag.frames == 0


def test_the_output_of_an_earlier_version_is_made_again(film, tmp_path, monkeypatch):
    output = tmp_path / "out.mkv"
    request = request_of(film, output, IDENTITY)
    job = request.former_job(Source(str(film)).identity())
    monkeypatch.setattr("vidrestore.jobs.job.UNKNOWN", "")
    monkeypatch.setattr("vidrestore.jobs.request.Request.job", lambda *_: job)
    vidrestore.restore(film, output, task=IDENTITY)
    monkeypatch.undo()
    content = output.read_bytes().replace(f"{job}+ ".encode(), f"{job}  ".encode())
    output.write_bytes(content)
    tag = read_tag(Target(str(output)))
    assert tag and (tag.job, tag.checksum) == (job, None)
    before, warnings = restored(film, output)
    assert (
        not before
        and "made by an earlier version, whose tag can't prove" in warnings[0]
    )
    assert restored(film, output) == (True, [])


@pytest.mark.skipif(
    not hasattr(os, "geteuid") or os.geteuid() != 0,
    reason="needs root, to be another user",
)
@pytest.mark.parametrize("mode", [0o755, 0o1777])
def test_a_right_tag_of_another_user_counts_where_only_the_user_writes(
    film, finished, tmp_path, mode
):
    output = tmp_path / "shared" / "out.mkv"
    output.parent.mkdir(mode=mode)
    output.parent.chmod(mode)
    output.write_bytes(finished[".mkv"])
    os.chown(output, 65534, 65534)
    if mode == 0o755:
        assert restored(film, output) == (True, [])
        return
    with pytest.raises(
        OutputExistsError, match="belongs to another user, who may have forged its tag"
    ):
        restored(film, output)
    os.chown(output, 0, 0)
    assert restored(film, output) == (True, [])


def test_the_checksum_is_that_of_the_packets_in_order(finished, tmp_path):
    path = tmp_path / "out.mkv"
    path.write_bytes(finished[".mkv"])
    count, checksum = packets_checksum(str(path))
    tag = read_tag(Target(str(path)))
    assert tag and (count, checksum) == (12, tag.checksum) and tag.frames == 12
    assert shutil.copy(path, tmp_path / "copy.mkv")
    assert packets_checksum(str(tmp_path / "copy.mkv")) == (12, checksum)
