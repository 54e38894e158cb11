"""The header line of YUV4MPEG2 (y4m), of pipes and files."""

from __future__ import annotations

import re

from vidrestore.errors import MediaError

MAGIC = "YUV4MPEG2"
LONGEST_HEADER = 1024  # bytes
# Words of the header; FFmpeg takes one that it doesn't know, or a term that is too large, for another
_CHROMA = (
    "420(jpeg|mpeg2|paldv)?|411|422|444(alpha)?|mono|(4(20|22|44)p|mono)(9|10|12|14|16)"
)
_WORD = re.compile(
    rf"[WH][1-9]\d{{0,4}}|F[1-9]\d*:[1-9]\d*|A\d+:\d+|I[?ptb]|C({_CHROMA})|X\S*"
)
_LARGEST_TERM = 2**31 - 1  # largest term of a ratio
_NEEDED = {"W": "width", "H": "height", "F": "frame rate"}
_EXAMPLE = "ffmpeg -i IN -f yuv4mpegpipe -"


def check_y4m(path: str) -> None:
    """Raise MediaError for a y4m file with a header that FFmpeg would misunderstand. Raises OSError."""
    with open(path, "rb") as file:
        line = file.readline(LONGEST_HEADER)
    if line.startswith(MAGIC.encode()):
        whole_header(line, path)


def whole_header(line: bytes, name: str) -> bytes:
    """Return the header with a colour space. Raises MediaError for one that FFmpeg would misunderstand, or if
    it isn't that of y4m.
    """
    magic, *words = line.decode("ascii", "replace").split() or [""]
    if magic != MAGIC:
        reason = f"it begins with {line[:12]!r}" if line else "it is empty"
        raise MediaError(
            f"{name}: expected a {MAGIC} (y4m) stream on the pipe, but {reason}; for example: {_EXAMPLE}"
        )
    wrong = [
        word[:80]
        for word in words
        if not _WORD.fullmatch(word) or _has_large_term(word)
    ]
    letters = {word[0] for word in words}
    wrong += [
        f"no {need} ({letter})"
        for letter, need in _NEEDED.items()
        if letter not in letters
    ]
    if wrong:
        raise MediaError(
            f"{name}: the y4m header has {', '.join(wrong)}, which can't be read; make another, for example: "
            f"{_EXAMPLE}"
        )
    return line if "C" in letters else line.rstrip() + b" C420jpeg\n"


def _has_large_term(word: str) -> bool:
    return word[0] in "FA" and any(
        int(term) > _LARGEST_TERM for term in re.findall(r"\d+", word)
    )
