"""Noise of real footage to judge `denoise` by, frozen before anything was tuned; shares no code with
`vidrestore.lab.degrade`.

Every model takes 8-bit Y, U, V of 4:2:0 (BT.601, studio range) and gives the clean frames that a denoiser
should return (the phone's are darker than what it was given) and the noisy ones, coded and decoded again with
x264 or MJPEG.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from fractions import Fraction
from io import BytesIO

import av
import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Planes = tuple[NDArray[np.uint8], NDArray[np.uint8], NDArray[np.uint8]]
Frames = list[Planes]
Pair = tuple[Frames, Frames]  # clean, noisy

RED, BLUE = 0.299, 0.114  # BT.601


def to_rgb(planes: Sequence[NDArray[np.uint8]]) -> Array:
    """(3, H, W) R'G'B' in [0, 1], not clamped; chroma samples repeated."""
    y, u, v = (np.asarray(plane, float) for plane in planes)
    height, width = y.shape
    u, v = (plane.repeat(2, 0).repeat(2, 1)[:height, :width] for plane in (u, v))
    y, u, v = (y - 16) / 219, (u - 128) / 224, (v - 128) / 224
    red, blue = y + 2 * (1 - RED) * v, y + 2 * (1 - BLUE) * u
    return np.stack([red, (y - RED * red - BLUE * blue) / (1 - RED - BLUE), blue])


def to_planes(rgb: Array) -> Planes:
    """The way back, with means of 2 x 2 chroma samples."""
    red, green, blue = rgb
    y = RED * red + (1 - RED - BLUE) * green + BLUE * blue
    u, v = (blue - y) / (2 * (1 - BLUE)), (red - y) / (2 * (1 - RED))
    small = [
        chroma.reshape(chroma.shape[0] // 2, 2, chroma.shape[1] // 2, 2).mean((1, 3))
        for chroma in (u, v)
    ]
    return (
        stored(16 + 219 * y),
        stored(128 + 224 * small[0]),
        stored(128 + 224 * small[1]),
    )


def stored(plane: Array) -> NDArray[np.uint8]:
    return np.clip(np.rint(plane), 0, 255).astype(np.uint8)


def blurred(noise: Array, rows: float, columns: float) -> Array:
    """White noise (..., H, W) under a Gaussian of these standard deviations in pixels, of unit variance
    again.
    """
    height, width = noise.shape[-2:]
    down, across = np.fft.fftfreq(height)[:, None], np.fft.rfftfreq(width)
    response = np.exp(-2 * np.pi**2 * ((rows * down) ** 2 + (columns * across) ** 2))
    smooth = np.fft.irfft2(np.fft.rfft2(noise) * response, s=(height, width))
    result: Array = smooth / smooth.std()
    return result


def encode(
    target: str | BytesIO,
    frames: Frames,
    codec: str,
    options: dict[str, str],
    format: str | None = None,
) -> None:
    """Write frames to a file, as full range if the codec is MJPEG."""
    height, width = frames[0][0].shape
    with av.open(target, "w", format=format) as container:
        stream = container.add_stream(codec, rate=24, options=options)
        stream.width, stream.height, stream.time_base = width, height, Fraction(1, 24)
        stream.pix_fmt = "yuvj420p" if codec == "mjpeg" else "yuv420p"
        for planes in frames:
            flat = np.concatenate([plane.reshape(-1) for plane in planes])
            picture = av.VideoFrame.from_ndarray(
                flat.reshape(-1, width), format=stream.pix_fmt
            )
            container.mux(stream.encode(picture))
        container.mux(stream.encode(None))


def planes_of(picture: av.VideoFrame) -> Planes:
    """Return the planes of a picture of 4:2:0 with even sides."""
    flat, height, width = picture.to_ndarray(), picture.height, picture.width
    chroma = flat[height:].reshape(2, height // 2, width // 2)
    return flat[:height], chroma[0], chroma[1]


def coded(frames: Frames, codec: str, options: dict[str, str]) -> Frames:
    """Return frames after an encoder and a decoder, through Matroska in memory."""
    file = BytesIO()
    encode(file, frames, codec, options, "matroska")
    file.seek(0)
    with av.open(file) as container:
        return [planes_of(picture) for picture in container.decode(video=0)]


def x264(frames: Frames, crf: int, preset: str = "medium") -> Frames:
    return coded(
        frames,
        "libx264",
        {"crf": str(crf), "preset": preset, "threads": "1", "x264-params": "asm=AVX2"},
    )


def phone(frames: Frames, rng: np.random.Generator) -> Pair:
    """A phone at night: a third of the light, electrons counted behind a Bayer filter, bilinear demosaicing,
    x264 crf 26.
    """
    clean, noisy = [], []
    gains = np.array([2.0, 1.0, 1.7])[:, None, None]
    for planes in frames:
        light = 0.3 * np.clip(to_rgb(planes), 0, 1) ** 2.2
        exact = mosaic(light / gains)
        counted = rng.poisson(exact * 220) / 220 + rng.normal(0, 0.008, exact.shape)
        developed = [bilinear(raw) * gains for raw in (exact, counted)]
        pictures = [to_planes(np.clip(each, 0, 1) ** (1 / 2.2)) for each in developed]
        clean.append(pictures[0])
        chroma = [stored(box(np.asarray(plane, float), 3)) for plane in pictures[1][1:]]
        noisy.append((pictures[1][0], chroma[0], chroma[1]))
    return clean, x264(noisy, 26)


def mosaic(rgb: Array) -> Array:
    raw: Array = rgb[1].copy()
    raw[::2, ::2], raw[1::2, 1::2] = rgb[0, ::2, ::2], rgb[2, 1::2, 1::2]
    return raw


def bilinear(raw: Array) -> Array:
    """Missing colours as weighted means of the 3 x 3 samples around."""
    sites = np.zeros((3, *raw.shape))
    sites[0, ::2, ::2] = sites[2, 1::2, 1::2] = sites[1, ::2, 1::2] = sites[
        1, 1::2, ::2
    ] = 1
    kernel = np.array([[1, 2, 1], [2, 4, 2], [1, 2, 1]])

    def around(values: Array) -> Array:
        padded = np.pad(values, ((0, 0), (1, 1), (1, 1)), mode="reflect")
        height, width = raw.shape
        moved = [
            kernel[y, x] * padded[:, y : y + height, x : x + width]
            for y in range(3)
            for x in range(3)
        ]
        return np.sum(moved, axis=0)

    full = around(raw * sites) / around(sites)
    result: Array = np.where(sites > 0, raw, full)
    return result


def box(plane: Array, side: int) -> Array:
    padded = np.pad(plane, side // 2, mode="edge")
    height, width = plane.shape
    moved: Array = np.mean(
        [
            padded[y : y + height, x : x + width]
            for y in range(side)
            for x in range(side)
        ],
        axis=0,
    )
    return moved


def grain(frames: Frames, rng: np.random.Generator) -> Pair:
    """Film grain of radius 0.9, half common to the three layers, strongest in mid tones, x264 crf 18."""
    noisy = []
    for planes in frames:
        rgb = to_rgb(planes)
        height, width = rgb.shape[1:]
        common, own = (
            blurred(rng.normal(size=(1, height, width)), 0.9, 0.9),
            blurred(rng.normal(size=rgb.shape), 0.9, 0.9),
        )
        tone = np.clip(rgb, 0, 1)
        strength = 0.02 + 0.055 * 4 * tone * (1 - tone)
        noisy.append(to_planes(rgb + strength * (0.7 * common + 0.7 * own)))
    return frames, x264(noisy, 18)


def tape(frames: Frames, rng: np.random.Generator) -> Pair:
    """A VHS tape: weak luma noise, chroma noise smeared along lines, x264 crf 16."""
    noisy = []
    for y, u, v in frames:
        luma = 5 * blurred(rng.normal(size=y.shape), 0.01, 0.6)
        colour = [10 * blurred(rng.normal(size=u.shape), 0.3, 5.0) for _ in range(2)]
        noisy.append((stored(y + luma), stored(u + colour[0]), stored(v + colour[1])))
    return frames, x264(noisy, 16)


def webcam(frames: Frames, rng: np.random.Generator) -> Pair:
    """A cheap webcam: sensor noise, sharpened, x264 veryfast crf 30."""
    noisy = []
    for y, u, v in frames:
        rough = y + rng.normal(0, 1, y.shape) * (5 + 0.03 * y)
        sharp = rough + 0.6 * (rough - box(rough, 3))
        colour = [box(plane + rng.normal(0, 12, plane.shape), 3) for plane in (u, v)]
        noisy.append((stored(sharp), stored(colour[0]), stored(colour[1])))
    return frames, x264(noisy, 30, "veryfast")


def mjpeg(frames: Frames, rng: np.random.Generator) -> Pair:
    """A webcam that sends JPEG pictures: noise a little smoothed, more in the dark, chroma coarse."""
    noisy = []
    for y, u, v in frames:
        luma = blurred(rng.normal(size=y.shape), 0.45, 0.45) * (14 - 0.03 * y)
        colour = [8 * blurred(rng.normal(size=u.shape), 0.8, 0.8) for _ in range(2)]
        noisy.append((stored(y + luma), stored(u + colour[0]), stored(v + colour[1])))
    return frames, coded(noisy, "mjpeg", {"qmin": "6", "qmax": "6"})


def white(frames: Frames, rng: np.random.Generator) -> Pair:
    """White noise of sigma 20 on R'G'B', x264 crf 28."""
    rgb = [to_rgb(planes) for planes in frames]
    return frames, x264(
        [
            to_planes(picture + rng.normal(0, 20 / 255, picture.shape))
            for picture in rgb
        ],
        28,
    )


def blotches(frames: Frames, rng: np.random.Generator) -> Pair:
    """A camera at its highest ISO: chroma in blotches of several sizes, luma noise that its own filter has
    smoothed, x264 crf 20.
    """
    noisy = []
    for y, u, v in frames:
        luma = blurred(rng.normal(size=y.shape), 0.6, 0.6) * (9 + 0.02 * (255 - y))
        colour = [
            8 * blurred(rng.normal(size=u.shape), 1.2, 1.2)
            + 6 * blurred(rng.normal(size=u.shape), 3.5, 3.5)
            for _ in range(2)
        ]
        noisy.append((stored(y + luma), stored(u + colour[0]), stored(v + colour[1])))
    return frames, x264(noisy, 20)


MODELS: dict[str, Callable[[Frames, np.random.Generator], Pair]] = {
    "phone": phone,
    "grain": grain,
    "tape": tape,
    "webcam": webcam,
    "mjpeg": mjpeg,
    "white": white,
    "blotches": blotches,
}


def noisy_pair(model: str, frames: Frames, seed: int = 1) -> Pair:
    """Clean and noisy frames of a model; the same each time."""
    return MODELS[model](frames, np.random.default_rng(seed))


def rgb_psnr(clean: Frames, other: Frames) -> float:
    """Mean over frames of the PSNR of R'G'B' as 8 bits show them, dB."""
    values = []
    for a, b in zip(clean, other, strict=True):
        error = 255 * (np.clip(to_rgb(a), 0, 1) - np.clip(to_rgb(b), 0, 1))
        values.append(10 * np.log10(255**2 / max(float(np.mean(error**2)), 1e-9)))
    return float(np.mean(values))


def plane_psnr(clean: Frames, other: Frames, plane: int) -> float:
    errors = [
        np.mean((np.asarray(a[plane], float) - b[plane]) ** 2)
        for a, b in zip(clean, other, strict=True)
    ]
    return float(np.mean(10 * np.log10(255**2 / np.maximum(errors, 1e-9))))
