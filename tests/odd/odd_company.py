"""What comes with a video: other streams, strange names; and files that are no video, or several."""

import io
import os
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path
from typing import Any

import av
import odd_files as files
from odd_case import (
    Case,
    Outcome,
    damaged,
    kept,
    of_bytes,
    of_clip,
    of_content,
    refused,
    scaled,
)
from odd_files import clip, joined
from odd_videos import ASS, Content, Sound
from sample_videos import encoded, sound_packets

KEPT, EXACT = kept(12), ("--lossless",)


def streams() -> Iterator[Case]:
    """Sound, subtitles, fonts, covers, chapters, data."""

    def part(
        what: str,
        name: str,
        outcome: Outcome = KEPT,
        arguments: tuple[str, ...] = EXACT,
        **content: Any,
    ) -> Case:
        return of_content(what, name, Content(**content), outcome, arguments=arguments)

    for name in ("video.mp4", "video.mkv", "video.mov", "video.ts"):
        codec = "mp2" if name.endswith("ts") else "aac"
        yield part(
            f"sound from second 3 on, {name[5:]}",
            name,
            sounds=(Sound(codec, Fraction(3)),),
        )
        yield part(
            f"4 s of sound, {name[5:]}",
            name,
            sounds=(Sound(codec, seconds=Fraction(4)),),
        )
    tenth, aac = Fraction(1, 10), (Sound(),)
    yield part("sound that ends early", "video.mp4", sounds=(Sound(seconds=tenth),))
    yield part(
        "sound before 0", "video.mkv", sounds=(Sound("pcm_s16le", Fraction(-1, 4)),)
    )
    yield part(
        "sound before the picture in the file", "video.mp4", sounds=aac, first=True
    )
    three = tuple(Sound(codec) for codec in ("aac", "ac3", "libopus"))
    five = (*three, Sound("flac"), Sound("libmp3lame", layout="stereo"))
    yield part("three kinds of sound", "video.mp4", sounds=three)
    yield part("five kinds of sound", "video.mkv", sounds=five)
    yield part(
        "40 tracks of sound",
        "video.mkv",
        sounds=(Sound("pcm_s16le", seconds=tenth),) * 40,
    )
    yield part("PCM in MOV", "video.mov", sounds=(Sound("pcm_s16be"),))
    yield part("ASS with a font", "video.mkv", sounds=aac, texts=("ass",), font=True)
    yield part("ASS and SRT", "video.mkv", texts=("ass", "subrip", "ass"))
    ass = refused(
        r"can't hold stream 1 \(subtitle: (ass|ssa) fra.*out.mkv or --drop subtitles"
    )
    yield part("ASS into MP4", "video.mkv", ass, ("-o", "out.mp4"), texts=("ass",))
    yield part("subtitles of MP4", "video.mp4", texts=("mov_text", "mov_text"))
    yield part("chapters, MKV", "video.mkv", chapters=True)
    yield part("chapters, MP4", "video.mp4", sounds=aac, chapters=True)
    yield part("cover art, MP4", "video.mp4", sounds=aac, cover=True)
    more = {"texts": ("mov_text",), "cover": True, "chapters": True}
    yield part("cover art, chapters, subtitles", "video.mp4", sounds=aac, **more)
    yield part("two videos", "video.mkv", videos=2)
    code = {"timecode": "01:00:00:00"}
    yield part("time code, MOV", "video.mov", sounds=(Sound("pcm_s16le"),), track=code)
    yield part("time code, MP4", "video.mp4", track=code)
    yield part("a track of data, MP4", "video.mp4", data=True)
    unheld = refused(r"can't hold stream 1 \(data.*--drop data")
    yield part("a track of data, TS", "video.ts", unheld, data=True)
    dropped = ("--drop", "data", "--lossless")
    yield part("a track of data, TS, dropped", "video.ts", arguments=dropped, data=True)
    words = {
        "title": "a\nb \"c\" 'd' = ; # \\",
        "comment": "é 漢 🎬",
        "x" * 300: "y" * 3000,
    }
    yield part("strange metadata", "video.mkv", metadata=words)
    yield of_content("all of it", "video.mkv", everything(), KEPT)


def everything() -> Content:
    sounds = (
        Sound("flac", Fraction(2)),
        Sound("libopus", seconds=Fraction(3)),
        Sound("ac3"),
    )
    more: dict[str, Any] = {"videos": 2, "font": True, "chapters": True, "first": True}
    return Content(sounds, ("ass", "subrip"), metadata={"title": "All of it"}, **more)


NAMES = (
    *(
        'it\'s "quoted" `video`.mp4',
        "two words  and three .mp4",
        "line\nbreak.mp4",
        "tab\there.mp4",
    ),
    *(
        "été 漢字 🎬.mp4",
        "مرحبا.mp4",
        "-video.mp4",
        "--lossless.mp4",
        "100%d video%03d.mp4",
        "[1]*?.mp4",
    ),
    *(
        "a:b.mp4",
        "http:video.mp4",
        "concat:a|b.mp4",
        "file:video.mp4",
        "back\\slash.mp4",
    ),
    *(
        "$(touch x); rm -rf ~.mp4",
        "[bold red]video.mp4",
        "FILM.MP4",
        "no suffix",
        "video.",
        "video.v1.2.mp4",
    ),
    *("\udcff\udcfe.mp4", " .mp4", ".mp4", ".hidden.mp4", "漢" * 78 + ".mp4"),
    *(f"{'l' * length}.mp4" for length in (200, 242, 243, 251)),
)


def names() -> Iterator[Case]:
    for name in NAMES:
        outcome = refused("the name has [0-9]+ bytes") if len(name) > 246 else kept(12)
        what = ascii(name) if len(name) < 40 else f"{len(name)} letters"
        yield of_bytes(
            "name", what, name, partial(clip, "mp4"), outcome, apart=not name.isascii()
        )


PLAYLIST = "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nother.ts\n#EXT-X-ENDLIST\n"
MANIFEST = (
    '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><Period/></MPD>'
)
TEXTS = (
    ("ffconcat", "video.mp4", "ffconcat version 1.0\nfile other.mp4\n"),
    ("a playlist", "video.mp4", PLAYLIST),
    ("a DASH manifest", "video.mkv", MANIFEST),
    ("subtitles", "video.mp4", "1\n00:00:00,000 --> 00:00:01,000\nhello\n"),
    ("ASS", "video.mkv", ASS),
    ("prose", "video.avi", "It was a dark and stormy night. " * 40),
    ("a page", "video.webm", "<!DOCTYPE html><html><body>404 Not Found</body></html>"),
)


def no_videos() -> Iterator[Case]:
    """What is no video, or says by its name that it is another."""
    part, unread = (
        partial(of_bytes, "no video"),
        refused("not a video file that can be read"),
    )
    for what, name, text in TEXTS:
        yield part(f"{what} as {name[5:]}", name, text.encode, unread)
    yield part("nothing", "video.mp4", bytes, refused("the file is empty"))
    yield part("1 byte", "video.mp4", lambda: b"\0", refused("video.mp4"))
    yield part("zeros", "video.mp4", lambda: bytes(5000), unread)
    noise = partial(files.flipped, bytes(20000), 80000)
    yield part("noise", "video.mkv", noise, refused("video.mkv"), apart=True)
    yield part("a JPEG as .mp4", "video.mp4", partial(picture, "mjpeg"), unread)
    yield part("a PNG as .mkv", "video.mkv", partial(picture, "png"), unread)
    wave, flac = partial(sound, "wav", "pcm_s16le"), partial(sound, "matroska", "flac")
    yield part(
        "sound as .mp4", "video.mp4", wave, refused("not a video file|no video stream")
    )
    yield part(
        "sound alone",
        "video.mkv",
        flac,
        refused("no video stream; the file holds: audio"),
    )
    yield part(
        "a cover and sound",
        "video.mkv",
        song,
        refused("a cover picture is not a video"),
    )
    yield part("a ZIP", "video.mp4", lambda: b"PK\3\4" + bytes(range(256)) * 8, unread)
    special, absent = partial(Case, "no video"), refused("no such file")
    yield special(
        "a folder", "video.mp4", Path.mkdir, refused("the folder holds no video")
    )
    yield special("is not there", "video.mp4", lambda path: None, absent)
    yield special(
        "a link to itself", "video.mp4", lambda path: path.symlink_to(path), absent
    )
    yield special(
        "a named pipe", "video.mp4", os.mkfifo, refused("a pipe or device"), apart=True
    )
    others = {"mkv": "mp4", "mp4": "mkv", "ts": "mp4", "avi": "mov", "webm": "avi"}
    for kind, suffix in others.items():
        yield of_bytes(
            "wrong suffix",
            f"{kind} as .{suffix}",
            f"video.{suffix}",
            partial(clip, kind),
            KEPT,
        )
    yield of_bytes(
        "wrong suffix", "mp4 as .txt", "video.txt", partial(clip, "mp4"), KEPT
    )
    for kind in (
        "asf",
        "mxf",
        "ivf",
        "ogv",
        "m4v",
        "3gp",
        "apng",
        "nut",
        "gif",
        "flv",
        "mpg",
        "y4m",
    ):
        yield of_clip("container", kind, kind, lambda data: data, KEPT)


def picture(codec: str) -> bytes:
    pix_fmt = "yuvj420p" if codec == "mjpeg" else "rgb24"
    return b"".join(map(bytes, encoded(codec, [av.VideoFrame(64, 48, pix_fmt)])))


def sound(container: str, codec: str, cover: bytes = b"") -> bytes:
    memory = io.BytesIO()
    with av.open(memory, "w", format=container) as output:
        stream = output.add_stream(codec, rate=48000, layout="mono")
        if cover:
            output.add_attachment("cover.jpg", "image/jpeg", cover)
        output.mux(sound_packets(stream, 4800))
    return memory.getvalue()


def song() -> bytes:
    return sound("matroska", "flac", picture("mjpeg"))


def changes() -> Iterator[Case]:
    """Videos that become another one on the way."""
    part = partial(of_bytes, "changes", apart=True)
    one, two, three = (64, 48), (96, 48), (48, 64)
    to_larger, there_and_back = (
        partial(joined, sizes=(one, two)),
        partial(joined, sizes=(one, three, one)),
    )
    formats, larger = (
        partial(joined, pix_fmts=("yuv420p", "yuv422p")),
        partial(clip, "mpeg2", size=(96, 64)),
    )
    yield part("size, TS", "video.ts", to_larger, scaled(24, "first 96x48 in yuv420p"))
    yield part(
        "size back and forth, TS",
        "video.ts",
        there_and_back,
        scaled(36, "first 48x64 in"),
    )
    yield part(
        "pixel format, TS", "video.ts", formats, scaled(24, "first 64x48 in yuv422p")
    )
    # FFmpeg's decoder forgets the picture that it holds back when another header comes
    seam = damaged(23, "first 96x64 in yuv420p.*1 frame could not be decoded")
    yield part("MP4, then another", "video.mp4", lambda: clip("mp4") * 2, KEPT)
    yield part(
        "raw MPEG-2, then a larger one",
        "video.m2v",
        lambda: clip("mpeg2") + larger(),
        seam,
    )
