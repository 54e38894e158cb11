"""Compare `denoise` with FFmpeg's filters on noise as real material has it.

    python examples/experiments/noise_table.py noise CLIP... [--cases phone,grain] [--sigmas 4,7,12,20]
    python examples/experiments/noise_table.py coders CLIP... [--frames 10]
    python examples/experiments/noise_table.py photos FOLDER
    python examples/experiments/noise_table.py textures PICTURE... --sigmas 1,2,3,4,6,8 [--without white]

`noise`: the models of held_out_noise.py, PSNR of R'G'B'. `coders`: the losses of encoders, PSNR of luma.
`photos`: pairs NAME_noise.png and NAME_gt.png, PSNR of R'G'B'. `textures`: pictures of cloth, paper and
stone, and the same on woven paper, with white noise of sigma 0, 2 and 5; R'G'B', 58 dB at most. CLIP is a
video or a folder of frames, of which the middle is used. Prints, in dB, means over the clips: as given;
`denoise` by its defaults, and its least gain; `denoise` with the best of the sigmas; the best of several
strengths of nlmeans; deblock. The best ones are chosen by the truth for each clip, which no user could do.
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator
from dataclasses import replace
from fractions import Fraction
from io import BytesIO
from itertools import islice, product
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import av
import av.filter
import numpy as np
from held_out_noise import (
    MODELS,
    Frames,
    encode,
    noisy_pair,
    plane_psnr,
    planes_of,
    rgb_psnr,
)
from numpy.typing import NDArray
from PIL import Image

import vidrestore
from vidrestore.models import noise_model
from vidrestore.noise import meter
from vidrestore.pixels.metrics import psnr
from vidrestore.settings.options import EncoderOptions

NLMEANS = (1.5, 2, 3, 5, 8, 12, 20)
LOSSLESS = EncoderOptions(lossless=True)
SILENT = {"x265-params": "log-level=none"}
Q = (3, 6, 12)
# values that leave out a rule for the noise of photographs
RULES: dict[str, Any] = {
    "white": 255.0,
    "strong": 255.0,
    "coarse": 4.0,
    "unlikely": -99.0,
    "colourless": (-2.0, -1.0),
    "noise_like": 1e-9,
}
COLUMNS = (
    "case",
    "as given",
    "`denoise`",
    "least gain",
    "best sigma",
    "best nlmeans",
    "deblock",
)
CODERS: dict[str, tuple[str, str, dict[str, str]]] = {
    **{
        f"x264 crf {crf}": ("libx264", "mp4", {"crf": str(crf)})
        for crf in (12, 18, 23, 28, 32, 36)
    },
    **{
        f"x265 crf {crf}": ("libx265", "mp4", {"crf": str(crf), **SILENT})
        for crf in (22, 28, 34)
    },
    **{
        f"AV1 crf {crf}": ("libsvtav1", "mp4", {"crf": str(crf), "preset": "10"})
        for crf in (30, 45)
    },
    **{
        f"VP9 crf {crf}": ("libvpx-vp9", "webm", {"crf": str(crf), "b": "0"})
        for crf in (30, 45)
    },
    **{
        f"MPEG-2 q {q}": ("mpeg2video", "mpg", {"qmin": str(q), "qmax": str(q)})
        for q in Q
    },
    **{f"MPEG-4 q {q}": ("mpeg4", "avi", {"qmin": str(q), "qmax": str(q)}) for q in Q},
    **{f"MJPEG q {q}": ("mjpeg", "avi", {"qmin": str(q), "qmax": str(q)}) for q in Q},
    # a pixel, at a fixed rate
    "MPEG-2 0.15 bits": ("mpeg2video", "mpg", {"bits": "0.15"}),
    "MPEG-4 0.08 bits": ("mpeg4", "avi", {"bits": "0.08"}),
    **{
        f"JPEG quality {q}": ("jpeg", "avi", {"quality": str(q)})
        for q in (20, 50, 80, 92)
    },
}

Pictures = list[av.VideoFrame]


class Case(NamedTuple):
    """A file that is denoised, and a function that compares pictures with the truth (dB)."""

    name: str
    source: Path
    score: Callable[[Pictures], float]


def noise_cases(given: Namespace, folder: Path) -> Iterator[Case]:
    """Yield clips in the noise of each model."""
    for name in given.cases or MODELS:
        for clip in given.sources:
            clean, noisy = noisy_pair(name, middle(clip, given))
            source = folder / "noisy.mkv"
            encode(str(source), noisy, "ffv1", {})
            yield Case(
                name,
                source,
                lambda made, clean=clean: rgb_psnr(clean, list(map(planes_of, made))),
            )


def coder_cases(given: Namespace, folder: Path) -> Iterator[Case]:
    """Yield clips after each encoder."""
    for name in given.cases or CODERS:
        codec, suffix, options = CODERS[name]
        for clip in given.sources:
            clean, source = middle(clip, given), folder / f"coded.{suffix}"
            encode_as(source, clean, codec, options)
            yield Case(
                name,
                source,
                lambda made, clean=clean: plane_psnr(
                    clean, list(map(planes_of, made)), 0
                ),
            )


def encode_as(
    target: Path, frames: Frames, codec: str, options: dict[str, str]
) -> None:
    """Write frames by an encoder of CODERS."""
    if codec == "jpeg":
        encode_pictures(target, frames, int(options["quality"]))
        return
    if "bits" in options:
        options = {"b": str(int(24 * float(options["bits"]) * frames[0][0].size))}
    encode(str(target), frames, codec, options)


def encode_pictures(target: Path, frames: Frames, quality: int) -> None:
    """Write frames as JPEG with the usual tables, which FFmpeg doesn't have."""
    with av.open(str(target), "w") as container:
        stream = container.add_stream("mjpeg", rate=24)
        stream.height, stream.width = frames[0][0].shape
        stream.pix_fmt = "yuvj420p"
        for number, (y, *colours) in enumerate(frames):
            planes = [y, *(colour.repeat(2, 0).repeat(2, 1) for colour in colours)]
            file = BytesIO()
            Image.fromarray(np.stack(planes, -1), "YCbCr").save(
                file, "JPEG", quality=quality
            )
            packet = av.Packet(file.getvalue())
            packet.stream, packet.pts, packet.dts, packet.is_keyframe = (
                stream,
                number,
                number,
                True,
            )
            packet.time_base = Fraction(1, 24)
            container.mux(packet)


def photo_cases(given: Namespace, _: Path) -> Iterator[Case]:
    """Yield the photographs of pairs."""
    for folder in given.sources:
        for noisy in sorted(folder.glob("*_noise.png")):
            (truth,) = map(
                rgb, decoded(noisy.with_name(noisy.name.replace("_noise", "_gt")))
            )
            yield Case(
                "photos", noisy, lambda made, truth=truth: psnr(rgb(made[0]), truth)
            )


def texture_cases(given: Namespace, folder: Path) -> Iterator[Case]:
    """Yield pictures, and the same on woven paper, in white noise."""
    size = [int(side) for side in given.size.split("x")]
    for number, (source, woven) in enumerate(product(given.sources, (False, True))):
        rng = np.random.default_rng(number)
        picture = rgb(decoded(source)[0])[: size[1], : size[0]].astype(float)
        truth = (
            np.clip(picture + 9 * weave(picture.shape[:2], rng)[..., None], 0, 255)
            if woven
            else picture
        )
        for sigma in (0, 2, 5):
            noisy = np.clip(
                np.rint(truth + sigma * rng.normal(size=truth.shape)), 0, 255
            ).astype(np.uint8)
            target = folder / "texture.png"
            Image.fromarray(noisy).save(target)
            name = f"noise {sigma}, woven" if woven else f"noise {sigma}"
            yield Case(
                name,
                target,
                lambda made, truth=truth: bounded_psnr(rgb(made[0]), truth),
            )


def weave(shape: tuple[int, ...], rng: np.random.Generator) -> NDArray[np.float64]:
    """Return threads of unit variance, of uneven width, three to six pixels apart."""
    width = rng.uniform(3, 6)
    down, across = (
        np.cumsum(2 * np.pi / width * rng.normal(1, 0.15, side)) for side in shape
    )
    threads = np.sin(down)[:, None] * np.cos(across)
    return np.asarray(threads / threads.std())


def bounded_psnr(made: NDArray[Any], truth: NDArray[Any]) -> float:
    return float(10 * np.log10(255**2 / (np.square(made - truth).mean() + 0.1)))


KINDS = {
    "noise": noise_cases,
    "coders": coder_cases,
    "photos": photo_cases,
    "textures": texture_cases,
}


def middle(clip: Path, given: Namespace) -> Frames:
    """Return the middle of the first frames of a clip."""
    frames: Frames = []
    width, height = map(int, given.size.split("x"))
    pictures = (
        each
        for file in ([clip] if clip.is_file() else sorted(clip.iterdir()))
        for each in decoded(file)
    )
    for picture in islice(pictures, given.frames):
        even = picture.reformat(
            picture.width // 2 * 2, picture.height // 2 * 2, "yuv420p"
        )
        y, *colours = planes_of(even)
        if given.halved:
            y, *colours = map(halved, (y, *colours))
        top, left = (
            max(0, y.shape[0] - height) // 4 * 2,
            max(0, y.shape[1] - width) // 4 * 2,
        )
        small = (
            slice(top // 2, (top + height) // 2),
            slice(left // 2, (left + width) // 2),
        )
        u, v = (plane[small].copy() for plane in colours)
        frames.append((y[top : top + height, left : left + width].copy(), u, v))
    return frames


def halved(plane: NDArray[np.uint8]) -> NDArray[np.uint8]:
    """Return the means of 2 x 2 samples from an odd offset, of an even number of rows and columns."""
    height, width = ((side - 1) // 4 * 4 for side in plane.shape)
    blocks = plane[1 : 1 + height, 1 : 1 + width].reshape(height // 2, 2, width // 2, 2)
    return blocks.mean((1, 3)).round().astype(np.uint8)


def decoded(path: Path) -> Pictures:
    with av.open(str(path)) as container:
        return list(container.decode(video=0))


def rgb(picture: av.VideoFrame) -> Any:
    return picture.to_ndarray(format="rgb24")


def denoised(source: Path, folder: Path, **options: Any) -> Pictures:
    """Return what the command makes of a file."""
    output = folder / ("out.png" if source.suffix == ".png" else "out.mkv")
    encoder = {} if source.suffix == ".png" else {"encoder": LOSSLESS}
    vidrestore.restore(source, output, overwrite=True, **encoder, **options)
    return decoded(output)


def filtered(pictures: Pictures, name: str, settings: str) -> Pictures:
    """Return pictures after one of FFmpeg's filters."""
    seen = [
        each.reformat(format="yuv444p") if each.format.name.startswith("rgb") else each
        for each in pictures
    ]
    graph = av.filter.Graph()
    first = seen[0]
    source = graph.add_buffer(
        width=first.width, height=first.height, format=first.format, time_base=1
    )
    graph.link_nodes(
        source, graph.add(name, settings), graph.add("buffersink")
    ).configure()
    made: Pictures = []
    for number, picture in enumerate([*seen, None]):
        if picture is not None:
            picture.pts = number
        graph.push(picture)
        try:
            while True:
                made.append(graph.vpull())
        except (av.error.BlockingIOError, av.error.EOFError):
            pass
    return made


def leave_out(rule: str) -> None:
    """Judge noise without a rule of RULES, or without the level of coarse noise by its spectrum."""
    if rule in RULES:
        meter.PHOTO_NOISE = replace(meter.PHOTO_NOISE, **{rule: RULES[rule]})
    else:
        noise_model.WEAKER = 0.0


def row(
    case: Case, folder: Path, sigmas: list[float], quality: str, alone: bool
) -> tuple[float, ...]:
    """Return the dB of a case: as given, `denoise`, its best sigma, the best nlmeans, deblock."""
    given = decoded(case.source)
    ours = case.score(denoised(case.source, folder, quality=quality))
    by_hand = [
        case.score(denoised(case.source, folder, quality=quality, sigma=sigma))
        for sigma in sigmas
    ] or [np.nan]
    if alone:
        return case.score(given), ours, max(by_hand), np.nan, np.nan
    window = "p=7:r=15" if len(given) == 1 else "p=5:r=9"
    peers = [
        case.score(filtered(given, "nlmeans", f"s={strength}:{window}"))
        for strength in NLMEANS
    ]
    blocks = case.score(filtered(given, "deblock", "filter=weak:block=8"))
    return case.score(given), ours, max(by_hand), max(peers), blocks


def main() -> None:
    parser = ArgumentParser(
        description=__doc__, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=KINDS)
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument(
        "--cases", type=lambda text: text.split(","), help="of the kind (all)"
    )
    parser.add_argument(
        "--sigmas",
        type=lambda text: [float(each) for each in text.split(",")],
        default=[],
    )
    parser.add_argument("--quality", default="default", help="of `denoise`")
    parser.add_argument("--frames", type=int, default=12)
    parser.add_argument(
        "--halved",
        action="store_true",
        help="frames, which then have no blocks of a coder",
    )
    parser.add_argument("--alone", action="store_true", help="without FFmpeg's filters")
    parser.add_argument("--size", default="480x272", help="of the middle")
    parser.add_argument(
        "--without",
        choices=(*RULES, "spectrum"),
        action="append",
        default=[],
        help="this rule",
    )
    given = parser.parse_args()
    for rule in given.without:
        leave_out(rule)
    print(f"| {' | '.join(COLUMNS)} |\n{'|---' * len(COLUMNS)}|")
    found: dict[str, list[tuple[float, ...]]] = {}
    with TemporaryDirectory() as folder:
        for case in KINDS[given.kind](given, Path(folder)):
            found.setdefault(case.name, []).append(
                row(case, Path(folder), given.sigmas, given.quality, given.alone)
            )
    for name, rows in found.items():
        before, ours, *others = (fmean(column) for column in zip(*rows, strict=True))
        least = min(each[1] - each[0] for each in rows)
        cells = (
            f"{before:.2f}",
            f"{ours:.2f}",
            f"{least:+.2f}",
            *(f"{each:.2f}" for each in others),
        )
        print(f"| {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
