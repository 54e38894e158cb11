"""Degraded pictures and the clean ones that belong to them."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

from vidrestore.datasets.layouts import PairLayout
from vidrestore.datasets.templates import filled, listing, matches
from vidrestore.errors import DatasetError
from vidrestore.media.pictures import SUFFIXES


def paired_files(root: Path, layout: PairLayout) -> list[tuple[str, str]]:
    """Degraded and clean files relative to `root`, in order of the degraded ones; none where no file fits the layout.

    Raises DatasetError for a degraded picture without a clean one, and for a picture beside them that is neither.
    """
    pictures = cache(lambda folder: _pictures(root / folder))
    pairs = [
        (file, _clean_file(root, file, filled(layout.clean, fields), pictures)) for file, fields in matches(root, layout.degraded, SUFFIXES)
    ]
    _refuse_others(root, pairs, layout, pictures)
    return pairs


def _pictures(folder: Path) -> dict[str, str]:
    """Pictures of a folder by their names without suffix."""
    return {os.path.splitext(name)[0]: name for name in listing(folder) if name.lower().endswith(SUFFIXES)}


def _clean_file(root: Path, degraded: str, wanted: str, pictures: Callable[[str], dict[str, str]]) -> str:
    folder, _, stem = wanted.rpartition("/")
    name = pictures(folder).get(stem)
    if name is None:
        raise DatasetError(
            f"{root / degraded}: has no clean picture; expected {root / wanted} with one of {', '.join(SUFFIXES)};"
            " fetch it, or take the degraded picture out of the folder"
        )
    return f"{folder}/{name}" if folder else name


def _refuse_others(root: Path, pairs: Iterable[tuple[str, str]], layout: PairLayout, pictures: Callable[[str], dict[str, str]]) -> None:
    """DatasetError for a picture in a folder of degraded ones that belongs to no pair."""
    known = {file for pair in pairs for file in pair}
    for folder in sorted({degraded.rpartition("/")[0] for degraded, _ in pairs}):
        for name in pictures(folder).values():
            if (f"{folder}/{name}" if folder else name) not in known:
                raise DatasetError(
                    f"{root / folder / name}: belongs to no pair; names are expected as {layout.degraded} and {layout.clean};"
                    " take it out of the folder"
                )
