"""Datasets of clips."""

from __future__ import annotations

from vidrestore.datasets.layouts import Dataset, SequenceLayout, Split

REDS4 = frozenset({"000", "011", "015", "020"})  # of the training clips: EDVR's test set

DATASETS = {
    "vid4": Dataset(
        title="Vid4",
        layout="GT/calendar, GT/city, GT/foliage and GT/walk with frames in order, and the same in BIx4 where they are not to be made",
        folders=("", "Vid4"),
        splits={"test": Split(((SequenceLayout("GT/{clip}/{frame}", ("BIx4/{clip}/{frame}",)),),))},
    ),
}
