"""Restore videos by networks that see RGB: frames, times, colours and formats stay the same."""

from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
import torch
import torch.nn.functional as F
from fake_restorer import request_of
from numpy.typing import NDArray
from rgb_networks import doubling, image_restorer, keeping, vsr_restorer, write_weights
from sample_videos import video_frame, write_stream, write_video
from taylor_networks import small
from torch import Tensor
from vsr_networks import recurrent

import vidrestore
from vidrestore.errors import VidRestoreError
from vidrestore.events import ignore_event
from vidrestore.jobs.estimate import Estimate, estimate
from vidrestore.jobs.preview import preview
from vidrestore.jobs.request import load_step
from vidrestore.jobs.run import restore_request
from vidrestore.media.reading.reader import VideoReader
from vidrestore.pipeline.clip_restorer import ClipRestorer
from vidrestore.pixels.clips import Bounds
from vidrestore.pixels.colour import planes_to_grey, yuv_to_rgb
from vidrestore.pixels.frames import PixelFormat, VideoInfo
from vidrestore.restorers.picture_restorer import PictureRestorer
from vidrestore.settings.options import EncoderOptions, RestoreOptions

LOSSLESS = EncoderOptions(lossless=True)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("weights")
    networks = {
        "keeping": (keeping(), "dehaze"),
        "small": (small(), "dehaze"),
        "doubling": (doubling(), "sr"),
        "recurrent": (tame(), "sr"),
    }
    return {
        name: write_weights(folder, network, task)
        for name, (network, task) in networks.items()
    }


def tame() -> Any:
    """A recurrent network whose output stays near [0, 1], so that little is clipped."""
    network = recurrent().float()
    with torch.no_grad():
        for parameter in network.tail.parameters():
            parameter.mul_(0.1)
    return network


def read(path: Path) -> tuple[VideoInfo, list[int], list[tuple[NDArray[Any], ...]]]:
    with VideoReader(str(path)) as reader:
        frames = list(reader.frames())
        return (
            reader.info.video,
            [frame.pts for frame in frames],
            [frame.planes for frame in frames],
        )


def run(
    source: Path, output: Path, task: str, model: str, **options: Any
) -> vidrestore.Summary:
    options = {"threads": 1} | options  # a team of threads for tiny tensors is slow
    return vidrestore.restore(
        source,
        output,
        task=task,
        model=model,
        device="cpu",
        encoder=LOSSLESS,
        **options,
    )


def assert_same(
    found: list[tuple[NDArray[Any], ...]], expected: list[tuple[NDArray[Any], ...]]
) -> None:
    assert len(found) == len(expected)
    for planes, others in zip(found, expected, strict=True):
        for plane, other in zip(planes, others, strict=True):
            np.testing.assert_array_equal(plane, other)


@pytest.mark.parametrize(
    "pix_fmt",
    [
        "yuv444p",
        "yuv444p10le",
        "gray",
        "gray10le",
        "gbrp",
        "yuv420p",
        "yuv420p10le",
        "yuv422p",
        "yuva420p",
    ],
)
def test_a_network_that_keeps_its_input_keeps_every_format_at_odd_sizes(
    tmp_path, weights, pix_fmt
):
    source, output = tmp_path / "in.mkv", tmp_path / "out.mkv"
    write_video(
        source, 2, pix_fmt="bgr0" if pix_fmt == "gbrp" else pix_fmt, size=(129, 97)
    )
    run(source, output, "dehaze", weights["keeping"])
    video, times, before = read(source)
    after, new_times, restored = read(output)
    assert (after.format, after.width, after.height, new_times) == (
        video.format,
        129,
        97,
        times,
    )
    assert_same(restored, before)


def video_with_everything(path: Path) -> None:
    """An odd rate, rotation, tags, sound, oblong pixels."""
    tags = dict.fromkeys(
        ("colorspace", "color_primaries", "color_trc", "color_range"), 1
    )
    write_video(
        path,
        8,
        "libx264",
        times=[0, 40, 41, 200, 233, 500, 501, 900],
        time_base=Fraction(1, 1000),
        options={"qp": "0", "bf": "0"},
        sound=Fraction(1),
        settings={"display": {"degrees": 90}, "sample_aspect_ratio": Fraction(4, 3)}
        | tags,
    )


def sound_of(path: Path) -> list[tuple[int | None, bytes]]:
    with av.open(str(path)) as container:
        packets = container.demux(container.streams.audio[0])
        return [(packet.pts, bytes(packet)) for packet in packets if packet.size]


@pytest.mark.parametrize(
    "task, model, scale", [("dehaze", "keeping", 1), ("sr", "doubling", 4)]
)
def test_times_tags_rotation_aspect_and_sound_stay(
    tmp_path, weights, task, model, scale
):
    source, output = tmp_path / "in.mp4", tmp_path / "out.mp4"
    video_with_everything(source)
    assert run(source, output, task, weights[model]).frames == 8
    (before, times, _), (after, new_times, planes) = read(source), read(output)
    assert new_times == times
    assert (after.width, after.height) == (scale * before.width, scale * before.height)
    assert planes[0][1].shape == (scale * before.height // 2, scale * before.width // 2)
    kept = ("colour", "rotation", "sample_aspect_ratio", "format", "time_base")
    assert [getattr(after, name) for name in kept] == [
        getattr(before, name) for name in kept
    ]
    assert (
        before.rotation
        and before.colour.matrix == 1
        and before.sample_aspect_ratio == Fraction(4, 3)
    )
    assert sound_of(source) == sound_of(output) != []


@pytest.mark.parametrize("size", [(60, 44), (35, 27), (5, 3)], ids=str)
def test_a_gray_video_is_enlarged_as_the_network_does_it_also_where_its_sides_are_odd(
    tmp_path, weights, size
):
    source, output = tmp_path / "in.mkv", tmp_path / "out.mkv"
    write_video(source, 3, pix_fmt="gray10le", size=size)
    run(source, output, "sr", weights["doubling"])
    for (before,), (after,) in zip(read(source)[2], read(output)[2], strict=True):
        grey = torch.from_numpy(before.astype(np.float32))
        large = F.interpolate(
            grey[None, None], scale_factor=4.0, mode="bilinear", align_corners=False
        )[0, 0]
        # beyond, the network sees reflected pixels
        inside = (slice(0, 4 * before.shape[0] - 2), slice(0, 4 * before.shape[1] - 2))
        np.testing.assert_allclose(after[inside], large.numpy()[inside], atol=1)


@pytest.mark.parametrize("pix_fmt", ["yuv420p10le", "yuv422p", "yuv444p", "gbrp"])
def test_every_format_is_enlarged_at_odd_sizes(tmp_path, weights, pix_fmt):
    source, output = tmp_path / "in.mkv", tmp_path / "out.mkv"
    write_video(
        source, 1, pix_fmt="bgr0" if pix_fmt == "gbrp" else pix_fmt, size=(65, 49)
    )
    run(source, output, "sr", weights["doubling"])
    (before, times, (original,)), (after, new_times, (planes,)) = (
        read(source),
        read(output),
    )
    assert (after.format, after.width, after.height, new_times) == (
        before.format,
        260,
        196,
        times,
    )
    assert [plane.shape for plane in planes] == [
        after.format.plane_size(number, 196, 260) for number in range(3)
    ]
    for plane, small_plane in zip(
        planes, original, strict=True
    ):  # samples wrap around, so only much of the picture can be compared
        assert (
            abs(plane.astype(float).mean() - small_plane.astype(float).mean())
            < 4 * after.format.unit
        )


def flat_video(
    path: Path, planes: tuple[int, ...], size: tuple[int, int], pix_fmt: str = "yuv420p"
) -> None:
    """Three frames of one colour."""
    half = (size[1] // 2, size[0] // 2)
    shapes = [size[::-1], half, half, size[::-1]]
    filled = tuple(
        np.full(shape, value, np.uint8)
        for shape, value in zip(shapes, planes, strict=False)
    )
    write_stream(path, [video_frame(pix_fmt, filled)] * 3)


@pytest.mark.parametrize(
    "written, first, tagged", [("out.mkv", "out.mkv", 1), ("%d.png", "1.png", 0)]
)
def test_an_untagged_video_keeps_its_colour_in_a_video_and_in_pictures_of_more_lines(
    tmp_path, weights, written, first, tagged
):
    """Players take an untagged matrix for BT.601 below 720 lines and for BT.709 from there on; not all do."""
    source = tmp_path / "in.mkv"
    flat_video(source, (120, 90, 190), (16, 180))
    run(source, tmp_path / written, "sr", weights["doubling"])
    colours = []
    for path, matrix in ((source, 2), (tmp_path / first, tagged)):
        video, _, frames = read(path)
        rgb = yuv_to_rgb(
            planes_to_grey(frames[0], video.format),
            video.format,
            video.colour,
            video.height,
        )
        colours.append(rgb[:, rgb.shape[1] // 2, rgb.shape[2] // 2])
        assert video.colour.matrix == matrix
    torch.testing.assert_close(colours[0], colours[1], atol=2 / 255, rtol=0)


def test_alpha_is_enlarged(tmp_path, weights):
    source, output = tmp_path / "in.mkv", tmp_path / "out.mkv"
    flat_video(source, (120, 90, 190, 77), (16, 12), "yuva420p")
    run(source, output, "sr", weights["doubling"])
    for planes in read(output)[2]:
        assert planes[3].shape == (48, 64) and (planes[3] == 77).all()


def test_strength_mixes_with_the_sources_own_samples(tmp_path, weights):
    source = tmp_path / "in.mkv"
    write_video(source, 2)
    frames = {}
    for strength in (0.0, 0.5, 1.0):
        run(
            source,
            tmp_path / f"{strength}.mkv",
            "dehaze",
            weights["small"],
            strength=strength,
        )
        frames[strength] = read(tmp_path / f"{strength}.mkv")[2]
    assert_same(frames[0.0], read(source)[2])
    middle = (frames[0.0][0][0].astype(float) + frames[1.0][0][0]) / 2
    inner = (frames[1.0][0][0] > 0) & (frames[1.0][0][0] < 255)  # clipping comes last
    np.testing.assert_allclose(frames[0.5][0][0][inner], middle[inner], atol=1)
    assert (frames[1.0][0][0] != frames[0.0][0][0]).any()


def test_strength_0_enlarges_bicubically(tmp_path, weights):
    source, output = tmp_path / "in.mkv", tmp_path / "out.mkv"
    write_video(source, 1, pix_fmt="gray")
    run(source, output, "sr", weights["recurrent"], strength=0.0)
    grey = torch.from_numpy(read(source)[2][0][0].astype(np.float32))
    large = (
        F.interpolate(
            grey[None, None], scale_factor=4.0, mode="bicubic", align_corners=False
        )[0, 0]
        .round()
        .clamp(0, 255)
    )
    np.testing.assert_allclose(read(output)[2][0][0], large.numpy(), atol=1)


def two_scenes(path: Path, which: tuple[int, ...]) -> None:
    """Nine frames of each of the scenes asked for: textures that move, as unlike as can be."""
    rows, columns = np.mgrid[:48, :64]
    frames = []
    for scene in which:
        for step in range(9):
            pictures = (
                40 + 30 * np.sin((rows + step) / 3),
                180 + 60 * np.sign(np.cos((columns + 2 * step) / 5) * np.sin(rows / 7)),
            )
            frames.append(video_frame("gray", (pictures[scene].astype(np.uint8),)))
    write_stream(path, frames)


def test_a_cut_leaves_no_ghost_of_the_other_scene(tmp_path, weights):
    found = {}
    for name, which in (("both", (0, 1)), ("first", (0,)), ("second", (1,))):
        two_scenes(tmp_path / f"{name}.mkv", which)
        run(
            tmp_path / f"{name}.mkv",
            tmp_path / f"{name}.x4.mkv",
            "sr",
            weights["recurrent"],
        )
        found[name] = read(tmp_path / f"{name}.x4.mkv")[2]
    assert_same(found["both"], found["first"] + found["second"])
    run(
        tmp_path / "both.mkv",
        tmp_path / "blind.mkv",
        "sr",
        weights["recurrent"],
        scene_detect=False,
    )
    blind = read(tmp_path / "blind.mkv")[2]
    assert any(
        (one[0] != other[0]).any()
        for one, other in zip(blind, found["both"], strict=True)
    )


class Overflowing(PictureRestorer):
    """Gives NaN in half precision for a frame, and in full precision too where it is hopeless."""

    hopeless = False

    def frames(
        self, clip: Tensor, keep: Bounds, *, precision: Any = None, **_: Any
    ) -> Iterator[Tensor]:
        wrong = self.hopeless or precision != "fp32"
        yield from (frame * (torch.nan if wrong else 1) for frame in clip[slice(*keep)])


@pytest.mark.parametrize("hopeless", [False, True])
def test_a_frame_beyond_half_precision_is_restored_again_in_fp32(
    tmp_path, weights, hopeless
):
    write_video(tmp_path / "in.mkv", 3, pix_fmt="gray")
    restorer = Overflowing(
        "dehaze", RestoreOptions(model=weights["small"], device="cpu")
    )
    restorer.hopeless = hopeless
    request = request_of(
        tmp_path / "in.mkv", tmp_path / "out.mkv", "dehaze", encoder=LOSSLESS
    )
    if hopeless:
        with pytest.raises(
            VidRestoreError,
            match=r"frames \d to \d: dehaze-1 produced NaN or infinity, in fp32 too",
        ):
            restore_request(request, lambda _: restorer)
        assert not (tmp_path / "out.mkv").exists()
    else:
        assert restore_request(request, lambda _: restorer).retried == 3
        assert_same(read(tmp_path / "out.mkv")[2], read(tmp_path / "in.mkv")[2])


def test_too_little_memory_names_a_tile_that_takes_less(tmp_path, weights, monkeypatch):
    def full(*_: Any, **__: Any) -> Iterator[Tensor]:
        raise torch.OutOfMemoryError("CUDA out of memory")

    write_video(tmp_path / "in.mkv", 2, size=(600, 400))
    monkeypatch.setattr(PictureRestorer, "frames", full)
    with pytest.raises(
        VidRestoreError,
        match="ran out of memory on cpu for tiles of 600 pixels; give `tile=256`",
    ):
        run(tmp_path / "in.mkv", tmp_path / "out.mkv", "dehaze", weights["keeping"])
    with pytest.raises(
        VidRestoreError, match="for tiles of 64 pixels; use `device=cpu`"
    ):
        run(
            tmp_path / "in.mkv",
            tmp_path / "out.mkv",
            "dehaze",
            weights["keeping"],
            tile=64,
        )
    assert not (tmp_path / "out.mkv").exists()


@pytest.mark.parametrize(
    # memory in GiB, of 3; clips and parts for clips of one frame, and of many
    "clip, part, single, many",
    [
        (0.1, 0.1, (15, 15), (14, 16)),
        (0.5, 0.25, (4, 4), (1, 10)),
        (0.25, 0.7, (3, 3), (3, 3)),
        (0.25, 1.0, (2, 2), (2, 2)),
        (1.0, 9.0, (1, 1), (1, 1)),
        (9.0, 1.0, (1, 1), (1, 1)),
    ],
)
def test_so_many_parts_and_clips_share_the_memory_that_most_frames_are_at_work(
    tmp_path, clip, part, single, many
):
    video = VideoInfo(
        0, "h264", 64, 48, PixelFormat("yuv420p", "yuv", 8, 1, 1), Fraction(1, 25)
    )
    restorers = image_restorer(tmp_path, keeping()), vsr_restorer(tmp_path, doubling())
    for restorer, expected in zip(restorers, (single, many), strict=True):
        restorer.memory = lambda height, width: int((clip + part) * 2**30)
        restorer.part_memory = lambda height, width: int(part * 2**30)
        stage = ClipRestorer("", restorer, video, RestoreOptions())
        stage.threads = 16
        assert stage.at_once() == expected
        # whose parts all workers share
        stage.conversion.video = replace(video, frames=1)
        assert stage.at_once().parts == many[1]


def test_a_preview_shows_both_halves_by_one_matrix_and_tags_it(tmp_path, weights):
    # BT.601, as 192 lines without a tag are; 768 lines would be BT.709
    flat_video(tmp_path / "in.mkv", (81, 90, 240), (64, 192))
    options = {
        "model": weights["doubling"],
        "device": "cpu",
        "encoder": LOSSLESS,
        "threads": 1,
    }
    request = request_of(
        tmp_path / "in.mkv", tmp_path / "in.preview.mkv", "sr", **options
    )
    preview(request, Fraction(1), load_step, ignore_event)
    video, _, planes = read(tmp_path / "in.preview.mkv")
    assert (video.width, video.height, video.colour.matrix) == (2 * 4 * 64, 4 * 192, 1)
    # of the same red by BT.709
    for plane, wanted in zip(planes[0], (63, 102, 240), strict=True):
        # below the words
        left, right = np.hsplit(plane[len(plane) // 4 :].astype(float), 2)
        assert abs(left.mean() - wanted) < 1.5 and abs(left.mean() - right.mean()) < 1


def test_a_dry_run_tries_the_encoder_at_the_size_of_the_output(tmp_path, weights):
    write_video(tmp_path / "in.mkv", 5, size=(36, 28))
    options = {"model": weights["doubling"], "device": "cpu", "threads": 1}
    request = request_of(tmp_path / "in.mkv", tmp_path / "out.mkv", "sr", **options)
    found = estimate(request, load_step, ignore_event)
    assert isinstance(found, Estimate) and found.size > 5 * 16 * 36 * 28 / 8
