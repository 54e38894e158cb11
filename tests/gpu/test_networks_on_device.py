"""Every network computes on a device all that it computes on the CPU, with the same values: rehearsed on a
stand-in that refuses to mix the two.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import recovery_systems
import torch
from rgb_networks import released_form
from stand_in import DEVICE, OnDevice, Rehearsal
from taylor_networks import small
from torch import Tensor, nn
from vsr_networks import compact

from vidrestore.models.dust import Dust, DustConfig
from vidrestore.models.dust_sigma import SigmaDust, SigmaDustConfig
from vidrestore.models.fast.linear import PackedLinear
from vidrestore.models.mb_taylorformer import MBTaylorFormer
from vidrestore.models.mb_taylorformer import build as build_image_network
from vidrestore.models.spynet import Spynet, SpynetConfig
from vidrestore.models.vsr_clip import VsrClip
from vidrestore.models.vsr_transformer import VsrTransformer

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}
# of the largest value; some operations are wider on CUDA than in the half precision of the CPU
NEAR = {"fp32": 1e-5, "fp16": 4e-3, "bf16": 4e-2}

# as the released h: frames in threes, fixed taps, plain convolutions where maps are large
COMPACT = {"size": "h", "widths": [4, 8, 8, 8], "heads": [1, 1, 2, 4], "blocks": [1, 1, 1, 1]}
PATCHES: dict[str, Callable[[], nn.Module]] = {
    "dust": lambda: Dust(DustConfig(4, 36, temperature=True)),
    "mh-dust": lambda: Dust(DustConfig(4, 36, heads=2, measurements=8, correlation=True)),
    "dust, weighted softmax": lambda: Dust(DustConfig(4, 36, normalise=False)),
    "dust, every sigma": lambda: SigmaDust(SigmaDustConfig(4, 36)),
    "mh-dust, every sigma": lambda: SigmaDust(SigmaDustConfig(4, 36, heads=2)),
}
PATCHES |= {
    family: lambda family=family: recovery_systems.system(family, 6).float()
    for family in recovery_systems.SIZES
}
PICTURES: dict[str, Callable[[], MBTaylorFormer]] = {
    "t": lambda: small(size="t"),
    "b": small,
    "as many branches as l and xl": lambda: small(branches=[2, 3, 3, 3]),
    "paper's attention": lambda: small(attention={"position": "convolution", "focus": "norm-preserving"}),
    "several tasks": lambda: small(tasks=["dehaze", "derain"]),
    "h": lambda: build_image_network(COMPACT).eval(),
}
CLIPS: dict[str, Callable[[], VsrTransformer]] = {
    "t": compact,
    "c": lambda: compact(attention=False, shared=4, patch=1),
    "without flow": lambda: compact(alignment=False),
    "s": lambda: compact(tail=4),
}


def on_device(*tensors: Tensor) -> list[Tensor]:
    return [tensor.to(DEVICE) for tensor in tensors]


def back(restored: Any) -> Tensor:
    assert isinstance(restored, OnDevice), "the result is on the CPU"
    return restored.cpu()


def assert_near(found: Tensor, expected: Tensor, precision: str) -> None:
    assert found.dtype == expected.dtype
    most = NEAR[precision] * float(expected.nan_to_num().abs().amax())
    torch.testing.assert_close(found, expected, rtol=0, atol=most, equal_nan=True)


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("name", PATCHES)
@torch.no_grad()
def test_patches_on_a_device_are_those_of_the_cpu_and_nothing_waits(name: str, precision: str) -> None:
    torch.manual_seed(1)
    network = PATCHES[name]()
    groups = network.measure(255 * torch.rand(3, 5, 16))  # type: ignore[operator]
    expected = network.at(20.0, DTYPES[precision], PackedLinear)(groups)  # type: ignore[operator]
    with Rehearsal() as device:
        there, [given] = network.to(DEVICE), on_device(groups)
        restore = there.at(20.0, DTYPES[precision], PackedLinear)  # type: ignore[operator]
        device.counts.clear()
        assert_near(back(restore(given)), expected, precision)
    assert not device.counts["values read"] and not device.counts["sized by values"]


@pytest.mark.parametrize("name", ["dust", "mh-dust", "dust, every sigma", "mh-dust, every sigma"])
@torch.no_grad()
def test_patches_by_the_equations_one_by_one_are_those_of_the_cpu(name: str) -> None:
    torch.manual_seed(1)
    network = PATCHES[name]()
    sigma = (20.0,) if isinstance(network, SigmaDust) else ()
    groups = network.measure(255 * torch.rand(2, 4, 16))  # type: ignore[operator]
    expected = network(groups, *sigma)
    with Rehearsal():
        found = network.to(DEVICE)(*on_device(groups), *sigma)
        assert_near(back(found), expected, "fp32")


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("name", PICTURES)
@torch.no_grad()
def test_pictures_on_a_device_are_those_of_the_cpu(name: str, precision: str) -> None:
    network = PICTURES[name]()
    config, generator = network.config, torch.Generator().manual_seed(3)
    frames = (config.frames,) if config.frames > 1 else ()
    pictures = torch.rand(1, *frames, 3, 16, 32, generator=generator)
    tasks = [torch.tensor([1])] if config.tasks else []
    half = {"dtype": DTYPES[precision], "enabled": precision != "fp32"}
    with torch.autocast("cpu", **half):
        expected = network(pictures, *tasks)
    with Rehearsal() as device:
        there, given = network.to(DEVICE), on_device(pictures, *tasks)
        device.counts.clear()
        with torch.autocast("cuda", **half):
            found = there(*given)
        assert not device.counts, "nothing crosses the bus or waits inside the network"
        assert_near(back(found), expected, precision)


@pytest.mark.parametrize("precision", DTYPES)
@pytest.mark.parametrize("name", CLIPS)
@torch.no_grad()
def test_clips_on_a_device_are_those_of_the_cpu(name: str, precision: str) -> None:
    network = CLIPS[name]().float().for_inference(DTYPES[precision])
    clip = torch.rand(3, 1, 3, 16, 24, generator=torch.Generator().manual_seed(4))
    expected = VsrClip(network, clip).restore(range(3), 1)
    with Rehearsal() as device:
        there, [given] = network.to(DEVICE).for_inference(DTYPES[precision]), on_device(clip)
        device.counts.clear()
        found = VsrClip(there, given).restore(range(3), 1)
        assert not device.counts, "nothing crosses the bus or waits inside the network"
        assert_near(back(found), expected, precision)


@torch.no_grad()
def test_all_frames_at_once_and_the_released_form_are_those_of_the_cpu() -> None:
    for network, side in ((compact().float(), 16), (released_form(), 64)):
        clip = torch.rand(1, 3, 3, side, side, generator=torch.Generator().manual_seed(4))
        expected = network(clip)
        with Rehearsal():
            assert_near(back(network.to(DEVICE)(*on_device(clip))), expected, "fp32")


@torch.no_grad()
def test_flow_on_a_device_is_that_of_the_cpu() -> None:
    torch.manual_seed(2)
    network = Spynet(SpynetConfig(levels=3, widths=(8, 8), kernel=3))
    frames = torch.rand(2, 1, 3, 20, 44)
    expected = network(*frames)
    with Rehearsal() as device:
        there, given = network.to(DEVICE), on_device(*frames)
        device.counts.clear()
        found = there(*given)
        assert not device.counts["values read"]
        assert_near(back(found), expected, "fp32")
