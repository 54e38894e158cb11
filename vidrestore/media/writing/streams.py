"""Check before work which audio, subtitle and other streams the output's container can hold.

Sound that is encoded anew has its rules in `sound`. For copies no table is needed: `check_streams` writes
the first packets of each stream into a discarded file of the container, which FFmpeg may refuse;
`check_packets` then copies all packets into one.
"""

from __future__ import annotations

import errno
import os
from contextlib import closing, suppress
from fractions import Fraction
from itertools import chain, islice
from pathlib import Path
from typing import Any

import av
from av.container import InputContainer
from av.packet import Packet
from av.stream import Discard, Stream

from vidrestore.errors import MediaError, PlanError
from vidrestore.media.containers.matroska import unreadable_tracks
from vidrestore.media.formats.cut import Cut
from vidrestore.media.formats.damage import check_memory
from vidrestore.media.formats.source import NUMBERED_PICTURES, SUFFIXES, Y4M, Target
from vidrestore.media.reading.probe import (
    SourceInfo,
    StreamInfo,
    decoder_of,
    open_input,
    packets_of,
    to_drop,
)
from vidrestore.media.writing.sound import SOUND_NAMES, encoder_of
from vidrestore.media.writing.stream_copier import (
    Clock,
    StreamCopier,
    add_stream,
    label,
)
from vidrestore.pixels.frames import WHOLE, Span
from vidrestore.settings.options import DROPPABLE

Samples = dict[int, list["Packet[Any]"]]
_TRIAL_PACKETS = 500  # of each stream, at most
EVERY_KIND = frozenset(DROPPABLE) - {"exif"}  # words for all streams but the video
# Streams that are left out where the container can't hold them, by FFmpeg's name or their tag in the file
_SPARE = {
    "dvd_nav_packet": "navigation of the DVD", "scte_35": "marks of advertisements",
    "epg": "a programme guide", "dsmcc": "files of the station", "unknown": "of no known kind",
    "smpte_2038": "ancillary data", "smpte_436m_anc": "ancillary data",
    "unknown (mp4s)": "object descriptors",
    "unknown (mett)": "timed metadata, which .mov can hold",
    "unknown (mebx)": "timed metadata, which .mov can hold", "unknown (fdsc)": "notes of a GoPro",
}  # fmt: skip


def check_streams(
    source: SourceInfo,
    output: Target,
    drop: frozenset[str] = frozenset(),
    *,
    strict: bool = False,
) -> tuple[int, ...]:
    """Return the indices of the streams to copy into `output`, after a trial of each in its container.

    `drop` holds what is not copied, by index or kind: audio, subtitles, data, attachments, cover, video
    (further video streams). Sound that the container can't hold is encoded again, and the data of `_SPARE`
    left out (`left_out_warning`), unless `strict`. Raises MediaError naming each stream that the container
    can't hold, and the way out.
    """
    # numbers of streams that aren't there are a mistake
    _check_numbers(source, drop)
    container = output.container

    # try each stream in the container
    if source.is_alone or container in (Y4M, NUMBERED_PICTURES):
        return ()
    with open_input(source.path) as opened:
        streams = [
            info
            for info in _others(source, drop)
            if not _is_regenerated(opened.streams[info.index])
        ]
        samples = _first_packets(opened)
        _check_encodings(source, streams)
        copies = [info for info in streams if _holds(container, opened, info, samples)]
        spare = [
            info for info in streams if info not in copies and _is_spare(info, copies)
        ]
        if refused := [info for info in streams if info not in copies + spare]:
            raise MediaError(
                _refusal_message(opened, source, output, refused, copies, samples)
            )

    # with `strict`, nothing may change
    if strict and (
        changed := spare + [info for info in copies if encoder_of(info, container)]
    ):
        names = "; ".join(label(info) for info in changed)
        numbers = ",".join(str(info.index) for info in changed)
        raise PlanError(
            f"{source.path}: {SUFFIXES[container]} can't hold {names}; leave out `strict`, or use "
            f"`drop={numbers}`"
        )
    return tuple(info.index for info in copies)


def _check_numbers(source: SourceInfo, drop: frozenset[str]) -> None:
    # of all streams but the restored one
    streams = _others(source)
    numbers = {word for word in drop if word.isdecimal()}
    unknown = sorted(numbers - {str(info.index) for info in streams})
    if unknown:
        names = ", ".join(label(info) for info in streams) or "no stream but the video"
        raise MediaError(
            f"{source.path}: `drop={','.join(unknown)}`: no other stream has that number; it has {names}"
        )


def _is_spare(info: StreamInfo, copies: list[StreamInfo]) -> bool:
    """Return True for data for machines, and for sound of an unknown codec beside other sound."""
    if info.kind == "audio":
        return decoder_of(info.codec) is None and any(
            copy.kind == "audio" for copy in copies
        )
    return info.kind == "data" and info.codec in _SPARE


def left_out_warning(
    source: SourceInfo, output: Target, copied: tuple[int, ...], drop: frozenset[str]
) -> str | None:
    """Return a warning that names the streams that the container can't hold; None without one."""
    if source.is_alone or output.container in (Y4M, NUMBERED_PICTURES):
        return None
    # those that are spare, and not there
    copies = [info for info in source.streams if info.index in copied]
    names = []
    for info in _others(source, drop):
        if info not in copies and _is_spare(info, copies):
            kind = f", {_SPARE[info.codec]}" if info.codec in _SPARE else ""
            names.append(f"{label(info)[:-1]}{kind})")
    return (
        f"{SUFFIXES[output.container]} can't hold {'; '.join(names)}: left out"
        if names
        else None
    )


def encoded_sound(
    source: SourceInfo, output: Target, copied: tuple[int, ...]
) -> dict[int, str]:
    """Return the sound that is encoded again, in words, by the index of its stream."""
    sentences = {}
    for info in source.streams:
        if info.index in copied and (encoder := encoder_of(info, output.container)):
            sentences[info.index] = (
                f"stream {info.index}, {info.codec}: encoded again as {SOUND_NAMES[encoder]}, which "
                f"{output.suffix} can hold"
            )
    return sentences


def _check_encodings(source: SourceInfo, streams: list[StreamInfo]) -> None:
    """Raise MediaError for a stream whose packets FFmpeg can't decrypt or decompress."""
    # such packets would be copied as they are, unreadable
    encodings = unreadable_tracks(source.path)
    for info in streams:
        if info.index in encodings:
            drop = to_drop([info], _others(source))
            raise MediaError(
                f"{source.path}: {label(info)} is {encodings[info.index]}, which FFmpeg can't undo; "
                f"write the file without it, with mkvmerge for example, or use `drop={drop}`"
            )


def pipe_warning(source: SourceInfo) -> str | None:
    """Return a sentence on what a y4m pipe loses beside colour tags; None if nothing."""
    # what has no place in a pipe
    kinds, video = other_kinds(source), source.video
    if video.rotation:
        kinds.append(
            f"the rotation by {video.rotation} degrees, so turn it behind the pipe"
        )
    if video.mastering_display or video.content_light:
        kinds.append("HDR's mastering display and light level")
    return (
        f"a y4m pipe holds the picture only; left out: {', '.join(kinds)}"
        if kinds
        else None
    )


def other_kinds(source: SourceInfo, drop: frozenset[str] = frozenset()) -> list[str]:
    """Return the kinds of the other streams without those to drop, sorted: "audio", "chapters" and so on."""
    kinds = {info.word for info in _others(source, drop)}
    return sorted(kinds | {"chapters"} if source.chapters else kinds)


def _others(source: SourceInfo, drop: frozenset[str] = frozenset()) -> list[StreamInfo]:
    streams = [info for info in source.streams if info.index != source.video.index]
    return [info for info in streams if not drop & {info.word, str(info.index)}]


def _is_regenerated(stream: Stream) -> bool:
    """Return True for chapters and time code of QuickTime, which are copied in another way."""
    return stream.type == "data" and (
        stream.discard == Discard.all or "timecode" in stream.metadata
    )


def _holds(
    container: str, opened: InputContainer, info: StreamInfo, samples: Samples
) -> bool:
    """Return True if FFmpeg writes a small file of this container with the stream."""
    # what FFmpeg would drop without an error
    if info.attached_picture and container in ("matroska", "mov"):
        # as an attachment; MOV has no place for cover art
        return container == "matroska"
    if info.kind == "attachment" and container == "webm":
        return False  # FFmpeg drops them silently
    try:
        _write_trial(opened.streams[info.index], container, samples.get(info.index, []))
    except (av.error.FFmpegError, ValueError) as error:
        number = getattr(error, "errno", None)
        if number == errno.EAGAIN:  # no room for threads
            raise MemoryError(str(error)) from error
        if number == errno.ENOMEM:
            check_memory()
        return False
    return True


def _write_trial(template: Stream, container: str, packets: list[Packet[Any]]) -> None:
    """Write a file of a gray picture and the packets to its end, where MP4 finds some faults."""
    with av.open(os.devnull, "w", format=container) as trial:
        codec: Any = "libvpx-vp9" if container == "webm" else "mpeg4"
        video: Any = trial.add_stream(codec, rate=25, width=64, height=48)
        stream, sound = add_stream(trial, template)
        picture = av.VideoFrame(64, 48, "yuv420p")
        picture.pts = 0
        trial.mux([*video.encode(picture), *video.encode(None)])
        clock = Clock(stream, trial)
        for packet in (
            chain(*map(sound.packets, packets), sound.rest()) if sound else packets
        ):
            packet.stream = stream
            clock.repair(packet)
            trial.mux_one(packet)


def check_packets(
    source: SourceInfo, output: Target, copy: tuple[int, ...], span: Span = WHOLE
) -> tuple[str, ...]:
    """Copy all packets of these streams into a discarded file, and return warnings of repaired times.

    Sound to encode again is only decoded. Raises MediaError naming the stream, the time and the way out.
    """
    if not copy:
        return ()
    cut = Cut(span, source.video.time_base) if span != WHOLE else None
    with closing(StreamCopier(source.path, cut)) as copier:
        try:
            with av.open(os.devnull, "w", format=output.container) as trial:
                for index in copy:
                    copier.add(trial, index)
                for sound in copier.encoded.values():
                    sound.only_decodes = True
                trial.start_encoding()
                copier.start()
                for packet in copier.up_to(None, -((cut and cut.start) or Fraction(0))):
                    trial.mux_one(packet)
        except (av.error.FFmpegError, ValueError) as error:
            if getattr(error, "errno", None) in (errno.EAGAIN, errno.ENOMEM):
                raise MemoryError(str(error)) from error
            raise copier.refusal(
                f"{SUFFIXES[output.container]} can't hold it ({error})"
            ) from error
        return tuple(copier.repairs())


def _first_packets(opened: InputContainer) -> Samples:
    """Return up to three packets of each stream; damage is reported by later readers."""
    samples: Samples = {}
    with suppress(av.error.FFmpegError):
        for packet in islice(packets_of(opened), _TRIAL_PACKETS):
            first = samples.setdefault(packet.stream_index, [])
            if packet.size and packet.dts is not None and len(first) < 3:
                first.append(packet)
    return samples


def _refusal_message(
    opened: InputContainer,
    source: SourceInfo,
    output: Target,
    refused: list[StreamInfo],
    copies: list[StreamInfo],
    samples: Samples,
) -> str:
    """Return the sentence on streams that the output can't hold, with the container that can."""
    attachments = [
        getattr(opened.streams[info.index], "name", None) for info in refused
    ]
    names = "; ".join(map(label, refused, attachments))
    way_out = f"use `drop={to_drop(refused, _others(source))}`"
    for container in ("matroska", "mp4", "mov"):
        if all(_holds(container, opened, info, samples) for info in refused + copies):
            other = output.path.with_suffix(SUFFIXES[container])
            if other == Path(source.path):
                other = other.with_stem(f"{other.stem}.restored")
            way_out = f"use `output={other}` or {way_out[4:]}"
            break
    return f"{source.path}: {SUFFIXES[output.container]} can't hold {names}; {way_out}"
