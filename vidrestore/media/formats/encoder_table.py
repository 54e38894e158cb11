"""List the encoders: codec, containers, pixel formats and settings of each. `encoders` chooses one."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

FEWEST_THREADS = 4
# x264 limits the vertical motion that it follows to what the thread of the frame before has finished, about
# half of this less 12 pixels.
LINES_PER_THREAD = 64
MOST_LEVELS = 6  # most levels of SVT-AV1's parallelism


@dataclass(frozen=True)
class EncoderRow:
    """An encoder, the videos that it can store, and its settings."""

    name: str
    codec: str
    containers: tuple[str, ...]
    # the reader's pixel format -> the one that the encoder gets
    formats: Mapping[str, str]
    lossy: Mapping[str, str] = field(default_factory=dict)  # settings
    lossless: Mapping[str, str] | None = None  # settings; None without a lossless mode
    # settings up to a quality of FINE_CRF
    fine: Mapping[str, str] = field(default_factory=dict)
    crf: int = 0  # the largest value of its quality scale; 0: it has none
    quality: str = "crf"  # the encoder's name for that setting
    preset: str | None = None  # the encoder's name for its speed setting
    presets: tuple[str, ...] = ()  # the values of that setting
    odd_chroma: bool = True  # True if sizes may be odd with subsampled chroma
    smallest: tuple[int, int] = (1, 1)  # least width and height
    tags: Mapping[str, str] = field(default_factory=dict)  # container -> codec tag
    greatest_rate: int | None = None  # frames per second of its own planning
    # if it has settings for them
    thread_settings: Callable[[int], dict[str, str]] = lambda threads: {}
    # which make its bits repeatable
    avx2_settings: dict[str, str] = field(default_factory=dict)
    # frames of the longest videos whose decoding times are wrong [measured]
    wrong_dts: int = 0
    # HDR: the option, its keys of mastering display and light level, whether these are in integer steps
    hdr: tuple[str, str, str, bool] | None = None
    # what keeps the chroma location: the stream, that of 4:2:0 only, or Matroska's and WebM's header
    location: Literal["stream", "4:2:0", "header"] = "stream"


@dataclass(frozen=True)
class EncoderChoice:
    """An encoder with everything needed to open it, as plain values that can be stored in a plan."""

    encoder: str  # FFmpeg's name
    pix_fmt: str  # of the frames that it gets
    container: str  # FFmpeg's name of the muxer
    options: Mapping[str, str]  # all but those that follow from `threads`
    codec_tag: str | None = None
    threads: int = FEWEST_THREADS  # the bits of some encoders depend on it
    lossless: bool = False
    why: str = ""  # why it was chosen, in words

    @property
    def row(self) -> EncoderRow:
        """The encoder's row of the table; an empty one for pictures and pipes."""
        return ENCODERS.get(self.encoder, EncoderRow(self.encoder, "", (), {}))

    @property
    def settings(self) -> dict[str, str]:
        """All options, those by `threads` included."""
        return merged(self.row.thread_settings(self.threads), self.options)


def encoder_threads(cores: int, height: int) -> int:
    """Return an encoder's threads for frames of `height` lines: 1.5 per core, as they wait for each other."""
    return max(FEWEST_THREADS, min(cores * 3 // 2, height // LINES_PER_THREAD))


def repeatable(row: EncoderRow) -> dict[str, str]:
    """Return the settings that make an encoder's output repeatable for one number of threads."""
    if not row.avx2_settings or platform.machine().lower() not in ("x86_64", "amd64"):
        return {}
    from vidrestore.models.fast_linear import processor_has  # which imports torch

    # without AVX2 it would crash
    return row.avx2_settings if processor_has("avx2") else {}


def _x265_threads(threads: int) -> dict[str, str]:
    frames = min(max(threads // 4, 2), threads)
    return {"x265-params": f"log-level=error:pools={threads}:frame-threads={frames}"}


def merged(settings: Mapping[str, str], more: Mapping[str, str]) -> dict[str, str]:
    """Merge settings: `more` wins, but lists of parameters ("x264-params") are appended."""
    joined = dict(settings)
    for key, value in more.items():
        is_list = key.endswith("-params") and joined.get(key)
        joined[key] = f"{joined[key]}:{value}" if is_list else value
    return joined


def _yuv(subsamplings: str, depths: Iterable[int], alpha: str = "") -> dict[str, str]:
    formats: dict[str, str] = {}
    for subsampling in subsamplings.split():
        formats |= _planar(f"yuv{alpha}{subsampling}p", depths)
    return formats


def _planar(stem: str, depths: Iterable[int]) -> dict[str, str]:
    names = [f"{stem}{depth}le" if depth > 8 else stem for depth in depths]
    return dict(zip(names, names, strict=True))


def _numbers(first: int, last: int) -> tuple[str, ...]:
    return tuple(str(number) for number in range(first, last + 1))


X26X_PRESETS = (
    *(
        "ultrafast",
        "superfast",
        "veryfast",
        "faster",
        "fast",
        "medium",
        "slow",
        "slower",
        "veryslow",
    ),
    *("placebo", *_numbers(0, 9)),
)
FINE_CRF = 17  # on x264's scale
LOSSY = {  # settings of a quality, in any encoder
    *(
        "crf",
        "qp",
        "b",
        "q",
        "qscale",
        "global_quality",
        "quality",
        "bitrate",
        "vbv-maxrate",
        "maxrate",
    ),
    "cq-level",
}
ISO = ("mp4", "mov")  # containers of the ISO base media file format
# hev1, the muxer's own choice, is refused by Apple's players
HEVC_TAGS = dict.fromkeys(ISO, "hvc1")
FFV1_FORMATS = (
    _yuv("420 422 444", (8, 9, 10, 12, 14, 16))
    | _yuv("440", (8, 10, 12))
    | _yuv("411 410", (8,))
    | _yuv("420 422", (8, 9, 10, 16), alpha="a")
    | _yuv("444", (8, 9, 10, 16), alpha="a")
    | _planar("gray", (8, 9, 10, 12, 14, 16))
    | {"gbrp": "bgr0", "gbrap": "bgra"}
    | _planar("gbrp", (9, 10, 12, 14, 16))
    | _planar("gbrap", (10, 12, 16))
    # FFmpeg before 7 can't decode these, so they are stored in 16 bits
    | {
        "yuva422p12le": "yuva422p16le",
        "yuva444p12le": "yuva444p16le",
        "gbrap14le": "gbrap16le",
    }
)

_PLAYED, _OPEN = ("mp4", "mov", "matroska"), ("mp4", "matroska", "webm")
_X26X: dict[str, Any] = {"crf": 51, "preset": "preset", "presets": X26X_PRESETS}
_X264: dict[str, Any] = {
    "lossless": {"qp": "0"},
    "smallest": (2, 2),
    "location": "4:2:0",
    **_X26X,
}
# at crf 15 to 17 like "medium" at equal size, in 0.6 of its time; from 20 on up to 0.2 dB less [measured]
_X264["fine"] = {"preset": "faster"}
_X264["avx2_settings"] = {"x264-params": "asm=AVX2"}
_HDR = ("x264-params", "mastering-display", "cll", True)
_FFV1 = {"level": "3", "slices": "4", "slicecrc": "1"}
_VP9 = {"cpu-used": "3", "row-mt": "1"}
TABLE = (
    # gray is encoded as such, but FFmpeg's decoder makes 4:2:0 of it
    EncoderRow(
        "libx264",
        "h264",
        _PLAYED,
        _yuv("420 422 444", (8, 10)),
        odd_chroma=False,
        hdr=_HDR,
        **_X264,
    ),
    EncoderRow("libx264rgb", "h264", _PLAYED, {"gbrp": "rgb24"}, **_X264),
    EncoderRow(
        "libx265",
        "hevc",
        _PLAYED,
        _yuv("420 422 444", (8, 10, 12))
        | _planar("gray", (8, 10, 12))
        | _planar("gbrp", (8, 10, 12)),
        lossless={"x265-params": "lossless=1"},
        odd_chroma=False,
        # narrower, it writes beyond its buffers: it crashes [measured up to 48]
        smallest=(64, 16),
        tags=HEVC_TAGS,
        thread_settings=_x265_threads,
        wrong_dts=2,
        hdr=("x265-params", "master-display", "max-cll", True),
        location="4:2:0",
        **_X26X,
    ),
    EncoderRow(
        "libsvtav1",
        "av1",
        _OPEN,
        _yuv("420", (8, 10)),
        lossy={"preset": "6"},
        lossless={"preset": "6", "svtav1-params": "lossless=1"},
        crf=63,
        preset="preset",
        presets=_numbers(-1, 13),
        smallest=(32, 16),  # narrower, it crashes [measured up to 24]
        greatest_rate=240,
        thread_settings=lambda threads: {
            "svtav1-params": f"lp={min(threads, MOST_LEVELS)}"
        },
        hdr=("svtav1-params", "mastering-display", "content-light", False),
    ),
    EncoderRow(
        "libvpx-vp9",
        "vp9",
        _OPEN,
        _yuv("420 422 444", (8,)) | {"gbrp": "gbrp"},
        lossy={"b": "0", **_VP9},
        lossless={"lossless": "1", **_VP9},
        crf=63,
        preset="cpu-used",
        presets=_numbers(-16, 16),
        location="header",
    ),
    EncoderRow(
        "prores_ks",
        "prores",
        ("mov", "matroska"),
        _yuv("422", (10,)),
        {"profile": "hq"},
        location="header",
    ),
    EncoderRow(
        "ffv1",
        "ffv1",
        ("matroska", "mp4"),
        FFV1_FORMATS,
        _FFV1,
        _FFV1,
        location="header",
    ),
)
ENCODERS = {row.name: row for row in TABLE}
PREFERENCE = (
    "libx264",
    "libx264rgb",
    "libx265",
    "libsvtav1",
    "libvpx-vp9",
    "ffv1",
    "prores_ks",
)
DEEP_PREFERENCE = ("libx265", "libx264", "libsvtav1", "libvpx-vp9", "ffv1", "prores_ks")
# FFV1 late: few players support it in MP4
LOSSLESS_PREFERENCE = (
    "libx264",
    "libx264rgb",
    "libx265",
    "libvpx-vp9",
    "libsvtav1",
    "ffv1",
)
