"""Find and read the papers' datasets in folders as their releases lay them out."""

from vidrestore.datasets.finding import find, names, splits
from vidrestore.datasets.layouts import Kind
from vidrestore.datasets.reading import read_frames, read_pair
from vidrestore.datasets.records import FrameSequence, Pair, PairedImages, Sequences
from vidrestore.errors import DatasetError

__all__ = [
    "DatasetError",
    "FrameSequence",
    "Kind",
    "Pair",
    "PairedImages",
    "Sequences",
    "find",
    "names",
    "read_frames",
    "read_pair",
    "splits",
]
