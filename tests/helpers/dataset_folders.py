"""Made-up folders of datasets, and what is found in them."""

from pathlib import Path

from vidrestore.papers.dataset_files import PairedImages, Sequences
from vidrestore.papers.datasets import find

VID4 = ("calendar", "city", "foliage", "walk")


def write(root: Path, *files: str) -> None:
    """Empty files: nothing is decoded to find them."""
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()


def found_pairs(name: str, root: Path, split: str) -> PairedImages:
    result = find(name, root, split)
    assert isinstance(result, PairedImages)
    return result


def found_clips(name: str, root: Path, split: str) -> Sequences:
    result = find(name, root, split)
    assert isinstance(result, Sequences)
    return result
