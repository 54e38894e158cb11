"""Choose an encoder from the table, and why, and test it before any work by encoding a few frames.

x264 gives different bits from run to run unless its assembly is limited to AVX2 and its number of threads is
fixed [measured], so that number is part of the choice, which a job keeps.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from math import log2

from vidrestore.errors import MediaError, OptionError
from vidrestore.media.formats.encoder_table import (
    DEEP_PREFERENCE,
    ENCODERS,
    FINE_CRF,
    ISO,
    LOSSLESS_PREFERENCE,
    LOSSY,
    PREFERENCE,
    TABLE,
    EncoderChoice,
    EncoderRow,
    encoder_threads,
    merged,
    repeatable,
)
from vidrestore.media.formats.encoding import opens, try_encoder
from vidrestore.media.formats.pixel_formats import enlarged_video, layout_of
from vidrestore.media.formats.source import (
    KINDS,
    MUXERS,
    NUMBERED_PICTURES,
    SUFFIXES,
    Y4M,
    Source,
    Target,
)
from vidrestore.media.reading.coding_loss import bits_per_pixel
from vidrestore.media.reading.probe import SourceInfo
from vidrestore.media.writing.hdr import hdr_settings
from vidrestore.media.writing.picture_writer import choose_picture_encoder
from vidrestore.media.writing.stream_copier import label
from vidrestore.media.writing.streams import encoded_sound
from vidrestore.media.writing.y4m_output import check_written
from vidrestore.pixels.frames import Scale, VideoInfo
from vidrestore.settings.checking import known_names
from vidrestore.settings.options import EncoderOptions

# Default quality, by the source's bits per pixel, so that the output is about as large. Measured on seven
# videos of 0.36 to 1.3 bits: x264 at crf 16 takes 0.2 to 0.8, and half of that at a crf 4.5 higher.
LEAST_CRF, USUAL_CRF, GREATEST_CRF = 16.0, 18.0, 24.0
USUAL_BITS = 0.1  # per pixel of H.264, at crf 20
# other names of codecs
_CODECS = {"h265": "hevc", "x265": "hevc", "avc": "h264", "x264": "h264"}
# ends of their encoders' names
_GPU_MAKERS = frozenset(
    {"nvenc", "qsv", "amf", "vaapi", "vulkan", "videotoolbox", "mf"}
)
_HEIRS = {"vp8": "vp9"}  # codecs that aren't encoded here -> the next one of their kind


def choose_encoder(
    source: SourceInfo,
    output: Target,
    options: EncoderOptions,
    *,
    scale: Scale = 1,
    cores: int = 1,
) -> EncoderChoice:
    """Return the encoder for `output`, after a trial: the one asked for, else one of the source's codec, else
    the container's default.

    `scale` is the output's size over the source's. The number of threads follows from the `cores`. Raises
    MediaError, with a way that works, if the table has no encoder for these pixels in this container, or if
    the encoder doesn't open; OptionError for a name or preset that isn't known.
    """
    # pipes and pictures have encoders of their own
    container, video = output.container, enlarged_video(source.video, scale)
    if container == Y4M:
        return _pipe_choice(video, options)
    if container == NUMBERED_PICTURES:
        return choose_picture_encoder(source, video, output, options)
    if source.container == NUMBERED_PICTURES:
        video = _playable(video, container, options)
    threads = options.threads or encoder_threads(cores, video.height)
    request = _Request(source, video, container, options, threads)
    choice = request.choice(request.row())
    try_encoder(choice, video, output.name)
    return choice


def _playable(video: VideoInfo, container: str, options: EncoderOptions) -> VideoInfo:
    """Describe pictures (R, G, B or gray) as a video in 4:2:0, or 4:4:4 if a side is odd, as players need.

    YUV, transparent and lossless pictures stay as they are, and those whose format `options.encoder` stores.
    """
    # what the user asks for explicitly may keep the pixels as they are
    row = ENCODERS.get(str(options.encoder))
    keeps_format = (
        row is not None and obstacle(row, video, container, options.lossless) is None
    )
    if (
        video.format.family == "yuv"
        or video.format.alpha
        or options.lossless
        or keeps_format
    ):
        return video
    subsampled = "yuv444p" if video.height % 2 or video.width % 2 else "yuv420p"
    depth = "10le" if video.format.depth > 8 else ""
    pixels = layout_of(subsampled + depth).format
    return replace(video, format=pixels, pix_fmt=pixels.name)


@dataclass(frozen=True)
class _Request:
    """A request for an encoder of `video`, which is larger than that of `source` after `sr`."""

    source: SourceInfo
    video: VideoInfo
    container: str
    options: EncoderOptions
    threads: int

    @property
    def is_named(self) -> bool:
        return self.options.encoder not in (None, "auto")

    def fits(self, row: EncoderRow, container: str | None = None) -> bool:
        """Return True if an encoder can store the video in its container, or in another one."""
        return (
            obstacle(
                row, self.video, container or self.container, self.options.lossless
            )
            is None
        )

    def row(self) -> EncoderRow:
        """Return the encoder that is asked for, else the first of the candidates that fits."""
        # the first that fits, the one that was named, or an error with a suggestion
        name, video = str(self.options.encoder), self.video
        if not self.is_named:
            row = next(filter(self.fits, self.candidates(self.container)), None)
            kind = "lossless encoder" if self.options.lossless else "encoder"
            pixels = f"{video.format.name} at {video.width}x{video.height}"
            reason = f"{SUFFIXES[self.container]} has no {kind} for {pixels}"
        elif name in ENCODERS:
            why_not = obstacle(
                ENCODERS[name], video, self.container, self.options.lossless
            )
            row = None if why_not else ENCODERS[name]
            reason = f"{name}: {why_not}"
        else:
            codec, _, maker = name.lower().partition("_")
            codec = _CODECS.get(codec, codec)
            suggestion = next(
                (row.name for row in ENCODERS.values() if row.codec == codec), None
            )
            hint = ": encoders of GPUs are not used" if maker in _GPU_MAKERS else ""
            hint += f"; did you mean {suggestion}?" if suggestion else ";"
            raise OptionError(
                f"no encoder {name!r}{hint} this version has: {known_names(name, ENCODERS)}"
            )
        if row is None:
            raise MediaError(f"{self.source.path}: {reason}; {self.way_out()}")
        return row

    def candidates(self, container: str) -> Iterator[EncoderRow]:
        """Yield the encoders of a container, the best first: those of the source's codec before others."""
        if self.options.lossless:
            names = (
                ("ffv1", *LOSSLESS_PREFERENCE)
                if container == "matroska"
                else LOSSLESS_PREFERENCE
            )
        else:
            codec = _HEIRS.get(self.video.codec, self.video.codec)
            rows = (row for row in TABLE if row.codec == codec)
            yield from (
                row for row in rows if row.name != "ffv1" or container == "matroska"
            )
            names = PREFERENCE if self.video.format.depth == 8 else DEEP_PREFERENCE
        yield from (ENCODERS[name] for name in names)

    def way_out(self) -> str:
        """Return the nearest choice that works: another encoder, another container, or a conversion."""
        # the same container first, then those that hold most
        for home in dict.fromkeys((self.container, "matroska", "mp4", "mov", "webm")):
            for row in self.candidates(home):
                if self.fits(row, home):
                    is_here = home == self.container
                    advice = f"`output=NAME{SUFFIXES[home]}` works (with {row.name})"
                    return f"`encoder={row.name}` can" if is_here else advice
        return (
            f"no encoder here keeps {self.video.format.name}; convert the source first, for example to "
            "gbrp16le, yuv444p16le or gray16le in FFV1"
        )

    def choice(self, row: EncoderRow) -> EncoderChoice:
        """Return an encoder with all of its settings, those of the user last."""
        # settings in layers: the quality, what makes runs alike, HDR, and the user's own
        video, options = self.video, self.options
        pix_fmt = row.formats[video.format.name]
        basis = row.lossless if options.lossless else row.lossy
        settings = dict(basis or {}) | _quality(row, options, self.source)
        settings = merged(settings, repeatable(row))
        settings = merged(settings, hdr_settings(row, video))
        varies = (
            video.rate
            and video.base_rate
            and abs(video.rate / video.base_rate - 1) > 0.001
        )
        if self.container in ISO and row.codec in ("h264", "hevc") and varies:
            # MP4 stores durations in decoding order, so variable ones are correct only without B-frames
            settings["bf"] = "0"
        if row.name == "ffv1":
            settings = _ffv1_settings(settings, pix_fmt, video.width, video.height)
        _check_own_settings(options)
        settings = merged(
            settings, {key: str(value) for key, value in options.options.items()}
        )
        tag = row.tags.get(self.container)
        return EncoderChoice(
            row.name,
            pix_fmt,
            self.container,
            settings,
            tag,
            self.threads,
            options.lossless,
            self.why(row),
        )

    def why(self, row: EncoderRow) -> str:
        """Return in words why an encoder was chosen."""
        # the reason that is nearest to the user's own choice
        codec = self.source.video.codec
        where = SUFFIXES[self.container]
        if self.is_named:
            return "as asked"
        if row.codec == codec:
            return "the source's codec"
        if self.options.lossless:
            codec = "ffv1"
        usual = next((row for row in TABLE if row.codec == codec), None)
        if usual is None:
            return f"{codec} isn't encoded here"
        why_not = obstacle(usual, self.video, self.container, self.options.lossless)
        return why_not or (
            "without loss"
            if self.options.lossless
            else f"{codec} isn't usual in {where}"
        )


def obstacle(
    row: EncoderRow, video: VideoInfo, container: str, lossless: bool
) -> str | None:
    """Return the reason why an encoder can't store these pixels in this container; None if it can."""
    # from the most general obstacle to the most special one
    size = f"{video.width}x{video.height}"
    if container not in row.containers:
        return f"{SUFFIXES[container]} can't hold {row.codec}"
    if video.format.name not in row.formats:
        return f"it can't keep the pixel format {video.format.name}"
    if lossless and row.lossless is None:
        return "it has no lossless mode"
    if video.width < row.smallest[0] or video.height < row.smallest[1]:
        return f"it needs at least {row.smallest[0]}x{row.smallest[1]} pixels, the video has {size}"
    columns, rows = (
        1 << video.format.chroma_width_shift,
        1 << video.format.chroma_height_shift,
    )
    if not row.odd_chroma and (video.width % columns or video.height % rows):
        return f"it can't hold the odd size {size} at {video.format.name}"
    return None


def holds_format(container: str, pix_fmt: str, width: int, height: int) -> bool:
    """Return True if there is an encoder for such pictures in a container."""
    try:
        pixels = layout_of(pix_fmt).format
    except MediaError:
        return True  # the reader refuses it
    video = VideoInfo(0, "", width, height, pixels, Fraction(1))
    return any(obstacle(row, video, container, False) is None for row in TABLE)


def _ffv1_settings(
    settings: dict[str, str], pix_fmt: str, width: int, height: int
) -> dict[str, str]:
    """Return settings with which FFV1 is right: where samples of chroma don't fill the picture, four slices
    fail, or lose a column of 4:1:0 and 4:1:1 [measured: 67x48, 190x240]. Very narrow pictures get level 1,
    which has no slices and no checksums.
    """
    # slices need whole samples of chroma
    pixels = layout_of(pix_fmt).format
    if width % (1 << pixels.chroma_width_shift) or height % (
        1 << pixels.chroma_height_shift
    ):
        settings = settings | {"slices": "1"}
    return (
        settings if opens("ffv1", pix_fmt, width, height, settings) else {"level": "1"}
    )


def _quality(
    row: EncoderRow, options: EncoderOptions, source: SourceInfo
) -> dict[str, str]:
    """Return an encoder's settings of quality and speed. Raises OptionError for options that it lacks."""
    settings: dict[str, str] = {}
    # each option of the user must mean something to this encoder
    if options.preset is not None:
        if row.preset is None:
            raise OptionError(
                f"`preset={options.preset}`: {row.name} has no presets; remove the option"
            )
        if options.preset not in row.presets:
            numbers = [
                preset for preset in row.presets if preset.lstrip("-").isdecimal()
            ]
            words = [preset for preset in row.presets if preset not in numbers]
            presets = ", ".join([*words, f"{numbers[0]} to {numbers[-1]}"])
            raise OptionError(
                f"`preset={options.preset}`: {row.name} has no such preset; expected {presets}, the "
                "encoder's speeds; recipes for kinds of videos are in examples/README.md"
            )
        settings[row.preset] = options.preset
    if options.crf is not None and (options.lossless or not row.crf):
        why = (
            "lossless output has no quality to set"
            if options.lossless
            else f"{row.name} has no crf"
        )
        raise OptionError(f"`crf={options.crf:g}`: {why}; remove the option")
    if options.crf is not None and options.crf > row.crf:
        raise OptionError(
            f"`crf={options.crf:g}`: {row.name}'s scale ends at {row.crf}, where quality is lowest"
        )
    # else the quality follows from the source
    if row.crf and not options.lossless:
        crf = usual_crf(source, row.crf) if options.crf is None else options.crf
        settings = {
            **(row.fine if crf <= FINE_CRF else {}),
            **settings,
            row.quality: f"{crf:g}",
        }
    return settings


def usual_crf(source: SourceInfo, greatest: int = 51) -> float:
    """Return the default crf on a scale that ends with `greatest`. On x264's it is 16 to 24, the lower the
    more bits per pixel the source has, and 18 if they are unknown.
    """
    # about as many bits as the source has
    bits = bits_per_pixel(source)
    estimate = USUAL_CRF if bits is None else round(20 - 2 * log2(bits / USUAL_BITS))
    crf = min(max(estimate, LEAST_CRF), GREATEST_CRF)
    # the same quality on VP9's and AV1's
    return round(crf * 1.4) if greatest > 51 else crf


def _check_own_settings(options: EncoderOptions) -> None:
    """Raise OptionError for an encoder option that sets a pixel format, or a loss in a lossless file."""
    if "pix_fmt" in options.options:
        raise OptionError(
            "`options=pix_fmt`: the pixel format is the source's own; remove the option"
        )
    # a setting may hide in the encoder's own list of them
    for key, value in options.options.items() if options.lossless else ():
        inner = re.split(r"[:=]", value) if key.endswith("-params") else []
        if lossy := sorted(LOSSY & {key, *inner}):
            reason = f"{lossy[0]} sets a quality, and lossless output has none; remove the option"
            raise OptionError(f"`options={key}={value}`: {reason}")


def _pipe_choice(video: VideoInfo, options: EncoderOptions) -> EncoderChoice:
    # options of encoders mean nothing where nothing is encoded
    values = {
        "crf": options.crf,
        "preset": options.preset,
        "options": options.options or None,
    }
    if useless := [f"`{name}`" for name, value in values.items() if value is not None]:
        raise OptionError(
            f"{', '.join(useless)}: a y4m pipe holds raw frames, there is nothing to encode; leave it out"
        )
    if options.encoder not in (None, "auto", "rawvideo"):
        raise MediaError(
            f"`encoder={options.encoder}`: a y4m pipe holds raw frames only; give a file name to `output`, "
            "or remove the option"
        )
    check_written(video.format.name)
    return EncoderChoice("rawvideo", video.format.name, Y4M, {}, lossless=True)


def decisions(
    source: SourceInfo,
    output: Target,
    choice: EncoderChoice,
    copied: tuple[int, ...],
    scan: str | None,
) -> dict[str, str]:
    """Return in words what was chosen for `output` and why, each by its name."""
    # the video
    choices = {"encoder": choice.encoder}
    if choice.container not in (Y4M, NUMBERED_PICTURES):
        row = ENCODERS[choice.encoder]
        quality = choice.options.get(row.quality) if row.crf else None
        words = f" {row.quality} {quality}" if quality else ""
        if choice.lossless:
            words = " lossless"
        choices["encoder"] = f"{choice.encoder}{words} ({choice.why})"
        choices["container"] = f"{output.suffix} ({_why_container(source, output)})"

    # the other streams
    notes = encoded_sound(source, output, copied)
    audio = [
        stream
        for stream in source.streams
        if stream.kind == "audio" and stream.index in copied
    ]
    sounds = [stream.codec for stream in audio if stream.index not in notes]
    if sounds or notes:
        copies = [f"{' and '.join(sounds)} copied"] if sounds else []
        choices["sound"] = "; ".join([*copies, *notes.values()])
    if scan:
        choices["scan"] = scan
    videos = [
        info for info in source.streams if info.role == "video" and info.index in copied
    ]
    if names := "; ".join(map(label, videos)):
        choices["video"] = (
            f"stream {source.video.index} restored, {names} copied as it is"
        )

    # what is done with its pictures first
    if source.video.field_pictures:
        choices["woven"] = "frames woven of two pictures each, which have one field"
    if any(source.video.crop):
        size = f"{source.video.width}x{source.video.height}"
        choices["cropped"] = f"cropped to {size} as the file asks"
    return choices


def _why_container(source: SourceInfo, output: Target) -> str:
    """Return why the output has its container, in a few words."""
    suffix = Source(source.path).path.suffix.lower()
    video = source.video
    if suffix == output.suffix:
        return "the source's"
    if suffix in MUXERS and not holds_format(
        MUXERS[suffix], video.pix_fmt, video.width, video.height
    ):
        return f"{suffix} has no encoder for {video.format.name}"
    # pictures, and standard input, which is stored without a suffix or as .partial, have none to keep
    is_unwritten = suffix not in {"", ".partial", *MUXERS, *KINDS}
    if is_unwritten and output.suffix == ".mkv":
        return f"{suffix} isn't written"
    return "as named"
