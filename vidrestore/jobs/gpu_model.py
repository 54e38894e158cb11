"""Predict frames per second on GPUs that aren't there, from what the bundled networks launch and move.

The counts are those of tests/gpu/test_budgets.py, at real sizes. In the model the host takes as long for each
launch however little it computes. The device takes as long as its memory for the bytes, its processors for
the products and its library for each decomposed matrix. Both work side by side. Decoder, noise and encoder
share the cores. None of it was measured on such a card.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from vidrestore.errors import OptionError

LAUNCH = 7e-3  # ms of the host: torch's own 5 us, and this package's code


class Work(NamedTuple):
    """What a restored frame takes: launches, gigabytes that they read and write, 10^9 operations of products,
    and matrices whose Cholesky factors are found.
    """

    launches: float
    gigabytes: float
    products: float
    cholesky: float


@dataclass(frozen=True)
class GpuCard:
    """A graphics card in a machine: `bandwidth` (GB/s) and `speed` (10^9 operations per second, bf16) that
    programs reach, ms for each matrix of `cholesky` factors, `cores` beside it, and what encodes.
    """

    name: str
    bandwidth: float
    speed: float
    cholesky: float
    cores: int
    encoder: str


# Shares of the data sheets' numbers that programs reach: 75 to 80 % of the bandwidth, 40 % of the products.
CARDS = {
    "h100": GpuCard("H100", 0.75 * 3350, 0.4 * 989e3, 0.0024, 16, "libx264"),
    "4060": GpuCard("RTX 4060", 0.8 * 272, 0.4 * 30e3, 0.01, 8, "h264_nvenc"),
}
# CPU ms of a frame, measured on shared cores: decoding H.264; cuts, and looks at the noise; libx264 as it is
# by default. What wasn't measured, 480x270, is in proportion to the pixels.
READING = {"270p": 4.0, "480p": 12.0, "1080p": 57.0}
LOOKING = {"270p": 2.6, "480p": 8.2, "1080p": 15.0}
ENCODING = {"270p": 16.0, "480p": 51.0, "1080p": 301.0}
# What `--decoder cuda --preset auto` leave of that: taking NV12 apart, and libx264's superfast, whose time is
# that part of the default's; both measured at 1080p.
UNPACKING = {"270p": 0.03, "480p": 0.08, "1080p": 0.4}
SUPERFAST = 0.2
# derain is counted; desnow and deblur have the same network. sr enlarges four times: 270p to 1080p.
COUNTED: dict[tuple[str, str], dict[str, Work]] = {
    ("denoise", "480p"): {
        "h100": Work(475, 1.66, 20.6, 162),
        "4060": Work(494, 1.67, 20.6, 162),
    },
    ("denoise", "1080p"): {
        "h100": Work(474, 8.19, 102.8, 816),
        "4060": Work(622, 8.61, 102.8, 816),
    },
    ("denoise, fast", "480p"): {
        "h100": Work(343, 0.80, 6.4, 81),
        "4060": Work(359, 0.81, 6.4, 81),
    },
    ("denoise, fast", "1080p"): {
        "h100": Work(343, 3.87, 31.0, 408),
        "4060": Work(446, 4.15, 31.0, 408),
    },
    ("derain", "480p"): {
        "h100": Work(79, 5.72, 99.3, 0),
        "4060": Work(79, 5.72, 99.3, 0),
    },
    ("derain", "1080p"): {
        "h100": Work(82, 28.72, 500.2, 0),
        "4060": Work(375, 28.76, 500.2, 0),
    },
    ("dehaze", "480p"): {
        "h100": Work(61, 0.65, 7.7, 0),
        "4060": Work(61, 0.65, 7.7, 0),
    },
    ("dehaze", "1080p"): {
        "h100": Work(61, 2.17, 7.7, 0),
        "4060": Work(66, 2.17, 7.7, 0),
    },
    ("sr", "270p"): {
        "h100": Work(134, 7.42, 281.1, 0),
        "4060": Work(137, 7.42, 281.1, 0),
    },
    ("sr", "480p"): {
        "h100": Work(134, 23.37, 889.1, 0),
        "4060": Work(756, 26.58, 984.0, 0),
    },
}
PIXELS = {"270p": "480x270", "480p": "854x480", "1080p": "1920x1080"}


class Predicted(NamedTuple):
    """Milliseconds of the host and of the device per frame; frames per second of both alone, of the whole
    command, and of that with `--decoder cuda --preset auto`.
    """

    host: float
    device: float
    alone: float
    whole: float
    fastest: float


def predicted(card: GpuCard, work: Work, size: str, scale: int = 1) -> Predicted:
    """Return the prediction for frames of a size, "270p", "480p" or "1080p", enlarged `scale` times."""
    encoding = scale**2 * ENCODING[size] if card.encoder == "libx264" else 0.0
    host = LAUNCH * work.launches
    device = 1e3 * (work.gigabytes / card.bandwidth + work.products / card.speed)
    device += card.cholesky * work.cholesky
    alone = 1e3 / max(host, device)
    ways = (READING[size] + encoding, UNPACKING[size] + SUPERFAST * encoding)
    whole, fastest = (min(alone, 1e3 * card.cores / (LOOKING[size] + host + coding)) for coding in ways)
    return Predicted(host, device, alone, whole, fastest)


def prediction_lines(name: str) -> Iterator[str]:
    """Yield the lines of the table of a card, "h100" or "4060". Raises OptionError for another."""
    if name not in CARDS:
        raise OptionError(f"`model_of={name}`: this card is not known; expected {' or '.join(CARDS)}")
    card = CARDS[name]
    yield (
        f"predicted, not measured: {card.name} with {card.cores} cores and {card.encoder}, by counted "
        "launches and bytes"
    )
    yield "fps of the command: by default, and with decoder=cuda and preset=auto (superfast)"
    yield "task           size       launches  GB/frame  host ms  device ms  fps alone  default    both"
    for (task, size), works in COUNTED.items():
        work, scale = works[name], 4 if task == "sr" else 1
        host, device, alone, whole, fastest = predicted(card, work, size, scale)
        yield (
            f"{task:<14} {PIXELS[size]:<9} {work.launches:>9.0f} {work.gigabytes:>9.2f} {host:>8.1f} "
            f"{device:>10.1f} {alone:>10.0f} {whole:>8.0f} {fastest:>7.0f}"
        )
