"""Networks of other authors by the package spandrel itself, small ones with random weights; test_community.py
imitates the package where it is absent.
"""

from importlib import import_module

import numpy as np
import pytest
import torch

import vidrestore
from vidrestore.errors import VidRestoreError
from vidrestore.pixels.metrics import psnr

try:
    import spandrel
# the latter from a torchvision for another PyTorch
except (ImportError, RuntimeError) as error:
    pytest.skip(f"needs the package spandrel ({error})", allow_module_level=True)

EXTRA = "spandrel_extra_arches"
FEW = {"num_feat": 16, "num_conv": 4}  # of Compact
# class, settings of its constructor, scale
NETWORKS = {
    "NAFNet": (
        "NAFNet",
        {"middle_blk_num": 1, "enc_blk_nums": [1, 1], "dec_blk_nums": [1, 1]},
        1,
    ),
    "Restormer": (
        "Restormer",
        {"dim": 16, "num_blocks": [1] * 4, "num_refinement_blocks": 1},
        1,
    ),
    "SCUNet": ("SCUNet", {"config": [1] * 7}, 1),
    "FBCNN": ("FBCNN", {"nc": [8, 8, 8, 512], "nb": 2}, 1),
    "DnCNN": ("DnCNN", {"in_nc": 3, "out_nc": 3, "nc": 16, "act_mode": "R"}, 1),
    "SPAN x2": (
        "SPAN",
        {"num_in_ch": 3, "num_out_ch": 3, "feature_channels": 16, "upscale": 2},
        2,
    ),
    "SPAN x4": (
        "SPAN",
        {"num_in_ch": 3, "num_out_ch": 3, "feature_channels": 16, "upscale": 4},
        4,
    ),
    "ESRGAN x2": (
        "ESRGAN",
        {"in_nc": 12, "num_filters": 16, "num_blocks": 1, "shuffle_factor": 2},
        2,
    ),
    "ESRGAN x4": ("ESRGAN", {"num_filters": 16, "num_blocks": 1}, 4),
    "Compact x1": ("Compact", FEW | {"upscale": 1}, 1),
    "Compact x4": ("Compact", FEW | {"upscale": 4}, 4),
}
FDNCNN = (
    "DnCNN",
    {"in_nc": 4, "out_nc": 3, "nc": 16, "act_mode": "R", "mode": "FDnCNN"},
    1,
)
NOISE_LEVEL = {
    "DRUNet": ("DRUNet", {"in_nc": 4, "out_nc": 3, "nc": [16, 32, 64, 64], "nb": 2}, 1),
    "FDnCNN": FDNCNN,
}


def network_of(form):
    """A network with random weights whose output is neither black nor white."""
    name, settings, _ = form
    package = EXTRA if name == "Restormer" else "spandrel"
    if package == EXTRA:
        pytest.importorskip(EXTRA).install(ignore_duplicates=True)
    torch.manual_seed(3)
    network = getattr(import_module(f"{package}.architectures.{name}"), name)(
        **settings
    ).eval()
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.shape == (3,):
                parameter += 0.5
            elif settings.get("in_nc") == 4 and parameter.dim() == 4:
                parameter *= 2  # else the level of the noise changes too little
    return network


def pictures(count, height, width):
    y, x = np.mgrid[:height, :width]
    clean = np.stack(
        [128 + 60 * np.sin(x / 9 + c) + 40 * np.cos(y / 7 - c) for c in range(3)], -1
    )
    noise = np.random.default_rng(1).normal(0, 8, (count, *clean.shape))
    return np.clip(clean + noise, 0, 255).astype(np.uint8)


def restored(form, frames, folder, **options):
    path = folder / "published.pth"
    torch.save({"params": network_of(form).state_dict()}, path)
    enlarging = {"task": "sr", "scale": form[2]} if form[2] > 1 else {}
    return vidrestore.restore_frames(
        frames, model=str(path), family="spandrel", device="cpu", **enlarging, **options
    )


def computed(network, frames, level=None):
    """What a network computes frame by frame, without this package."""
    results = []
    for frame in frames:
        picture = torch.from_numpy(frame).permute(2, 0, 1)[None] / 255
        if level is not None:
            picture = torch.cat(
                (picture, torch.full_like(picture[:, :1], level / 255)), 1
            )
        with torch.inference_mode():
            results.append(
                network(picture)[0]
                .permute(1, 2, 0)
                .clamp(0, 1)
                .mul(255)
                .round()
                .byte()
                .numpy()
            )
    return np.stack(results)


@pytest.mark.parametrize("size", [(64, 96), (45, 61)])
@pytest.mark.parametrize("form", NETWORKS.values(), ids=NETWORKS)
def test_a_published_network_computes_what_its_package_does(form, size, tmp_path):
    frames = pictures(3, *size)
    described = spandrel.ModelLoader().load_from_state_dict(
        network_of(form).state_dict()
    )
    expected = computed(described, frames)
    assert expected.std() > 1
    assert (
        psnr(
            restored(form, frames, tmp_path, precision="fp32", threads=3), expected, 255
        )
        > 60
    )


@pytest.mark.parametrize("form", NETWORKS.values(), ids=NETWORKS)
def test_a_part_of_one_tile_is_what_the_network_computes_of_that_tile(form, tmp_path):
    frames, side = pictures(1, 96, 96), 32 * form[2]
    described = spandrel.ModelLoader().load_from_state_dict(
        network_of(form).state_dict()
    )
    corner = restored(form, frames, tmp_path, precision="fp32", tile=64)[
        :, :side, :side
    ]
    assert (
        psnr(corner, computed(described, frames[:, :64, :64])[:, :side, :side], 255)
        > 60
    )


@pytest.mark.parametrize("form", NETWORKS.values(), ids=NETWORKS)
def test_half_precision_changes_little(form, tmp_path):
    frames = pictures(1, 45, 61)
    whole = restored(form, frames, tmp_path, precision="fp32")
    assert psnr(restored(form, frames, tmp_path, precision="bf16"), whole, 255) > 40


@pytest.mark.parametrize("sigma", [5, 40])
@pytest.mark.parametrize("form", NOISE_LEVEL.values(), ids=NOISE_LEVEL)
def test_a_network_that_takes_the_noise_level_gets_sigma(form, sigma, tmp_path):
    frames = pictures(2, 64, 96)
    expected = computed(network_of(form), frames, sigma)
    assert (
        psnr(
            restored(form, frames, tmp_path, precision="fp32", sigma=sigma),
            expected,
            255,
        )
        > 60
    )


@pytest.mark.parametrize(
    ("form", "options", "message"),
    [
        (FDNCNN, {}, "needs the noise's level as `sigma`"),
        (NETWORKS["DnCNN"], {"sigma": 20}, "estimates noise itself"),
        (
            ("DnCNN", {"nc": 16, "act_mode": "R"}, 1),
            {},
            "with 1 channels in and 1 out; expected SR or",
        ),
        (
            NOISE_LEVEL["DRUNet"],
            {"sigma": 20, "tile": 66},
            "tile must be a multiple of",
        ),
    ],
)
def test_networks_and_options_that_do_not_fit_are_one_line(
    form, options, message, tmp_path
):
    with pytest.raises(VidRestoreError, match=message) as caught:
        restored(form, pictures(1, 64, 64), tmp_path, **options)
    assert "\n" not in str(caught.value)
