"""Export a network as ONNX, for programs that run such files: encoders, players, photo editors.

The graph takes (1, 3 T, H, W), R, G, B of T consecutive frames in [0, 1], the oldest first, of any size, and
returns the middle frame, (1, 3, scale H, scale W). Padding to the network's multiple, its task and the crop
are inside. A file that was written is run at several sizes and compared with the network before it gets its
name, because exporters can write files that are wrong at every size but the traced one, without an error.
"""

from __future__ import annotations

import io
import json
import warnings
from importlib import import_module
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from vidrestore.errors import CheckpointError
from vidrestore.files.atomic import check_output, write_whole
from vidrestore.models.mb_taylorformer import MBTaylorFormer
from vidrestore.models.vsr_recurrent import VsrRecurrent
from vidrestore.models.vsr_transformer import SCALE
from vidrestore.pixels.metrics import psnr
from vidrestore.weights import Model, load_model

OPSET = 17  # read by DirectML and TensorRT of the last years
TRACED = (64, 96)  # height and width of the traced frames
COMPARED_SIZES = (TRACED, (96, 64), (83, 101))  # at which a file is compared
LEAST_PSNR = 80.0  # dB of a file's results to the network's
EQUAL_PSNR = 200.0  # of equal results
ENLARGED_FRAMES = 3  # frames that an exported network of `sr` takes
# pixels right and down that the content of a test clip moves by from frame to frame
PANNED = (1.7, 0.6)


class ExportedNetwork(nn.Module):
    """A network as it is exported: (1, 3 T, H, W) -> (1, 3, scale H, scale W)."""

    task: Tensor | None

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.network, index = model.network, None
        # how many frames it takes, how much larger its result is, and what sides must divide
        if isinstance(model.network, VsrRecurrent):
            self.frames, self.scale, self.multiple = ENLARGED_FRAMES, SCALE, 1
        else:
            config = cast("MBTaylorFormer", model.network).config
            self.frames = config.frames
            self.scale = 1
            self.multiple = config.multiple
            index = (
                torch.tensor([config.tasks.index(model.card.task)])
                if config.tasks
                else None
            )
        self.register_buffer("task", index)

    def forward(self, channels: Tensor) -> Tensor:
        # reflected to the multiple, as the pipeline does
        height, width = channels.shape[2:]
        for dim in (2, 3):
            last = channels.shape[dim] - 1
            stop = (last // self.multiple + 1) * self.multiple
            # reflected at the end
            places = last - (last - torch.arange(stop, device=channels.device)).abs()
            channels = channels.index_select(dim, places)
        frames = torch.stack(channels.split(3, 1), 1) if self.frames > 1 else channels
        restored: Tensor = (
            self.network(frames, self.task)
            if self.task is not None
            else self.network(frames)
        )
        if isinstance(self.network, VsrRecurrent):
            restored = restored[:, self.frames // 2]
        return restored[:, :, : self.scale * height, : self.scale * width].clamp(0, 1)


def export_onnx(
    source: str | Path, output: str | Path, *, overwrite: bool = False
) -> dict[str, Any]:
    """Write weights, by name or path, as an ONNX file with a JSON card beside it; return the card.

    Raises CheckpointError for networks that can't be exported, a missing package, or a file that doesn't
    compute what the network does; MediaError and OutputExistsError for the names.

    Args:
        source: the weights, by name or path.
        output: the file to write, .onnx; the card gets its name with .json.
        overwrite: replace files of these names (default: False).
    """
    path = Path(output)
    # names and packages before minutes of tracing
    if path.suffix != ".onnx":
        raise CheckpointError(f"{output}: expected a name that ends with .onnx")
    card_path = path.with_suffix(".json")
    for target in (path, card_path):
        check_output(target, [], overwrite=overwrite)
    onnx, runtime = (_package(name) for name in ("onnx", "onnxruntime"))

    # write the graph, and the card into it
    model = load_model(source)
    check_exportable(model)
    network = ExportedNetwork(model).eval()
    card = card_of_export(model, network)
    document = onnx.load_from_string(_traced(network))
    for key, value in card.items():
        document.metadata_props.add(
            key=key, value=value if isinstance(value, str) else json.dumps(value)
        )
    content = document.SerializeToString()

    # compare it with the network before it gets its name
    session = runtime.InferenceSession(content, providers=["CPUExecutionProvider"])
    card["psnr"] = {
        f"{width}x{height}": check_export(network, session, height, width)
        for height, width in COMPARED_SIZES
    }
    write_whole(path, content)
    write_whole(card_path, (json.dumps(card, indent=1) + "\n").encode())
    return card


def check_exportable(model: Model) -> None:
    """Raise CheckpointError for weights whose task needs more than their network."""
    # what lies outside the network can't be in the file
    card, network = model.card, model.network
    if card.family == "dust":
        reason = "its groups of patches are found by matching, outside of the network"
    elif not isinstance(network, MBTaylorFormer | VsrRecurrent):
        reason = "only networks of mb-taylorformer and vsr-transformer-n can be"
    elif isinstance(network, MBTaylorFormer) and network.config.haze:
        reason = "dehaze joins it with a second network, on small frames; mb-taylorformer-t-dehaze can be"
    else:
        return
    raise CheckpointError(f"{card.name}: can't be exported as ONNX: {reason}")


def card_of_export(model: Model, network: ExportedNetwork) -> dict[str, Any]:
    """Return what others must know to run the file: form, origin, licence, precision."""
    card, config = model.card, model.network.config
    # motion needs positions that half precision rounds
    aligned = isinstance(model.network, VsrRecurrent) or getattr(
        config, "aligned", False
    )
    channels = 3 * network.frames
    return {
        "name": card.name,
        "task": card.task,
        "frames": network.frames,
        "scale": network.scale,
        "input": f"(1, {channels}, H, W): R, G, B in [0, 1], the oldest frame first",
        "precision": "fp32 only: fp16 rounds the positions of motion"
        if aligned
        else "fp32 or fp16",
        **card.openness(),
        "weights_sha256": card.sha256,
        "opset": OPSET,
    }


def check_export(
    network: ExportedNetwork, session: Any, height: int, width: int
) -> float:
    """Return the PSNR in dB between an onnxruntime session and the network on a clip of a size. Raises
    CheckpointError if they differ.
    """
    clip = moving_clip(network.frames, height, width)
    # the same clip through both
    with torch.inference_mode():
        expected = network(clip)
    (result,) = session.run(None, {"input": clip.numpy()})
    fits = result.shape == expected.shape
    value = min(psnr(result, expected.numpy(), 1.0), EQUAL_PSNR) if fits else 0.0
    if value < LEAST_PSNR:
        raise CheckpointError(
            f"the exported file is {value:.1f} dB from the network at {width}x{height}, and at least "
            f"{LEAST_PSNR:.0f} were expected; nothing was written. Try another version of PyTorch than "
            f"{torch.__version__}"
        )
    return round(value, 1)


def moving_clip(frames: int, height: int, width: int) -> Tensor:
    """Return a clip (1, 3 T, H, W) of a textured picture that moves by PANNED pixels from frame to frame."""
    # waves, as noise would hide errors of motion
    x, y = (
        torch.arange(width, dtype=torch.float32),
        torch.arange(height, dtype=torch.float32)[:, None],
    )
    channels = []
    for frame in range(frames):
        across, down = x + PANNED[0] * frame, y + PANNED[1] * frame
        for colour in range(3):
            waves = (0.31 * across + colour).sin() * (0.17 * down).cos()
            waves = waves + (0.05 * across - 0.23 * down).sin()
            channels.append(0.5 + 0.2 * waves)
    return torch.stack(channels)[None]


def _traced(network: ExportedNetwork) -> bytes:
    """Return the ONNX file of a network, for any height and width."""
    clip = moving_clip(network.frames, *TRACED)
    stream = io.BytesIO()
    free = {2: "height", 3: "width"}
    with torch.no_grad(), warnings.catch_warnings():
        # constants that are meant, and the exporter's age
        warnings.simplefilter("ignore")
        # The newer exporter writes files of aligned networks that are wrong at every size but the traced one.
        torch.onnx.export(
            network,
            (clip,),
            cast("Any", stream),
            opset_version=OPSET,
            dynamo=False,
            input_names=["input"],
            output_names=["output"],
            dynamic_axes={"input": free, "output": free},
        )
    return stream.getvalue()


def _package(name: str) -> Any:
    try:
        return import_module(name)
    except ImportError as error:
        raise CheckpointError(
            f"exporting needs another package ({error}): pip install 'vidrestore[onnx]'"
        ) from error
