"""Networks of other authors: the family "spandrel", whose package is imitated here by its documented API."""

import sys
import zipfile
from pathlib import Path
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest
import torch
from command_line import run
from sample_videos import write_video
from torch import Tensor, nn

import vidrestore
from vidrestore.errors import CheckpointError, OptionError
from vidrestore.media.reading.probe import probe


class Enlarger(nn.Module):
    """Repeats pixels `scale` times, by a convolution. As SPAN, it sets weights in each call."""

    def __init__(self, scale: int, channels: int) -> None:
        super().__init__()
        self.conv, self.scale, self.updates = (
            nn.Conv2d(channels, 3 * scale**2, 1, bias=False),
            scale,
            0,
        )

    def update_params(self) -> None:
        self.updates += 1

    def forward(self, pictures: Tensor) -> Tensor:
        self.update_params()
        return nn.functional.pixel_shuffle(self.conv(pictures), self.scale)


class Described(SimpleNamespace):
    def __call__(self, picture: Tensor) -> Tensor:
        assert picture.shape[:2] == (1, 3) and min(picture.shape[2:]) >= 1
        return self.model(picture).clamp(0, 1)


class ModelLoader:
    def load_from_state_dict(self, state: dict[str, Tensor]) -> Described:
        if "conv.weight" not in state:
            raise ValueError("Unsupported model")
        results, channels = state["conv.weight"].shape[:2]
        scale = int((results // 3) ** 0.5)
        network = Enlarger(scale, channels)
        network.load_state_dict(state)
        return Described(
            model=network,
            architecture=SimpleNamespace(id="DnCNN"),
            tags=["FDnCNN"] if channels == 4 else [],
            scale=scale,
            purpose="SR" if scale > 1 else "Restoration",
            input_channels=3,
            output_channels=3 if "gray" not in state else 1,
            supports_half=True,
            supports_bfloat16=True,
            size_requirements=SimpleNamespace(minimum=0, multiple_of=2, square=False),
        )


@pytest.fixture(autouse=True)
def spandrel(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("spandrel")
    module.ModelLoader = ModelLoader
    monkeypatch.setitem(sys.modules, "spandrel", module)


def stored(folder: Path, scale: int, gain: float = 1.0) -> Path:
    """A checkpoint as trainers write them: each channel of the output is one of the input times `gain`."""
    weight = gain * torch.eye(3).repeat_interleave(scale**2, 0)[..., None, None]
    path = folder / f"x{scale}.pth"
    torch.save({"params_ema": {"module.conv.weight": weight}}, path)
    return path


def frames(count: int = 3, height: int = 50, width: int = 70) -> np.ndarray:
    return (
        np.random.default_rng(3)
        .integers(0, 255, (count, height, width, 3))
        .astype(np.uint8)
    )


@pytest.mark.parametrize("tile", [None, 64])
@pytest.mark.parametrize("scale", [2, 4])
def test_a_network_enlarges_frames_at_once_and_in_tiles(scale, tile, tmp_path):
    inputs = frames(height=80, width=100)
    model = str(stored(tmp_path, scale))
    large = vidrestore.restore_frames(
        inputs,
        task="sr",
        model=model,
        family="spandrel",
        scale=scale,
        tile=tile,
        device="cpu",
    )
    np.testing.assert_array_equal(large, inputs.repeat(scale, 1).repeat(scale, 2))


@pytest.mark.parametrize("task", ["denoise", "deblur", "derain"])
def test_a_network_restores_frames(task, tmp_path):
    inputs = frames()
    model = str(stored(tmp_path, 1, gain=0.5))
    restored = vidrestore.restore_frames(
        inputs, task=task, model=model, family="spandrel", device="cpu"
    )
    assert np.abs(restored - inputs / 2).max() <= 0.5


def test_the_fourth_channel_of_a_network_is_the_level_of_the_noise(tmp_path):
    path = tmp_path / "level.pth"
    torch.save(
        {
            "conv.weight": torch.tensor([0.0, 0, 0, 1])
            .expand(3, 4)[..., None, None]
            .clone()
        },
        path,
    )
    options = {"model": str(path), "family": "spandrel", "device": "cpu"}
    assert (vidrestore.restore_frames(frames(), sigma=40, **options) == 40).all()
    with pytest.raises(OptionError, match="needs the noise's level as `sigma`"):
        vidrestore.restore_frames(frames(), **options)
    with pytest.raises(
        OptionError, match="takes the noise's level, so it is for denoise alone"
    ):
        vidrestore.restore_frames(frames(), task="deblur", **options)
    with pytest.raises(OptionError, match="estimates noise itself"):
        vidrestore.restore_frames(
            frames(), sigma=40, **options | {"model": str(stored(tmp_path, 1))}
        )


def test_a_network_that_sets_its_weights_in_each_call_does_so_once_as_threads_share_it(
    tmp_path,
):
    model = vidrestore.weights.load_model(stored(tmp_path, 2), family="spandrel")
    model.network(torch.rand(3, 3, 8, 8))
    assert model.network.body.updates == 1


def test_the_command_takes_a_checkpoint_as_it_was_published(tmp_path):
    write_video(tmp_path / "in.mkv", 3)
    model = stored(tmp_path, 2)
    inputs = (
        "--model",
        model,
        "--family",
        "spandrel",
        "-o",
        tmp_path / "out.mkv",
        "--device",
        "cpu",
    )
    assert run("sr", tmp_path / "in.mkv", "-x2", "--lossless", *inputs) == 0
    video = probe(str(tmp_path / "out.mkv")).video
    assert (video.width, video.height) == (128, 96)


def test_a_name_that_asks_for_millions_of_layers_is_refused_before_they_are_built(
    tmp_path,
):
    path, names = (
        tmp_path / "bomb.pth",
        ("body.0.weight", "body.3000000.weight", "conv.weight"),
    )
    torch.save(dict.fromkeys(names, torch.zeros(1)), path)
    with pytest.raises(
        CheckpointError, match="names a layer 3000000, but holds 3 tensors only"
    ):
        vidrestore.weights.load_model(path, family="spandrel")


def test_the_network_of_three_million_layers_is_refused(given):
    with pytest.raises(
        CheckpointError, match="names a layer 3000000, but holds 5 tensors only"
    ):
        vidrestore.weights.load_model(
            given("layers_bomb.safetensors"), family="spandrel"
        )


def test_a_torchscript_archive_is_one_line_without_a_warning_of_torch(
    tmp_path, recwarn
):
    path = tmp_path / "script.pt"
    with zipfile.ZipFile(path, "w") as archive:
        for name in ("constants.pkl", "data.pkl", "version"):
            archive.writestr(f"script/{name}", b"\x80\x02}.")
    with pytest.raises(
        CheckpointError, match="not a checkpoint that can be read safely"
    ):
        vidrestore.weights.load_model(path, family="spandrel")
    assert not recwarn.list


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("sr", "--family", "spandrel"), "x2: enlarges 2 times, less than --scale 4"),
        (
            ("deblur", "--family", "spandrel"),
            "x2: enlarges 2 times, but deblur keeps the size",
        ),
        (("sr", "-x2"), "x2.pth"),
        (("sr", "-x2", "--family", "dust"), "--family dust has no networks for sr"),
        (("dehaze", "--family", "spandrel"), "No such option"),
    ],
)
def test_networks_and_options_that_do_not_fit_are_refused(
    arguments, message, tmp_path, capsys
):
    write_video(tmp_path / "in.mkv", 3)
    task, *rest = arguments
    assert run(
        task,
        tmp_path / "in.mkv",
        *rest,
        "--model",
        stored(tmp_path, 2),
        "--device",
        "cpu",
    ) in (1, 2)
    assert message in capsys.readouterr().err


def test_code_in_a_file_is_not_run_and_other_networks_are_refused(tmp_path):
    class Harmful:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return Path.touch, (tmp_path / "was run",)

    torch.save({"conv.weight": Harmful()}, tmp_path / "harmful.pth")
    torch.save({"other": torch.zeros(3)}, tmp_path / "other.pth")
    with pytest.raises(CheckpointError, match="can be read safely"):
        vidrestore.weights.load_model(tmp_path / "harmful.pth", family="spandrel")
    assert not (tmp_path / "was run").exists()
    with pytest.raises(
        CheckpointError,
        match=r"not a network that spandrel knows \(Unsupported model\)",
    ):
        vidrestore.weights.load_model(tmp_path / "other.pth", family="spandrel")


def test_without_the_package_the_error_names_it(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "spandrel", None)
    with pytest.raises(CheckpointError, match=r"pip install 'vidrestore\[spandrel\]'"):
        vidrestore.weights.load_model(stored(tmp_path, 2), family="spandrel")
