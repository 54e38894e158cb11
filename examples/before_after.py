"""A picture of one frame, its left half as given and its right half restored, or the whole of both.

python examples/before_after.py GIVEN RESTORED [-o before-after.png|.jpg] [--frame N] [--zoom 2] [--crop
WxH+LEFT+TOP] [--beside]
"""

from __future__ import annotations

import argparse
import re
from fractions import Fraction
from itertools import islice
from pathlib import Path
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

from vidrestore.errors import MediaError, VidRestoreError
from vidrestore.media.reading.reader import VideoReader
from vidrestore.pixels.colour import planes_to_grey, yuv_to_rgb

DIVIDER = 2  # pixels


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("given", type=Path)
    parser.add_argument("restored", type=Path)
    parser.add_argument("-o", "--output", type=Path, default=Path("before-after.png"))
    parser.add_argument("--frame", type=int, default=0, help="index, from 0")
    parser.add_argument(
        "--zoom", type=int, default=2, help="side of the square that each pixel becomes"
    )
    parser.add_argument(
        "--crop",
        type=crop,
        default=(slice(None), slice(None)),
        help="part of the frame, WxH+LEFT+TOP; all unless told",
    )
    parser.add_argument(
        "--beside",
        action="store_true",
        help="both whole, side by side, as in the README",
    )
    arguments = parser.parse_args()
    try:
        before, after = (
            picture(arguments.given, arguments.frame),
            picture(arguments.restored, arguments.frame),
        )
    except VidRestoreError as error:
        parser.exit(error.exit_code, f"{parser.prog}: {error}\n")
    if before.shape != after.shape:
        parser.error(
            f"the frames differ in size: {before.shape[1::-1]} and {after.shape[1::-1]}"
        )
    given, restored = before[arguments.crop], after[arguments.crop]
    if arguments.beside:
        given, restored = (
            np.concatenate([given] * 2, axis=1),
            np.concatenate([restored] * 2, axis=1),
        )
    write(arguments.output, split(given, restored, arguments.zoom))
    print(f"{arguments.output}: {arguments.output.stat().st_size / 1000:.0f} kB")


def crop(text: str) -> tuple[slice, slice]:
    """`WxH+LEFT+TOP` as rows and columns."""
    found = re.fullmatch(r"(\d+)x(\d+)\+(\d+)\+(\d+)", text)
    if not found:
        raise argparse.ArgumentTypeError(f"expected WxH+LEFT+TOP, found {text}")
    width, height, left, top = map(int, found.groups())
    return slice(top, top + height), slice(left, left + width)


def picture(path: Path, number: int) -> NDArray[np.uint8]:
    """Frame `number` of a film as R'G'B', (height, width, 3). Raises MediaError where the film is shorter."""
    with VideoReader(str(path)) as reader:
        video = reader.info.video
        frame = next(islice(reader.frames(), number, None), None)
        if frame is None:
            raise MediaError(
                f"{path}: there is no frame {number}; frames are counted from 0"
            )
        rgb = yuv_to_rgb(
            planes_to_grey(frame.planes, video.format),
            video.format,
            video.colour,
            video.height,
        )
    levels: NDArray[np.uint8] = (
        (rgb * 255).round().clamp(0, 255).byte().permute(1, 2, 0).numpy()
    )
    return levels


def split(
    before: NDArray[np.uint8], after: NDArray[np.uint8], zoom: int
) -> NDArray[np.uint8]:
    """The left half of `before` and the right half of `after`, each pixel a square of `zoom`, a white line
    between.
    """
    middle = before.shape[1] // 2
    joined = (
        np.concatenate([before[:, :middle], after[:, middle:]], axis=1)
        .repeat(zoom, 0)
        .repeat(zoom, 1)
    )
    joined[:, middle * zoom - DIVIDER // 2 : middle * zoom + DIVIDER // 2] = 255
    return joined


def write(path: Path, rgb: NDArray[np.uint8]) -> None:
    """PNG, or JPEG where the name says so."""
    jpeg = path.suffix.lower() in (".jpg", ".jpeg")
    context: Any = av.CodecContext.create("mjpeg" if jpeg else "png", "w")
    context.height, context.width, context.time_base = *rgb.shape[:2], Fraction(1, 25)
    context.pix_fmt = "yuvj444p" if jpeg else "rgb24"
    context.options = (
        {"qmin": "3", "qmax": "3"}
        if jpeg
        else {"pred": "mixed", "compression_level": "9"}
    )
    packets = context.encode(
        av.VideoFrame.from_ndarray(rgb, "rgb24").reformat(format=context.pix_fmt)
    ) + context.encode(None)
    path.write_bytes(b"".join(bytes(packet) for packet in packets))


if __name__ == "__main__":
    main()
