"""Single frames of a clip: equal to the network's own forward, and nothing computed twice."""

from collections import Counter

import pytest
import torch
from torch import Tensor, nn
from vsr_networks import golden, released, tiny

from vidrestore.models.vsr_clip import VsrClip
from vidrestore.models.vsr_transformer import VsrTransformer

CLIP = golden("vsr_tiny.safetensors")["input"]  # (1, 5, 3, 64, 64)


def restored(
    network: VsrTransformer, clips: Tensor, window: tuple[int, ...], at: int
) -> Tensor:
    """A frame by the network's own forward."""
    return network(clips[:, window])[:, at]


@pytest.fixture(autouse=True)
def no_gradients():
    with torch.inference_mode():
        yield


def test_the_centre_of_a_released_window_is_that_of_all_frames():
    network = released()
    result = VsrClip(network, CLIP.transpose(0, 1)).restore(range(5), 2)
    torch.testing.assert_close(result, network(CLIP)[:, 2], atol=1e-4, rtol=0)
    torch.testing.assert_close(
        result[..., 96:160, 96:160].double(),
        golden("vsr_tiny.safetensors")["output_c"],
        atol=1e-4,
        rtol=0,
    )


def test_released_windows_that_share_frames_stay_those_of_the_forward():
    network = released()
    clip = VsrClip(network, CLIP.transpose(0, 1))
    for window, at in [
        ((4, 3, 0, 1, 2), 2),
        ((4, 0, 1, 2, 3), 2),
        ((0, 1, 2), 1),
        ((3,), 0),
    ]:
        torch.testing.assert_close(
            clip.restore(window, at),
            restored(network, CLIP, window, at),
            atol=1e-4,
            rtol=0,
        )


@pytest.mark.parametrize(
    "attention, alignment", [(True, False), (False, True), (False, False)]
)
def test_frames_of_a_network_without_a_part_are_those_of_its_forward(
    attention, alignment
):
    network = tiny(frames=3, attention=attention, alignment=alignment, blocks=1)
    clips = torch.rand(1, 3, 3, 64, 64, dtype=torch.float64)
    clip, expected = VsrClip(network, clips.transpose(0, 1)), network(clips)
    for frame in range(3):
        torch.testing.assert_close(
            clip.restore(range(3), frame), expected[:, frame], atol=1e-11, rtol=0
        )


def counted(network: VsrTransformer, parts: dict[str, nn.Module]) -> Counter[str]:
    """How often parts of a network are called from now on."""
    calls: Counter[str] = Counter()
    for name, part in parts.items():
        part.register_forward_hook(
            lambda part, given, output, name=name: calls.update([name])
        )
    return calls


def parts_of(network: VsrTransformer) -> dict[str, nn.Module]:
    first, last = network.blocks[0], network.blocks[-1]
    named = {
        "extractor": network.extractor,
        "flow": network.flow,
        "recon": network.reconstruction,
    }
    named |= {
        "first attention": first.attention.output,
        "first feed-forward": first.feed_forward,
    }
    named |= {
        "last attention": last.attention.output,
        "last feed-forward": last.feed_forward,
    }
    return named | {"last keys": last.attention.key}


def test_a_released_window_computes_only_what_its_centre_needs():
    network = released()
    calls = counted(network, parts_of(network))
    clip = VsrClip(network, torch.cat([CLIP, CLIP], 1).transpose(0, 1))
    clip.restore(range(5), 2)
    assert calls == {
        "extractor": 5, "flow": 10, "first attention": 5, "first feed-forward": 5,
        "last keys": 5, "last attention": 3, "last feed-forward": 1, "recon": 1,
    }  # fmt: skip
    calls.clear()
    clip.restore(range(1, 6), 2)
    # a pair to the new frame and back, and the ends with themselves
    assert calls["extractor"] == 1 and calls["flow"] == 4


def test_windows_of_another_size_are_refused():
    with pytest.raises(ValueError, match="at most 5 frames"):
        VsrClip(released(), CLIP.transpose(0, 1)).restore((0, 1, 2, 3, 4, 3), 2)
