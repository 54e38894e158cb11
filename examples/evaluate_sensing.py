"""How well films come back from a few measurements: `vidrestore sense` and `recover` on clean clips, PSNR and
SSIM as a table.

    python examples/evaluate_sensing.py CLIP... [--model NAME|FILE ...] [--sigma S] [--frames N]

CLIP is a video or a folder of pictures. It is stored losslessly in yuv420p, measured and recovered, and each
recovered frame is held against the stored one. Figures are means over frames, as in the DUST paper: of luma,
and of all planes (PSNR over all samples together; SSIM as the mean of the planes, weighted by their samples).
Without --model all listed weights with a sensing matrix are measured.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

import av

import vidrestore
from vidrestore.frames import Frame
from vidrestore.media.reader import VideoReader
from vidrestore.metrics import planes_psnr, psnr, ssim
from vidrestore.options import EncoderOptions
from vidrestore.sensing.sense import sensing_cards

HEADINGS = (
    "weights",
    "clip",
    "frames",
    "luma PSNR",
    "luma SSIM",
    "all PSNR",
    "all SSIM",
    "kB/frame",
    "recovered fps",
)


class Figures(NamedTuple):
    """Means over the frames of one clip; `kilobytes` of measurements per frame, `fps` of recovering."""

    model: str
    clip: str
    frames: int
    luma_psnr: float
    luma_ssim: float
    psnr: float
    ssim: float
    kilobytes: float
    fps: float


def evaluate(
    clips: list[Path], models: list[str], sigma: float = 0.0, frames: int | None = None
) -> Iterator[Figures]:
    """Yield the figures of every clip with every model (a listed name or a file), and of all frames of all
    clips together.
    """
    with tempfile.TemporaryDirectory() as folder:
        films = [Path(folder) / f"{clip.name}.mkv" for clip in clips]
        for clip, film in zip(clips, films, strict=True):
            store(clip, film, frames)
        for model in models:
            rows = []
            for film in films:
                rows.append(of_film(film, model, sigma))
                yield rows[-1]
            if len(rows) > 1:
                yield of_all(rows)


def store(clip: Path, film: Path, limit: int | None) -> None:
    """Write a clip, or its first frames, losslessly as yuv420p in Matroska; an odd last row or column is left
    out.
    """
    with av.open(str(film), "w") as container:
        stream = container.add_stream("ffv1", rate=24)
        stream.pix_fmt = "yuv420p"
        for frame in islice(pictures(clip), limit):
            width, height = frame.width // 2 * 2, frame.height // 2 * 2
            if not stream.codec_context.is_open:
                stream.width, stream.height = width, height
            plain = frame.reformat(width, height, "yuv420p")
            container.mux(stream.encode(av.VideoFrame.from_ndarray(plain.to_ndarray(), "yuv420p")))
        container.mux(stream.encode(None))


def pictures(clip: Path) -> Iterator[av.VideoFrame]:
    """The frames of a video, or of a folder of pictures in the order of their names."""
    for path in sorted(clip.iterdir()) if clip.is_dir() else [clip]:
        with av.open(str(path)) as container:
            yield from container.decode(video=0)


def of_film(film: Path, model: str, sigma: float) -> Figures:
    """Measure and recover one stored film through the library, as the command line does."""
    measured, recovered = film.with_suffix(".safetensors"), film.with_name(f"{film.stem}.recovered.mkv")
    vidrestore.sense(film, measured, model=model, sigma=sigma, overwrite=True)
    summary = vidrestore.recover(
        measured, recovered, model=model, encoder=EncoderOptions(lossless=True), overwrite=True
    )
    with VideoReader(str(film)) as clean, VideoReader(str(recovered)) as found:
        values = [
            compared(frame, wanted) for frame, wanted in zip(found.frames(), clean.frames(), strict=True)
        ]
    kilobytes = measured.stat().st_size / len(values) / 1000
    return Figures(
        model, film.stem, len(values), *map(fmean, zip(*values, strict=True)), kilobytes, summary.fps
    )


def compared(frame: Frame, wanted: Frame) -> tuple[float, float, float, float]:
    """Luma PSNR and SSIM, PSNR and SSIM of all planes."""
    similar = [ssim(plane, clean) for plane, clean in zip(frame.planes, wanted.planes, strict=True)]
    overall = fmean(similar, weights=[plane.size for plane in wanted.planes])
    return (
        psnr(frame.planes[0], wanted.planes[0]),
        similar[0],
        planes_psnr(frame.planes, wanted.planes),
        overall,
    )


def of_all(rows: list[Figures]) -> Figures:
    """The mean over the frames of all clips."""
    frames = [row.frames for row in rows]
    means = [fmean(column, weights=frames) for column in list(zip(*rows, strict=True))[3:]]
    return Figures(rows[0].model, "all", sum(frames), *means)


def line(figures: Figures) -> str:
    """One row of a Markdown table."""
    cells = [
        figures.model,
        figures.clip,
        str(figures.frames),
        f"{figures.luma_psnr:.2f}",
        f"{figures.luma_ssim:.4f}",
    ]
    cells += [f"{figures.psnr:.2f}", f"{figures.ssim:.4f}", f"{figures.kilobytes:.0f}", f"{figures.fps:.1f}"]
    return f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clips", nargs="+", type=Path, metavar="CLIP")
    parser.add_argument(
        "--model", action="append", help="listed name or .safetensors file; may be given more than once"
    )
    parser.add_argument("--sigma", type=float, default=0.0, help="noise on the measurements")
    parser.add_argument("--frames", type=int, help="only the first so many of each clip")
    arguments = parser.parse_args()
    models = arguments.model or [card.name for _, card in sorted(sensing_cards().items())]
    print(f"| {' | '.join(HEADINGS)} |\n|{' --- |' * len(HEADINGS)}")
    for figures in evaluate(arguments.clips, models, arguments.sigma, arguments.frames):
        print(line(figures), flush=True)


if __name__ == "__main__":
    main()
