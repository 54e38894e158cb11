"""The names of sources and outputs: a file, a pipe or pictures.

A folder of pictures, a pattern such as "seq_%04d.png" or a glob are the frames of a video; a photo is a video
of one frame.
"""

from __future__ import annotations

import glob
import hashlib
import os
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path
from typing import BinaryIO, Self

from vidrestore.errors import MediaError, OptionError
from vidrestore.files.atomic import check_output
from vidrestore.files.regular import places_digest

# the name of standard input as a source, and of standard output as an output
PIPE = "-"
Y4M = "yuv4mpegpipe"  # FFmpeg's name of what pipes hold
# FFmpeg's names of the muxers
MUXERS = {
    ".mp4": "mp4",
    ".m4v": "mp4",
    ".mkv": "matroska",
    ".mov": "mov",
    ".webm": "webm",
}
SUFFIXES = {"mp4": ".mp4", "matroska": ".mkv", "mov": ".mov", "webm": ".webm"}

PICTURE_ENCODERS = {
    ".png": "png",
    ".jpg": "mjpeg",
    ".jpeg": "mjpeg",
    ".tif": "tiff",
    ".tiff": "tiff",
}
# FFmpeg's name for numbered pictures; the container of such a source or output
NUMBERED_PICTURES = "image2"
KINDS = {
    ".jpg": "jpeg_pipe", ".jpeg": "jpeg_pipe", ".png": "png_pipe", ".tif": "tiff_pipe", ".tiff": "tiff_pipe",
    ".webp": "webp_pipe", ".bmp": "bmp_pipe", ".avif": "avif",
}  # fmt: skip
HEIF = "heif"  # no demuxer: pillow-heif reads it (`heif`)
AVIF = "avif"  # which FFmpeg's demuxer of MP4 reads
_READS_HEIF = find_spec("pillow_heif") is not None
if _READS_HEIF:
    KINDS |= {".heic": HEIF, ".heif": HEIF}
# first bytes of files -> demuxer
_PICTURE_MAGIC = {
    b"\x89PNG\r\n\x1a\n": "png_pipe",
    b"\xff\xd8\xff": "jpeg_pipe",
    b"II*\0": "tiff_pipe",
    b"MM\0*": "tiff_pipe",
    b"BM": "bmp_pipe",
}
_AVIF_BRANDS = frozenset({b"avif", b"avis"})
_HEIF_BRANDS = frozenset({b"heic", b"heix", b"heim", b"heis", b"mif1", b"msf1"})
_CONVERT = "convert to PNG (16 bits) or TIFF first"
_DEVELOP = "raw data of a camera: develop to 16-bit TIFF first, as with darktable or RawTherapee"
_RAW_SUFFIXES = "3fr arw cr2 cr3 crw dcr dng erf iiq kdc mrw nef nrw orf pef raf raw rw2 rwl sr2 srf srw x3f"
# suffixes of pictures that are not read -> the way out
_OTHER_KINDS = {
    **dict.fromkeys((".exr", ".jp2", ".jxl", ".pgm", ".ppm", ".psd", ".tga"), _CONVERT),
    **{f".{name}": _DEVELOP for name in _RAW_SUFFIXES.split()},
    **(
        {}
        if _READS_HEIF
        else dict.fromkeys(
            (".heic", ".heif"), "pip install 'vidrestore[heic]' reads them"
        )
    ),
}
# Hashed to distinguish a source from another of the same name and size
DIGEST_PLACES, DIGEST_PLACE_BYTES = 32, 1 << 15
_FORMER_HEAD = 1 << 20  # bytes that earlier versions hashed
_PAGE = "a page of the web, as for an error or a login; download the video itself"
_FOREIGN_HEAD = 64  # bytes
# first bytes, in small letters, of files that are often named as videos -> words for them
_FOREIGN = {
    b"version https://git-lfs": "a pointer of Git LFS; get the file that it stands for by `git lfs pull`",
    **dict.fromkeys((b"<!doctype html", b"<html", b"<?xml"), _PAGE),
    b"%pdf": "a PDF", b"pk\3\4": "a ZIP archive; unpack it", b"rar!": "a RAR archive; unpack it",
    b"7z\xbc\xaf": "a 7z archive; unpack it",
}  # fmt: skip
_NUMBER_FIELD = re.compile(r"%(?:0(\d{1,2}))?d")
_NUMBERED = re.compile(r"(.*?)(\d+)(\.[^.]*)")


@dataclass(frozen=True)
class Pictures:
    """The pictures of a folder, a pattern or a glob."""

    source: str  # the name of the folder, pattern or glob
    files: tuple[str, ...]  # in order
    pattern: str  # of their names, such as "seq_%04d.png"
    first: int = 1  # the number of the first
    warnings: tuple[str, ...] = ()  # sentences for the user


@dataclass(frozen=True)
class SourceIdentity:
    """Identifies the file that was planned. A pipe has only its name, "-"."""

    path: str
    size: int | None = None
    modified: int | None = None  # nanoseconds
    # sha256 of the bytes at `DIGEST_PLACES` from its beginning to its end
    places: str | None = None


@dataclass(frozen=True)
class _Named:
    name: str

    @classmethod
    def of(cls, value: str | os.PathLike[str] | Self) -> Self:
        """Parse a name, or return it if it is parsed. Raises MediaError if it is empty or has a NUL."""
        # a name is parsed once, where it enters
        name = os.fspath(value) if isinstance(value, str | os.PathLike) else value
        if not isinstance(name, str) or not name or "\0" in name:
            raise MediaError(
                f"{name!r}: not the name of a file; expected a text without NUL, or a path"
            )
        return value if isinstance(value, cls) else cls(name)

    def __str__(self) -> str:
        return self.name

    def __fspath__(self) -> str:
        return self.name

    @property
    def path(self) -> Path:
        return Path(self.name)

    @property
    def is_pipe(self) -> bool:
        return self.name == PIPE

    @property
    def is_pattern(self) -> bool:
        """True for a name such as out/%04d.png."""
        return self.path.suffix.lower() in KINDS and bool(
            _NUMBER_FIELD.search(self.path.name)
        )

    def numbered(self, number: int) -> Path:
        """Return the name of the picture with a number in a pattern."""
        name = _NUMBER_FIELD.sub(
            lambda place: str(number).zfill(int(place[1] or 0)), self.path.name, count=1
        )
        return self.path.with_name(name)

    def existing(self) -> dict[int, str]:
        """Return the existing pictures of a pattern by number, rising; for a plain name, that picture."""
        # a pattern without its number is a plain name
        path = self.path
        if not _NUMBER_FIELD.search(path.name):
            # False for a name that is too long
            return {1: self.name} if os.path.isfile(path) else {}
        before, after = _NUMBER_FIELD.sub("\0", path.name, count=1).split("\0")
        paths = {}
        for name in _names(path.parent):
            # only names that the pattern would write itself
            middle = name[len(before) : len(name) - len(after)]
            fits = (
                name.startswith(before) and name.endswith(after) and middle.isdecimal()
            )
            if fits and self.numbered(int(middle)).name == name:
                paths[int(middle)] = str(path.with_name(name))
        return dict(sorted(paths.items()))

    def absolute(self) -> Self:
        """Return the same with a name that holds in any folder."""
        return type(self)(os.path.abspath(self.name))


class Source(_Named):
    """The name of a source."""

    @property
    def is_many(self) -> bool:
        """True for a folder or a glob, which may name several videos."""
        is_glob = glob.has_magic(self.name) and not os.path.exists(self.name)
        return not self.is_pipe and (os.path.isdir(self.name) or is_glob)

    @property
    def is_stored(self) -> bool:
        """True for files and pictures, which can be read again."""
        return os.path.isfile(self.name) or self.pictures is not None

    @cached_property
    def pictures(self) -> Pictures | None:
        """The pictures that it names; None if it names something else.

        Raises MediaError if a number is missing, pictures are of several kinds, or a pattern has none.
        """
        return None if self.is_pipe else _find_pictures(self.name)

    @property
    def files(self) -> tuple[str, ...]:
        """The files that it is read from; none for a pipe. Raises MediaError as `pictures` does."""
        if self.is_pipe:
            return ()
        return self.pictures.files if self.pictures else (self.name,)

    def identity(self) -> SourceIdentity:
        """Return the identity of what is there now. Raises MediaError if it can't be read."""
        if self.is_pipe:
            return SourceIdentity(self.name)
        if pictures := _find_pictures(self.name):
            return _identity_of_pictures(pictures)
        try:
            status = self.path.stat()
            places = places_digest(self.path, DIGEST_PLACES, DIGEST_PLACE_BYTES)
        except OSError as error:
            raise MediaError(
                f"{self}: the file can't be read any more ({error.strerror})"
            ) from error
        return SourceIdentity(
            str(self.path.absolute()), status.st_size, status.st_mtime_ns, places
        )

    def former_head(self) -> str | None:
        """Return the sha256 by which earlier versions knew a source. Raises OSError."""
        if _find_pictures(self.name):
            return self.identity().places
        with open(self.name, "rb") as file:
            return hashlib.sha256(file.read(_FORMER_HEAD)).hexdigest()


class Target(_Named):
    """The name of an output."""

    @property
    def suffix(self) -> str:
        return self.path.suffix.lower()

    @property
    def holds_pictures(self) -> bool:
        """True for a pattern, or a name with the suffix of pictures."""
        return self.is_pattern or self.suffix in PICTURE_ENCODERS

    @property
    def container(self) -> str:
        """FFmpeg's name of its container, by the suffix. Raises MediaError for one that can't be written."""
        if self.is_pipe:
            return Y4M
        if self.holds_pictures:
            return NUMBERED_PICTURES
        if self.suffix not in MUXERS:
            problem = "the name has no suffix, which chooses the container"
            if self.suffix:
                problem = f"the suffix {self.suffix!r} is not one that can be written"
            raise MediaError(
                f"{self}: {problem}; expected .mp4, .mkv, .mov or .webm, or - for a y4m pipe, or pictures "
                "such as %04d.png, .tiff (both up to 16 bits) or .jpg"
            )
        return MUXERS[self.suffix]

    @property
    def list_path(self) -> Path:
        """The list of the numbered pictures, with their tag."""
        return self.path.with_name(f".{self.path.name}.vidrestore.json")

    def make_folder(self) -> None:
        """Make the folder of numbered pictures. Raises MediaError."""
        if self.is_pattern:
            try:
                self.path.parent.mkdir(exist_ok=True)
            except OSError as error:
                raise MediaError(
                    f"{self}: its folder can't be made ({error.strerror})"
                ) from error

    def check(
        self, source: Source, *, overwrite: bool, cfr: Fraction | None = None
    ) -> None:
        """Refuse a file or pictures as `check_output` does, pictures of a kind that can't be written, or a
        rate for a file. Raises OutputExistsError, MediaError or OptionError.
        """
        # a pipe has no name that could be taken
        if self.container == Y4M:
            return
        if self.is_pattern and self.suffix not in PICTURE_ENCODERS:
            raise MediaError(
                f"{self}: {self.suffix} pictures can't be written; expected {', '.join(PICTURE_ENCODERS)}"
            )
        existing = self.existing().values() if self.is_pattern else None
        check_output(self.name, source.files, overwrite=overwrite, existing=existing)
        if cfr is not None:
            raise OptionError(
                f"`cfr={cfr}` is for a pipe (`output=-`); a file keeps the time of every frame, remove the "
                "option"
            )


def standard_input() -> BinaryIO:
    """Return standard input. Raises MediaError if it is closed."""
    if sys.__stdin__ is None:
        raise MediaError(
            "-: standard input is closed; pipe something in, or name a file"
        )
    return sys.stdin.buffer


def standard_output() -> BinaryIO:
    """Return standard output. Raises MediaError if it is closed."""
    if sys.__stdout__ is None:
        raise MediaError(
            "-: standard output is closed; pipe it to something, or give `output` a file"
        )
    return sys.stdout.buffer


def is_picture(name: str) -> bool:
    """Return True for the name of a picture that isn't hidden."""
    return Path(name).suffix.lower() in KINDS and not Path(name).name.startswith(".")


def unread(paths: Iterable[str]) -> str | None:
    """Return a sentence on files of kinds that are not read, by their suffixes: pictures with the way out,
    then others; None without one. Hidden files and those of vidrestore don't count.
    """
    # count the suffixes of what a user may have expected to be restored
    names = (Path(path).name for path in paths)
    suffixes = [
        Path(name).suffix.lower()
        for name in names
        if name[0] != "." and "vidrestore" not in name
    ]
    ways = defaultdict[str, list[str]](list)
    for suffix, count in sorted(Counter(suffixes).items()):
        ways[_OTHER_KINDS.get(suffix, "")].append(
            f"{count} {suffix or 'without a suffix'}"
        )
    groups = []
    for way, kinds in sorted(ways.items(), reverse=True):
        advice = f" ({way})" if way else ""
        groups.append(f"{', '.join(kinds)}{advice}")
    return f"left out, as not read: {'; '.join(groups)}" if groups else None


def kind_by_content(path: str) -> str | None:
    """Return the demuxer of a picture by its first bytes; None for another file. Raises OSError."""
    with open(path, "rb") as file:
        # containers whose kind stands behind their length come first
        start = file.read(12)
    if start[:4] + start[8:] == b"RIFFWEBP":
        return "webp_pipe"
    if _READS_HEIF and start[4:8] == b"ftyp" and start[8:] in _HEIF_BRANDS:
        return HEIF
    if start[4:8] == b"ftyp" and start[8:] in _AVIF_BRANDS:
        return AVIF
    return next(
        (kind for magic, kind in _PICTURE_MAGIC.items() if start.startswith(magic)),
        None,
    )


def misnamed(path: str) -> str | None:
    """Return a sentence on a picture whose name is that of another kind; None for others. Raises OSError."""
    kind = kind_by_content(path)
    suffix = Path(path).suffix.lower()
    if kind is None or kind == KINDS.get(suffix):
        return None
    name = kind.removesuffix("_pipe").upper()
    return f"it holds a {name}, though its name ends in {suffix}; outputs are of the kind that they are named"


def foreign_content(path: str) -> str | None:
    """Return what a file that isn't a video is by its first bytes, with the way out; None if it isn't known.
    Raises OSError.
    """
    with open(path, "rb") as file:
        start = file.read(_FOREIGN_HEAD).removeprefix(b"\xef\xbb\xbf").lstrip().lower()
    return next(
        (words for magic, words in _FOREIGN.items() if start.startswith(magic)), None
    )


def _find_pictures(source: str) -> Pictures | None:
    """Return the pictures that a name stands for; None if it names none. Raises MediaError."""
    # a folder, a picture, a pattern, or a glob
    if os.path.isdir(source):
        return _in_order(
            source, [os.path.join(source, name) for name in _names(Path(source))]
        )
    suffix = Path(source).suffix.lower()
    if suffix in _OTHER_KINDS:
        raise MediaError(
            f"{source}: {suffix} pictures are not read ({_OTHER_KINDS[suffix]})"
        )
    if os.path.exists(source):
        return (
            Pictures(source, (source,), Path(source).name) if suffix in KINDS else None
        )
    if (pattern := Source(source)).is_pattern:
        paths = pattern.existing()
        if not paths:
            raise MediaError(
                f"{source}: no picture has such a name; check the folder and the digits"
            )
        _check_gaps(source, list(paths), source)
        return Pictures(source, tuple(paths.values()), Path(source).name, min(paths))
    if glob.has_magic(source):
        return _in_order(source, glob.glob(source), is_glob=True)
    return None


def _names(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in os.scandir(folder)]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise MediaError(
            f"{folder}: the folder can't be read ({error.strerror})"
        ) from error


def _in_order(
    source: str, paths: Iterable[str], *, is_glob: bool = False
) -> Pictures | None:
    """Return the pictures of a folder, whose numbers must be without gaps, or of a glob, all that exist."""
    pictures = (path for path in paths if is_picture(path) and os.path.isfile(path))
    files = sorted(pictures, key=natural_order)
    if not files:
        return None

    # of one kind only
    kinds = {KINDS[Path(path).suffix.lower()]: Path(path).suffix for path in files}
    if len(kinds) > 1:
        suffixes = " and ".join(sorted(kinds.values()))
        one = os.path.join(os.path.dirname(source) if is_glob else source, "*")
        raise MediaError(
            f"{source}: pictures of several kinds, {suffixes}; name one kind, for example "
            f"'{one}{min(kinds.values())}', or add `photos` to restore each by itself"
        )

    # without gaps in their numbers, if they have numbers
    numbering = _numbering(files)
    if numbering is None:
        return Pictures(source, tuple(files), f"%04d{Path(files[0]).suffix.lower()}")
    pattern, numbers = numbering
    warnings: tuple[str, ...] = ()
    if not is_glob:
        _check_gaps(source, numbers, os.path.join(source, pattern))
    elif (missing := numbers[-1] - numbers[0] + 1 - len(numbers)) > 0:
        text = "1 number is" if missing == 1 else f"{missing} numbers are"
        warnings = (
            f"{text} missing between the pictures; they are taken one after the other",
        )
    return Pictures(source, tuple(files), pattern, numbers[0], warnings)


def _numbering(files: list[str]) -> tuple[str, list[int]] | None:
    """Return the pattern and the numbers of names that are alike but for one number; else None."""
    # all names must be alike but for their number
    parts = [_NUMBERED.fullmatch(Path(path).name) for path in files]
    names = {(part[1], part[3]) for part in parts if part}
    if None in parts or len(names) > 1:
        return None
    before, after = names.pop()
    numbers = [part[2] for part in parts if part]
    digits = min(map(len, numbers))
    width = f"0{digits}" if digits > 1 else ""
    return f"{before}%{width}d{after}", [*map(int, numbers)]


def pattern_of(paths: Iterable[str]) -> str | None:
    """Return the pattern of pictures in one folder whose numbers follow each other; else None."""
    files = sorted(paths, key=natural_order)
    # numbers that follow each other
    folders = {*map(os.path.dirname, files)}
    numbering = _numbering(files) if len(files) > 1 and len(folders) == 1 else None
    if numbering is None or any(
        other - one != 1 for one, other in pairwise(numbering[1])
    ):
        return None
    return os.path.join(os.path.dirname(files[0]), numbering[0])


def natural_order(path: str) -> list[tuple[int, str]]:
    """Return a key that sorts numbers in names by value: 2.png before 10.png."""
    parts = re.split(r"(\d+)", path)
    return [(int(part), "") if part.isdecimal() else (0, part) for part in parts]


def _check_gaps(source: str, numbers: list[int], pattern: str) -> None:
    """Raise MediaError for a number that two pictures have, and for the first numbers that none has."""
    # the first gap is enough to say what is missing
    for one, other in pairwise(numbers):
        if one == other:
            raise MediaError(
                f"{source}: two pictures have the number {one}; remove one of them"
            )
        if other - one > 1:
            first, last = (
                Source(pattern).numbered(number).name for number in (one + 1, other - 1)
            )
            missing, add = (
                (f"{first} is", "it")
                if first == last
                else (f"{first} to {last} are", "them")
            )
            all_pictures = os.path.join(
                os.path.dirname(pattern), f"*{Path(pattern).suffix}"
            )
            raise MediaError(
                f"{source}: {missing} missing; add {add}, or take what there is by the pattern "
                f"'{all_pictures}'; `photos` restores each by itself"
            )


def _identity_of_pictures(pictures: Pictures) -> SourceIdentity:
    """Return the identity of all pictures together: their names, sizes and times."""
    # many pictures, each by what the file system tells of it
    names, size, modified = hashlib.sha256(), 0, 0
    for path in pictures.files:
        try:
            status = Path(path).stat()
        except OSError as error:
            raise MediaError(
                f"{path}: the picture can't be read ({error.strerror})"
            ) from error
        names.update(
            f"{Path(path).name} {status.st_size} {status.st_mtime_ns}\n".encode(
                errors="replace"
            )
        )
        size, modified = size + status.st_size, max(modified, status.st_mtime_ns)
    return SourceIdentity(
        str(Path(pictures.source).absolute()), size, modified, names.hexdigest()
    )
