"""Copy everything of a source except the restored video: audio, subtitles, data, attachments, cover art,
chapters, metadata. Nothing of it is decoded, but for sound that the container can't hold.

There is no table of what a container can hold, for subtitles or any other stream: before any work,
`check_streams` writes the first packets of each stream into a file of that container in memory, and a refusal
by FFmpeg decides; `check_packets` then copies all packets, as they will be copied, into a file that isn't
kept.
"""

from __future__ import annotations

import errno
import io
from collections.abc import Iterator
from contextlib import closing, suppress
from fractions import Fraction
from itertools import chain, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vidrestore.errors import MediaError, PlanError
from vidrestore.media.damage import check_memory
from vidrestore.media.encoder_table import ISO
from vidrestore.media.log import ErrorCollector, log_level
from vidrestore.media.probe import describe_stream, open_input, packets_of, video_stream
from vidrestore.media.sound import NAMES, EncodedSound, encoder_of, is_decoded
from vidrestore.media.source import MUXERS, PICTURES, SUFFIXES, Y4M, Target
from vidrestore.media.span import APART, WHOLE, Cut, Span, seconds
from vidrestore.media.structure import unreadable_tracks

if TYPE_CHECKING:
    from av.container import InputContainer, OutputContainer
    from av.packet import Packet
    from av.stream import Stream

    from vidrestore.media.probe import SourceInfo, StreamInfo

Samples = dict[int, list["Packet[Any]"]]
_SAMPLED_PACKETS = 500
_LONGEST_ROW = 12  # packets of sound, one after the other, whose times are repaired: a quarter of a second
_FARTHEST = 1  # seconds that a packet of another kind is moved, whose time can't be known from its neighbours
DROP_WORDS = {
    "audio": "audio", "subtitle": "subtitles", "data": "data", "attachment": "attachments", "video": "video",
    "cover": "cover",
}  # fmt: skip
# Streams that are left out where the container can't hold them, by FFmpeg's name or their tag in the file
_SPARE = {
    "dvd_nav_packet": "navigation of the DVD", "scte_35": "marks of advertisements",
    "smpte_2038": "ancillary data", "smpte_436m_anc": "ancillary data",
    "unknown (mp4s)": "object descriptors",
    "unknown (mett)": "timed metadata, which .mov can hold",
    "unknown (mebx)": "timed metadata, which .mov can hold", "unknown (fdsc)": "notes of a GoPro",
}  # fmt: skip
# Metadata that a muxer writes itself, and metadata that doesn't apply to the new file.
_OWN_KEYS = frozenset({"major_brand", "minor_version", "compatible_brands", "encoder", "vidrestore"})
_STALE_KEYS = ("encoder", "bps", "number_of_", "_statistics_")
# Keys with a fixed place in MP4; others need the newer list of keys, which excludes cover art.
_MP4_KEYS = frozenset({
    "title", "artist", "album_artist", "composer", "album", "date", "comment", "genre", "copyright",
    "grouping", "lyrics", "track", "synopsis", "show", "episode_id", "network", "keywords", "description",
    "disc", "compilation", "hd_video", "gapless_playback", "media_type", "season_number", "episode_sort",
    "creation_time", "timecode", "location",
})  # fmt: skip

# Codes of QuickTime's own list of languages, for the codes that other containers use.
_QUICKTIME_LANGUAGES = {
    "deu": "ger", "nld": "dut", "fre": "fra", "swe": "sve", "ell": "gre", "isl": "ice", "zho": "chi",
    "sqi": "alb", "mkd": "mac", "hye": "arm", "kat": "geo", "bod": "tib", "msa": "may", "mya": "bur",
    "cym": "wel", "eus": "baq", "rum": "ron", "cze": "ces", "slo": "slk", "fas": "per", "hrv": "hr ",
    "srp": "sr ", "pan": "pa ", "fao": "fo ",
}  # fmt: skip


def check_streams(
    source: SourceInfo, output: Target, drop: frozenset[str] = frozenset(), *, strict: bool = False
) -> tuple[int, ...]:
    """Return the indices of the streams to copy into `output`, after a trial of each in its container.

    `drop` holds what is not copied, by index or kind: audio, subtitles, data, attachments, cover, video
    (further video streams). Sound that the container can't hold is encoded again, and the data of `_SPARE`
    left out (`left_out_warning`), unless `strict`. Raises MediaError naming each stream that the container
    can't hold, and the way out.
    """
    _check_numbers(source, drop)
    container = output.container
    if source.is_alone or container in (Y4M, PICTURES):
        return ()
    with open_input(source.path) as opened:
        wanted = [info for info in _others(source, drop) if not _is_regenerated(opened.streams[info.index])]
        samples = _first_packets(opened)
        _check_encodings(source, wanted)
        refused = [info for info in wanted if _refusal(opened, info, container, samples) is not None]
        held = [info for info in wanted if info not in refused]
        spare = [info for info in refused if _is_spare(info, held)]
        if len(spare) < len(refused):
            refused = [info for info in refused if info not in spare]
            raise MediaError(_refusal_message(opened, source.path, output, refused, samples))
    if strict and (changed := spare + [info for info in held if encoder_of(info, container)]):
        names = "; ".join(_named(info, None) for info in changed)
        numbers = ",".join(str(info.index) for info in changed)
        raise PlanError(
            f"{source.path}: {SUFFIXES[container]} can't hold {names}; leave out `strict`, or use "
            f"`drop={numbers}`"
        )
    return tuple(info.index for info in held)


def _check_numbers(source: SourceInfo, drop: frozenset[str]) -> None:
    others = list(_others(source))
    unknown = sorted({word for word in drop if word.isdecimal()} - {str(info.index) for info in others})
    if unknown:
        names = ", ".join(_named(info, None) for info in others) or "no stream but the video"
        raise MediaError(
            f"{source.path}: `drop={','.join(unknown)}`: no other stream has that number; it has {names}"
        )


def _is_spare(info: StreamInfo, held: list[StreamInfo]) -> bool:
    """Return True for a stream that may be left out with a warning: data for machines, and sound of an
    unknown codec beside sound that is held, as of iPhones.
    """
    if info.kind == "audio":
        return not is_decoded(info.codec) and any(each.kind == "audio" for each in held)
    return info.codec in _SPARE


def left_out_warning(
    source: SourceInfo, output: Target, copied: tuple[int, ...], drop: frozenset[str]
) -> str | None:
    """Return a warning that names the streams that the container can't hold; None without one."""
    if source.is_alone or output.container in (Y4M, PICTURES):
        return None
    held = [info for info in source.streams if info.index in copied]
    others = (info for info in _others(source, drop) if info not in held)
    names = [
        f"{_named(info, None)[:-1]}{f', {_SPARE[info.codec]}' if info.codec in _SPARE else ''})"
        for info in others
        if _is_spare(info, held)
    ]
    return f"{SUFFIXES[output.container]} can't hold {'; '.join(names)}: left out" if names else None


def encoded_sound(source: SourceInfo, output: Target, copied: tuple[int, ...]) -> dict[int, str]:
    """Return the sound that is encoded again, by index: "stream 1, wmav2: encoded again as FLAC, which
    .mkv can hold".
    """
    return {
        info.index: f"stream {info.index}, {info.codec}: encoded again as {NAMES[encoder]}, which "
        f"{output.suffix} can hold"
        for info in source.streams
        if info.index in copied and (encoder := encoder_of(info, output.container))
    }


def _check_encodings(source: SourceInfo, wanted: list[StreamInfo]) -> None:
    """Raise MediaError for a stream whose packets FFmpeg hands on encrypted, or compressed."""
    encodings = unreadable_tracks(source.path)
    for info in wanted:
        if info.index in encodings:
            raise MediaError(
                f"{source.path}: {_named(info, None)} is {encodings[info.index]}, which FFmpeg can't undo; "
                "write the file without it, with mkvmerge for example, or use "
                f"`drop={DROP_WORDS[_kind(info)]}`"
            )


def pipe_warning(source: SourceInfo) -> str | None:
    """Return a sentence on what a y4m pipe loses, apart from colour tags; None if the source has only the
    video.
    """
    kinds, video = other_kinds(source), source.video
    kinds += (
        [f"the rotation by {video.rotation} degrees, so turn it behind the pipe"] if video.rotation else []
    )
    kinds += (
        ["HDR's mastering display and light level"] if video.mastering_display or video.content_light else []
    )
    return f"a y4m pipe holds the picture only; left out: {', '.join(kinds)}" if kinds else None


def sound_warning(source: SourceInfo, output: Target, copied: tuple[int, ...]) -> str | None:
    """Return a warning of uncompressed sound in MP4; None without it, or if the source has it there, too."""
    own = MUXERS.get(Path(source.path).suffix.lower())
    codecs = {
        each.codec
        for each in source.streams
        if each.index in copied and each.codec.startswith("pcm") and not encoder_of(each, "mp4")
    }
    if not codecs or output.container != "mp4" or own == "mp4":
        return None
    return (
        f"{' and '.join(sorted(codecs))} in {SUFFIXES['mp4']}: many players don't play such sound there; "
        f"`output={output.path.with_suffix('.mov').name}` or .mkv is safer"
    )


def other_kinds(source: SourceInfo, drop: frozenset[str] = frozenset()) -> list[str]:
    """Return the kinds of the other streams, but for those to drop, sorted: "audio", "subtitles", "chapters"
    and so on.
    """
    kinds = {DROP_WORDS[_kind(info)] for info in _others(source, drop)}
    return sorted(kinds | ({"chapters"} if source.chapters else set()))


def _others(source: SourceInfo, drop: frozenset[str] = frozenset()) -> Iterator[StreamInfo]:
    unwanted = {word.rstrip("s") for word in drop}
    return (
        info
        for info in source.streams
        if info.index != source.video.index and not unwanted & {_kind(info), str(info.index)}
    )


def _kind(info: StreamInfo) -> str:
    return "cover" if info.attached_picture else info.kind


def _is_regenerated(stream: Stream) -> bool:
    """Return True for tracks that QuickTime generates from data that is copied in another way: chapters and
    time code.
    """
    from av.stream import Discard

    return stream.type == "data" and (stream.discard == Discard.all or "timecode" in stream.metadata)


def _refusal(opened: InputContainer, info: StreamInfo, container: str, samples: Samples) -> str | None:
    """Return why a container can't hold a stream, found by writing a small file with it; None if it can."""
    import av

    if info.attached_picture and container in ("matroska", "mov"):
        return "MOV has no place for cover art" if container == "mov" else None  # an attachment in Matroska
    if info.kind == "attachment" and container == "webm":
        return "WebM has no attachments"  # FFmpeg drops them silently
    try:
        _write_trial(opened.streams[info.index], container, samples.get(info.index, []))
    except (av.error.FFmpegError, ValueError) as error:
        number = getattr(error, "errno", None)
        if number == errno.EAGAIN:  # no room for threads
            raise MemoryError(str(error)) from error
        if number == errno.ENOMEM:
            check_memory()
        return str(error)
    return None


def _write_trial(template: Stream, container: str, packets: list[Packet[Any]]) -> None:
    """Write a complete file in memory with a gray picture and the stream's first packets; MP4 finds some
    faults only at its end.
    """
    import av

    with av.open(io.BytesIO(), "w", format=container) as trial:
        video = trial.add_stream(
            "libvpx-vp9" if container == "webm" else "mpeg4", rate=25, width=64, height=48
        )
        sound = add_sound(trial, template)
        made = sound.stream if sound else add_copy(trial, template)
        picture = av.VideoFrame(64, 48, "yuv420p")
        picture.pts = 0
        trial.mux([*video.encode(picture), *video.encode(None)])
        clock = _Clock(made, trial)
        for packet in chain(*map(sound.packets, packets), sound.rest()) if sound else packets:
            packet.stream = made
            clock.repair(packet)
            trial.mux_one(packet)


def check_packets(
    source: SourceInfo, output: Target, copy: tuple[int, ...], span: Span = WHOLE
) -> tuple[str, ...]:
    """Copy all packets of these streams into a file that isn't kept, and return warnings of repaired times;
    sound to encode again is only decoded.

    Raises MediaError naming the stream, the time and the way out if a packet can't be copied.
    """
    import av

    if not copy:
        return ()
    cut = Cut(span, source.video.time_base) if span != WHOLE else None
    with closing(StreamCopier(source.path, cut)) as copier:
        try:
            with av.open(_Discarded(), "w", format=output.container) as trial:
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
            raise copier.refusal(f"{SUFFIXES[output.container]} can't hold it ({error})") from error
        return tuple(copier.repairs())


class _Discarded(io.RawIOBase):
    """A file that discards what is written."""

    def __init__(self) -> None:
        self.place = self.end = 0

    def writable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self.place += len(data)
        self.end = max(self.end, self.place)
        return len(data)

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.place = offset + (0, self.place, self.end)[whence]
        return self.place

    def tell(self) -> int:
        return self.place


def _first_packets(opened: InputContainer) -> Samples:
    """Return up to three packets of each stream from the beginning of the file; damage is reported by later
    readers.
    """
    import av

    found: Samples = {}
    with suppress(av.error.FFmpegError):
        for packet in islice(packets_of(opened), _SAMPLED_PACKETS):
            first = found.setdefault(packet.stream_index, [])
            if packet.size and packet.dts is not None and len(first) < 3:
                first.append(packet)
    return found


def _refusal_message(
    opened: InputContainer, source: str, output: Target, refused: list[StreamInfo], samples: Samples
) -> str:
    names = "; ".join(_named(info, getattr(opened.streams[info.index], "name", None)) for info in refused)
    drop = ",".join(dict.fromkeys(DROP_WORDS[_kind(info)] for info in refused))
    roomy = all(_refusal(opened, info, "matroska", samples) is None for info in refused)
    way_out = (
        f"use `output={output.path.with_suffix('.mkv')}` or `drop={drop}`" if roomy else f"use `drop={drop}`"
    )
    return f"{source}: {SUFFIXES[output.container]} can't hold {names}; {way_out}"


def _named(info: StreamInfo, name: str | None) -> str:
    codec = name if info.kind == "attachment" else info.codec
    language = info.language if info.language != "und" else None
    details = " ".join(part for part in (codec, language, f'"{info.title}"' if info.title else None) if part)
    return f"stream {info.index} ({_kind(info)}: {details})"


def add_copy(output: OutputContainer, template: Stream, *, whole: bool = True) -> Stream:
    """Add a stream for copied packets, with the template's parameters, metadata and disposition.

    Metadata about the whole stream is omitted unless all packets are copied (`whole`).
    """
    context: Any = template.codec_context
    if context is None and describe_stream(template).codec == "webvtt":
        made: Stream = output.add_mux_stream("webvtt")
        made.time_base = template.time_base
    else:
        made = output.add_stream_from_template(template, opaque=True)
    _describe(made, template, template.metadata if whole else without_stale(template.metadata))
    return made


def _describe(made: Stream, template: Stream, metadata: dict[str, str]) -> None:
    made.metadata.update(stream_metadata(metadata, made.container.format.name))
    made.disposition = template.disposition


def stream_metadata(metadata: dict[str, str], container: str) -> dict[str, str]:
    """Return a stream's metadata with the muxer's keys: MP4's demuxer has `name` for its muxer's `title`."""
    keys = dict(metadata)
    if "name" in keys and "title" not in keys:
        keys["title"] = keys.pop("name")
    if container == "mov" and "language" in keys:
        keys["language"] = _QUICKTIME_LANGUAGES.get(keys["language"], keys["language"])
    return keys


def container_metadata(opened: InputContainer) -> dict[str, str]:
    """Return the source's metadata without keys that muxers write themselves."""
    return {key: value for key, value in opened.metadata.items() if key.lower() not in _OWN_KEYS}


def add_tag(output: OutputContainer, video: Stream, tag: str) -> None:
    """Write to the file's tags how it was made: as the encoder in MP4; in MOV, which has no other place, as
    that of the video, cut to its 31 bytes.
    """
    if output.format.name == "mov":
        video.metadata["encoder"] = tag.encode()[:31].decode(errors="ignore")
    else:
        output.metadata["encoding_tool" if output.format.name == "mp4" else "VIDRESTORE"] = tag


def video_metadata(stream: Stream, container: str) -> dict[str, str]:
    """Return the video stream's metadata without statistics of its old encoding."""
    return stream_metadata(without_stale(stream.metadata), container)


def without_stale(metadata: dict[str, str]) -> dict[str, str]:
    """Return metadata without statistics of another encoding or length."""
    return {key: value for key, value in metadata.items() if not key.lower().startswith(_STALE_KEYS)}


def foreign_keys(metadata: dict[str, str]) -> set[str]:
    """Return the metadata keys without a fixed place in MP4 and MOV."""
    return {key for key in metadata if key.lower() not in _MP4_KEYS}


def add_sound(output: OutputContainer, template: Stream, cut: Cut | None = None) -> EncodedSound | None:
    """Add a stream for sound that the output can't hold, encoded again; None if it can, or for other
    streams.
    """
    encoder = encoder_of(describe_stream(template), output.format.name)
    if encoder is None:
        return None
    sound = EncodedSound(output, template, encoder, cut)  # type: ignore[arg-type]
    _describe(sound.stream, template, without_stale(template.metadata))
    return sound


class _Clock:
    """Keeps the decoding times of one stream of an output in order, by the rule of FFmpeg's own tool.

    `row` counts the packets repaired one after the other, `moved` is how far the last one was moved, in
    seconds.
    """

    def __init__(self, stream: Stream, output: OutputContainer) -> None:
        from av.format import Flags

        self.stream = stream
        nonstrict: Any = Flags.ts_nonstrict.value
        may_be_equal = stream.type in ("subtitle", "data") or output.format.flags & nonstrict
        self.step = 0 if may_be_equal else 1
        self.last: int | None = None  # in ticks of the output
        self.row = 0
        self.moved = Fraction(0)

    def repair(self, packet: Packet[Any]) -> bool:
        """Count a packet's times in ticks of the output, behind those before; return True if that moved it.

        The file's header must have been written.
        """
        from av.rational import AVRational

        tick = Fraction(self.stream.time_base or packet.time_base)
        packet.rescale_ts(AVRational(tick))
        pts, dts = packet.pts, packet.dts
        if dts is None:
            return False
        before = pts, dts
        least = dts if self.last is None else self.last + self.step
        if pts is not None and pts < dts:
            pts = dts = sorted((pts, dts, least))[1]
        if dts < least:
            pts, dts = None if pts is None else max(pts, least), least
        self.last = dts
        changed = (pts, dts) != before
        self.row = self.row + 1 if changed else 0
        self.moved = (dts - before[1]) * tick
        packet.pts, packet.dts = pts, dts
        return changed


class StreamCopier:
    """Copies the other streams of a source packet by packet, in step with the video, holding one packet at a
    time.

    Streams are added in the source's order by `add`; `up_to` then yields packets for the output. With a `cut`
    only its content is copied. `damage` describes what was broken in the source, None if nothing was.
    """

    def __init__(self, source: str, cut: Cut | None = None) -> None:
        self.source = source
        self.cut = cut
        self.opened = open_input(source)
        self.targets: dict[int, Stream] = {}
        self.clocks: dict[int, _Clock] = {}
        self.latest: tuple[int, Fraction | None] | None = None  # index and time of the last packet
        self.repaired: dict[int, list[Fraction]] = {}  # times of the packets whose times were wrong, by index
        # audio streams, and True if the output can hide some of their packets by an edit list
        self.audio: dict[int, bool] = {}
        self.encoded: dict[int, EncodedSound] = {}
        # the packets of the output that were read or encoded, with their index in the source
        self.packets: Iterator[tuple[int, Packet[Any]]] | None = None
        self.held: tuple[int, Packet[Any]] | None = None
        self.broken: str | None = None
        self.corrupt = 0

    @property
    def damage(self) -> str | None:
        corrupt = (
            f"{self.corrupt} packets of the sound and other streams are marked corrupt"
            if self.corrupt
            else None
        )
        undecoded = [
            f"{'1 packet' if count == 1 else f'{count} packets'} of stream {index} can't be decoded, and "
            f"{'is' if count == 1 else 'are'} silent"
            for index, sound in self.encoded.items()
            if (count := sound.undecoded)
        ]
        return "; ".join(part for part in (self.broken, corrupt, *undecoded) if part) or None

    def add(self, output: OutputContainer, index: int) -> None:
        """Add the stream of the source with this index to the output."""
        from av.stream import Disposition

        template = self.opened.streams[index]
        if output.format.name == "matroska" and template.disposition & Disposition.attached_pic:
            self._attach_picture(output, template)
            return
        sound = add_sound(output, template, self.cut)
        made = sound.stream if sound else add_copy(output, template, whole=self.cut is None)
        if template.type != "attachment":
            self.targets[index] = made
            self.clocks[index] = _Clock(made, output)
        if sound:
            self.encoded[index] = sound
        elif template.type == "audio":
            self.audio[index] = output.format.name in ISO

    def _attach_picture(self, output: OutputContainer, template: Stream) -> None:
        """Attach cover art as a file named cover.*, since Matroska has no streams for it."""
        data = self._picture(template.index)
        codec = template.codec_context.name
        suffix, mimetype = {"mjpeg": ("jpg", "image/jpeg"), "png": ("png", "image/png")}.get(
            codec, (codec, f"image/{codec}")
        )
        name = template.metadata.get("filename", f"cover.{suffix}")
        made = output.add_attachment(name, template.metadata.get("mimetype", mimetype), data)
        made.metadata.update(
            template.metadata | {"filename": name, "mimetype": template.metadata.get("mimetype", mimetype)}
        )

    def _picture(self, index: int) -> bytes:
        import av

        with open_input(self.source) as again, suppress(av.error.FFmpegError):
            for packet in again.demux(again.streams[index]):
                if packet.size:
                    return bytes(packet)
        raise MediaError(f"{self.source}: stream {index}, the cover picture, can't be read; use `drop=cover`")

    def start(self) -> None:
        """Start reading, after all streams were added: from here on only their packets are read."""
        from av.stream import Discard

        # the video stream, to detect the end of the cut
        clocks = {video_stream(self.opened).index} if self.cut else set()
        for stream in self.opened.streams:
            if stream.index not in {*self.targets, *clocks}:
                stream.discard = Discard.all
        if self.targets:
            self.packets = self._read({*self.targets, *clocks})

    def _read(self, indices: set[int]) -> Iterator[tuple[int, Packet[Any]]]:
        import av

        try:
            yield from self._read_or_encoded(indices)
        except av.error.FFmpegError as error:
            self.broken = f"the sound and other streams break off ({error})"
        for index, sound in self.encoded.items():
            yield from ((index, packet) for packet in sound.rest())

    def _read_or_encoded(self, indices: set[int]) -> Iterator[tuple[int, Packet[Any]]]:
        self._seek()
        for packet in self._without_hidden_audio(
            packets_of(self.opened, [self.opened.streams[index] for index in indices])
        ):
            if self.cut and self.cut.passed(packet):
                return
            ends = not packet.size and packet.pts is None
            index = packet.stream.index if ends else packet.stream_index
            if sound := self.encoded.get(index):
                if packet.size or ends:
                    self.corrupt += packet.is_corrupt
                    self.latest = index, seconds(packet, packet.pts)
                    yield from ((index, each) for each in self._again(sound, packet))
            elif index in self.targets and not ends and (self.cut is None or self.cut.keeps(packet)):
                self.corrupt += packet.is_corrupt
                yield index, packet

    def _again(self, sound: EncodedSound, packet: Packet[Any]) -> Iterator[Packet[Any]]:
        try:
            yield from sound.packets(packet)
        except ValueError as error:
            raise self.refusal(str(error)) from error

    def _without_hidden_audio(self, packets: Iterator[Packet[Any]]) -> Iterator[Packet[Any]]:
        """Yield packets without those of audio that the source hides and the output would not.

        MP4 can hide audio before 0, so that is kept there; elsewhere only the last such packet is, which
        decoders start from.
        """
        before: dict[int, Packet[Any]] = {}
        heard: set[int] = set()
        for packet in self._watched(packets):
            index = packet.stream_index
            if packet.size and packet.is_discard and index in self.audio:
                if index not in heard and self.audio[index]:
                    yield packet
                elif index not in heard:
                    before[index] = packet
                continue
            if packet.size and index in self.audio and index not in heard:
                heard.add(index)
                if last := before.pop(index, None):
                    yield last
            yield packet

    def _watched(self, packets: Iterator[Packet[Any]]) -> Iterator[Packet[Any]]:
        """Yield packets; the first error that FFmpeg logs meanwhile is damage."""
        from av import logging as ffmpeg

        def complain(message: str) -> None:
            self.broken = self.broken or f"an error in the sound or other streams ({message})"

        errors = ErrorCollector(frozenset({self.opened.format.name}), complain, 0)
        while True:
            with log_level(ffmpeg.ERROR), errors.calling():
                packet = next(packets, None)
            if packet is None:
                return
            yield packet

    def _seek(self) -> None:
        """Seek near the cut's beginning; not with subtitles, of which an early one may still be on screen."""
        subtitles = any(self.opened.streams[index].type == "subtitle" for index in self.targets)
        if self.cut and self.cut.start is not None and self.cut.start > APART and not subtitles:
            self.opened.seek(int((self.cut.start - APART) * 1_000_000))

    def up_to(self, time: Fraction | None, shift: Fraction = Fraction(0)) -> Iterator[Packet[Any]]:
        """Yield the packets with a decoding time up to `time` (seconds; None: all), moved by `shift`, with
        their output stream.
        """
        while self.packets is not None:
            found = self.held or next(self.packets, None)
            self.held = None
            if found is None:
                self.packets = None
                return
            index, packet = found
            stamp = seconds(packet, packet.dts if packet.dts is not None else packet.pts)
            if time is not None and stamp is not None and stamp > time:
                self.held = found
                return
            self.latest = index, stamp
            packet.stream = self.targets[index]
            _move(packet, shift)
            if self.clocks[index].repair(packet):
                self._note_repair(index, stamp)
            yield packet

    def _note_repair(self, index: int, time: Fraction | None) -> None:
        clock, times = self.clocks[index], self.repaired.setdefault(index, [])
        times.append(time or Fraction(0))
        if clock.row > _LONGEST_ROW or (index not in self.audio and abs(clock.moved) > _FARTHEST):
            raise self.refusal("its times go back there")

    def refusal(self, reason: str) -> MediaError:
        """Return the error for the last packet, with the way out."""
        if self.latest is None:
            return MediaError(f"{self.source}: its other streams can't be copied: {reason}")
        index, time = self.latest
        stream = self.opened.streams[index]
        info = describe_stream(stream)
        place = "" if time is None else f" at {float(time):.3f} s"
        return MediaError(
            f"{self.source}: {_named(info, getattr(stream, 'name', None))} can't be copied{place}: {reason}; "
            f"remux the file first, or use `drop={DROP_WORDS[_kind(info)]}`"
        )

    def repairs(self) -> Iterator[str]:
        """Yield a warning for each stream with repaired times."""
        for index, times in sorted(self.repaired.items()):
            info = describe_stream(self.opened.streams[index])
            count = "1 packet has a time" if len(times) == 1 else f"{len(times)} packets have times"
            yield (
                f"stream {index} ({_kind(info)}: {info.codec}): {count} before the one that it follows, "
                f"first at {float(times[0]):.3f} s; put right behind it"
            )

    def close(self) -> None:
        self.packets = self.held = None
        self.opened.close()


def _move(packet: Packet[Any], shift: Fraction) -> None:
    ticks = round(shift / Fraction(packet.time_base))
    if ticks:
        packet.pts = None if packet.pts is None else packet.pts + ticks
        packet.dts = None if packet.dts is None else packet.dts + ticks
