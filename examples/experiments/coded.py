"""`denoise` on clips behind real encoders, beside FFmpeg's filters against blocks.

    python examples/experiments/coded.py DATA [--clips NAME ...] [--frames 12]

The middle 480x272 pixels of each clip in DATA are coded, restored without loss by the command's defaults, and
compared with the frames before coding: gain of luma in dB.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from statistics import fmean
from typing import Any

import av
import numpy as np
from numpy.typing import NDArray

import vidrestore
from vidrestore.options import EncoderOptions

CLIPS = ("davis_soapbox", "davis_bmx-trees", "davis_cows", "sam2_cups", "gopro_hero7_a")
WIDTH, HEIGHT = 480, 272
LOSSLESS = EncoderOptions(lossless=True)
Luma = NDArray[np.float64]
CODERS: dict[str, tuple[str, str, dict[str, str]]] = {
    **{f"x264 crf {crf}": ("libx264", "mp4", {"crf": str(crf)}) for crf in (12, 18, 23, 28, 32, 36)},
    **{
        f"x265 crf {crf}": ("libx265", "mp4", {"crf": str(crf), "x265-params": "log-level=none"})
        for crf in (22, 28, 34)
    },
    **{f"AV1 crf {crf}": ("libsvtav1", "mp4", {"crf": str(crf), "preset": "10"}) for crf in (30, 45)},
    **{f"VP9 crf {crf}": ("libvpx-vp9", "webm", {"crf": str(crf), "b": "0"}) for crf in (30, 45)},
    **{
        f"{name} q {q}": (codec, suffix, {"qmin": str(q), "qmax": str(q)})
        for name, codec, suffix in (
            ("MPEG-2", "mpeg2video", "mpg"),
            ("MPEG-4", "mpeg4", "avi"),
            ("MJPEG", "mjpeg", "avi"),
        )
        for q in (3, 6, 12)
    },
}
FILTERS = {
    "deblock": ("deblock", "filter=weak:block=8"),
    "nlmeans": ("nlmeans", "s=2:p=5:r=9"),
}


def middle(path: Path, count: int) -> list[av.VideoFrame]:
    """Return the middles of the first frames."""
    frames = []
    with av.open(str(path)) as container:
        for frame in container.decode(video=0):
            height, width = frame.height // 2 * 2, frame.width // 2 * 2
            planes = frame.reformat(width, height, "yuv420p").to_ndarray()
            top, left = (height - HEIGHT) // 4 * 2, (width - WIDTH) // 4 * 2
            luma = planes[top : top + HEIGHT, left : left + WIDTH]
            chroma = planes[height:].reshape(2, height // 2, width // 2)
            chroma = chroma[:, top // 2 :, left // 2 :][:, : HEIGHT // 2, : WIDTH // 2]
            joined = np.concatenate([luma, chroma.reshape(HEIGHT // 2, WIDTH)])
            frames.append(av.VideoFrame.from_ndarray(np.ascontiguousarray(joined), "yuv420p"))
            if len(frames) == count:
                break
    return frames


def write(path: Path, frames: Iterable[av.VideoFrame], codec: str, options: dict[str, str]) -> None:
    with av.open(str(path), "w") as container:
        stream: Any = container.add_stream(codec, rate=25, options=options)
        stream.width, stream.height = WIDTH, HEIGHT
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        for number, frame in enumerate(frames):
            ready = frame.reformat(format=stream.pix_fmt)
            ready.pts, ready.time_base, ready.pict_type = number, Fraction(1, 25), 0
            container.mux(stream.encode(ready))
        container.mux(stream.encode(None))


def decoded(path: Path) -> list[av.VideoFrame]:
    with av.open(str(path)) as container:
        return list(container.decode(video=0))


def luma_of(frames: Iterable[av.VideoFrame]) -> Luma:
    return np.stack([frame.to_ndarray()[:HEIGHT, :WIDTH].astype(np.float64) for frame in frames])


def filtered(frames: Iterable[av.VideoFrame], name: str, options: str) -> Iterator[av.VideoFrame]:
    graph = av.filter.Graph()
    frames = list(frames)
    nodes = [
        graph.add_buffer(template=None, width=WIDTH, height=HEIGHT, format=frames[0].format, time_base=1)
    ]
    nodes += [graph.add(name, options), graph.add("buffersink")]
    graph.link_nodes(*nodes).configure()
    for number, frame in enumerate([*frames, None]):
        if frame is not None:
            frame.pts = number
        graph.push(frame)
        while True:
            try:
                yield graph.pull()
            except (av.error.BlockingIOError, av.error.EOFError):
                break


def psnr(one: Luma, other: Luma) -> float:
    return float(10 * np.log10(255**2 / np.square(one - other).mean()))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("data", type=Path)
    parser.add_argument("--clips", nargs="+", default=CLIPS)
    parser.add_argument("--coders", nargs="+", default=list(CODERS))
    parser.add_argument("--frames", type=int, default=12)
    given = parser.parse_args()
    clips = {name: middle(given.data / f"{name}.mp4", given.frames) for name in given.clips}
    print(f"| coder | as coded | `denoise` | least | {' | '.join(FILTERS)} |")
    with tempfile.TemporaryDirectory() as folder:
        everything = []
        for coder in given.coders:
            codec, suffix, options = CODERS[coder]
            coded, out = Path(folder) / f"coded.{suffix}", Path(folder) / "out.mkv"
            before, gains, others = [], [], {name: list[float]() for name in FILTERS}
            for frames in clips.values():
                write(coded, frames, codec, options)
                seen = decoded(coded)
                clean = luma_of(frame.reformat(format=seen[0].format.name) for frame in frames)
                before.append(psnr(luma_of(seen), clean))
                vidrestore.restore(
                    str(coded), str(out), encoder=EncoderOptions(lossless=True), overwrite=True
                )
                gains.append(psnr(luma_of(decoded(out)), clean) - before[-1])
                for name, (by, how) in FILTERS.items():
                    others[name].append(psnr(luma_of(filtered(seen, by, how)), clean) - before[-1])
            everything += gains
            means = " | ".join(f"{fmean(each):+.2f}" for each in others.values())
            print(
                f"| {coder} | {fmean(before):.2f} | {fmean(gains):+.2f} | {min(gains):+.2f} | {means} |",
                flush=True,
            )
        print(f"mean {fmean(everything):+.2f}, least {min(everything):+.2f}")


if __name__ == "__main__":
    main()
