"""Large pictures of SIDD and GoPro are cut into crops that the same readers find, once."""

from pathlib import Path

import numpy as np
import pytest
from cut_pairs import cut_all, starts
from sample_pictures import write_rgb
from set_runs import noise

from vidrestore.lab.papers.datasets import find
from vidrestore.media.reading.pictures import read_rgb

LAYOUTS = {
    "sidd": (
        "Data/0001_001_S6/0001_NOISY_SRGB_010.png",
        "Data/0001_001_S6/0001_GT_SRGB_010.png",
        128,
    ),
    "gopro": (
        "train/GOPR0372_07_00/blur/000047.png",
        "train/GOPR0372_07_00/sharp/000047.png",
        256,
    ),
}


def test_crops_cover_a_picture_and_end_with_it():
    assert starts(3000, 512, 128) == [0, 384, 768, 1152, 1536, 1920, 2304, 2488]
    assert (starts(1280, 512, 256), starts(512, 512, 256), starts(40, 512, 256)) == (
        [0, 256, 512, 768],
        [0],
        [0],
    )


@pytest.mark.parametrize("dataset", ["sidd", "gopro"])
def test_pairs_are_cut_once_into_crops_that_the_reader_finds(tmp_path, dataset):
    degraded, clean, overlap = LAYOUTS[dataset]
    pictures = noise(530, 900, 1), noise(530, 900, 2)
    for name, picture in zip((degraded, clean), pictures, strict=True):
        write_rgb(tmp_path / "release" / name, picture)
    assert list(cut_all(dataset, tmp_path / "release", tmp_path / "crops", jobs=1)) == [
        6
    ]
    crops = find(dataset, tmp_path / "crops", "train")
    rebuilt = np.zeros((2, 3, 530, 900), dtype=np.uint8)
    step = 512 - overlap
    columns = sorted({0, *(x for x in (step,) if x < 388), 388})
    places = [(y, x) for y in (0, 18) for x in columns]
    for pair, (y, x) in zip(crops, places, strict=True):
        for part, path in enumerate((pair.degraded, pair.clean)):
            rebuilt[part, :, y : y + 512, x : x + 512] = read_rgb(path)
    assert (rebuilt == np.stack(pictures)).all()
    files = {
        path: path.stat().st_mtime_ns
        for path in Path(tmp_path / "crops").rglob("*.png")
    }
    list(cut_all(dataset, tmp_path / "release", tmp_path / "crops", jobs=1))
    assert files == {path: path.stat().st_mtime_ns for path in files}
