"""Choose an encoder from the table, and test it before any work by encoding a few frames.

Three facts about PyAV 18.1, all measured, determine the settings. x264 gives different bits from run to run
unless its assembly is limited to AVX2 and its number of threads is fixed, so that number is part of the
choice, which a job keeps. H.264 and H.265 can't hold an odd size with subsampled chroma; VP9, AV1 and FFV1
can. SVT-AV1 writes to standard error unless it is silenced.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from math import log2
from typing import TYPE_CHECKING

from vidrestore.checking import known_names
from vidrestore.errors import MediaError, OptionError
from vidrestore.frames import PixelFormat, Scale, enlarged_size
from vidrestore.media.coding_loss import bits_per_pixel
from vidrestore.media.encoder_table import (
    DEEP_PREFERENCE,
    ENCODERS,
    FEWEST_THREADS,
    ISO,
    LOSSLESS_PREFERENCE,
    LOSSY,
    PREFERENCE,
    TABLE,
    EncoderChoice,
    EncoderRow,
    merged,
    repeatable,
    threads_for,
)
from vidrestore.media.encoding import opens, try_encoder
from vidrestore.media.formats import enlarged_video, layout_of
from vidrestore.media.picture_writer import choose_picture_encoder
from vidrestore.media.side_data import hdr_settings
from vidrestore.media.source import PICTURES, SUFFIXES, Y4M, Target
from vidrestore.media.y4m import check_written
from vidrestore.options import EncoderOptions

if TYPE_CHECKING:
    from vidrestore.frames import VideoInfo
    from vidrestore.media.probe import SourceInfo

# Default quality, by the source's bits per pixel, so that the output is about as large. Measured on seven
# videos of 0.36 to 1.3 bits: x264 at crf 16 takes 0.2 to 0.8, and half of that at a crf 4.5 higher.
LEAST_CRF, USUAL_CRF, GREATEST_CRF = 16.0, 18.0, 24.0
USUAL_BITS = 0.1  # per pixel of H.264, at crf 20
_CODECS = {"h265": "hevc", "x265": "hevc", "avc": "h264", "x264": "h264"}  # by other names


def choose_encoder(
    source: SourceInfo,
    output: Target,
    options: EncoderOptions,
    *,
    scale: Scale = 1,
    cores: int = 1,
    on_gpu: bool = False,
) -> EncoderChoice:
    """Return the encoder for `output`: the one asked for, else the source's codec, else the container's
    default, after a trial.

    `scale` is the output's size over the source's. The number of threads follows from the `cores`. With
    `on_gpu`, NVIDIA's encoder of the same codec is taken if one opens. Raises MediaError, with a way that
    works, if the table has no encoder for these pixels in this container, or if the encoder doesn't open;
    OptionError for a name or preset that isn't known.
    """
    container = output.container
    if container == Y4M:
        return _pipe_choice(source.video, options)
    if container == PICTURES and not output.is_pattern and not is_one_picture(source):
        suffix = output.path.suffix
        raise MediaError(f"{output}: one picture, but a video has many; name them all, as in %04d{suffix}")
    if container == PICTURES:
        return choose_picture_encoder(source, output, options, scale)
    if source.container == PICTURES:
        source = _playable(source, container, options, scale)
    find = _named_row if _is_named(options) else _default_row
    try:
        row = find(source.video, container, options, scale)
    except MediaError as error:
        raise MediaError(f"{source.path}: {error}") from error
    height, _ = enlarged_size(source.video.height, source.video.width, scale)
    threads = options.threads or threads_for(cores, height)
    if on_gpu and (found := _on_gpu(row, container, source, options, scale)):
        return found
    choice = _choice(row, container, source, options, scale, threads)
    try:
        try_encoder(choice, enlarged_video(source.video, scale), output.name)
    except MediaError as error:
        if row.device is None:
            raise
        way_out = _way_out(source.video, container, options.lossless, scale)
        raise MediaError(f"{row.name}: it needs {row.device}, and none opens here; {way_out}") from error
    return choice


def _on_gpu(
    row: EncoderRow, container: str, source: SourceInfo, options: EncoderOptions, scale: Scale
) -> EncoderChoice | None:
    """Return NVIDIA's encoder of the codec of `row`, None if none opens for these pixels and options."""
    own = ENCODERS.get(f"{row.codec}_nvenc")
    if own is None or obstacle(own, source.video, container, options.lossless, scale):
        return None
    if options.preset not in (None, *own.presets):
        return None
    choice = _choice(own, container, source, options, scale, FEWEST_THREADS)
    try:
        try_encoder(choice, enlarged_video(source.video, scale), source.path)
    except MediaError:
        return None
    return choice


def is_one_picture(source: SourceInfo) -> bool:
    """Return True for a photo, or a folder of one."""
    return source.container == PICTURES and source.video.frames == 1


def _playable(source: SourceInfo, container: str, options: EncoderOptions, scale: Scale) -> SourceInfo:
    """Describe pictures (R, G, B or gray) as a video that players support: 4:2:0 or 4:4:4.

    They are unchanged if the encoder asked for keeps them, for lossless output, and with transparency.
    """
    video = source.video
    row = ENCODERS.get(str(options.encoder))
    kept = row is not None and obstacle(row, video, container, options.lossless, scale) is None
    if video.format.family == "yuv" or video.format.alpha or options.lossless or kept:
        return source
    height, width = enlarged_size(video.height, video.width, scale)
    stem = "yuv444p" if height % 2 or width % 2 else "yuv420p"
    pixels = layout_of(stem + "10le" * (video.format.depth > 8)).format
    return replace(source, video=replace(video, format=pixels, pix_fmt=pixels.name))


def _is_named(options: EncoderOptions) -> bool:
    return options.encoder not in (None, "auto")


def _named_row(video: VideoInfo, container: str, options: EncoderOptions, scale: Scale) -> EncoderRow:
    name = str(options.encoder)
    if name not in ENCODERS:
        codec = _CODECS.get(name.lower(), name.lower())
        meant = next((row.name for row in ENCODERS.values() if row.codec == codec), None)
        hint = f"; did you mean {meant}?" if meant else ""
        known = known_names(name, ENCODERS)
        raise OptionError(f"no encoder {name!r}{hint or ';'} this version has: {known}")
    reason = obstacle(ENCODERS[name], video, container, options.lossless, scale)
    if reason:
        raise MediaError(f"{name}: {reason}; {_way_out(video, container, options.lossless, scale)}")
    return ENCODERS[name]


def _default_row(video: VideoInfo, container: str, options: EncoderOptions, scale: Scale) -> EncoderRow:
    for row in _candidates(video, container, options.lossless):
        if obstacle(row, video, container, options.lossless, scale) is None:
            return row
    kind = "lossless encoder" if options.lossless else "encoder"
    where = f"{SUFFIXES[container]} has no {kind} for {_pixels(video, scale)}"
    raise MediaError(f"{where}; {_way_out(video, container, options.lossless, scale)}")


def _candidates(video: VideoInfo, container: str, lossless: bool) -> Iterator[EncoderRow]:
    if lossless:
        names = ("ffv1", *LOSSLESS_PREFERENCE) if container == "matroska" else LOSSLESS_PREFERENCE
    else:
        yield from (
            row
            for row in TABLE
            if row.codec == video.codec
            and row.device is None
            and (row.name != "ffv1" or container == "matroska")
        )
        names = PREFERENCE if video.format.depth == 8 else DEEP_PREFERENCE
    yield from (ENCODERS[name] for name in names)


def obstacle(
    row: EncoderRow, video: VideoInfo, container: str, lossless: bool, scale: Scale = 1
) -> str | None:
    """Return the reason why an encoder can't keep these pixels in this container, in words; None if it
    can.
    """
    height, width = enlarged_size(video.height, video.width, scale)
    if not row.is_built():
        return "the FFmpeg of this installation lacks it"
    if container not in row.containers:
        return f"{SUFFIXES[container]} can't hold {row.codec}"
    if video.format.name not in row.formats:
        return f"it can't keep the pixel format {video.format.name}"
    if lossless and row.lossless is None:
        return "it has no lossless mode"
    if width < row.smallest[0] or height < row.smallest[1]:
        return f"it needs at least {row.smallest[0]}x{row.smallest[1]} pixels, the video has {width}x{height}"
    if not row.odd_chroma and _cuts_chroma(video.format, width, height):
        return f"it can't hold the odd size {width}x{height} at {video.format.name}"
    return None


def varies(video: VideoInfo) -> bool:
    """Return True if the average frame rate differs from the base rate by more than rounding."""
    return bool(video.rate and video.base_rate and abs(video.rate / video.base_rate - 1) > 0.001)


def _cuts_chroma(pixels: PixelFormat, width: int, height: int) -> bool:
    return bool(width % (1 << pixels.chroma_width_shift) or height % (1 << pixels.chroma_height_shift))


def _pixels(video: VideoInfo, scale: Scale) -> str:
    height, width = enlarged_size(video.height, video.width, scale)
    return f"{video.format.name} at {width}x{height}"


def _way_out(video: VideoInfo, container: str, lossless: bool, scale: Scale) -> str:
    """Return the nearest choice that works: another encoder, else another container, else a conversion of the
    source.
    """
    for home in dict.fromkeys((container, "matroska", "mp4", "mov", "webm")):
        for row in _candidates(video, home, lossless):
            if obstacle(row, video, home, lossless, scale) is None:
                return (
                    f"`encoder={row.name}` can"
                    if home == container
                    else f"`output=NAME{SUFFIXES[home]}` works (with {row.name})"
                )
    return (
        f"no encoder here keeps {video.format.name}; convert the source first, for example to gbrp16le, "
        "yuv444p16le or gray16le in FFV1"
    )


def _choice(
    row: EncoderRow,
    container: str,
    source: SourceInfo,
    options: EncoderOptions,
    scale: Scale,
    threads: int,
) -> EncoderChoice:
    video = source.video
    settings = dict((row.lossless or {}) if options.lossless else row.lossy) | _quality(row, options, source)
    settings = merged(merged(settings, repeatable(row.name)), hdr_settings(row.name, video))
    if container in ISO and row.codec in ("h264", "hevc") and varies(video):
        # MP4 stores durations in decoding order, so variable ones are correct only without B-frames
        settings["bf"] = "0"
    if row.name == "ffv1":
        height, width = enlarged_size(video.height, video.width, scale)
        settings = _ffv1_settings(settings, row.formats[video.format.name], width, height)
    _check_own_settings(options)
    settings = merged(settings, {key: str(value) for key, value in options.options.items()})
    return EncoderChoice(
        row.name,
        row.formats[video.format.name],
        container,
        settings,
        row.tags.get(container),
        threads,
        options.lossless,
    )


def _ffv1_settings(settings: dict[str, str], pix_fmt: str, width: int, height: int) -> dict[str, str]:
    """Return settings with which FFV1 opens: not every size can be cut into four slices [measured: not 67x48
    at 4:2:0].

    Very narrow pictures get level 1, which has no slices and no checksums.
    """
    for tried in (settings, {key: value for key, value in settings.items() if key != "slices"}):
        if opens("ffv1", pix_fmt, width, height, tried):
            return tried
    return {"level": "1"}


def _quality(row: EncoderRow, options: EncoderOptions, source: SourceInfo) -> dict[str, str]:
    settings: dict[str, str] = {}
    if options.preset is not None:
        if row.preset is None:
            raise OptionError(f"`preset={options.preset}`: {row.name} has no presets; remove the option")
        if options.preset not in row.presets:
            numbers = [preset for preset in row.presets if preset.lstrip("-").isdecimal()]
            words = [preset for preset in row.presets if preset not in numbers]
            known = ", ".join([*words, f"{numbers[0]} to {numbers[-1]}"])
            raise OptionError(f"`preset={options.preset}`: {row.name} has no such preset; expected {known}")
        settings[row.preset] = options.preset
    if options.crf is not None and (options.lossless or not row.crf):
        why = "lossless output has no quality to set" if options.lossless else f"{row.name} has no crf"
        raise OptionError(f"`crf={options.crf:g}`: {why}; remove the option")
    if options.crf is not None and options.crf > row.crf:
        raise OptionError(
            f"`crf={options.crf:g}`: {row.name}'s scale ends at {row.crf}, where quality is lowest"
        )
    if row.crf and not options.lossless:
        settings[row.quality] = f"{usual_crf(source, row.crf) if options.crf is None else options.crf:g}"
    return settings


def usual_crf(source: SourceInfo, greatest: int = 51) -> float:
    """Return the default quality, on a scale that ends with `greatest`.

    It is 16 to 24 on x264's scale by the source's bits per pixel, 18 if they are unknown.
    """
    bits = bits_per_pixel(source)
    wanted = USUAL_CRF if bits is None else round(20 - 2 * log2(bits / USUAL_BITS))
    crf = min(max(wanted, LEAST_CRF), GREATEST_CRF)
    return round(crf * 1.4) if greatest > 51 else crf  # VP9 and AV1 look alike at such values


def _check_own_settings(options: EncoderOptions) -> None:
    """Raise OptionError for an encoder option that would change the restored pixels.

    That is another pixel format, or a loss in a lossless file.
    """
    if "pix_fmt" in options.options:
        raise OptionError("`options=pix_fmt`: the pixel format is the source's own; remove the option")
    for key, value in options.options.items() if options.lossless else ():
        inner = re.split(r"[:=]", value) if key.endswith("-params") else []
        if lossy := sorted(LOSSY & {key, *inner}):
            raise OptionError(
                f"`options={key}={value}`: {lossy[0]} sets a quality, and lossless output has none; "
                "remove the option"
            )


def _pipe_choice(video: VideoInfo, options: EncoderOptions) -> EncoderChoice:
    asked = {
        "`crf`": options.crf is not None,
        "`preset`": options.preset is not None,
        "`options`": bool(options.options),
    }
    if useless := [name for name, is_given in asked.items() if is_given]:
        raise OptionError(
            f"{', '.join(useless)}: a y4m pipe holds raw frames, there is nothing to encode; leave the "
            "option out"
        )
    if _is_named(options) and options.encoder != "rawvideo":
        raise MediaError(
            f"`encoder={options.encoder}`: a y4m pipe holds raw frames only; give a file name to "
            "`output`, or remove the option"
        )
    check_written(video.format.name)
    return EncoderChoice("rawvideo", video.format.name, "yuv4mpegpipe", {}, lossless=True)
