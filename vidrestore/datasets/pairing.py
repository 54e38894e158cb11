"""Pair degraded pictures with their clean ones."""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path

from vidrestore.datasets.layouts import PairLayout
from vidrestore.datasets.templates import Fields, base, filled, listing, matches, spelled
from vidrestore.errors import DatasetError
from vidrestore.media.pictures import SUFFIXES

File = tuple[str, str]  # paths of degraded and clean picture, relative to the dataset's folder


def paired_files(root: Path, layout: PairLayout) -> list[File]:
    """Return the pairs below `root`, sorted by the degraded pictures; none if no folder or file fits the
    layout.

    Raises DatasetError for a degraded picture without a clean one, and for other pictures beside them.
    """
    if not (root / spelled(root, base(layout.clean))).is_dir():
        return []
    found = list(matches(root, layout.degraded, SUFFIXES))
    search = _CleanPictures(root)
    pairs = [
        (degraded, search.belonging_to(degraded, filled(layout.clean, fields))) for degraded, fields in found
    ]
    _refuse_others(root, pairs, layout)
    return [pair for pair, (_, fields) in zip(pairs, found, strict=True) if _is_chosen(layout, fields)]


def _is_chosen(layout: PairLayout, fields: Fields) -> bool:
    if layout.scenes is None:
        return True
    first, last = layout.scenes
    return fields["scene"].isdecimal() and first <= int(fields["scene"]) <= last


class _CleanPictures:
    """Finds clean pictures with any suffix; every folder is listed once."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._stems = cache(self._listed)

    def belonging_to(self, degraded: str, expected: str) -> str:
        folder, _, stem = expected.rpartition("/")
        place, stems = self._stems(folder)
        if stem not in stems:
            raise DatasetError(
                f"{self.root / degraded}: has no clean picture; expected {self.root / place / stem} with "
                f"one of {', '.join(SUFFIXES)}; fetch it, or remove the degraded picture from the folder"
            )
        return place + stems[stem]

    def _listed(self, folder: str) -> tuple[str, dict[str, str]]:
        """Return the folder as spelled on disk, with a trailing slash, and its pictures by stem."""
        place = spelled(self.root, folder)
        pictures = {
            os.path.splitext(name)[0]: name
            for name in listing(self.root / place)
            if name.lower().endswith(SUFFIXES)
        }
        return f"{place}/" if place else "", pictures


def _refuse_others(root: Path, pairs: list[File], layout: PairLayout) -> None:
    """Raise DatasetError for a picture in a folder of degraded ones that belongs to no pair."""
    known = {file for pair in pairs for file in pair}
    for folder in sorted({degraded.rpartition("/")[0] for degraded, _ in pairs}):
        ignored = {
            name
            for template in layout.others
            for name, _ in matches(root / folder, template.rpartition("/")[2], SUFFIXES)
        }
        for name in listing(root / folder):
            file = f"{folder}/{name}" if folder else name
            if name.lower().endswith(SUFFIXES) and name not in ignored and file not in known:
                raise DatasetError(
                    f"{root / file}: belongs to no pair; pictures are expected as {layout.degraded} and "
                    f"{layout.clean}; remove it from the folder"
                )
