"""The most frames per second that three GPUs could restore, on paper: nothing here ran on a GPU.

    python examples/experiments/roofline.py [--size 1920x1080] [--model NAME ...]

A frame takes so many operations of products (a multiply and an add are two), counted while a small video is
restored on the CPU and scaled by the pixels; and so many bytes, what the products read and write in bf16. No
GPU can be faster than its published peaks of either: bytes that steps between the products move, launches,
and waits come on top. Prints a table in Markdown.
"""

from __future__ import annotations

import math
import sys
from argparse import ArgumentParser
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_iter
from torch.utils.flop_counter import flop_registry

from vidrestore.models.fast.linear import PackedLinear
from vidrestore.models.grouping import GROUP
from vidrestore.options import RestoreOptions
from vidrestore.parsing import size as parse_size
from vidrestore.restorers.base import TASKS, load_restorer
from vidrestore.restorers.dehaze import coarse_lines, coarse_size
from vidrestore.weights import load_model, read_manifest
from vidrestore.weights.manifest import Card

SIDE, FRAMES = 256, 8  # of the small video; DUST takes clips of its own length
SIGMA = 20.0
MULTIPLE = 8  # of the sides of small pictures, for the sizes of networks that are bundled
HALF = 2  # bytes of a number in bf16


@dataclass(frozen=True)
class Gpu:
    """Published peaks: dense products in bf16 (operations per second), and bytes per second from memory."""

    name: str
    operations: float
    bandwidth: float


# Without sparsity. NVIDIA H100 Tensor Core GPU datasheet (SXM). NVIDIA A100 Tensor Core GPU datasheet
# (nvidia-a100-datasheet-us-nvidia-1758950-r4-web.pdf, 80 GB SXM; 40 GB have 1.555 TB/s). NVIDIA Ada GPU
# architecture whitepaper, appendix A (GeForce RTX 4090, sums in fp32). Held against tables at
# glennklockwood.com/garden/processors (H100, A100) and waredb.com/processor/nvidia-geforce-rtx-4090.
GPUS = (Gpu("H100", 989.4e12, 3.35e12), Gpu("A100", 312e12, 2.039e12), Gpu("RTX 4090", 165.2e12, 1.008e12))


@dataclass(frozen=True)
class Cost:
    """Of one frame, or of one pixel: operations of products, and bytes that these read and write in bf16."""

    operations: float
    bytes: float

    def times(self, factor: float) -> Cost:
        return Cost(self.operations * factor, self.bytes * factor)

    def ceiling(self, gpu: Gpu) -> float:
        """Frames per second that the slower of products and memory allows."""
        return 1 / max(self.operations / gpu.operations, self.bytes / gpu.bandwidth)


class Products(TorchDispatchMode):
    """Counts the products that are computed inside, by PyTorch's own formulas."""

    def __init__(self) -> None:
        super().__init__()
        self.operations, self.numbers = 0, 0

    @property
    def cost(self) -> Cost:
        return Cost(self.operations, HALF * self.numbers)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs, packet = kwargs or {}, func._overloadpacket
        formula = flop_registry.get(packet)
        packed = packet is torch.ops.mkldnn._linear_pointwise  # oneDNN's product by a weight that is packed
        if formula is None and not packed:
            with self:
                made = func.decompose(*args, **kwargs)
            return func(*args, **kwargs) if made is NotImplemented else made
        made = func(*args, **kwargs)
        if packed:
            rows, (inner, outer) = made.numel() // made.shape[-1], (args[0].shape[-1], made.shape[-1])
            self.operations += 2 * rows * inner * outer
            self.numbers += args[0].numel() + inner * outer + made.numel()
        else:
            self.operations += formula(*args, **kwargs, out_val=made)
            self.numbers += sum(each.numel() for each in tree_iter((args, made)) if isinstance(each, Tensor))
        return made


def cost_per_pixel(card: Card) -> Cost:
    """Of a pixel of a 4:2:0 video in one frame."""
    if card.task == "recover":
        return cost_of_measurements(card)
    restorer = load_restorer(card.task, RestoreOptions(model=card.name, device="cpu", precision="fp32"))
    if hasattr(restorer, "coarse_lines"):
        restorer.coarse_lines = None  # every pixel is counted here; `pixels_seen` has how many there are
    rng = torch.Generator().manual_seed(0)
    with Products() as products:
        if restorer.sees == "planes":
            shapes = [(GROUP, SIDE, SIDE), *[(GROUP, SIDE // 2, SIDE // 2)] * 2]
            planes = tuple(128 + SIGMA * torch.randn(shape, generator=rng) for shape in shapes)
            restorer.restore(planes, (SIGMA,) * len(planes))
            frames = GROUP - restorer.facts.overlap
        else:
            for _ in restorer.frames(torch.rand(FRAMES, 3, SIDE, SIDE, generator=rng), (0, FRAMES)):
                pass
            frames = FRAMES
    return products.cost.times(1 / (frames * SIDE**2))


def pixels_seen(card: Card, width: int, height: int) -> int:
    """Of a frame by the network: of a small picture of it if the weights ask for one."""
    small = coarse_size(height, width, coarse_lines(card.parameters, card.name), MULTIPLE)
    return math.prod(small or (width, height))


def cost_of_measurements(card: Card) -> Cost:
    """The same for weights of compressed sensing: a pixel has one and a half samples."""
    network: Any = load_model(card.name).network
    groups = torch.rand(8, GROUP, network.config.patch**2)
    with torch.inference_mode(), Products() as products:
        network.at(0.0, torch.float32, PackedLinear)(network.measure(255 * groups))
    return products.cost.times(1.5 / groups.numel())


def table(names: list[str], width: int, height: int) -> Iterator[str]:
    """Lines of the table, for models by their names in the manifest."""
    ceilings = " | ".join(f"{gpu.name}, at most fps" for gpu in GPUS)
    yield f"| model, {width}x{height} | 10^9 operations per frame | MB per frame | {ceilings} |"
    yield "|---" * (3 + len(GPUS)) + "|"
    for name in names:
        card = read_manifest()[name]
        cost = cost_per_pixel(card).times(pixels_seen(card, width, height))
        rates = " | ".join(f"{cost.ceiling(gpu):.0f}" for gpu in GPUS)
        yield f"| {name} | {cost.operations / 1e9:.0f} | {cost.bytes / 1e6:.0f} | {rates} |"


def main() -> int:
    known = [card.name for card in read_manifest().values() if card.file and card.task in {*TASKS, "recover"}]
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=parse_size, default=(1920, 1080), metavar="WxH")
    parser.add_argument("--model", nargs="*", choices=known, default=known)
    options = parser.parse_args()
    for line in table(options.model, *options.size):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
