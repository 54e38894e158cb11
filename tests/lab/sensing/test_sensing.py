"""Videos measured and recovered without loss: same samples, times and tags; and refusals."""

import json
import math
import runpy
import sys
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.numpy import load_file, save_file
from sample_videos import cut_short, write_video
from sensing_networks import PATCH, exact_network, save_network
from written_videos import described, extras, frames_of, made_frames, rich_video, write

import vidrestore
from vidrestore.errors import (
    CheckpointError,
    MediaError,
    OptionError,
    OutputExistsError,
    PlanError,
    VidRestoreError,
)
from vidrestore.events import Event
from vidrestore.lab.sensing import sense
from vidrestore.lab.sensing.measurements_file import MeasurementReader, PatchGrid
from vidrestore.lab.sensing.recover import recovered_frames, recovery_clips
from vidrestore.lab.sensing.sensing_options import RecoverOptions
from vidrestore.media.reading.reader import VideoReader
from vidrestore.models.dust import Dust, DustConfig
from vidrestore.pixels.frames import ColourTags
from vidrestore.settings.options import EncoderOptions
from vidrestore.weights import load_model, write_manifest

LOSSLESS = EncoderOptions(lossless=True)
QUARTER_TURN = (0, -65536, 0, 65536, 0, 0, 0, 0, 1 << 30)
TAGS = ColourTags(matrix=9, primaries=9, transfer=16, range=1, chroma_location=3)


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weights") / "exact.safetensors"
    save_network(path, exact_network())
    return path


@pytest.fixture
def video(tmp_path: Path) -> Path:
    write_video(tmp_path / "video.mkv", 5, size=(22, 18))
    return tmp_path / "video.mkv"


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize("height, width", [(4, 4), (7, 13), (8, 12), (3, 2)])
def test_patches_put_together_are_the_planes(height, width):
    planes = torch.rand(3, height, width)
    grid = PatchGrid(height, width, 4)
    assert torch.equal(grid.joined(grid.cut(planes)), planes)


def test_patches_come_in_reading_order_and_go_on_beyond_the_edge_with_the_last_row_and_column():
    planes = torch.rand(2, 7, 13)
    padded = F.pad(planes, (0, 3, 0, 1), mode="replicate")
    expected = F.unfold(padded[:, None], 4, stride=4).mT
    assert torch.equal(PatchGrid(7, 13, 4).cut(planes), expected)


@pytest.mark.parametrize("count", [1, 19, 20, 21, 39, 40, 45])
def test_each_frame_is_recovered_once_in_clips_of_twenty_of_which_the_last_reaches_back(
    count,
):
    clips = recovery_clips(count)
    assert [frame for _, first, stop in clips for frame in range(first, stop)] == list(
        range(count)
    )
    assert {stop - start for start, _, stop in clips} == {min(count, 20)}
    assert all(start <= first and first % 20 == 0 for start, first, _ in clips)


@pytest.mark.parametrize(
    "pix_fmt",
    ["yuv420p", "yuv422p10le", "yuv444p", "gray", "gray10le", "gbrp", "yuva420p"],
)
@pytest.mark.parametrize("size", [(24, 16), (37, 29)])
def test_a_video_measured_without_loss_comes_back_as_it_was(
    pix_fmt, size, exact, tmp_path
):
    source, output, between = (
        tmp_path / "in.mkv",
        tmp_path / "out.mkv",
        tmp_path / "m.safetensors",
    )
    info = described(
        pix_fmt,
        *size,
        sample_aspect_ratio=Fraction(64, 45),
        display_matrix=QUARTER_TURN,
        colour=TAGS,
    )
    times = [(index * 1001 + index % 3 * 100, 1001) for index in range(23)]
    write(info, source, made_frames(info, times), LOSSLESS)
    vidrestore.sense(source, between, model=str(exact))
    summary = vidrestore.recover(
        between, output, model=str(exact), encoder=LOSSLESS, precision="fp32"
    )
    assert summary.frames == 23
    step = 0 if info.video.format.depth == 8 else 1  # 16-bit measurements keep 11 bits
    for result, expected in zip(frames_of(output), frames_of(source), strict=True):
        assert (result.pts, result.duration) == (expected.pts, expected.duration)
        for plane, samples in zip(result.planes, expected.planes, strict=True):
            assert np.abs(plane.astype(int) - samples).max() <= step
    assert tags(output) == tags(source)


def tags(path: Path) -> tuple[object, ...]:
    with VideoReader(str(path)) as reader:
        video = reader.info.video
    return (
        video.format,
        video.time_base,
        video.sample_aspect_ratio,
        video.display_matrix,
        video.colour,
        video.codec,
    )


def test_a_measurement_is_the_sensing_matrix_times_a_patch_on_the_0_to_255_scale(
    tmp_path,
):
    network = Dust(DustConfig(PATCH, 64, measurements=3))
    save_network(tmp_path / "net.safetensors", network)
    pictures = write_video(tmp_path / "in.mkv", 3, pix_fmt="yuv420p10le", size=(22, 18))
    vidrestore.sense(
        tmp_path / "in.mkv",
        tmp_path / "m.safetensors",
        model=str(tmp_path / "net.safetensors"),
    )
    result = load_file(tmp_path / "m.safetensors")["measurements"]
    luma = 6 * 5  # patches of the first plane
    # second row of patches, the last of three columns, one column short
    patch = pictures[2][1][4:8, 8:11]
    patch = np.concatenate([patch, patch[:, -1:]], axis=1).reshape(-1) / 4
    expected = network.sensing.detach().double().numpy() @ patch
    np.testing.assert_allclose(result[2, luma + 3 + 2], expected, rtol=1e-3, atol=0.05)
    assert result.shape == (3, luma + 2 * 9, 3)


def test_any_reader_of_safetensors_reads_the_file(video, exact, tmp_path):
    vidrestore.sense(
        video, tmp_path / "m.safetensors", model=str(exact), sigma=2, seed=5
    )
    tensors = load_file(tmp_path / "m.safetensors")
    assert {
        name: (str(tensor.dtype), tensor.shape) for name, tensor in tensors.items()
    } == {
        "measurements": ("float16", (5, 5 * 6 + 2 * 3 * 3, 16)),
        "pts": ("int64", (5,)),
        "durations": ("int64", (5,)),
    }
    assert (
        tensors["pts"].tolist() == [0, 40, 80, 120, 160]
        and tensors["durations"].tolist() == [40] * 5
    )
    with safe_open(tmp_path / "m.safetensors", "np") as stream:
        metadata = stream.metadata()
        np.testing.assert_array_equal(stream.get_slice("pts")[2:4], [80, 120])
    texts = ("format", "version", "job", "crc32")
    values = {
        key: json.loads(value) for key, value in metadata.items() if key not in texts
    }
    assert values["model"] == {"name": "exact", "sha256": load_model(exact).card.sha256}
    assert (values["rate"], values["patch"], values["planes"]) == (
        1.0,
        4,
        [[5, 6], [3, 3], [3, 3]],
    )
    assert (values["sigma"], values["seed"], values["source"]) == (2.0, 5, "video.mkv")
    assert (values["video"]["width"], values["video"]["time_base"]) == (22, "1/1000")


def test_measurements_beyond_16_bit_floats_are_stored_in_32(video, tmp_path):
    save_network(tmp_path / "large.safetensors", exact_network(scale=200))
    vidrestore.sense(
        video, tmp_path / "m.safetensors", model=str(tmp_path / "large.safetensors")
    )
    result = load_file(tmp_path / "m.safetensors")["measurements"]
    assert result.dtype == np.float32 and np.abs(result).max() > 65504
    vidrestore.recover(
        tmp_path / "m.safetensors",
        tmp_path / "out.mkv",
        model=str(tmp_path / "large.safetensors"),
        encoder=LOSSLESS,
    )
    assert all(
        (a.planes[0] == b.planes[0]).all()
        for a, b in zip(frames_of(tmp_path / "out.mkv"), frames_of(video), strict=True)
    )


def noise(
    video: Path, exact: Path, **options: Any
) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Return the noise that `sense` added to the measurements of a video."""
    values = []
    for number, more in enumerate(({}, options)):
        output = video.with_name(f"{number}.safetensors")
        vidrestore.sense(video, output, model=str(exact), overwrite=True, **more)
        values.append(load_file(output)["measurements"].astype(np.float32))
    return values[1] - values[0]


def test_noise_is_white_and_gaussian_with_the_sigma_that_was_asked_for(tmp_path, exact):
    write_video(tmp_path / "video.mkv", 8, size=(64, 48))
    added = noise(tmp_path / "video.mkv", exact, sigma=10)
    assert added.mean() == pytest.approx(0, abs=5 * 10 / math.sqrt(added.size))
    assert added.std() == pytest.approx(10, rel=0.02)
    assert np.mean(np.abs(added) < 10) == pytest.approx(
        math.erf(math.sqrt(0.5)), abs=0.01
    )
    assert abs(np.corrcoef(added[0].ravel(), added[1].ravel())[0, 1]) < 0.05


def test_noise_follows_from_the_seed(video, exact):
    first, again, other = (
        noise(video, exact, sigma=10, seed=seed) for seed in (1, 1, 2)
    )
    np.testing.assert_array_equal(first, again)
    assert abs(np.corrcoef(first.ravel(), other.ravel())[0, 1]) < 0.1


def test_what_is_measured_is_on_disk_frame_by_frame(tmp_path, exact, monkeypatch):
    write_video(tmp_path / "video.mkv", 30, size=(64, 48))
    sizes, original = [], sense.MeasurementWriter.write
    frame_bytes = (12 * 16 + 2 * 6 * 8) * 16 * 2

    def noted(writer: Any, *arguments: Any) -> None:
        original(writer, *arguments)
        sizes.append(writer._partial.path.stat().st_size)

    monkeypatch.setattr(sense.MeasurementWriter, "write", noted)
    vidrestore.sense(
        tmp_path / "video.mkv", tmp_path / "m.safetensors", model=str(exact)
    )
    assert sizes[-1] - sizes[9] == pytest.approx(20 * frame_bytes, abs=1 << 17)


def test_measurements_are_read_a_few_clips_ahead_at_most(tmp_path, exact, monkeypatch):
    monkeypatch.setattr("vidrestore.working.available_cores", lambda: 2)
    write_video(tmp_path / "video.mkv", 200, size=(16, 16))
    vidrestore.sense(
        tmp_path / "video.mkv", tmp_path / "m.safetensors", model=str(exact)
    )
    asked, original = [], MeasurementReader.clip
    monkeypatch.setattr(
        MeasurementReader,
        "clip",
        lambda reader, *span: (asked.append(span), original(reader, *span))[1],
    )
    reader = MeasurementReader(str(tmp_path / "m.safetensors"))
    frames = recovered_frames(reader, exact_network(), RecoverOptions(threads=2))
    assert next(frames).pts == 0
    assert asked == [(0, 20), (20, 40), (40, 60)]
    frames.close()


def test_sound_is_left_out_and_both_commands_warn(exact, tmp_path):
    rich_video(tmp_path / "video.mkv", extras(subtitles=("subrip",)))
    events: list[Event] = []
    vidrestore.sense(
        tmp_path / "video.mkv",
        tmp_path / "m.safetensors",
        model=str(exact),
        on_event=events.append,
    )
    vidrestore.recover(
        tmp_path / "m.safetensors",
        tmp_path / "out.mkv",
        model=str(exact),
        on_event=events.append,
    )
    warnings = [event.message for event in events if event.name == "warning"]
    assert warnings[0].endswith("left out: audio, chapters, subtitles")
    assert (
        "the video has no audio, chapters, subtitles" in warnings[1]
        and "video.mkv had them" in warnings[1]
    )
    with av.open(str(tmp_path / "out.mkv")) as container:
        assert [stream.type for stream in container.streams] == ["video"]
    names = [event.name for event in events if event.name != "progress"]
    assert names == ["start", "plan", "warning", "done"] * 2


def test_a_damaged_video_is_measured_as_far_as_it_goes_and_its_damage_reported(
    tmp_path, exact
):
    write_video(tmp_path / "video.mkv", 40)
    cut_short(tmp_path / "video.mkv")
    summary = vidrestore.sense(
        tmp_path / "video.mkv", tmp_path / "m.safetensors", model=str(exact)
    )
    assert summary.exit_code == 4 and 0 < summary.frames < 40


def test_a_full_disk_is_reported_and_leaves_no_file(video, exact, monkeypatch):
    def full(*arguments: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(
        sense.MeasurementWriter,
        "_header",
        lambda writer, frames: bytes(64) if not writer.frames else full(),
    )
    with pytest.raises(MediaError, match="no space left"):
        vidrestore.sense(video, video.with_name("m.safetensors"), model=str(exact))
    assert names(video.parent) == ["video.mkv"]


# Refusals


@pytest.fixture
def measured(video: Path, exact: Path) -> Path:
    path = video.with_name("m.safetensors")
    vidrestore.sense(video, path, model=str(exact))
    return path


def refused(
    measured: Path, kind: type[VidRestoreError], message: str, **options: Any
) -> None:
    with pytest.raises(kind, match=message):
        vidrestore.recover(measured, measured.with_name("out.mkv"), **options)
    assert not list(measured.parent.glob("*out*")) and not list(
        measured.parent.glob(".*")
    )


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"", "header too small"),
        (b"text, not tensors", "header too large"),
        (bytes(100), "invalid JSON in header"),
        ((20).to_bytes(8, "little") + b"{" * 20, "invalid JSON in header"),
        ((4).to_bytes(8, "little") + b"[1] ", "invalid JSON in header"),
        ((4).to_bytes(8, "little") + b"{  }", "holds something else"),
    ],
)
def test_files_without_measurements_are_refused(content, reason, tmp_path):
    path = tmp_path / "m.safetensors"
    path.write_bytes(content)
    refused(path, MediaError, f"not a file of measurements .*{reason}")


@pytest.mark.parametrize("share", [0.5, 0.9, 0.999])
def test_a_file_that_was_cut_short_is_refused(share, measured, exact):
    cut_short(measured, share)
    refused(
        measured,
        MediaError,
        "not fully covered; if it is one, it was cut short",
        model=str(exact),
    )


def edited(
    path: Path, change: Callable[[dict[str, str], dict[str, Any]], object]
) -> None:
    """Write a file of measurements again, its metadata and tensors changed."""
    with safe_open(path, "np") as stream:
        metadata, names = dict(stream.metadata()), stream.keys()
        tensors = {name: stream.get_tensor(name) for name in names}
    change(metadata, tensors)
    save_file(tensors, path, metadata)


def test_a_file_written_again_by_other_software_is_read_whatever_its_order(
    measured, exact
):
    edited(measured, lambda metadata, tensors: None)
    summary = vidrestore.recover(
        measured, measured.with_name("out.mkv"), model=str(exact)
    )
    assert summary.frames == 5


def test_another_version_is_refused(measured, exact):
    edited(measured, lambda metadata, tensors: metadata.update(version="7"))
    refused(
        measured,
        MediaError,
        "version 7, this vidrestore reads version 1",
        model=str(exact),
    )


def in_video(**facts: Any) -> Callable[[dict[str, str], Any], None]:
    """A change of what the header says of the video."""

    def change(metadata: dict[str, str], tensors: Any) -> None:
        metadata["video"] = json.dumps(json.loads(metadata["video"]) | facts)

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda metadata, tensors: metadata.pop("model"),
        lambda metadata, tensors: metadata.update(patch="0"),
        lambda metadata, tensors: metadata.update(planes="[[1, 1]]"),
        lambda metadata, tensors: metadata.update(video="{}"),
        lambda metadata, tensors: metadata.update(measurements="3"),
        lambda metadata, tensors: metadata.update(video="not json"),
        lambda metadata, tensors: metadata.update(video="[" * 100_000),
        lambda metadata, tensors: metadata.update(sigma="-1"),
        lambda metadata, tensors: metadata.update(patch="4.0"),
        in_video(time_base="1e99999999"),  # a number that takes minutes to work out
        in_video(time_base="0"),
        in_video(rate=math.inf),
        in_video(content_light=[1]),
        in_video(display_matrix=[1 << 40] * 9),
        in_video(colour=dict.fromkeys(vars(TAGS), 1000)),
        in_video(width=1 << 30, height=1 << 30),
        in_video(pix_fmt="yuv444p"),
        in_video(pix_fmt="none such"),
        lambda metadata, tensors: tensors.pop("pts"),
        lambda metadata, tensors: tensors.update(pts=tensors["pts"][:3]),
        lambda metadata, tensors: tensors.update(
            measurements=tensors["measurements"].astype(np.uint8)
        ),
        lambda metadata, tensors: tensors.update(
            measurements=tensors["measurements"][:, 1:].copy()
        ),
    ],
)
def test_a_header_that_does_not_fit_is_refused(change, measured, exact):
    edited(measured, change)
    refused(measured, MediaError, "its header is damaged", model=str(exact))


@pytest.mark.parametrize(
    "name, value", [("pts", -(1 << 63)), ("pts", 1 << 60), ("durations", -1)]
)
def test_times_that_no_container_holds_are_refused(name, value, measured, exact):
    edited(measured, lambda metadata, tensors: tensors[name].__setitem__(0, value))
    refused(measured, MediaError, "has impossible times", model=str(exact))


def test_a_file_with_one_wrong_byte_is_refused_and_is_not_finished(
    measured, video, exact
):
    content = bytearray(measured.read_bytes())
    content[len(content) // 2] ^= 1
    measured.write_bytes(content)
    refused(measured, MediaError, "were damaged or changed.*copy it", model=str(exact))
    with pytest.raises(OutputExistsError):
        vidrestore.sense(video, measured, model=str(exact))


def test_nan_and_infinite_values_are_refused(measured, exact):
    def changed(metadata: dict[str, str], tensors: dict[str, Any]) -> None:
        tensors["measurements"][1, 2, 3] = np.nan
        # as of software that changes values on purpose
        del metadata["crc32"]

    edited(measured, changed)
    refused(measured, VidRestoreError, "NaN or infinity", model=str(exact))


def test_other_weights_than_those_that_measured_are_refused_and_both_named(
    measured, exact, tmp_path
):
    other = save_network(tmp_path / "other.safetensors", exact_network(seed=1))
    made = load_model(exact).card.sha256
    refused(
        measured,
        CheckpointError,
        f"exact .sha256 {made[:12]}.*other.safetensors has sha256 {other.sha256[:12]}",
        model=str(tmp_path / "other.safetensors"),
    )
    (tmp_path / "other.safetensors").unlink()


def test_weights_that_are_not_here_are_named(measured):
    refused(
        measured,
        CheckpointError,
        "measured with exact .sha256 .*name its file with `model`",
    )


def test_outputs_that_exist_are_kept_unless_they_may_be_replaced(
    measured, video, exact
):
    before = measured.read_bytes()
    with pytest.raises(OutputExistsError):
        vidrestore.sense(video, measured, model=str(exact), sigma=9)
    assert measured.read_bytes() == before
    vidrestore.sense(video, measured, model=str(exact), sigma=9, overwrite=True)
    assert measured.read_bytes() != before
    output = video.with_name("out.mkv")
    output.write_text("precious")
    with pytest.raises(OutputExistsError):
        vidrestore.recover(measured, output, model=str(exact))
    assert output.read_text() == "precious"
    vidrestore.recover(measured, output, model=str(exact), overwrite=True)
    assert len(frames_of(output)) == 5


def test_outputs_with_a_wrong_name_are_refused(video, measured, exact):
    with pytest.raises(MediaError, match="written as .safetensors"):
        vidrestore.sense(video, video.with_name("m.bin"), model=str(exact))
    with pytest.raises(MediaError, match="expected .mp4, .mkv"):
        vidrestore.recover(measured, video.with_name("out.txt"), model=str(exact))
    with pytest.raises(MediaError, match="the output is the input"):
        vidrestore.sense(measured, measured, model=str(exact), overwrite=True)
    before = exact.read_bytes()
    with pytest.raises(MediaError, match="the output is the input"):
        vidrestore.sense(video, exact, model=str(exact), overwrite=True)
    assert exact.read_bytes() == before


def test_an_interlaced_video_is_refused(tmp_path, exact):
    write_video(tmp_path / "tape.mkv", 3, "libx264", options={"x264-params": "tff=1"})
    with pytest.raises(PlanError, match="interlaced"):
        vidrestore.sense(
            tmp_path / "tape.mkv", tmp_path / "m.safetensors", model=str(exact)
        )


@pytest.fixture
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in the place of the bundled weights: rates of 0.25 and 0.5, and a denoiser."""
    folder = tmp_path / "listed"
    folder.mkdir()
    networks = {
        "small": DustConfig(PATCH, 64, measurements=4),
        "half": DustConfig(PATCH, 64, measurements=8),
        "denoiser": DustConfig(PATCH, 64),
    }
    cards = [
        save_network(folder / f"{name}.safetensors", Dust(config))
        for name, config in networks.items()
    ]
    write_manifest(cards, folder)
    monkeypatch.setattr("vidrestore.weights.manifest.weights_folder", lambda: folder)
    return folder


@pytest.mark.parametrize(
    "rate, name, measurements", [(0.25, "small", 4), (0.5, "half", 8)]
)
def test_a_rate_picks_the_listed_weights_and_recover_finds_them(
    rate, name, measurements, listed, video
):
    output = video.with_name("m.safetensors")
    vidrestore.sense(video, output, rate=rate)
    result = MeasurementReader(str(output)).measured
    assert (result.model, result.measurements, result.rate) == (
        name,
        measurements,
        rate,
    )
    assert vidrestore.recover(output, video.with_name("out.mkv")).frames == 5


@pytest.mark.parametrize(
    "asked, kind, message",
    [
        (
            {"rate": 0.3},
            OptionError,
            "no weights for a rate of 0.3; there are: 0.25 .small., 0.5 .half.",
        ),
        (
            {"rate": 0.25, "model": "half"},
            OptionError,
            "half measures at a rate of 0.5, not 0.25",
        ),
        (
            {"model": "denoiser"},
            CheckpointError,
            "denoiser: has no sensing matrix .*small, half",
        ),
    ],
)
def test_weights_that_can_not_measure_as_asked_are_refused(
    asked, kind, message, listed, video
):
    with pytest.raises(kind, match=message):
        vidrestore.sense(video, video.with_name("m.safetensors"), **asked)


def test_the_table_of_the_example_holds_a_network_that_loses_nothing_for_perfect(
    exact, repository, tmp_path, monkeypatch, capsys
):
    write_video(tmp_path / "clip.mkv", 3, size=(38, 26))
    script = repository / "examples" / "evaluate_sensing.py"
    command = [script, tmp_path / "clip.mkv", "--model", exact, "--frames", "2"]
    monkeypatch.setattr(sys, "argv", [*map(str, command)])
    runpy.run_path(str(script), run_name="__main__")
    *_, row = capsys.readouterr().out.splitlines()
    assert [cell.strip() for cell in row.split("|")][2:8] == [
        "clip.mkv",
        "2",
        *["inf", "1.0000"] * 2,
    ]
