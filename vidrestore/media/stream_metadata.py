"""The metadata of a file and of its streams, as muxers take them."""

from __future__ import annotations

from av.container import InputContainer, OutputContainer
from av.stream import Stream

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


def container_metadata(opened: InputContainer) -> dict[str, str]:
    """Return the source's metadata without keys that muxers write themselves."""
    return {key: value for key, value in opened.metadata.items() if key.lower() not in _OWN_KEYS}


def foreign_keys(metadata: dict[str, str]) -> set[str]:
    """Return the metadata keys without a fixed place in MP4 and MOV."""
    return {key for key in metadata if key.lower() not in _MP4_KEYS}


def stream_metadata(stream: Stream, container: str, *, whole: bool) -> dict[str, str]:
    """Return a stream's metadata with the keys of a muxer; without statistics of its old encoding and length
    unless all its packets are copied (`whole`).
    """
    stale = () if whole else _STALE_KEYS
    keys = {key: value for key, value in stream.metadata.items() if not key.lower().startswith(stale)}
    if "name" in keys and "title" not in keys:  # MP4's demuxer has `name` for its muxer's `title`
        keys["title"] = keys.pop("name")
    if container == "mov" and "language" in keys:
        keys["language"] = _QUICKTIME_LANGUAGES.get(keys["language"], keys["language"])
    return keys


def add_tag(output: OutputContainer, video: Stream, tag: str) -> None:
    """Write to the file's tags how it was made: as the encoder in MP4; in MOV, which has no other place, as
    that of the video, cut to its 31 bytes.
    """
    if output.format.name == "mov":
        video.metadata["encoder"] = tag.encode()[:31].decode(errors="ignore")
    else:
        output.metadata["encoding_tool" if output.format.name == "mp4" else "VIDRESTORE"] = tag
