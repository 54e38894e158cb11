"""`vidrestore weights export`: an ONNX file computes what the network does, at any size, or isn't written."""

import json
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import Mock

import pytest
import torch
from narrow_networks import NARROW, SMALL_VSR, fewer_steps  # noqa: F401  (a fixture of all tests here)

from vidrestore.errors import CheckpointError, OutputExistsError
from vidrestore.models.mb_taylorformer import H, MBTaylorFormer, T, settings_of
from vidrestore.models.vsr_recurrent import VsrRecurrent, config_of
from vidrestore.pixels.metrics import psnr
from vidrestore.weights import export, load_model, save_model


@pytest.fixture
def weights(tmp_path):
    def save(form):
        torch.manual_seed(2)
        path = tmp_path / f"{form}.safetensors"
        if form == "enlarging":
            network = VsrRecurrent(SMALL_VSR)
            config, family, task = config_of(network), "vsr-transformer", "sr"
        else:
            tasks = ("derain", "deblur") if form == "aligned" else ()
            config = {
                "aligned": replace(H, aligned=True, tasks=tasks, **NARROW),
                "deformable": replace(T, **NARROW),
                "hazy": replace(H, frames=1, haze=True, gain=False, **NARROW),
            }[form]
            network, config = MBTaylorFormer(config), settings_of(config)
            family, task = (
                "mb-taylorformer",
                "deblur" if form == "aligned" else "dehaze",
            )
        save_model(path, network, family=family, config=config, task=task)
        return path

    return save


@pytest.mark.parametrize(
    ("form", "frames"), [("aligned", 3), ("deformable", 1), ("enlarging", 3)]
)
def test_the_exported_file_computes_what_the_network_does_at_any_size(
    weights, tmp_path, form, frames
):
    runtime = pytest.importorskip("onnxruntime")
    source, output = weights(form), tmp_path / "net.onnx"
    export.export_onnx(source, output)
    session = runtime.InferenceSession(str(output), providers=["CPUExecutionProvider"])
    assert [session.get_inputs()[0].name, session.get_outputs()[0].name] == [
        "input",
        "output",
    ]
    clip = export.moving_clip(frames, 50, 71)
    network = load_model(source).network
    parts = list(clip.split(3, 1))
    with torch.inference_mode():
        if form == "enlarging":
            expected = network(torch.stack(parts, 1))[:, 1]
        else:
            beyond = (
                0,
                -71 % network.config.multiple,
                0,
                -50 % network.config.multiple,
            )
            padded = torch.nn.functional.pad(torch.cat(parts), beyond, mode="reflect")
            inputs = padded[None] if frames > 1 else padded
            expected = network(
                inputs, *([torch.tensor([1])] if form == "aligned" else [])
            )[:, :, :50, :71]
    (result,) = session.run(None, {"input": clip.numpy()})
    assert psnr(result, expected.clamp(0, 1).numpy(), 1.0) > 80
    card = json.loads(output.with_suffix(".json").read_text())
    printed = session.get_modelmeta().custom_metadata_map
    assert (
        printed["weights_sha256"]
        == card["weights_sha256"]
        == load_model(source).card.sha256
    )
    assert (card["frames"], card["opset"], printed["frames"]) == (
        frames,
        17,
        str(frames),
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [("dust-denoise", "found by matching"), ("hazy", "joins it with a second network")],
)
def test_networks_whose_task_needs_more_are_refused_with_the_reason(
    weights, tmp_path, name, message
):
    pytest.importorskip("onnxruntime")
    source = weights(name) if name == "hazy" else name
    with pytest.raises(CheckpointError, match=message):
        export.export_onnx(source, tmp_path / "net.onnx")
    assert not list(tmp_path.glob("net.*"))


def test_a_file_that_computes_something_else_is_not_written(
    weights, tmp_path, monkeypatch
):
    source = weights("deformable")
    network = export.ExportedNetwork(load_model(source)).eval()

    class Session:
        def __init__(self, *_, **__):
            pass

        def run(self, _, inputs):
            with torch.inference_mode():
                # 60 dB
                return [(network(torch.from_numpy(inputs["input"])) + 0.001).numpy()]

    document = SimpleNamespace(
        metadata_props=Mock(), SerializeToString=lambda: b"graph"
    )
    packages = Mock(load_from_string=lambda _: document, InferenceSession=Session)
    monkeypatch.setattr(export, "_package", lambda _: packages)
    monkeypatch.setattr(export, "_traced", lambda _: b"graph")
    with pytest.raises(
        CheckpointError,
        match=r"is 60\.0 dB from the network at 96x64.*nothing was written",
    ):
        export.export_onnx(source, tmp_path / "net.onnx")
    assert not list(tmp_path.glob("net.*"))


def test_names_are_checked_before_work(weights, tmp_path):
    (tmp_path / "net.json").write_text("mine")
    with pytest.raises(OutputExistsError, match=r"net\.json: already exists"):
        export.export_onnx("no-such-weights", tmp_path / "net.onnx")
    with pytest.raises(CheckpointError, match=r"ends with \.onnx"):
        export.export_onnx("no-such-weights", tmp_path / "net.bin")
