"""Fit the sigma that denoises best what a coder took (`media.reading.coding_loss.FITS`).

    python examples/experiments/fit_coding.py measure CLIP... --to gains.npz
    python examples/experiments/fit_coding.py fit gains.npz
    python examples/experiments/fit_coding.py efficiency CLIP...

`measure`: training clips after the encoders of noise_table.py, at fixed quantisers and at fixed rates, are
denoised with several sigmas; saves the squared errors of every frame and plane before and after. `fit`:
prints for each family of coders the gain in dB by factor and exponent of the quantiser's error, where every
frame has the sigma that follows from its own quantiser, interpolated between those measured. `efficiency`:
prints the bits of H.264 at the same PSNR of luma over those of other codecs (`EFFICIENCY`).
"""

from __future__ import annotations

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import av
import numpy as np
import torch
from held_out_noise import Frames, plane_psnr, planes_of
from noise_table import CODERS, decoded, encode_as, middle

from vidrestore.media.reading import coding_loss
from vidrestore.media.reading.reader import VideoReader
from vidrestore.restorers.denoise import DenoiseRestorer
from vidrestore.settings.options import RestoreOptions

SIGMAS = (1.0, 1.5, 2.2, 3.2, 4.7, 7.0, 10.0)
FAMILIES = {
    "h264": ("x264",),
    "mpeg": ("MPEG",),
    "vp9": ("VP9",),
    "jpeg": ("MJPEG", "JPEG"),
    "bits": ("x265", "AV1"),
}
FACTORS, EXPONENTS = np.arange(0.3, 1.75, 0.05), (1.0, 0.75, 0.65, 0.5, 0.35, 0.2, 0.0)
BEST = 6  # rows printed
CRFS = ("6", "12", "18", "24", "30", "36", "42", "48")
OLD = (
    "cinepak",
    "svq1",
    "msvideo1",
    "rpza",
    "rv20",
    "asv1",
    "asv2",
    "libvpx",
    "cfhd",
    "speedhq",
    "jpeg2000",
)


def measure(given: Namespace) -> None:
    """Save `names` and for each `errors` (coder, 1 + SIGMAS, frame, plane) and `losses` (frame, plane)."""
    # the error of the quantiser itself
    coding_loss.LEAST_SIGMA = 0.0
    coding_loss.BIT_RULE = coding_loss.BitRule(least=0.0, most_at_h264=1e9, most=1e9)
    coding_loss.FITS = dict.fromkeys(coding_loss.FITS, ((1.0, 1.0, 0.0),) * 2)
    restorer = DenoiseRestorer(RestoreOptions(device="cpu"))
    names, errors, losses = [], [], []
    for clip, name in product(given.sources, given.coders or CODERS):
        clean = middle(clip, given)
        with TemporaryDirectory() as folder:
            codec, suffix, options = CODERS[name]
            source = Path(folder) / f"coded.{suffix}"
            encode_as(source, clean, codec, options)
            with VideoReader(str(source), losses=True) as reader:
                frames = list(reader.frames())
        coded, truth = stacks([frame.planes for frame in frames]), stacks(clean)
        even = ((1.0,) * len(frames),) * 3
        with torch.inference_mode():
            restored = [
                restorer.restore(coded, (sigma,) * 3, coding=even) for sigma in SIGMAS
            ]
        names.append(f"{name}/{clip.stem}")
        errors.append([squared_errors(planes, truth) for planes in (coded, *restored)])
        losses.append([frame.loss for frame in frames])
        print(names[-1], np.round(np.mean(losses[-1], 0), 2), flush=True)
        np.savez(given.to, names=names, errors=errors, losses=losses)


def stacks(frames: Any) -> tuple[torch.Tensor, ...]:
    return tuple(
        torch.from_numpy(np.stack(plane)).float() for plane in zip(*frames, strict=True)
    )


def squared_errors(planes: Any, truth: Any) -> Any:
    """Return (T, 2): mean squared errors of luma and of both colour differences."""
    y, u, v = (
        (a.round().clamp(0, 255) - b).square().mean((1, 2))
        for a, b in zip(planes, truth, strict=True)
    )
    return torch.stack((y, (u + v) / 2), 1).numpy()


def errors_at(errors: Any, sigma: Any) -> Any:
    """Return (T,) errors of frames at their sigma, from (1 + SIGMAS, T); too little is none."""
    places = np.interp(np.log(sigma), np.log(SIGMAS), range(1, len(SIGMAS) + 1))
    low = np.minimum(places.astype(int), len(SIGMAS) - 1)
    frames = np.arange(errors.shape[1])
    return errors[low, frames] + (places - low) * (
        errors[low + 1, frames] - errors[low, frames]
    )


def gain(errors: Any, sigma: Any) -> float:
    """Return dB gained over a coded clip, pooled; frames of a sigma below 1 stay."""
    after = np.where(sigma < 1, errors[0], errors_at(errors, np.maximum(sigma, 1e-3)))
    return float(10 * np.log10(errors[0].mean() / after.mean()))


def fit(given: Namespace) -> None:
    stored = np.load(given.sources[0])
    names, errors, losses = (stored[key] for key in ("names", "errors", "losses"))
    for (family, coders), plane in product(FAMILIES.items(), (0, 1)):
        mine = [index for index, name in enumerate(names) if name.startswith(coders)]
        if not mine:
            continue
        table = []
        for factor, power in product(FACTORS * 2, EXPONENTS):
            gains = [
                gain(errors[i, :, :, plane], factor * losses[i, :, plane] ** power)
                for i in mine
            ]
            table.append((np.mean(gains), np.min(gains), factor, power))
        table.sort(reverse=True)
        print(
            f"{family}, {'chroma' if plane else 'luma'}: mean, least, factor, exponent"
        )
        for row in table[:BEST]:
            print("  " + "  ".join(f"{value:.2f}" for value in row))


def efficiency(given: Namespace) -> None:
    for clip in given.sources:
        clean = middle(clip, given)
        curve = sorted(
            bits_and_psnr(clean, "libx264", {"crf": crf})[::-1] for crf in CRFS
        )
        qualities, bits = zip(*curve, strict=True)
        for codec in OLD:
            used, quality = bits_and_psnr(
                clean,
                codec,
                {"qscale": "6", "flags": "qscale", "global_quality": "708"},
            )
            share = np.exp(np.interp(quality, qualities, np.log(bits))) / used
            print(
                f"{clip.stem} {codec}: {used:.2f} bits a pixel, {quality:.1f} dB, {share:.2f}",
                flush=True,
            )


def bits_and_psnr(
    clean: Frames, codec: str, options: dict[str, str]
) -> tuple[float, float]:
    """Return the bits a pixel and the PSNR of luma behind an encoder."""
    height, width = clean[0][0].shape
    with TemporaryDirectory() as folder:
        path = str(Path(folder) / ("coded.rm" if codec == "rv20" else "coded.nut"))
        with av.open(path, "w") as container:
            stream = container.add_stream(codec, rate=24, options=options)
            formats = [
                pixels.name for pixels in stream.codec_context.codec.video_formats or ()
            ]
            stream.width, stream.height = width, height
            stream.pix_fmt = "yuv420p" if "yuv420p" in formats else formats[0]
            for planes in clean:
                flat = np.concatenate([plane.reshape(-1) for plane in planes]).reshape(
                    -1, width
                )
                picture = av.VideoFrame.from_ndarray(flat, "yuv420p").reformat(
                    format=stream.pix_fmt
                )
                container.mux(stream.encode(picture))
            container.mux(stream.encode(None))
        pictures = [
            planes_of(picture.reformat(format="yuv420p"))
            for picture in decoded(Path(path))
        ]
        with av.open(path) as container:
            size = sum(packet.size for packet in container.demux(video=0))
    return 8 * size / (width * height * len(clean)), plane_psnr(clean, pictures, 0)


def main() -> None:
    parser = ArgumentParser(
        description=__doc__, formatter_class=RawDescriptionHelpFormatter
    )
    parser.add_argument("step", choices=("measure", "fit", "efficiency"))
    parser.add_argument("sources", nargs="+", type=Path)
    parser.add_argument("--to", type=Path, default=Path("gains.npz"))
    parser.add_argument("--coders", type=lambda text: text.split(","))
    parser.add_argument("--frames", type=int, default=12)
    parser.add_argument(
        "--halved",
        action="store_true",
        help="frames, which then have no blocks of a coder",
    )
    parser.add_argument("--size", default="240x144", help="of the middle")
    given = parser.parse_args()
    {"measure": measure, "fit": fit, "efficiency": efficiency}[given.step](given)


if __name__ == "__main__":
    main()
