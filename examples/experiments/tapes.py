#!/usr/bin/env python3
"""Deinterlace and denoise what was woven, telecined or paired from clips whose frames are the truth.

    python examples/experiments/tapes.py CLIP... [--cases clean,white10] [--quality best] [--before CHECKOUT]

The frames of CLIP, a video or a folder of pictures, are the moments of fields, after [1 2 1]/4 down as
cameras do it. `woven`: interlaced video, and the same frames progressive as a bound. `telecine`: every fifth
field is repeated, 3:2. `paired`: both fields show one moment. The noise is none, white,
or that of a tape behind MPEG-2: correlated along lines, and more of it in colour. PSNR of luma without its
border, in dB, in the mean over the clips and of each: as given, of FFmpeg's bwdif, of `denoise` of another
CHECKOUT, of `denoise`, and of `denoise` on progressive frames; at double rate and at single rate. Film and
pairs are compared with the nearest frame.
"""

from __future__ import annotations

import subprocess
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator
from fractions import Fraction
from itertools import islice
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

import av
import numpy as np
from held_out_noise import Array, blurred, planes_of, stored
from noise_table import Pictures, decoded, filtered

RATE, BORDER = 25, 8
CASES = {"clean": 0.0, "white5": 5.0, "white10": 10.0, "tape": None}
# luma's noise and its correlation along lines, colour's and its blur along lines
TAPE = 6.0, 0.6, 9.0, 2.0
MPEG2 = {"qmin": "4", "qmax": "4"}
FIELDS = {"flags": "+ildct+ilme", "field_order": "tt"}
COLUMNS = ("clip", "as given", "bwdif", "before", "`denoise`", "progressive")


def moments(clip: Path, given: Namespace) -> list[Array]:
    """Return the middle of a clip's frames as Y, U, V of 4:2:0 in one array (H * 3 / 2, W), low-passed."""
    width, height = map(int, given.size.split("x"))
    pictures = (
        each
        for file in ([clip] if clip.is_file() else sorted(clip.iterdir()))
        for each in decoded(file)
    )
    frames = []
    for picture in islice(pictures, given.fields):
        share = max(width / picture.width, height / picture.height, given.scale)
        size = (
            round(picture.width * share / 4) * 4,
            round(picture.height * share / 4) * 4,
        )
        small = picture.reformat(*size, "yuv420p", interpolation="AREA")
        top, left = (
            (full - part) // 4 * 2
            for full, part in ((small.height, height), (small.width, width))
        )
        y, *colours = planes_of(small)
        parts = [y[top : top + height, left : left + width]]
        parts += [
            plane[top // 2 :, left // 2 :][: height // 2, : width // 2]
            for plane in colours
        ]
        frames.append(joined([low_passed(part.astype(float)) for part in parts]))
    return frames


def low_passed(plane: Array) -> Array:
    padded = np.pad(plane, ((1, 1), (0, 0)), mode="edge")
    result: Array = (padded[:-2] + 2 * plane + padded[2:]) / 4
    return result


def joined(planes: list[Array]) -> Array:
    """Return Y, U, V as one array (H * 3 / 2, W), the way of PyAV."""
    return np.concatenate(
        [planes[0], *(plane.reshape(-1, planes[0].shape[1]) for plane in planes[1:])]
    )


def split(frame: Array) -> list[Array]:
    """Undo `joined`."""
    height, width = frame.shape[0] * 2 // 3, frame.shape[1]
    return [frame[:height], *frame[height:].reshape(2, height // 2, width // 2)]


def noisy(frames: list[Array], case: str) -> list[Array]:
    """Return the frames as 8 bits, in the noise of a case."""
    rng, sigma = np.random.default_rng(1), CASES[case]
    planes = [
        [
            plane + noise(plane, sigma, index, rng)
            for index, plane in enumerate(split(frame))
        ]
        for frame in frames
    ]
    return [stored(joined(each)) for each in planes]


def noise(
    plane: Array, sigma: float | None, index: int, rng: np.random.Generator
) -> Array:
    white = rng.standard_normal(plane.shape)
    if sigma is not None:
        return sigma * white
    luma, correlation, chroma, blur = TAPE
    if index:
        return chroma * blurred(white, 0.01, blur)
    for column in range(1, plane.shape[1]):
        white[:, column] = (
            correlation * white[:, column - 1]
            + (1 - correlation**2) ** 0.5 * white[:, column]
        )
    return luma * white


def woven(frames: list[Array], kind: str) -> list[Array]:
    """Return the frames of a video whose fields, top first, show these moments."""
    orders = {
        "woven": (0, 1),
        "paired": (0, 0),
        "telecine": (0, 0, 0, 1, 1, 2, 2, 2, 3, 3),
    }[kind]
    step = max(orders) + 1
    numbers = [
        first + order
        for first in range(0, len(frames) - step + 1, step)
        for order in orders
    ]
    return [
        joined(
            [
                lines(one, other)
                for one, other in zip(
                    split(frames[top]), split(frames[bottom]), strict=True
                )
            ]
        )
        for top, bottom in zip(numbers[::2], numbers[1::2], strict=True)
    ]


def lines(even: Array, odd: Array) -> Array:
    result = even.copy()
    result[1::2] = odd[1::2]
    return result


def write(path: Path, frames: list[Array], case: str, *, marked: bool) -> None:
    """Write 8-bit frames: FFV1, or MPEG-2 for a tape; `marked` as interlaced or not."""
    codec, options = ("mpeg2video", MPEG2) if case == "tape" else ("ffv1", {})
    options = options | (FIELDS if marked else {})
    pictures = [av.VideoFrame.from_ndarray(frame, format="yuv420p") for frame in frames]
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=RATE, options=options)
        stream.height, stream.width = pictures[0].height, pictures[0].width
        stream.pix_fmt, stream.time_base = "yuv420p", Fraction(1, RATE)
        for number, picture in enumerate(
            filtered(pictures, "setfield", "tff" if marked else "prog")
        ):
            picture.pts, picture.time_base = number, Fraction(1, RATE)
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))


def score(pictures: Pictures, truth: list[Array], *, nearest: bool = False) -> float:
    """Return the mean PSNR of luma."""
    inner = (slice(BORDER, -BORDER), slice(BORDER, -BORDER))
    exact = [split(frame)[0][inner] for frame in truth]
    values = []
    for number, picture in enumerate(pictures):
        luma = planes_of(picture)[0][inner].astype(float)
        compared = exact if nearest else exact[number : number + 1]
        error = min(float(np.square(luma - frame).mean()) for frame in compared)
        values.append(10 * np.log10(255**2 / max(error, 1e-3)))
    return fmean(values)


def denoised(checkout: Path, source: Path, *options: str) -> Pictures:
    """Return the result of the command of a checkout."""
    output = source.with_suffix(".out.mkv")
    command = [
        sys.executable,
        "-m",
        "vidrestore",
        "denoise",
        source,
        "-o",
        output,
        "--lossless",
        "--overwrite",
    ]
    subprocess.run([*map(str, command), "--quiet", *options], check=True, cwd=checkout)
    return decoded(output)


def results(
    clip: Path, case: str, given: Namespace, folder: Path
) -> Iterator[tuple[str, tuple[float, ...]]]:
    """Yield the rates of a clip's video, or its kind, each with the PSNR of the columns."""
    truth = moments(clip, given)
    fields = noisy(truth, case)
    source, progressive = folder / "woven.mkv", folder / "progressive.mkv"
    pictures = woven(fields, given.kind)
    write(source, pictures, case, marked=given.marked or case == "tape")
    checkouts = [given.before, Path(__file__).parents[2]]
    quality = ("--quality", given.quality)
    if given.kind != "woven":
        made = [denoised(each, source, *quality) if each else [] for each in checkouts]
        columns = decoded(source), bobbed(source, "send_frame"), *made, []
        yield (
            given.kind,
            tuple(
                score(each, truth, nearest=True) if each else np.nan for each in columns
            ),
        )
        return
    for rate in given.rates:
        double = rate == "double"
        exact, options = (
            truth[:: 2 - double],
            (*quality, *(["--double-rate"] if double else [])),
        )
        write(progressive, fields[:: 2 - double], case, marked=False)
        made = [denoised(each, source, *options) if each else [] for each in checkouts]
        bound = denoised(checkouts[1], progressive, *quality) if given.bound else []
        given_pictures = [each for each in decoded(source) for _ in range(1 + double)]
        columns = (
            given_pictures,
            bobbed(source, "send_field" if double else "send_frame"),
            *made,
            bound,
        )
        yield rate, tuple(score(each, exact) if each else np.nan for each in columns)


def bobbed(source: Path, mode: str) -> Pictures:
    """Return the pictures of a file after bwdif, top field first. The first is filtered twice: without one
    before it, the filter would halve its height.
    """
    pictures = decoded(source)
    made = filtered([pictures[0], *pictures], "setfield", "tff")
    return filtered(made, "bwdif", f"mode={mode}")[1 + (mode == "send_field") :]


def main() -> None:
    parser = ArgumentParser(
        description=__doc__, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument(
        "--kind", default="woven", choices=("woven", "telecine", "paired")
    )
    parser.add_argument(
        "--marked", action="store_true", help="as interlaced; a tape always is"
    )
    parser.add_argument(
        "--cases", type=lambda text: text.split(","), default=list(CASES)
    )
    parser.add_argument(
        "--rates", type=lambda text: text.split(","), default=["double", "single"]
    )
    parser.add_argument("--quality", default="default", help="of `denoise`")
    parser.add_argument("--before", type=Path, help="another checkout, to compare with")
    parser.add_argument(
        "--no-bound",
        dest="bound",
        action="store_false",
        help="leave out progressive frames",
    )
    parser.add_argument("--fields", type=int, default=20)
    parser.add_argument("--size", default="192x160", help="of the middle")
    parser.add_argument(
        "--scale", type=float, default=0.5, help="of the clip's pictures, at least"
    )
    given = parser.parse_args()
    for case in given.cases:
        rows: dict[str, list[tuple[float, ...]]] = {}
        print(f"\n{case}\n\n| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
        for clip in given.sources:
            with TemporaryDirectory() as folder:
                for rate, row in results(clip, case, given, Path(folder)):
                    rows.setdefault(rate, []).append(row)
                    print(
                        f"| {clip.stem}, {rate} | {' | '.join(f'{value:.2f}' for value in row)} |",
                        flush=True,
                    )
        for rate, values in rows.items():
            means = map(fmean, zip(*values, strict=True))
            print(f"| mean, {rate} | {' | '.join(f'{value:.2f}' for value in means)} |")


if __name__ == "__main__":
    main()
