"""What comes with a video: other streams, strange names; and files that are no video, or several."""

import io
import os
from collections.abc import Iterator
from fractions import Fraction
from functools import partial
from pathlib import Path

import av
import odd_files as files
from odd_case import Case, damaged, kept, of_bytes, of_clip, of_content, refused
from odd_files import clip, joined
from odd_videos import ASS, Content, Sound

HALF = Fraction(1, 2)


def streams() -> Iterator[Case]:
    """Sound, subtitles, fonts, covers, chapters, data."""
    for name in ("video.mp4", "video.mkv", "video.mov", "video.ts"):
        sound = "mp2" if name.endswith("ts") else "aac"
        yield of_content(
            f"sound from second 3 on, {name[5:]}", name, Content((Sound(sound, Fraction(3)),)), kept(12)
        )
        yield of_content(
            f"4 s of sound, {name[5:]}", name, Content((Sound(sound, seconds=Fraction(4)),)), kept(12)
        )
    yield of_content(
        "sound that ends early", "video.mp4", Content((Sound(seconds=Fraction(1, 10)),)), kept(12)
    )
    yield of_content("sound before 0", "video.mkv", Content((Sound("pcm_s16le", Fraction(-1, 4)),)), kept(12))
    yield of_content(
        "sound before the picture in the file", "video.mp4", Content((Sound(),), first=True), kept(12)
    )
    three = tuple(Sound(codec) for codec in ("aac", "ac3", "libopus"))
    yield of_content("three kinds of sound", "video.mp4", Content(three), kept(12))
    yield of_content(
        "five kinds of sound",
        "video.mkv",
        Content((*three, Sound("flac"), Sound("libmp3lame", layout="stereo"))),
        kept(12),
    )
    yield of_content(
        "40 tracks of sound",
        "video.mkv",
        Content((Sound("pcm_s16le", seconds=Fraction(1, 10)),) * 40),
        kept(12),
    )
    yield of_content("PCM in MOV", "video.mov", Content((Sound("pcm_s16be"),)), kept(12))
    yield of_content("ASS with a font", "video.mkv", Content((Sound(),), ("ass",), font=True), kept(12))
    yield of_content("ASS and SRT", "video.mkv", Content(texts=("ass", "subrip", "ass")), kept(12))
    ass = refused(r"can't hold stream 1 \(subtitle: (ass|ssa) fra.*out.mkv or --drop subtitles")
    yield of_content("ASS into MP4", "video.mkv", Content(texts=("ass",)), ass, arguments=("-o", "out.mp4"))
    yield of_content("subtitles of MP4", "video.mp4", Content(texts=("mov_text", "mov_text")), kept(12))
    yield of_content("chapters, MKV", "video.mkv", Content(chapters=True), kept(12))
    yield of_content("chapters, MP4", "video.mp4", Content((Sound(),), chapters=True), kept(12))
    yield of_content("cover art, MP4", "video.mp4", Content((Sound(),), cover=True), kept(12))
    yield of_content(
        "cover art, chapters, subtitles",
        "video.mp4",
        Content((Sound(),), ("mov_text",), cover=True, chapters=True),
        kept(12),
    )
    yield of_content("two videos", "video.mkv", Content(videos=2), kept(12))
    yield of_content(
        "time code, MOV",
        "video.mov",
        Content((Sound("pcm_s16le"),), track={"timecode": "01:00:00:00"}),
        kept(12),
    )
    yield of_content("time code, MP4", "video.mp4", Content(track={"timecode": "01:00:00:00"}), kept(12))
    yield of_content("a track of data, MP4", "video.mp4", Content(data=True), kept(12))
    unheld = refused(r"can't hold stream 1 \(data.*--drop data")
    yield of_content("a track of data, TS", "video.ts", Content(data=True), unheld)
    yield of_content(
        "a track of data, TS, dropped",
        "video.ts",
        Content(data=True),
        kept(12),
        arguments=("--drop", "data", "--lossless"),
    )
    words = {"title": "a\nb \"c\" 'd' = ; # \\", "comment": "é 漢 🎬", "x" * 300: "y" * 3000}
    yield of_content("strange metadata", "video.mkv", Content(metadata=words), kept(12))
    yield of_content("all of it", "video.mkv", everything(), kept(12))


def everything() -> Content:
    sounds = (Sound("flac", Fraction(2)), Sound("libopus", seconds=Fraction(3)), Sound("ac3"))
    return Content(
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
        'it\'s "quoted" `video`.mp4',
        "two words  and three .mp4",
        "line\nbreak.mp4",
        "tab\there.mp4",
        "été 漢字 🎬.mp4",
        "مرحبا.mp4",
    ),
    *(
        "-video.mp4",
        "--lossless.mp4",
        "100%d video%03d.mp4",
        "[1]*?.mp4",
        "a:b.mp4",
        "http:video.mp4",
        "concat:a|b.mp4",
        "file:video.mp4",
    ),
    *(
        "back\\slash.mp4",
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
        yield of_bytes("name", what, name, partial(clip, "mp4"), outcome, apart=not name.isascii())


def no_videos() -> Iterator[Case]:
    """What is no video, or says by its name that it is another."""
    part = partial(of_bytes, "no video")
    for what, name, text in (
        ("ffconcat", "video.mp4", "ffconcat version 1.0\nfile other.mp4\n"),
        (
            "a playlist",
            "video.mp4",
            "#EXTM3U\n#EXT-X-TARGETDURATION:9\n#EXTINF:9,\nother.ts\n#EXT-X-ENDLIST\n",
        ),
        (
            "a DASH manifest",
            "video.mkv",
            '<?xml version="1.0"?><MPD xmlns="urn:mpeg:dash:schema:mpd:2011"><Period/></MPD>',
        ),
        ("subtitles", "video.mp4", "1\n00:00:00,000 --> 00:00:01,000\nhello\n"),
        ("ASS", "video.mkv", ASS),
        ("prose", "video.avi", "It was a dark and stormy night. " * 40),
        ("a page", "video.webm", "<!DOCTYPE html><html><body>404 Not Found</body></html>"),
    ):
        yield part(f"{what} as {name[4:]}", name, text.encode, refused("not a video file that can be read"))
    yield part("nothing", "video.mp4", bytes, refused("the file is empty"))
    yield part("1 byte", "video.mp4", lambda: b"\0", refused("video.mp4"))
    yield part("zeros", "video.mp4", lambda: bytes(5000), refused("not a video file that can be read"))
    yield part(
        "noise", "video.mkv", lambda: files.flipped(bytes(20000), 80000), refused("video.mkv"), apart=True
    )
    yield part(
        "a JPEG as .mp4", "video.mp4", lambda: picture("mjpeg"), refused("not a video file that can be read")
    )
    yield part(
        "a PNG as .mkv", "video.mkv", lambda: picture("png"), refused("not a video file that can be read")
    )
    yield part(
        "sound as .mp4",
        "video.mp4",
        lambda: sound("wav", "pcm_s16le"),
        refused("not a video file|no video stream"),
    )
    yield part(
        "sound alone",
        "video.mkv",
        lambda: sound("matroska", "flac"),
        refused("no video stream; the file holds: audio"),
    )
    yield part("a cover and sound", "video.mkv", song, refused("a cover picture is not a video"))
    yield part(
        "a ZIP",
        "video.mp4",
        lambda: b"PK\3\4" + bytes(range(256)) * 8,
        refused("not a video file that can be read"),
    )
    special = partial(Case, "no video")
    yield special("a folder", "video.mp4", Path.mkdir, refused("the folder holds no video"))
    yield special("is not there", "video.mp4", lambda path: None, refused("no such file"))
    yield special(
        "a link to itself", "video.mp4", lambda path: path.symlink_to(path), refused("no such file")
    )
    yield special("a named pipe", "video.mp4", os.mkfifo, refused("a pipe or device"), apart=True)
    other = partial(of_bytes, "wrong suffix")
    for kind, name in (
        ("mkv", "video.mp4"),
        ("mp4", "video.mkv"),
        ("ts", "video.mp4"),
        ("avi", "video.mov"),
        ("webm", "video.avi"),
    ):
        yield other(f"{kind} as {name[4:]}", name, partial(clip, kind), kept(12))
    yield other("mp4 as .txt", "video.txt", partial(clip, "mp4"), kept(12))
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
    """Videos that become another one on the way."""
    part = partial(of_bytes, "changes", apart=True)
    split = "split the file there first"
    yield part(
        "size, TS",
        "video.ts",
        lambda: joined(sizes=((64, 48), (96, 48))),
        refused(f"frame 12: 96x48, but.*{split}"),
    )
    yield part(
        "size back and forth, TS",
        "video.ts",
        lambda: joined(sizes=((64, 48), (48, 64), (64, 48))),
        refused(split),
    )
    yield part(
        "pixel format, TS", "video.ts", lambda: joined(pix_fmts=("yuv420p", "yuv422p")), refused(split)
    )
    yield part("TS, then another", "video.ts", lambda: clip("ts") + clip("mpeg2 ts"), damaged(12, "damaged"))
    yield part("MP4, then another", "video.mp4", lambda: clip("mp4") * 2, kept(12))
    yield part(
        "MKV, then another",
        "video.mkv",
        lambda: clip("mkv") * 2,
        refused(f"joined from several.*{split[-5:]} it first|split it first"),
    )
    yield part(
        "raw MPEG-2, then a larger one",
        "video.m2v",
        lambda: clip("mpeg2") + clip("mpeg2", size=(96, 64)),
        refused(split),
    )
