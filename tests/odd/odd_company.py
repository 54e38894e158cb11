"""What comes with a film: other streams, strange names; and files that are no film, or several."""

from __future__ import annotations

import io
import os
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path

import av
import odd_files as files
from odd_case import Case, damaged, kept, of_bytes, of_clip, of_film, refused
from odd_files import clip, joined
from odd_videos import ASS, Film, Sound

HALF = Fraction(1, 2)


def streams() -> Iterator[Case]:
    """Sound, subtitles, fonts, covers, chapters, data."""
    for name in ("film.mp4", "film.mkv", "film.mov", "film.ts"):
        sound = "mp2" if name.endswith("ts") else "aac"
        yield of_film(
            f"sound from second 3 on, {name[5:]}", name, Film((Sound(sound, Fraction(3)),)), kept(12)
        )
        yield of_film(f"4 s of sound, {name[5:]}", name, Film((Sound(sound, seconds=Fraction(4)),)), kept(12))
    yield of_film("sound that ends early", "film.mp4", Film((Sound(seconds=Fraction(1, 10)),)), kept(12))
    yield of_film("sound before 0", "film.mkv", Film((Sound("pcm_s16le", Fraction(-1, 4)),)), kept(12))
    yield of_film("sound before the picture in the file", "film.mp4", Film((Sound(),), first=True), kept(12))
    three = tuple(Sound(codec) for codec in ("aac", "ac3", "libopus"))
    yield of_film("three kinds of sound", "film.mp4", Film(three), kept(12))
    yield of_film(
        "five kinds of sound",
        "film.mkv",
        Film((*three, Sound("flac"), Sound("libmp3lame", layout="stereo"))),
        kept(12),
    )
    yield of_film(
        "40 tracks of sound", "film.mkv", Film((Sound("pcm_s16le", seconds=Fraction(1, 10)),) * 40), kept(12)
    )
    yield of_film("PCM in MOV", "film.mov", Film((Sound("pcm_s16be"),)), kept(12))
    yield of_film("ASS with a font", "film.mkv", Film((Sound(),), ("ass",), font=True), kept(12))
    yield of_film("ASS and SRT", "film.mkv", Film(texts=("ass", "subrip", "ass")), kept(12))
    ass = refused(r"can't hold stream 1 \(subtitle: (ass|ssa) fra.*out.mkv or --drop subtitles")
    yield of_film("ASS into MP4", "film.mkv", Film(texts=("ass",)), ass, arguments=("-o", "out.mp4"))
    yield of_film("subtitles of MP4", "film.mp4", Film(texts=("mov_text", "mov_text")), kept(12))
    yield of_film("chapters, MKV", "film.mkv", Film(chapters=True), kept(12))
    yield of_film("chapters, MP4", "film.mp4", Film((Sound(),), chapters=True), kept(12))
    yield of_film("cover art, MP4", "film.mp4", Film((Sound(),), cover=True), kept(12))
    yield of_film(
        "cover art, chapters, subtitles",
        "film.mp4",
        Film((Sound(),), ("mov_text",), cover=True, chapters=True),
        kept(12),
    )
    yield of_film("two videos", "film.mkv", Film(videos=2), kept(12))
    yield of_film(
        "time code, MOV", "film.mov", Film((Sound("pcm_s16le"),), track={"timecode": "01:00:00:00"}), kept(12)
    )
    yield of_film("time code, MP4", "film.mp4", Film(track={"timecode": "01:00:00:00"}), kept(12))
    yield of_film("a track of data, MP4", "film.mp4", Film(data=True), kept(12))
    unheld = refused(r"can't hold stream 1 \(data.*--drop data")
    yield of_film("a track of data, TS", "film.ts", Film(data=True), unheld)
    yield of_film(
        "a track of data, TS, dropped",
        "film.ts",
        Film(data=True),
        kept(12),
        arguments=("--drop", "data", "--lossless"),
    )
    words = {"title": "a\nb \"c\" 'd' = ; # \\", "comment": "é 漢 🎬", "x" * 300: "y" * 3000}
    yield of_film("strange metadata", "film.mkv", Film(metadata=words), kept(12))
    yield of_film("all of it", "film.mkv", everything(), kept(12))


def everything() -> Film:
    sounds = (Sound("flac", Fraction(2)), Sound("libopus", seconds=Fraction(3)), Sound("ac3"))
    return Film(
        sounds,
        ("ass", "subrip"),
        videos=2,
        font=True,
        chapters=True,
        first=True,
        metadata={"title": "All of it"},
    )


NAMES = (
    *(
        'it\'s "quoted" `film`.mp4',
        "two words  and three .mp4",
        "line\nbreak.mp4",
        "tab\there.mp4",
        "été 漢字 🎬.mp4",
        "مرحبا.mp4",
    ),
    *(
        "-film.mp4",
        "--lossless.mp4",
        "100%d film%03d.mp4",
        "[1]*?.mp4",
        "a:b.mp4",
        "http:film.mp4",
        "concat:a|b.mp4",
        "file:film.mp4",
    ),
    *(
        "back\\slash.mp4",
        "$(touch x); rm -rf ~.mp4",
        "[bold red]film.mp4",
        "FILM.MP4",
        "no suffix",
        "film.",
        "film.v1.2.mp4",
    ),
    *("\udcff\udcfe.mp4", " .mp4", ".mp4", ".hidden.mp4", "漢" * 78 + ".mp4"),
    *(f"{'l' * length}.mp4" for length in (200, 242, 243, 251)),
)


def names() -> Iterator[Case]:
    for name in NAMES:
        outcome = refused("the name has [0-9]+ bytes") if len(name) > 246 else kept(12)
        what = ascii(name) if len(name) < 40 else f"{len(name)} letters"
        yield of_bytes("name", what, name, partial(clip, "mp4"), outcome, apart=not name.isascii())


def no_films() -> Iterator[Case]:
    """What is no film, or says by its name that it is another."""
    part = partial(of_bytes, "no film")
    for what, name, text in (
        ("ffconcat", "film.mp4", "ffconcat version 1.0\nfile other.mp4\n"),
        (
            "a playlist",
            "film.mp4",
            "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nother.ts\n#EXT-X-ENDLIST\n",
        ),
        (
            "a DASH manifest",
            "film.mkv",
            '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><Period/></MPD>',
        ),
        ("subtitles", "film.mp4", "1\n00:00:00,000 --> 00:00:01,000\nhello\n"),
        ("ASS", "film.mkv", ASS),
        ("prose", "film.avi", "It was a dark and stormy night. " * 40),
        ("a page", "film.webm", "<!DOCTYPE html><html><body>404 Not Found</body></html>"),
    ):
        yield part(f"{what} as {name[4:]}", name, text.encode, refused("not a video file that can be read"))
    yield part("nothing", "film.mp4", bytes, refused("the file is empty"))
    yield part("1 byte", "film.mp4", lambda: b"\0", refused("film.mp4"))
    yield part("zeros", "film.mp4", lambda: bytes(5000), refused("not a video file that can be read"))
    yield part(
        "noise", "film.mkv", lambda: files.flipped(bytes(20000), 80000), refused("film.mkv"), apart=True
    )
    yield part(
        "a JPEG as .mp4", "film.mp4", lambda: picture("mjpeg"), refused("not a video file that can be read")
    )
    yield part(
        "a PNG as .mkv", "film.mkv", lambda: picture("png"), refused("not a video file that can be read")
    )
    yield part(
        "sound as .mp4",
        "film.mp4",
        lambda: sound("wav", "pcm_s16le"),
        refused("not a video file|no video stream"),
    )
    yield part(
        "sound alone",
        "film.mkv",
        lambda: sound("matroska", "flac"),
        refused("no video stream; the file holds: audio"),
    )
    yield part("a cover and sound", "film.mkv", song, refused("a cover picture is not a video"))
    yield part(
        "a ZIP",
        "film.mp4",
        lambda: b"PK\3\4" + bytes(range(256)) * 8,
        refused("not a video file that can be read"),
    )
    special = partial(Case, "no film")
    yield special("a folder", "film.mp4", Path.mkdir, refused("the folder holds no video"))
    yield special("is not there", "film.mp4", lambda path: None, refused("no such file"))
    yield special("a link to itself", "film.mp4", lambda path: path.symlink_to(path), refused("no such file"))
    yield special("a named pipe", "film.mp4", os.mkfifo, refused("a pipe or device"), apart=True)
    other = partial(of_bytes, "wrong suffix")
    for kind, name in (
        ("mkv", "film.mp4"),
        ("mp4", "film.mkv"),
        ("ts", "film.mp4"),
        ("avi", "film.mov"),
        ("webm", "film.avi"),
    ):
        yield other(f"{kind} as {name[4:]}", name, partial(clip, kind), kept(12))
    yield other("mp4 as .txt", "film.txt", partial(clip, "mp4"), kept(12))
    for kind in ("asf", "mxf", "ivf", "ogv", "m4v", "3gp", "apng", "nut", "gif", "flv", "mpg", "y4m"):
        yield of_clip("container", kind, kind, lambda data: data, kept(12))


def picture(codec: str) -> bytes:
    pix_fmt = "yuvj420p" if codec == "mjpeg" else "rgb24"
    context = av.CodecContext.create(codec, "w")
    context.width, context.height, context.pix_fmt, context.time_base = 64, 48, pix_fmt, Fraction(1, 25)
    frame = av.VideoFrame(64, 48, pix_fmt)
    return b"".join(bytes(packet) for packet in [*context.encode(frame), *context.encode(None)])


def sound(container: str, codec: str) -> bytes:
    memory = io.BytesIO()
    with av.open(memory, "w", format=container) as output:
        stream = output.add_stream(codec, rate=48000, layout="mono")
        frame = av.AudioFrame("s16", "mono", 4800)
        frame.sample_rate, frame.pts = 48000, 0
        output.mux([*stream.encode(frame), *stream.encode(None)])
    return memory.getvalue()


def song() -> bytes:
    memory = io.BytesIO()
    with av.open(memory, "w", format="matroska") as output:
        stream = output.add_stream("flac", rate=48000, layout="mono")
        output.add_attachment("cover.jpg", "image/jpeg", picture("mjpeg"))
        frame = av.AudioFrame("s16", "mono", 4800)
        frame.sample_rate, frame.pts = 48000, 0
        output.mux([*stream.encode(frame), *stream.encode(None)])
    return memory.getvalue()


def changes() -> Iterator[Case]:
    """Films that become another one on the way."""
    part = partial(of_bytes, "changes", apart=True)
    split = "split the file there first"
    yield part(
        "size, TS",
        "film.ts",
        lambda: joined(sizes=((64, 48), (96, 48))),
        refused(f"frame 12: 96x48, but.*{split}"),
    )
    yield part(
        "size back and forth, TS",
        "film.ts",
        lambda: joined(sizes=((64, 48), (48, 64), (64, 48))),
        refused(split),
    )
    yield part("pixel format, TS", "film.ts", lambda: joined(pix_fmts=("yuv420p", "yuv422p")), refused(split))
    yield part("TS, then another", "film.ts", lambda: clip("ts") + clip("mpeg2 ts"), damaged(12, "damaged"))
    yield part("MP4, then another", "film.mp4", lambda: clip("mp4") * 2, kept(12))
    yield part(
        "MKV, then another",
        "film.mkv",
        lambda: clip("mkv") * 2,
        refused(f"joined from several.*{split[-5:]} it first|split it first"),
    )
    yield part(
        "raw MPEG-2, then a larger one",
        "film.m2v",
        lambda: clip("mpeg2") + clip("mpeg2", size=(96, 64)),
        refused(split),
    )
