"""Find the inputs that folders and patterns name, and name the outputs after them."""

from __future__ import annotations

import glob
import os
import re
import shlex
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext, suppress
from pathlib import Path

from vidrestore.errors import MediaError, OptionError
from vidrestore.event_log import counted_words
from vidrestore.media.formats.source import (
    KINDS,
    MUXERS,
    PICTURE_ENCODERS,
    Pictures,
    Source,
    Target,
    is_picture,
    natural_order,
    pattern_of,
    unread,
)
from vidrestore.media.reading.photographs import camera_times, why_photographs
from vidrestore.settings.options import ENLARGE, RestoreOptions
from vidrestore.settings.tasks import TASKS

_VIDEOS = (
    "mp4 m4v mov mkv webm avi ts m2ts mts mpg mpeg vob wmv asf flv ogv mxf nut 3gp y4m ivf h264 264 hevc 265 "
    "gif dv rm m2t m2v m1v mpv 3g2 f4v qt h265 rmvb ogm divx trp obu"
)
VIDEO_SUFFIXES = frozenset(f".{name}" for name in _VIDEOS.split())
ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*://", re.IGNORECASE)
PREVIEW = "preview"
ENLARGED = frozenset({"x2", "x3", "sr"})  # other suffixes that `suffix_of` returns
WORK_SUFFIX = ".vidrestore"  # folders with unfinished work
ANY_CONTAINER = ".mkv"  # if the source's own container can't be written
SHOWN = 3  # names of files of a kind in a sentence
_OF_CAMERAS = (".jpg", ".jpeg", ".heic", ".heif")
_AS_PHOTOGRAPHS = "pictures are taken for photographs, as {}; `fps=25` takes them for frames of a video"
# folders of small copies that a Synology NAS makes of all videos and photos
_THUMBNAILS = "@eaDir"


def suffix_of(task: str, options: RestoreOptions) -> str:
    """Return the suffix of a task's outputs: in.mp4 -> in.SUFFIX.mp4."""
    if task in ENLARGE:
        return task if options.height else f"x{options.scale}"
    return TASKS[task].suffix if task in TASKS else task


def expand_sources(
    sources: Sequence[Source],
    *,
    recursive: bool = False,
    photos: bool = False,
    frames: bool = False,
    has_output: bool = False,
) -> dict[Source, str]:
    """Return the files that `sources` name, each with its folder relative to the source. A source is a file,
    a folder (all videos in it) or a pattern such as "*.mp4".

    A named picture is a photo. The pictures of a folder or pattern without videos are photos if `photos` is
    set, frames of one video if `frames` is set, else what they look like (`why_photographs`). With
    `recursive`, folders below are included, and ** in a pattern matches folders at any depth. Outputs of
    vidrestore (`own_outputs`), work folders and hidden files are skipped in folders and patterns. A named
    output is skipped if its source is named as well (`named_outputs`), since a pattern of the shell may match
    both. Raises OptionError for an empty name, and, unless `has_output` says that the output is named, for a
    second one without a file, which may be meant as that; MediaError for a folder or pattern without a video.
    """
    if not all(source.name for source in sources):
        raise OptionError(
            "an input has an empty name; is a variable of the shell not set?"
        )
    # mistakes of the command line, each said before anything is opened
    for source in sources:
        if ADDRESS.match(source.name) and not os.path.exists(source):
            raise MediaError(
                f"{source}: an address, and only files are read; download it first"
            )
    whole = " ".join(source.name for source in sources)
    if len(sources) > 1 and os.path.exists(whole):
        raise OptionError(
            f"{whole}: a name with blanks is put in quotation marks, as in {shlex.quote(whole)}"
        )
    if not are_many(sources) and not (photos and sources[0].is_pattern):
        return {sources[0]: ""}
    if (
        len(sources) == 2
        and not has_output
        and os.path.isfile(sources[0])
        and not os.path.exists(sources[1])
    ):
        target = Target(sources[1].name)
        is_writable = target.suffix in MUXERS or target.suffix in PICTURE_ENCODERS
        if is_writable and not glob.has_magic(target.name):
            raise OptionError(
                f"{target}: no such file; if it is to be written, use `output={target}`"
            )
    # a pattern of the shell may match outputs beside their sources
    outputs = named_outputs(sources)
    files: dict[Source, str] = {}
    for source in sources:
        if source.name not in outputs:
            is_photos = photos or bool(not frames and _photographs(source))
            for file, folder in _expand(source, recursive, is_photos):
                files.setdefault(file, folder)
    return files


def _photographs(source: Source) -> str | None:
    """Return why the pictures of a folder or pattern without videos are photographs; None for others."""
    paths = (
        [path for path, _ in _paths(source, recursive=False)] if source.is_many else []
    )
    pictures = sorted(filter(is_picture, paths), key=natural_order)
    videos = {path for path in paths if _is_video(path)} - own_outputs(paths).keys()
    is_film = len(pictures) < 2 or bool(videos)
    of_cameras = all(path.lower().endswith(_OF_CAMERAS) for path in pictures)
    return why_photographs(tuple(pictures)) if of_cameras and not is_film else None


def notes_on(
    sources: Sequence[Source], *, recursive: bool, photos: bool, frames: bool = False
) -> Iterator[tuple[str, str]]:
    """Yield inputs with a sentence: those that are missing, pictures that may be meant differently, unless
    `photos` is set, and files of kinds that are not read.
    """
    # what is missing or meant differently, while something else can be restored
    for source in sources if len(sources) > 1 else ():
        if not (
            source.is_pipe
            or source.is_pattern
            or source.is_many
            or os.path.exists(source)
        ):
            yield source.name, "no such file; the other inputs are restored"
    named = [
        source.name
        for source in sources
        if os.path.isfile(source) and is_picture(source.name)
    ]
    if not photos and (pattern := pattern_of(named)):
        text = (
            f"{len(named)} numbered pictures were named, and each is restored by itself"
        )
        yield (
            named[0],
            f"{text}; if they are frames of a video, name '{pattern}' instead",
        )
    for source in (source for source in sources if source.is_many):
        paths = [path for path, _ in _paths(source, recursive) if os.path.isfile(path)]
        if not (photos or frames) and (why := _photographs(source)):
            count = sum(map(is_picture, paths))
            yield source.name, f"{count} {_AS_PHOTOGRAPHS.format(why)}"
        elif not photos and (note := _note_on_pictures(paths)):
            yield source.name, note
        yield from (
            (source.name, note) for note in _notes_on_outputs(own_outputs(paths))
        )
        if note := unread(_unknown_files(paths)):
            yield source.name, note


def own_outputs(paths: Sequence[str]) -> dict[str, str]:
    """Return the videos and pictures of a folder or pattern that are left out as outputs of vidrestore, each
    with the reason, "" if it is beyond doubt. They are named as those are, and have our tag, or are there
    with the file that they are named after, which is what tells for photos and for videos without tags.
    """
    from vidrestore.media.writing.finished import read_tag

    kinds = VIDEO_SUFFIXES | KINDS.keys()
    paths = [path for path in paths if Path(path).suffix.lower() in kinds]
    origins = _origins(paths)
    outputs = dict[str, str]()
    # names come first, so that few files are opened for their tags
    for path in filter(_has_our_suffix, paths):
        if read_tag(Target(path)):
            outputs[path] = (
                "" if path in origins else "as vidrestore made them, by their tags"
            )
        elif path in origins:
            outputs[path] = (
                "named like outputs of others there; name one alone to restore it"
            )
    return outputs


def _notes_on_outputs(outputs: Mapping[str, str]) -> Iterator[str]:
    for reason in sorted({*outputs.values()} - {""}):
        names = [Path(path).name for path in outputs if outputs[path] == reason]
        more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
        yield f"left out, {reason}: {', '.join(names[:SHOWN])}{more}"


def _unknown_files(paths: Sequence[str]) -> list[str]:
    """Return the files that are neither videos nor pictures that can be read, nor our outputs."""
    kinds = VIDEO_SUFFIXES | KINDS.keys()
    return [
        path
        for path in paths
        if Path(path).suffix.lower() not in kinds and not is_our_output(path)
    ]


def _note_on_pictures(paths: Sequence[str]) -> str | None:
    """Return a sentence on pictures that are left out or become frames of a video."""
    videos = len(
        {path for path in paths if _is_video(path)} - own_outputs(paths).keys()
    )
    pictures = [path for path in paths if is_picture(path)]
    if videos and pictures:
        kind = os.path.join(
            os.path.dirname(pictures[0]), f"*{Path(pictures[0]).suffix}"
        )
        return (
            f"{counted_words(videos, 'video')} and {counted_words(len(pictures), 'picture')} are there; only "
            f"videos are restored, '{kind}' names the pictures; with `photos` each is restored, too"
        )
    if len({*map(os.path.dirname, pictures)}) > 1:
        return "pictures in folders below are left out; with `photos` each is restored"
    if len(pictures) > 1 and not (
        pattern_of(pictures) and not camera_times(tuple(pictures[:1]))
    ):
        return f"{len(pictures)} pictures are taken for frames of one video; `photos` restores each by itself"
    return None


def named_outputs(sources: Sequence[Source]) -> dict[str, str]:
    """Return the named videos that are outputs of another named video, each with that video: a.denoised.mp4
    if a.mp4 is named, too.
    """
    return _origins(
        [source.name for source in sources if not source.is_pipe and not source.is_many]
    )


def _origins(names: Sequence[str]) -> dict[str, str]:
    """Return the names that are those of outputs of another one, each with that."""
    # a name without its suffix is that of a source, and so is the full name
    videos = {str(Path(name).with_suffix("")): name for name in names} | {
        name: name for name in names
    }
    origins = {
        name: videos.get(str(Path(name).with_suffix("").with_suffix("")))
        for name in names
        if _has_our_suffix(name)
    }
    return {name: origin for name, origin in origins.items() if origin}


def are_many(sources: Sequence[Source]) -> bool:
    """Return True unless the only source is a single named file."""
    return len(sources) != 1 or sources[0].is_many


def _expand(
    source: Source, recursive: bool, photos: bool
) -> Iterator[tuple[Source, str]]:
    """Yield the inputs that a source stands for, each with its folder below the source."""
    if photos and source.is_pattern and (pictures := source.existing()):
        yield from ((Source(path), "") for path in pictures.values())
        return
    if not source.is_many:
        yield source, ""
        return
    paths = _paths(source, recursive)
    outputs = own_outputs([path for path, _ in paths])
    videos = [
        (path, folder)
        for path, folder in paths
        if path not in outputs and _is_video(path, photos=photos)
    ]
    if not videos and source.pictures:
        yield source, ""
    elif not videos:
        raise _no_video_error(source, [path for path, _ in paths])
    yield from ((Source(path), folder) for path, folder in videos)


def _paths(source: Source, recursive: bool) -> list[tuple[str, str]]:
    """Return the files of a folder or pattern, each with its folder relative to the source."""
    if os.path.isdir(source):
        return list(_in_folder(source.name, recursive))
    matching = sorted(glob.glob(source.name, recursive=recursive))
    with_thumbnails = _THUMBNAILS in source.path.parts
    return [
        (path, "")
        for path in matching
        if with_thumbnails or _THUMBNAILS not in Path(path).parts
    ]


def _no_video_error(source: Source, paths: list[str]) -> MediaError:
    # from the likely mistake to the less likely one; the last that fits is said
    kind = "the folder" if os.path.isdir(source) else "the pattern"
    expected = (
        "expected files such as film.mp4 or film.mkv, or pictures such as 0001.png"
    )
    if any(map(is_picture, paths)):
        expected = "pictures are in folders below: add `photos`, or name a folder to take them for its frames"
    if os.path.isdir(source) and any(
        _is_video(path) for path, _ in _in_folder(source.name, recursive=True)
    ):
        expected = "videos are in folders below: add `recursive`"
    notes = *_notes_on_outputs(own_outputs(paths)), unread(_unknown_files(paths))
    expected = "; ".join(filter(None, notes)) or expected
    return MediaError(f"{source}: {kind} holds no video file to restore; {expected}")


def _in_folder(folder: str, recursive: bool) -> Iterator[tuple[str, str]]:
    """Yield each file in a folder, and below it with `recursive`, and its folder relative to `folder`."""

    def unreadable(error: OSError) -> None:
        raise MediaError(
            f"{error.filename}: the folder can't be read ({error.strerror})"
        ) from error

    # folders are changed in place, as os.walk enters those that are left
    for parent, folders, files in os.walk(folder, onerror=unreadable):
        below = os.path.relpath(parent, folder)
        for name in sorted(files):
            yield str(Path(parent, name)), "" if below == "." else below
        folders[:] = sorted(filter(_is_entered, folders)) if recursive else []


def _is_entered(folder: str) -> bool:
    """Return False for folders of small copies, of unfinished work, and hidden ones."""
    return (
        folder != _THUMBNAILS
        and not folder.startswith(".")
        and not folder.endswith(WORK_SUFFIX)
    )


def _is_video(path: str, *, photos: bool = False) -> bool:
    """Return True for a video, or a picture if `photos`, that isn't hidden."""
    is_one = Path(path).suffix.lower() in VIDEO_SUFFIXES or (
        photos and is_picture(path)
    )
    return is_one and os.path.isfile(path) and not Path(path).name.startswith(".")


def is_our_output(path: str) -> bool:
    """Return True if the name is that of an output or work folder of vidrestore, or of a hidden file."""
    name = Path(path).name
    return name.startswith(".") or name.endswith(WORK_SUFFIX) or _has_our_suffix(path)


def _has_our_suffix(path: str) -> bool:
    parts = Path(path).name.split(".")
    suffixes = {task.suffix for task in TASKS.values()} | ENLARGED | {PREVIEW}
    return len(parts) > 2 and parts[-2] in suffixes


def clashing(outputs: Mapping[str, Target]) -> dict[str, list[str]]:
    """Return the sources whose output is that of others, too, each with those. Windows and macOS take names
    that differ in case for one.
    """
    sources = defaultdict[str, list[str]](list)
    folds = sys.platform in ("win32", "darwin")
    for source, target in outputs.items():
        sources[target.name.casefold() if folds else target.name].append(source)
    clashes: dict[str, list[str]] = {}
    for group in sources.values():
        if len(group) > 1:
            for source in group:
                clashes[source] = [other for other in group if other != source]
    return clashes


def output_for(
    source: Source,
    output: str | None,
    suffix: str,
    *,
    is_batch: bool = False,
    full: bool = False,
) -> Target:
    """Return the restored video: `output`, or the default name in the folder `output` or beside
    the source. With `full` the name keeps a suffix that can't be written: tape.avi.SUFFIX.mkv.

    Raises OptionError if several inputs would go to one file, if a pipe has no output, or if the output has
    an empty name. Of several inputs, one whose pictures can't be read fails when its turn comes.
    """
    # the output is a pipe, a file, a folder, or beside the source
    if output == "":
        raise OptionError("`output` is empty; give it the name of a file or folder")
    if output is not None and Target(output).is_pipe:
        if is_batch:
            raise OptionError(
                "several inputs can't go into one pipe; give `output` a folder"
            )
        return Target(output)
    into_folder = output is not None and (
        os.path.isdir(output) or output.endswith(("/", os.sep))
    )
    if output is not None and not into_folder:
        if is_batch:
            raise OptionError(
                f"several inputs can't be written to one file, {output}; give `output` a folder (with a "
                "slash at its end if it doesn't exist yet)"
            )
        return Target(output)
    if source.is_pipe:
        raise OptionError(
            "a pipe has no name: give the output with `output=FILE`, or `output=-` for a pipe"
        )
    # pictures stay pictures, a video keeps its container if that can be written
    with suppress(MediaError) if is_batch else nullcontext():
        if source.pictures:
            return Target(
                _pictures_for(
                    source.pictures, output, suffix, is_batch=is_batch, full=full
                )
            )
    path = source.path
    fits = path.suffix.lower() in MUXERS and _has_encoder(path)
    name = f"{path.name if full and not fits else path.stem}.{suffix}{path.suffix if fits else ANY_CONTAINER}"
    return Target(str((path.parent if output is None else Path(output)) / name))


def _has_encoder(path: Path) -> bool:
    """Return False if the source's own container has no encoder for its pictures; FFV1's has one for all."""
    from vidrestore.media.formats.encoder_table import ENCODERS
    from vidrestore.media.reading.probe import open_input, video_stream
    from vidrestore.media.writing.encoders import holds_format

    container = MUXERS[path.suffix.lower()]
    if container in ENCODERS["ffv1"].containers or not path.is_file():
        return True
    try:
        with open_input(str(path)) as opened:
            context = video_stream(opened).codec_context
            return not context.pix_fmt or holds_format(
                container, context.pix_fmt, context.width, context.height
            )
    except MediaError:
        return True  # the work on it will raise the error


def _pictures_for(
    pictures: Pictures, output: str | None, suffix: str, *, is_batch: bool, full: bool
) -> str:
    """Return the output for pictures: a photo beside a photo, and for frames of a video a pattern of the same
    names, in the folder `output` or in one beside their own. The preview of frames is a video.
    """
    # a photo beside a photo
    source = Path(pictures.source)
    if source.is_file():
        fits = source.suffix.lower() in PICTURE_ENCODERS
        stem = source.name if full and not fits else source.stem
        name = f"{stem}.{suffix}{source.suffix if fits else '.png'}"
        # a name such as 100%d.jpg would be numbered
        name = name.replace("%", "_") if Target(name).is_pattern else name
        return str(source.with_name(name) if output is None else Path(output, name))
    # frames of a video: a folder of the same names
    folder = source if source.is_dir() else source.parent
    if folder.name in ("", ".."):  # the working folder, or a root
        folder = Path("pictures")
    if suffix == PREVIEW:
        name = f"{folder.name}.{PREVIEW}.mp4"
        return str(folder.with_name(name) if output is None else Path(output, name))
    pattern = Path(pictures.pattern)
    if pattern.suffix.lower() not in PICTURE_ENCODERS:
        pattern = pattern.with_suffix(".png")
    if output is None:
        return str(folder.with_name(f"{folder.name}.{suffix}") / pattern)
    return str(
        Path(output, folder.name, pattern) if is_batch else Path(output, pattern)
    )
