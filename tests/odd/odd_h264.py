"""H.264 whose head (sequence parameter set) says any size; its pictures stay what they are."""

import io
from fractions import Fraction
from typing import Any

import av
from sample_videos import encoded, sample_planes, video_frame, with_bytes

_START, _HEAD = b"\0\0\0\1", 7  # the type of the unit that is the head
_RATE = Fraction(25)


def h264_of_size(size: int) -> bytes:
    """A transport stream of three pictures of 64x48 that says `size` x `size`."""
    memory = io.BytesIO()
    with av.open(memory, "w", format="mpegts") as output:
        stream = output.add_mux_stream("h264", rate=_RATE)
        stream.time_base = 1 / _RATE
        for packet in _baseline_packets():
            units = [unit for unit in bytes(packet).split(_START) if unit]
            data = b"".join(
                _START + (_head(size) if unit[0] & 31 == _HEAD else unit)
                for unit in units
            )
            changed = with_bytes(packet, data)
            changed.stream, changed.time_base = stream, 1 / _RATE
            output.mux_one(changed)
    return memory.getvalue()


def _baseline_packets() -> list[Any]:
    options = {"profile": "baseline", "preset": "ultrafast", "tune": "zerolatency"}
    options |= {"x264-params": "sliced-threads=0:threads=1:asm=AVX2:log-level=-1"}
    frames = [
        video_frame("yuv420p", sample_planes("yuv420p", number), number)
        for number in range(3)
    ]
    return encoded("libx264", frames, options)


def _head(size: int) -> bytes:
    """Section 7.3.2.1.1 of the standard, baseline profile: times in order, one reference, no cropping."""
    across = size // 16 - 1
    fixed = f"{66:08b}{0xC0:08b}{62:08b}"  # profile, constraints, level
    numbers = (
        _golomb(0)
        + _golomb(0)
        + _golomb(2)
        + _golomb(1)
        + "0"
        + _golomb(across)
        + _golomb(across)
    )
    # frames only, 8x8 inference, no cropping, no usability data, stop bit
    bits = fixed + numbers + "1" + "1" + "0" + "0" + "1"
    bits += "0" * (-len(bits) % 8)
    return bytes([0x67]) + _escaped(
        bytes(int(bits[at : at + 8], 2) for at in range(0, len(bits), 8))
    )


def _golomb(value: int) -> str:
    """An unsigned number in Exp-Golomb code, as bits."""
    bits = f"{value + 1:b}"
    return "0" * (len(bits) - 1) + bits


def _escaped(data: bytes) -> bytes:
    """No three bytes that look like the start of a unit."""
    out = bytearray()
    for byte in data:
        if byte <= 3 and out[-2:] == b"\0\0":
            out.append(3)
        out.append(byte)
    return bytes(out)
