"""Measure and recover clean clips with `vidrestore sense` and `recover`, and print PSNR and SSIM as a table.

    python examples/evaluate_sensing.py CLIP... [--model NAME|FILE ...] [--sigma S] [--frames N]

CLIP is a video or a folder of pictures. Each recovered frame is compared with that of a lossless copy in
yuv420p. Values are means over frames, as in the DUST paper: of luma, and of all planes (PSNR of all samples;
SSIM as the mean of the planes, weighted by their samples). Without --model, all listed weights are used.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from statistics import fmean

import av

import vidrestore
from vidrestore.lab.sensing.sense import sensing_cards
from vidrestore.media.reading.reader import VideoReader
from vidrestore.pixels.frames import Frame
from vidrestore.pixels.metrics import planes_psnr, psnr, ssim
from vidrestore.settings.options import EncoderOptions

HEADINGS = (
    "weights",
    "clip",
    "frames",
    "luma PSNR",
    "luma SSIM",
    "all PSNR",
    "all SSIM",
    "kB/frame",
    "fps",
)
FORMATS = ("d", ".2f", ".4f", ".2f", ".4f", ".0f", ".1f")


def store(clip: Path, copy: Path, limit: int | None) -> None:
    """Write the first frames of a clip as FFV1 in yuv420p, without an odd last row or column."""
    with av.open(str(copy), "w") as container:
        stream = container.add_stream("ffv1", rate=24)
        stream.pix_fmt = "yuv420p"
        for frame in islice(pictures(clip), limit):
            width, height = frame.width // 2 * 2, frame.height // 2 * 2
            if not stream.codec_context.is_open:
                stream.width, stream.height = width, height
            plain = frame.reformat(width, height, "yuv420p")
            container.mux(
                stream.encode(av.VideoFrame.from_ndarray(plain.to_ndarray(), "yuv420p"))
            )
        container.mux(stream.encode(None))


def pictures(clip: Path) -> Iterator[av.VideoFrame]:
    """Yield the frames of a video, or of a folder of pictures in the order of their names."""
    for path in sorted(clip.iterdir()) if clip.is_dir() else [clip]:
        with av.open(str(path)) as container:
            yield from container.decode(video=0)


def measured(copy: Path, model: str, sigma: float) -> list[float]:
    """Return the values of a row of the table, from the number of frames on."""
    measurements, recovered = (
        copy.with_suffix(".safetensors"),
        copy.with_name(f"{copy.stem}.recovered.mkv"),
    )
    vidrestore.sense(copy, measurements, model=model, sigma=sigma, overwrite=True)
    summary = vidrestore.recover(
        measurements,
        recovered,
        model=model,
        encoder=EncoderOptions(lossless=True),
        overwrite=True,
    )
    with VideoReader(str(copy)) as clean, VideoReader(str(recovered)) as found:
        values = [
            compared(frame, wanted)
            for frame, wanted in zip(found.frames(), clean.frames(), strict=True)
        ]
    size = measurements.stat().st_size / len(values) / 1000
    return [len(values), *map(fmean, zip(*values, strict=True)), size, summary.fps]


def compared(frame: Frame, wanted: Frame) -> tuple[float, float, float, float]:
    """Return PSNR and SSIM of luma, then of all planes."""
    similar = [
        ssim(plane, clean)
        for plane, clean in zip(frame.planes, wanted.planes, strict=True)
    ]
    overall = fmean(similar, weights=[plane.size for plane in wanted.planes])
    luma = psnr(frame.planes[0], wanted.planes[0])
    return luma, similar[0], planes_psnr(frame.planes, wanted.planes), overall


def print_row(model: str, clip: str, values: list[float]) -> None:
    cells = [format(value, form) for value, form in zip(values, FORMATS, strict=True)]
    print(f"| {model} | {clip} | {' | '.join(cells)} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clips", nargs="+", type=Path, metavar="CLIP")
    parser.add_argument(
        "--model", action="append", help="listed name or .safetensors file; repeatable"
    )
    parser.add_argument(
        "--sigma", type=float, default=0.0, help="noise of the measurements"
    )
    parser.add_argument(
        "--frames", type=int, help="number of frames of each clip (all)"
    )
    given = parser.parse_args()
    print(f"| {' | '.join(HEADINGS)} |\n|{' --- |' * len(HEADINGS)}")
    with tempfile.TemporaryDirectory() as folder:
        copies = {clip: Path(folder) / f"{clip.name}.mkv" for clip in given.clips}
        for clip, copy in copies.items():
            store(clip, copy, given.frames)
        for model in given.model or [
            card.name for _, card in sorted(sensing_cards().items())
        ]:
            rows = []
            for clip, copy in copies.items():
                rows.append(measured(copy, model, given.sigma))
                print_row(model, clip.name, rows[-1])
            frames = [row[0] for row in rows]
            means = [
                fmean(column, weights=frames)
                for column in zip(*(row[1:] for row in rows), strict=True)
            ]
            if len(rows) > 1:
                print_row(model, "all", [sum(frames), *means])


if __name__ == "__main__":
    main()
