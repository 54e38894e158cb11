"""What a job decides by itself, in words: encoder, container, sound, fields, the network of `sr`."""

from __future__ import annotations

from contextlib import closing
from itertools import islice

from vidrestore.frames import Scale
from vidrestore.jobs.encoder_choice import obstacle
from vidrestore.jobs.naming import ANY_CONTAINER, VIDEO_SUFFIXES
from vidrestore.jobs.steps import Step
from vidrestore.media.coding_loss import TELLING, bits_per_pixel
from vidrestore.media.encoder_table import ENCODERS, TABLE, EncoderChoice
from vidrestore.media.probe import SourceInfo, is_lossless
from vidrestore.media.reader import VideoReader
from vidrestore.media.source import MUXERS, PICTURES, PIPE, SUFFIXES, Y4M, Source, Target
from vidrestore.options import EncoderOptions, Input
from vidrestore.pipeline.plan import NOISE_STEP, Timeline, planned_clips

# Sigma of what the coder took from which a video is enlarged as a compressed one: x264's at crf 19. On four
# clips of 160x90 behind x264 the network for clean video is better above 0.4 to 0.7 bits a pixel.
CODED = 1.5


def decisions(
    source: SourceInfo,
    output: Target,
    choice: EncoderChoice,
    options: EncoderOptions,
    copied: tuple[int, ...],
    deinterlacing: str | None,
    scale: Scale = 1,
) -> dict[str, str]:
    """Return what was chosen for `output` and why, each by its name."""
    found = {"encoder": f"{encoder_settings(choice)} ({_why_encoder(source, choice, options, scale)})"}
    if choice.container in (Y4M, PICTURES):
        found = {"encoder": choice.encoder}
    else:
        found["container"] = f"{output.suffix} ({_why_container(source, output)})"
    sounds = [each.codec for each in source.streams if each.kind == "audio" and each.index in copied]
    if sounds:
        found["sound"] = f"{' and '.join(sounds)} copied"
    if deinterlacing:
        found["deinterlaced"] = f"deinterlaced (the video {deinterlacing})"
    return found


def encoder_settings(choice: EncoderChoice) -> str:
    """Return the encoder with its quality: "libx264 crf 18", "ffv1 lossless"."""
    row = ENCODERS.get(choice.encoder)
    quality = choice.options.get(row.quality) if row and row.crf and not choice.lossless else None
    return f"{choice.encoder}{' lossless' * choice.lossless}" + (
        f" {row.quality} {quality}" if row and quality else ""
    )


def _why_encoder(source: SourceInfo, choice: EncoderChoice, options: EncoderOptions, scale: Scale) -> str:
    row, video, codec = ENCODERS.get(choice.encoder), source.video, source.video.codec
    if row is None or options.encoder not in (None, "auto"):
        return "as asked"
    if row.device is not None:
        return f"{row.device} is there"
    if row.codec == codec:
        return "the source's codec"
    if choice.lossless:
        reason = obstacle(ENCODERS["ffv1"], video, choice.container, lossless=True, scale=scale)
        return reason or "without loss"
    own = [each for each in TABLE if each.codec == codec and each.device is None]
    if not own:
        return f"{codec} isn't encoded here"
    reason = obstacle(own[0], video, choice.container, lossless=False, scale=scale)
    return reason or f"{codec} isn't usual in {SUFFIXES[choice.container]}"


def _why_container(source: SourceInfo, output: Target) -> str:
    name = Source(source.path).path.suffix.lower()
    if name == output.suffix:
        return "the source's"
    is_other = name in VIDEO_SUFFIXES and name not in MUXERS
    return f"{name} isn't written" if is_other and output.suffix == ANY_CONTAINER else "as named"


def sound_warning(source: SourceInfo, output: Target, copied: tuple[int, ...]) -> str | None:
    """Return a warning of uncompressed sound in MP4; None without it, or if the source has it there, too."""
    own = Source(source.path).path.suffix.lower()
    codecs = {each.codec for each in source.streams if each.index in copied and each.codec.startswith("pcm")}
    if not codecs or output.container != "mp4" or MUXERS.get(own) == "mp4":
        return None
    return (
        f"{' and '.join(sorted(codecs))} in {SUFFIXES['mp4']}: many players don't play such sound there; "
        f"`output={output.path.with_suffix('.mov').name}` or .mkv is safer"
    )


def measured_input(step: Step, reader: VideoReader) -> tuple[Input, str] | None:
    """Return what kind of input a source is for a step, "clean" or "compressed", and why, in words; None if
    its network doesn't depend on that.

    Many bits may be those of noise, which the network for clean video would keep: it is measured, too.
    """
    if not step.measures_input:
        return None
    pixels, timeline = reader.info.video.format, Timeline(NOISE_STEP, 0)
    with closing(reader.frames()) as decoded:
        seen = islice(decoded, NOISE_STEP)
        clips = [clip for clip, _ in planned_clips(seen, timeline, pixels, None, detect=False)]
    kind, why = kind_by_coding(reader.info, max((clip.loss[0] for clip in clips), default=0.0))
    noisy = kind == "clean" and any(clip.rms[0] for clip in clips)
    return ("compressed", "it has noise") if noisy else (kind, why)


def kind_by_coding(source: SourceInfo, loss: float) -> tuple[Input, str]:
    """Return the kind by what the coder took from luma, and why, in words."""
    codec = source.video.codec
    if source.path == PIPE:
        return "compressed", "a pipe doesn't tell"
    if codec == "gif":
        return "compressed", "gif has few colours"
    if is_lossless(codec):
        return "clean", f"{codec} has no losses"
    if not loss and codec not in TELLING and bits_per_pixel(source) is None:
        return "compressed", codec
    return "compressed" if loss >= CODED else "clean", f"coding loss {loss:.1f}"
