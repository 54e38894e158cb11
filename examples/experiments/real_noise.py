#!/usr/bin/env python3
"""Hold `vidrestore denoise` against nlmeans on noise as real footage has it
(held_out_noise.py).

    real_noise.py CLIP [CLIP ...] [--models phone,grain] [--sigmas 3,5,8,12,18,27] [--options=--lossless]
    [--pictures DIR]

CLIP is a folder of frames. Prints the PSNR of R'G'B': as given, `denoise` with its defaults, at the best of
the sigmas, and nlmeans at the best of six strengths, mean over the clips. The best ones are chosen per clip,
with the clean video at hand: no user could do better.
"""

from __future__ import annotations

import argparse
import io
import shlex
import tempfile
from contextlib import redirect_stdout
from pathlib import Path

import av
import numpy as np
from held_out_noise import MODELS, Frames, noisy_pair, plane_psnr, rgb_psnr, to_rgb

from vidrestore.cli import main as vidrestore

NLMEANS = (1.5, 3, 5, 8, 12, 20)


def read_folder(folder: Path, count: int, width: int, height: int) -> Frames:
    """The middle of the first frames of a folder of pictures."""
    frames = []
    for file in sorted(folder.iterdir())[:count]:
        with av.open(str(file)) as container:
            picture = next(container.decode(video=0)).reformat(format="yuv420p")
        frames.append(cropped(planes_of(picture), width, height))
    return frames


def planes_of(picture: av.VideoFrame) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    flat, height, width = picture.to_ndarray(), picture.height, picture.width
    chroma = flat[height:].reshape(2, height // 2, width // 2)
    return flat[:height], chroma[0], chroma[1]


def cropped(
    planes: tuple[np.ndarray, ...], width: int, height: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    top, left = (
        max(0, size - wanted) // 4 * 2 for size, wanted in zip(planes[0].shape, (height, width), strict=True)
    )
    y = planes[0][top : top + height, left : left + width]
    u, v = (plane[top // 2 : (top + height) // 2, left // 2 : (left + width) // 2] for plane in planes[1:])
    return y.copy(), u.copy(), v.copy()


def write(path: Path, frames: Frames) -> None:
    height, width = frames[0][0].shape
    with av.open(str(path), "w") as container:
        stream = container.add_stream("ffv1", rate=24)
        stream.width, stream.height, stream.pix_fmt = width, height, "yuv420p"
        for planes in frames:
            flat = np.concatenate([plane.reshape(-1) for plane in planes]).reshape(-1, width)
            container.mux(stream.encode(av.VideoFrame.from_ndarray(flat, format="yuv420p")))
        container.mux(stream.encode(None))


def read(path: Path) -> Frames:
    with av.open(str(path)) as container:
        return [planes_of(frame) for frame in container.decode(video=0)]


def ours(noisy: Path, out: Path, options: str) -> Frames:
    """What the command makes of a video, run in this process: torch is loaded once."""
    command = ["denoise", str(noisy), "-o", str(out), "--lossless", "--overwrite", "--quiet"]
    with redirect_stdout(io.StringIO()):
        try:
            vidrestore([*command, *shlex.split(options)])
        except SystemExit as end:
            if end.code:
                raise
    return read(out)


def nlmeans(noisy: Path, strength: float) -> Frames:
    frames = []
    with av.open(str(noisy)) as source:
        video = source.streams.video[0]
        graph = av.filter.Graph()
        chain = (
            graph.add_buffer(template=video),
            graph.add("nlmeans", f"s={strength}:p=5:r=9"),
            graph.add("format", "yuv420p"),
        )
        graph.link_nodes(*chain, graph.add("buffersink")).configure()
        for frame in [*source.decode(video), None]:
            graph.push(frame)
            try:
                while True:
                    frames.append(planes_of(graph.pull()))
            except (av.error.BlockingIOError, av.error.EOFError):
                pass
    return frames


def save_pictures(folder: Path, name: str, shown: list[Frames]) -> None:
    """The middle frame of each, side by side."""
    middle = [
        np.clip(np.rint(255 * to_rgb(frames[len(frames) // 2])), 0, 255).astype(np.uint8) for frames in shown
    ]
    strip = np.concatenate(middle, axis=2).transpose(1, 2, 0)
    folder.mkdir(parents=True, exist_ok=True)
    with av.open(str(folder / f"{name}.png"), "w", format="image2") as container:
        stream = container.add_stream("png", rate=1)
        stream.height, stream.width, stream.pix_fmt = *strip.shape[:2], "rgb24"
        container.mux(stream.encode(av.VideoFrame.from_ndarray(np.ascontiguousarray(strip), format="rgb24")))
        container.mux(stream.encode(None))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("clips", nargs="+", type=Path)
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--sigmas", default="3,5,8,12,18,27", help="hand-set ones; none with an empty text")
    parser.add_argument("--options", default="", help="of `vidrestore denoise`, as in --options=--lossless")
    parser.add_argument("--frames", type=int, default=12)
    parser.add_argument("--size", default="480x320", help="of the middle that is used")
    parser.add_argument("--no-nlmeans", action="store_true")
    parser.add_argument(
        "--pictures", type=Path, help="folder for clean, given, default and nlmeans side by side"
    )
    given = parser.parse_args()
    width, height = map(int, given.size.split("x"))
    sigmas = [float(text) for text in given.sigmas.split(",") if text]
    print(f"{'noise':10}  given  default (Y, U, V gain)      best sigma   nlmeans")
    with tempfile.TemporaryDirectory() as folder:
        noisy_path, out = Path(folder, "noisy.mkv"), Path(folder, "out.mkv")
        for model in given.models.split(","):
            rows = []
            for clip in given.clips:
                clean, noisy = noisy_pair(model, read_folder(clip, given.frames, width, height))
                write(noisy_path, noisy)
                default = ours(noisy_path, out, given.options)
                hand = [
                    rgb_psnr(clean, ours(noisy_path, out, f"{given.options} --sigma {sigma}"))
                    for sigma in sigmas
                ] or [np.nan]
                others = [] if given.no_nlmeans else [nlmeans(noisy_path, strength) for strength in NLMEANS]
                peers = [rgb_psnr(clean, frames) for frames in others] or [np.nan]
                gains = [
                    plane_psnr(clean, default, plane) - plane_psnr(clean, noisy, plane) for plane in range(3)
                ]
                chosen = sigmas[int(np.argmax(hand))] if sigmas else 0
                rows.append(
                    (rgb_psnr(clean, noisy), rgb_psnr(clean, default), *gains, max(hand), chosen, max(peers))
                )
                if given.pictures:
                    best = [others[int(np.argmax(peers))]] if others else []
                    save_pictures(given.pictures, f"{model}-{clip.name}", [clean, noisy, default, *best])
            first, own, y, u, v, hand_best, chosen, peer = np.mean(rows, 0)
            print(
                f"{model:10} {first:6.2f}  {own:6.2f} ({y:+5.2f} {u:+5.2f} {v:+5.2f})  {hand_best:6.2f} "
                f"({chosen:4.1f})  {peer:6.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
