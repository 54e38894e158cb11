"""Write the sheet of `suggest`: crops of a video as given, after each task, and after all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from html import escape
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vidrestore.errors import OptionError
from vidrestore.files.atomic import check_output, write_whole
from vidrestore.jobs.findings import Place
from vidrestore.jobs.request import LoadedSteps, Step
from vidrestore.jobs.steps import Steps
from vidrestore.jobs.suggestion import Suggestion, command_line
from vidrestore.media.formats.source import Source
from vidrestore.media.reading.pictures import png
from vidrestore.pages.page import data_uri
from vidrestore.pages.sequence_frames import channels_last, picture_of
from vidrestore.pixels.frames import Frame, VideoInfo
from vidrestore.settings.options import RestoreOptions

STRENGTHS = (1.0, 0.7, 0.4)
LARGEST_PLACE = (540, 960)  # rows and columns that are restored of each place
SHOWN_CROP = (240, 320)  # rows and columns of a crop on the sheet
GAP = 8  # pixels between the crops of a picture
SHEET_STYLE = """
:root { color-scheme: light dark }
body { font: 15px/1.4 system-ui, sans-serif; margin: 1rem auto; max-width: 84rem; padding: 0 1rem }
section { display: flex; flex-wrap: wrap; gap: 1rem }
figure { margin: 0; width: 320px; max-width: 100% }
img { display: block; max-width: 100%; image-rendering: pixelated }
h1, code { overflow-wrap: anywhere }
code span { white-space: nowrap }
"""


@dataclass(frozen=True)
class Variant:
    """Tasks at a strength; without tasks, the unchanged source."""

    tasks: tuple[str, ...]
    strength: float = 1.0

    @property
    def name(self) -> str:
        share = "" if self.strength == 1 else f" at strength {self.strength:g}"
        return " + ".join(self.tasks) + share if self.tasks else "as it is"


def variants_of(suggestion: Suggestion) -> list[Variant]:
    """Return the variants worth a look: the sure tasks at three strengths, and each task by itself."""
    # all that is sure, at three strengths, then each task by itself
    sure_tasks = suggestion.tasks("yes") or suggestion.tasks("maybe")[:1] or ["denoise"]
    tasks = [task for task in suggestion.tasks("yes", "maybe") if task != "sr"]
    sure_tasks = [task for task in sure_tasks if task != "sr"] or ["denoise"]
    variants = [
        Variant(()),
        *(Variant(tuple(sure_tasks), strength) for strength in STRENGTHS),
    ]
    variants += [Variant((task,)) for task in tasks]
    return list(dict.fromkeys(variants))


def write_sheet(
    path: str,
    suggestion: Suggestion,
    places: Sequence[Place],
    options: RestoreOptions | None = None,
) -> list[str]:
    """Write a sheet, a row for each place and a column for each variant, and return the variants' names.
    Raises MediaError if it can't be written.
    """
    # a row for each place, restored once for each variant
    variants = variants_of(suggestion)
    video = suggestion.info.video
    load = LoadedSteps()
    options = options or RestoreOptions()
    rows = []
    for place in places:
        rows.append(
            [_picture(place, variant, video, options, load) for variant in variants]
        )
    # a page, or one picture of all
    if Path(path).suffix.lower() == ".html":
        content = "\n".join(_page(suggestion, variants, rows)).encode(
            "utf-8", "backslashreplace"
        )
    else:
        margins = ((0, GAP), (0, GAP), (0, 0))
        lines = []
        for row in rows:
            framed = [np.pad(crop, margins, constant_values=255) for crop in row]
            lines.append(np.concatenate(framed, axis=1))
        content = png(np.concatenate(lines))
    write_whole(path, content)
    return [variant.name for variant in variants]


def check_sheet(path: str, source: str, *, overwrite: bool) -> None:
    """Raise OptionError unless a sheet can have this name, MediaError if it is in use (`check_output`)."""
    if Path(path).suffix.lower() not in (".html", ".png"):
        raise OptionError(
            f"`sheet={path}`: expected a name that ends with .html or .png"
        )
    check_output(path, Source(source).files, overwrite=overwrite, option="sheet")


def _picture(
    place: Place,
    variant: Variant,
    video: VideoInfo,
    options: RestoreOptions,
    load: LoadedSteps,
) -> NDArray[np.uint8]:
    """Return the crop (H, W, 3) of the middle frame of a place, restored with its neighbours."""
    # as much of the place as shows the effect
    frames, small = cropped(place.frames, video, LARGEST_PLACE)
    frame = frames[place.middle]
    if variant.tasks:
        steps = [
            Step(task, replace(options, strength=variant.strength))
            for task in variant.tasks
        ]
        work = Steps(steps, [load(step) for step in steps], small)
        with closing(work.frames(iter(frames), work.first.timeline([]))) as restored:
            frame = next(islice(restored, place.middle, None))
    (crop,), video = cropped([frame], small, SHOWN_CROP)
    return channels_last(picture_of(crop, video))


def cropped(
    frames: Sequence[Frame], video: VideoInfo, size: tuple[int, int]
) -> tuple[list[Frame], VideoInfo]:
    """Return the middle of frames, at most `size`, and its description. The first row of each plane is one of
    the same field as before.
    """
    # corners that chroma and both fields have, too
    pixels = video.format
    rows = 2 << pixels.chroma_height_shift
    columns = 1 << pixels.chroma_width_shift
    height = min(size[0], video.height)
    width = min(size[1], video.width)
    top = (video.height - height) // 2 // rows * rows
    left = (video.width - width) // 2 // columns * columns
    sizes = [
        pixels.plane_size(plane, height, width) for plane in range(pixels.plane_count)
    ]
    corners = [
        pixels.plane_size(plane, top, left) for plane in range(pixels.plane_count)
    ]
    areas = []
    for (y, x), (h, w) in zip(corners, sizes, strict=True):
        areas.append((slice(y, y + h), slice(x, x + w)))

    def crop(planes: Sequence[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
        return tuple(
            np.ascontiguousarray(plane[area])
            for plane, area in zip(planes, areas, strict=True)
        )

    crops = []
    for frame in frames:
        second = crop(frame.second) if frame.second else None
        crops.append(replace(frame, planes=crop(frame.planes), second=second))
    return crops, replace(video, height=height, width=width)


def _page(
    suggestion: Suggestion,
    variants: Sequence[Variant],
    rows: Sequence[Sequence[NDArray[np.uint8]]],
) -> Iterator[str]:
    """Yield the lines of a page without external files."""
    path = suggestion.info.path
    yield '<!doctype html><html lang="en"><meta charset="utf-8">'
    yield f"<title>{escape(Path(path).name)}</title>"
    yield f'<meta name="viewport" content="width=device-width"><style>{SHEET_STYLE}</style>'
    yield f"<h1>{escape(path)}</h1><ul>"
    yield from (
        f"<li>{entry.name}: {entry.verdict}. {escape(entry.reason)}</li>"
        for entry in suggestion.findings
    )
    yield "</ul>"
    for number, row in enumerate(rows, 1):
        yield f"<h2>Place {number} of {len(rows)}</h2><section>"
        for variant, picture in zip(variants, row, strict=True):
            line = (
                command_line(path, variant.tasks, variant.strength)
                if variant.tasks
                else ""
            )
            # browsers break lines after hyphens
            words = (escape(word) for word in line.split(" "))
            code = " ".join(
                f"<span>{word}</span>" if word.startswith("--") else word
                for word in words
            )
            code = f"<br><code>{code}</code>" if line else ""
            yield f'<figure><img alt="" src="{data_uri(picture)}">'
            yield f"<figcaption>{variant.name}{code}</figcaption></figure>"
        yield "</section>"
    yield "</html>"
