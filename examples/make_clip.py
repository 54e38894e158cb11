"""The film that ships as examples/noisy.mp4: two scenes that are computed, noise, and a chord for sound.

    python examples/make_clip.py [-o examples/noisy.mp4] [--clean CLEAN.mp4] [--sigma 20] [--overwrite]

A camera pans over a landscape with a train and a balloon; after a cut it turns and zooms over a table with a
page and a rolling ball. White Gaussian noise of standard deviation `--sigma` (0-255 scale) lies on all three
planes. `--clean` also keeps the film without noise, stored losslessly, to hold results against.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import av
import numpy as np
import torch
from numpy.typing import NDArray
from scenery import landscape, table

from vidrestore.cli.terminal import as_options
from vidrestore.colour import grey_to_planes, rgb_to_yuv
from vidrestore.degrade import add_gaussian_noise
from vidrestore.errors import VidRestoreError
from vidrestore.files.atomic import check_output
from vidrestore.frames import ColourTags, Frame, PixelFormat
from vidrestore.media.encoders import choose_encoder
from vidrestore.media.reader import VideoReader
from vidrestore.media.source import Target
from vidrestore.media.streams import check_streams
from vidrestore.media.writer import VideoWriter
from vidrestore.options import EncoderOptions

WIDTH, HEIGHT, RATE = 320, 180, 25
SCENES = ((landscape, 24), (table, 20))  # with their number of frames
PIXELS = PixelFormat("yuv420p", "yuv", 8, 1, 1)
BT709 = ColourTags(matrix=1, primaries=1, transfer=1, range=1, chroma_location=1)
SAMPLES = 48000  # of sound per second
CHORD = (220.0, 277.18, 329.63)  # Hz
# Noise fills any file: as little compression as fits under 1 MB, and nothing that takes noise for an artefact
# (deblocking, dead zones).
ENCODER = EncoderOptions(
    "libx264",
    crf=28,
    preset="slow",
    options={
        "aq-mode": "0",
        "x264-params": "no-deblock=1:no-psy=1:deadzone-inter=0:deadzone-intra=0:no-dct-decimate=1",
    },
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("-o", "--output", type=Path, default=Path(__file__).with_name("noisy.mp4"))
    parser.add_argument("--clean", type=Path, help="also keep the film without noise here")
    parser.add_argument("--sigma", type=float, default=20.0)
    parser.add_argument("--overwrite", action="store_true")
    arguments = parser.parse_args()
    try:
        make(arguments.output, arguments.clean, arguments.sigma, overwrite=arguments.overwrite)
    except VidRestoreError as error:
        parser.exit(error.exit_code, f"{parser.prog}: {as_options(str(error))}\n")
    print(f"{arguments.output}: {arguments.output.stat().st_size / 1000:.0f} kB")


def make(output: Path, kept: Path | None, sigma: float, *, overwrite: bool) -> None:
    """Write the noisy video, and the clean one if `kept`. Raises OutputExistsError before any work."""
    with tempfile.TemporaryDirectory() as folder:
        clean = kept or Path(folder) / "clean.mp4"
        check_output(str(clean), str(output), overwrite=overwrite)
        check_output(str(output), str(clean), overwrite=overwrite)
        write_clean(clean)
        write_noisy(clean, output, sigma, overwrite=overwrite)


def pictures() -> Iterator[tuple[NDArray[np.uint8], ...]]:
    """The planes of every frame, in limited-range BT.709."""
    for scene, length in SCENES:
        for rgb in scene(WIDTH, HEIGHT, length):
            channels = torch.from_numpy(rgb).permute(2, 0, 1).contiguous()
            yield grey_to_planes(rgb_to_yuv(channels, PIXELS, BT709, HEIGHT), PIXELS)


def write_clean(path: Path) -> None:
    """Write the film without noise, losslessly, with sound and colour tags."""
    with av.open(str(path), "w") as container:
        video = container.add_stream("libx264", rate=RATE, options={"qp": "0", "preset": "veryfast"})
        video.width, video.height, video.pix_fmt = WIDTH, HEIGHT, PIXELS.name
        context = video.codec_context
        context.colorspace, context.color_primaries, context.color_trc, context.color_range = 1, 1, 1, 1
        sound = container.add_stream("aac", rate=SAMPLES, layout="mono")
        for planes in pictures():
            packed = np.concatenate([plane.ravel() for plane in planes]).reshape(HEIGHT * 3 // 2, WIDTH)
            container.mux(video.encode(av.VideoFrame.from_ndarray(packed, PIXELS.name)))
        container.mux(video.encode(None))
        for frame in sound_frames():
            container.mux(sound.encode(frame))
        container.mux(sound.encode(None))


def sound_frames() -> Iterator[av.AudioFrame]:
    """A chord that swells and fades, as long as the film."""
    length = sum(count for _, count in SCENES) / RATE
    times = np.arange(round(length * SAMPLES)) / SAMPLES
    chord = sum(np.sin(2 * np.pi * pitch * times) for pitch in CHORD) * np.sin(np.pi * times / length) * 0.1
    for start in range(0, len(chord), 1024):
        frame = av.AudioFrame.from_ndarray(
            chord[None, start : start + 1024].astype(np.float32), "fltp", "mono"
        )
        frame.sample_rate, frame.pts, frame.time_base = SAMPLES, start, Fraction(1, SAMPLES)
        yield frame


def write_noisy(clean: Path, output: Path, sigma: float, *, overwrite: bool = False) -> None:
    """Write `clean` with white Gaussian noise on all planes and everything else as it is."""
    generator = torch.Generator().manual_seed(0)
    with VideoReader(str(clean)) as reader:
        choice = choose_encoder(reader.info, Target(str(output)), ENCODER)
        copy = check_streams(reader.info, Target(str(output)))
        with VideoWriter(
            str(output), source=reader.info, encoder=choice, copy=copy, frames=None, overwrite=overwrite
        ) as writer:
            for frame in reader.frames():
                planes = tuple(
                    add_gaussian_noise(torch.tensor(plane), sigma, generator).numpy()
                    for plane in frame.planes
                )
                writer.write(Frame(planes, frame.pts, frame.duration))


if __name__ == "__main__":
    main()
