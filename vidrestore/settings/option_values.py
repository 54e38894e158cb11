"""Parse option values that are more than a number or a word. Raises ValueError with a message for users."""

from __future__ import annotations

import re
from fractions import Fraction

MOST_SHARDS = 4096
DEVICE = "(auto|cpu|mps|cuda(:[0-9]{1,4})?)"
EXPECTED = "expected auto, cpu, cuda, cuda:N or mps"
DEVICES = {  # what others call devices
    "0 1 2 3 gpu nvidia geforce rtx gpu0 cuda0": "here it is cuda, or cuda:0",
    "rocm amd hip radeon": "for a GPU of AMD, it is cuda with PyTorch's build for ROCm",
    "xpu intel arc sycl openvino qsv igpu": "GPUs of Intel are not supported; use cpu",
    "metal apple m1 m2 m3": "here it is mps",
    "vulkan opencl directml dml tpu npu": f"it is not supported; {EXPECTED}",
    "all": "several are named, as in cuda:0,1",
}


def noise(text: str) -> float | str:
    """Parse a noise level: a number, or "auto"."""
    try:
        return "auto" if text == "auto" else float(text)
    except ValueError:
        raise ValueError(
            f"expected a number such as 20, or auto, got {text!r}"
        ) from None


def share(text: str | float) -> float:
    """Parse a number, or percents."""
    number, percent, rest = str(text).partition("%")
    try:
        return float(number) / 100 if percent and not rest else float(text)
    except ValueError:
        raise ValueError(
            f"expected a number from 0 to 1, such as 0.8, got {text!r}"
        ) from None


def chroma_shift(text: str) -> str | tuple[float, float]:
    """Parse "auto", or columns and lines as in 4,-2."""
    if text == "auto":
        return text
    try:
        columns, lines = map(float, text.split(","))
    except ValueError:
        raise ValueError(
            f"expected auto, or columns and lines such as 4,2, got {text!r}"
        ) from None
    return columns, lines


def device(text: str) -> str:
    """Parse the name of a device, or of several, as in cuda:0,1; if it is there is asked later."""
    if not re.fullmatch(f"{DEVICE}( *, *({DEVICE}|[0-9]+))*", text):
        word = text.lower()
        hint = next(
            (hint for words, hint in DEVICES.items() if word in words.split()), EXPECTED
        )
        raise ValueError(f"device {text!r} is unknown; {hint}")
    return text


def rate(text: str) -> Fraction:
    """Parse a frame rate: 25, 23.976 or 30000/1001."""
    try:
        return Fraction(text)
    except (ValueError, ZeroDivisionError):
        raise ValueError(
            f"expected a frame rate such as 25 or 30000/1001, got {text!r}"
        ) from None


def seconds(text: str) -> Fraction:
    """Parse a time above 0: 90, 2.5, 90s, 1m30s, 1:30 or 1:02:03.5."""
    total = _time(text)
    if not total:
        raise ValueError(f"expected a time such as 5s, 1m30s or 1:30, got {text!r}")
    return total


def moment(text: str) -> Fraction:
    """Parse a time of 0 or more, written as in `seconds`."""
    total = _time(text)
    if total is None:
        raise ValueError(
            f"expected a time such as 90, 1m30s, 1:30 or 1:02:03.5, got {text!r}"
        )
    return total


def _time(text: str) -> Fraction | None:
    """Return the seconds; None if the text is not a time of 0 or more."""
    # with units, or with colons
    if units := re.fullmatch(
        r"(?=.)(?:(\d+)h)?(?:(\d+)m(?:in)?)?(?:(\d*\.?\d+)s)?", text.lower()
    ):
        hours, minutes, rest = (Fraction(part or 0) for part in units.groups())
        return hours * 3600 + minutes * 60 + rest
    if not re.fullmatch(r"(\d+:){0,2}\d*\.?\d+s?", text):
        return None
    total = Fraction(0)
    for part in text.removesuffix("s").split(":"):
        total = total * 60 + Fraction(part)
    return total


def size(text: str) -> tuple[int, int]:
    """Parse WIDTHxHEIGHT."""
    width, cross, height = text.partition("x")
    if not (
        cross
        and width.isdecimal()
        and height.isdecimal()
        and int(width)
        and int(height)
    ):
        raise ValueError(f"expected a size such as 854x480, got {text!r}")
    return int(width), int(height)


def tile(text: str) -> int | None:
    """Parse a number of pixels, or "auto", which is None."""
    if text == "auto":
        return None
    if not text.isdecimal():
        raise ValueError(
            f"expected auto, or a whole number of pixels such as 512, got {text!r}"
        )
    return int(text)


def shard(text: str) -> tuple[int, int]:
    """Parse I/N, from 1/N to N/N; N is at most `MOST_SHARDS`."""
    parts = re.fullmatch(r"(\d{1,9})/(\d{1,9})", text)
    number, count = map(int, parts.groups()) if parts else (0, 0)
    if not 1 <= number <= count <= MOST_SHARDS:
        raise ValueError(
            f"expected I/N, from 1/8 to 8/8 for instance, N up to {MOST_SHARDS}, got {text!r}"
        )
    return number, count


def kinds(text: str) -> frozenset[str]:
    """Parse words separated by commas."""
    return frozenset(word.strip() for word in text.split(",") if word.strip())


def setting(text: str) -> tuple[str, str]:
    """Parse KEY=VALUE."""
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ValueError(f"expected KEY=VALUE, got {text!r}")
    return key, value
