"""All datasets by name."""

from __future__ import annotations

from collections.abc import Mapping

from vidrestore.datasets import image_sets, video_sets
from vidrestore.datasets.layouts import Dataset

DATASETS: Mapping[str, Dataset] = image_sets.DATASETS | video_sets.DATASETS
