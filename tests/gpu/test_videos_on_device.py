"""Count what whole restorations on a device move over the bus, launch and wait for.

Parity of the bundled networks on a real card is that of test_parity.py.
"""

import threading
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest
import torch
from device_runs import (
    EIGHT,
    FRAMES,
    HEIGHT,
    TEN,
    WIDTH,
    assert_same,
    frames_of,
    restored,
    video_of,
)
from stand_in import Rehearsal

from vidrestore.errors import OptionError
from vidrestore.jobs.bench import write_video
from vidrestore.jobs.run import restore
from vidrestore.media.reading.reader import VideoReader
from vidrestore.models.mb_taylorformer import MBTaylorFormer
from vidrestore.noise.meter import NoiseMeter
from vidrestore.pipeline.clip_restorer import ClipRestorer
from vidrestore.pipeline.conversions import Upload, Uploads
from vidrestore.pipeline.plan import Clip
from vidrestore.pixels.frames import Frame
from vidrestore.restorers.base import load_restorer
from vidrestore.restorers.devices import (
    all_bits,
    device_name,
    half_type,
    torch_device,
    uses_bf16,
)
from vidrestore.settings.options import EncoderOptions, RestoreOptions

CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "denoise": ("denoise", "dust", {}),
    "denoise, fast": ("denoise", "dust", {"quality": "fast"}),
    "denoise, by pictures": ("denoise", "h, noise", {"strength": 0.9}),
    "dehaze": ("dehaze", "h, haze", {}),
    "derain, by three frames": ("derain", "h", {}),
    "derain, in tiles": ("derain", "h", {"tile": 64}),
    "sr": ("sr", "sr", {}),
    "sr, released form": ("sr", "sr, released", {}),
}


SMALL = 4096  # bytes per frame beside its samples: sizes, the weights of a noise level


@pytest.mark.parametrize("pixels", [EIGHT, TEN], ids=lambda pixels: pixels.name)
@pytest.mark.parametrize(
    "task, model, larger",
    [
        ("denoise", "dust", 1),
        ("derain", "h", 1),
        ("dehaze", "h, haze", 1),
        ("sr", "sr", 16),
        ("sr", "sr, released", 16),
    ],
)
def test_no_frame_crosses_the_bus_but_once_each_way_as_it_is_stored(
    weights, task, model, larger, pixels
):
    stored = FRAMES * sum(plane.nbytes for plane in frames_of(pixels)[0].planes)
    options = {"quality": "fast"} if task == "denoise" else {}
    with Rehearsal() as device:
        restored(task, "cuda", pixels, model=weights[model], **options)
        assert stored <= device.moved["to device"] <= stored + SMALL * FRAMES
        assert device.moved["to host"] == larger * stored


def test_a_gpu_without_bf16_computes_in_fp16_and_repeats_overflows_in_fp32(
    weights, monkeypatch
):
    forward, kinds = MBTaylorFormer.forward, []

    def overflowing(self: MBTaylorFormer, *given: Any) -> torch.Tensor:
        made, half = forward(self, *given), torch.is_autocast_enabled("cpu")
        kinds.append(torch.get_autocast_dtype("cpu") if half else made.dtype)
        return made * torch.inf if half else made

    expected = restored("derain", "cpu", EIGHT, model=weights["h"])
    monkeypatch.setattr(MBTaylorFormer, "forward", overflowing)
    with Rehearsal(bf16=False):
        found = restored("derain", "cuda", EIGHT, model=weights["h"], precision="auto")
    assert_same(found, expected)
    assert set(kinds) == {torch.float16, torch.float32}


def test_the_number_format_follows_the_gpu(monkeypatch):
    cuda, cpu = torch.device("cuda"), torch.device("cpu")
    for bf16, half in ((True, torch.bfloat16), (False, torch.float16)):
        with Rehearsal(bf16=bf16):
            assert half_type("auto", cuda) == half and half_type("fp32", cuda) is None
            assert uses_bf16("auto", cuda) == bf16 and half_type("fp32", cpu) is None
            assert device_name(torch_device("auto")) == "cuda (stand-in)"
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert (
        torch_device("mps").type == "mps"
        and half_type("auto", torch.device("mps")) is None
    )


@pytest.mark.parametrize("precision, shortened", [("fp32", False), ("auto", True)])
@pytest.mark.parametrize("task, model", [("derain", "h"), ("sr", "sr")])
def test_convolutions_in_fp32_keep_all_bits(
    weights, monkeypatch, task, model, precision, shortened
):
    seen, convolved = [], torch.nn.functional.conv2d

    def noted(*given: Any, **more: Any) -> torch.Tensor:
        seen.append(torch.backends.cudnn.allow_tf32)
        return convolved(*given, **more)

    monkeypatch.setattr(torch.nn.functional, "conv2d", noted)
    with Rehearsal():
        restored(task, "cuda", EIGHT, model=weights[model], precision=precision)
    assert set(seen) == {shortened}
    assert torch.backends.cudnn.allow_tf32, "as it was"


def test_all_bits_are_kept_until_the_last_of_several_threads_is_done():
    device = torch.device("cuda")
    with Rehearsal(), ExitStack() as first, ExitStack() as second:
        first.enter_context(all_bits(device, None))
        second.enter_context(all_bits(device, None))
        first.close()
        assert not torch.backends.cudnn.allow_tf32
        second.close()
        assert torch.backends.cudnn.allow_tf32


def test_an_apple_gpu_that_is_not_there_is_refused():
    with pytest.raises(
        OptionError,
        match="'mps' is not there: torch sees no Apple GPU; use `device=cpu`",
    ):
        torch_device("mps")
    with pytest.raises(OptionError, match="expected auto, cpu, cuda, cuda:N or mps"):
        torch_device("meta")


# In two clips of three planes: one look for NaN per clip, one for the number of holes between patches per
# plane; one copy per plane, and one of the noise level. A process that has not denoised before copies the
# fitted gains of each estimate, too, and where patches of luma and of chroma end, by two lists each.
ONE_LOOK = {"values read": 2, "sized by values": 0, "to device": 2 * 3}
WAITS = {
    "denoise": {
        "values read": 2,
        "sized by values": 2 * 3,
        "to device": 2 * 3 + 1 + 3 + 2 * 2,
    },
    "denoise, fast": {
        "values read": 2,
        "sized by values": 2 * 3,
        "to device": 2 * 3 + 1 + 1 + 2 * 2,
    },
    "denoise, by pictures": ONE_LOOK,
    "derain, by three frames": ONE_LOOK,
    "derain, in tiles": ONE_LOOK,
    "dehaze": {"values read": 2, "sized by values": 0},
    "sr": ONE_LOOK,
    "sr, released form": ONE_LOOK | {"to device": 31},
}


@pytest.mark.parametrize("name", WAITS)
def test_the_host_seldom_waits_for_the_device_and_gets_the_frames_of_the_cpu(
    weights, name
):
    task, model, options = CASES[name]
    options = {"model": weights[model]} | options
    size = (40, 80) if "tile" in options else ()
    expected = restored(task, "cpu", EIGHT, size, **options)
    with Rehearsal() as device:
        assert_same(restored(task, "cuda", EIGHT, size, **options), expected)
        for what, most in WAITS[name].items():
            assert device.counts[what] <= most, dict(device.counts)
        assert device.counts["to host"] <= 3 * 2 + 3 * 2, (
            "one copy per plane and clip, and for shared frames"
        )


def launches(task: str, frames: list[Frame], device: Rehearsal, **options: Any) -> int:
    with device:
        restorer = load_restorer(
            task, RestoreOptions(device="cuda", precision="fp32", **options)
        )
        size = frames[0].planes[0].shape
        clips = ClipRestorer(
            task, restorer, video_of(EIGHT, *size), RestoreOptions(threads=1)
        )
        device.counts.clear()
        device.launches = 0
        assert len(
            list(clips.frames(iter([(Clip(0, len(frames), (8.0,) * 3), frames)])))
        ) == len(frames)
        assert device.counts["memory asked for"] <= 1
        return device.launches


@pytest.mark.parametrize(
    "task, model, more", [("derain", "h", 1.1), ("dehaze", "h, haze", 2)]
)
def test_frames_of_a_clip_are_restored_by_the_same_launches(weights, task, model, more):
    """On a GPU each operation takes the time of its launch, however little it computes."""
    frames = frames_of(EIGHT)
    once, twice = (
        launches(task, each, Rehearsal(), model=weights[model])
        for each in (frames[:2], 2 * frames)
    )
    assert twice <= more * once


def test_a_device_restores_a_file_as_the_cpu_does_while_the_noise_of_the_next_clip_is_measured(
    monkeypatch, tmp_path
):
    measuring, sending, add, send = set(), set(), NoiseMeter.add, Uploads.send

    def measure(*given: Any) -> None:
        measuring.add(threading.get_ident())
        add(*given)

    def upload(*given: Any) -> Upload:
        sending.add(threading.get_ident())
        return send(*given)

    monkeypatch.setattr(NoiseMeter, "add", measure)
    monkeypatch.setattr(Uploads, "send", upload)
    video, options = str(tmp_path / "video.mkv"), EncoderOptions(lossless=True)
    write_video(video, WIDTH, HEIGHT, 30)  # two clips

    def frames(device: str) -> Any:
        output = str(tmp_path / f"{device}.mkv")
        given = RestoreOptions(device=device, precision="fp32", encoder=options)
        assert restore(video, output, task="denoise", options=given).frames == 30
        with VideoReader(output) as reader:
            return np.stack([frame.planes[0] for frame in reader.frames()]).astype(int)

    expected = frames("cpu")
    sending.clear()
    measuring.clear()
    with Rehearsal():
        found = frames("cuda")
    assert sending and measuring and not sending & measuring
    assert np.abs(found - expected).max() <= 1
