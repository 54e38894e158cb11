"""The papers' datasets are found and paired in folders of every layout of the releases."""

import re
from typing import NamedTuple

import pytest
from dataset_folders import write

from vidrestore.errors import DatasetError
from vidrestore.lab.papers.datasets import find

SHOT = "SIDD_Medium_Srgb/Data/0001_001_S6_00100_00060_3200_L"
JDWAY = "media/jdway/GameSSD/overlapping/test/Snow100K-L"

# name, split, and files below the folder that is given: {what is degraded has, what is clean has}
PAIRS = [
    (
        "its",
        "train",
        [
            "{hazy/1_1_0.90179,clear/1}.png",
            "{hazy/1_2_0.8,clear/1}.png",
            "{hazy/10_1_0.9,clear/10}.png",
        ],
    ),
    ("its", "train", ["RESIDE/ITS/train/ITS_{haze/1_1_0.9,clear/1}.png"]),
    ("its", "train", ["reside-indoor/train/{hazy/1_1_0.9,gt/1}.png"]),
    ("its", "train", ["ITS/Train/{Haze/1_1_0.90179,GT/1}.png"]),
    ("ots", "train", ["OTS_ALPHA/{OTS/0005_0.8_0.04,clear_images/0005}.jpg"]),
    ("ots", "train", ["OTS/{hazy/0005_1_0.2,clear/0005}.jpg"]),
    (
        "sots-indoor",
        "test",
        [
            "SOTS/indoor/{hazy/1400_1,gt/1400}.png",
            "SOTS/indoor/{hazy/1400_10,gt/1400}.png",
        ],
    ),
    ("sots-indoor", "test", ["ITS/Test/{Haze,GT}/00001.png"]),
    (
        "sots-outdoor",
        "test",
        ["RESIDE/SOTS/outdoor/{hazy/0001_0.8_0.2.jpg,clear/0001.png}"],
    ),
    ("haze4k", "train", ["Haze4K/train/{haze/1000_0.74_1.6,gt/1000}.png"]),
    ("haze4k", "test", ["test/{hazy/1_0.89_1.56,clear/1}.png"]),
    (
        "o-haze",
        "train",
        ["# O-HAZY NTIRE 2018/{hazy/40_outdoor_hazy,GT/40_outdoor_GT}.jpg"],
    ),
    ("o-haze", "test", ["O-HAZE/Test/{Haze/41_outdoor_haze,GT/41_outdoor_GT}.jpg"]),
    ("dense-haze", "test", ["Dense_Haze_NTIRE19/{hazy/51_hazy,GT/51_GT}.png"]),
    ("dense-haze", "train", ["Dense-Haze/Train/{Haze/01_hazy,GT/01_GT}.png"]),
    ("nh-haze", "train", ["NH-HAZE/01_{hazy,GT}.png", "NH-HAZE/50_{hazy,GT}.png"]),
    ("nh-haze", "test", ["55_{hazy,GT}.png"]),
    ("rain13k", "train", ["train/Rain13K/{input,target}/1.jpg"]),
    ("rain100h", "test", ["Datasets/test/Rain100H/{input,target}/1.png"]),
    ("rain100h", "test", ["Rain100H/{rainy/rain,norain}-001.png"]),
    ("rain100l", "test", ["{rain,norain}-001.png"]),
    ("test100", "test", ["Test100/{input,target}/1.png"]),
    ("test1200", "test", ["{input,target}/1.png"]),
    ("test2800", "test", ["Rain13K/test/Test2800/{input,target}/1.png"]),
    ("snow100k", "train", ["all/{synthetic,gt}/city_00001.jpg"]),
    ("snow100k", "test-s", ["Snow100K/test/Snow100K-S/{synthetic,gt}/a_1.jpg"]),
    ("snow100k", "test-m", ["Snow100K-M/{synthetic,gt}/a.jpg"]),
    ("snow100k", "test-l", [JDWAY + "/{synthetic,gt}/a.jpg"]),
    ("snow100k", "train2500", ["Snow100K/train2500/{Snow,Gt}/a_1.jpg"]),
    ("snow100k", "test2000", ["Snow100K/test2000/{Haze,GT}/a_1.jpg"]),
    ("srrs", "train", ["SRRS/train2500/{Snow/0.tif,Gt/0.jpg}"]),
    ("srrs", "test", ["test2000/{Snow/1.tif,Gt/1.jpg}"]),
    ("gopro", "train", ["GOPRO_Large/train/GOPR0372_07_00/{blur,sharp}/000047.png"]),
    ("gopro", "train", ["train/GoPro/{input,target}_crops/1-s001.png"]),
    ("gopro", "test", ["Datasets/test/GoPro/{input,target}/1.png"]),
    ("gopro", "test", ["GoPro/test/{blur,sharp}/1.png"]),
    ("hide", "test", ["test/HIDE/{input,target}/1fromGOPR0950.png"]),
    (
        "hide",
        "test",
        [
            "HIDE_dataset/{test/test-close-ups,GT}/1.png",
            "HIDE_dataset/{test/test-long-shot,GT}/2.png",
        ],
    ),
    ("hide", "train", ["HIDE_dataset/{train,GT}/3.png"]),
    (
        "sidd",
        "train",
        [
            SHOT + "/0001_{NOISY,GT}_SRGB_010.PNG",
            SHOT + "/0001_{NOISY,GT}_SRGB_011.PNG",
        ],
    ),
    (
        "sidd",
        "train",
        [SHOT.replace("Medium_Srgb", "Small_sRGB_Only") + "/{NOISY,GT}_SRGB_010.PNG"],
    ),
    ("sidd", "train", ["train/SIDD/{input,target}_crops/1.png"]),
    ("sidd", "validation", ["val/SIDD/{input,target}_crops/1.png"]),
    ("sidd", "validation", ["SIDD/val/{input,gt}_crops/1.png"]),
    ("sidd", "validation", ["SIDD/val/{input,groundtruth}/1.png"]),
]


class Clips(NamedTuple):
    """Folders with the same frames each, the clips found there, and the folder of small frames, if any."""

    name: str
    split: str
    folders: list[str]
    frames: list[str]
    found: list[str]
    small: str = ""


def clips(
    dataset: str, folders: str, frames: str, found: str, small: str = ""
) -> Clips:
    """Names are separated by blanks, those of frames by commas; {a,b} is one folder with a and one with b."""
    parts = [
        re.fullmatch(r"(.*?)(?:\{(.*)\}(.*))?", part).groups("")
        for part in folders.split()
    ]
    spelled = [
        before + each + after
        for before, choice, after in parts
        for each in choice.split(",")
    ]
    return Clips(*dataset.split(), spelled, frames.split(","), found.split(), small)


REDS4 = "000,011,015,020"
GOPRO, DERFS = (
    "hypersmooth,motorbike,rafting,snowboard",
    "park_joy,sunflower,touchdown,tractor",
)
SET8 = " ".join(sorted(f"{GOPRO},{DERFS}".split(",")))
CLIPS = [
    clips(
        "reds train",
        "train_sharp/{000,001} train_sharp_bicubic/X4/001 val_sharp/000 val_sharp_bicubic/X4/000",
        *("00000000,00000001", "001 240", "train_sharp_bicubic/X4/001"),
    ),
    clips(
        "reds train",
        "REDS/train/train_sharp/{002,011,029} REDS/val/val_sharp/{002,011,029}",
        *("00000000", "002 029 242 251 269"),
    ),
    clips("reds train", "REDS/train_sharp/{001,015,240}", "00000000", "001 240"),
    clips("reds test", f"train_sharp/{{{REDS4},001}}", "00000000", "000 011 015 020"),
    clips(
        "reds test",
        f"REDS4/GT/{{{REDS4}}} REDS4/sharp_bicubic/{{{REDS4}}}",
        *("00000000", "000 011 015 020", "REDS4/sharp_bicubic/000"),
    ),
    clips(
        "vid4 test",
        "Vid4/GT/{calendar,city,foliage,walk} Vid4/BIx4/{calendar,city,foliage,walk}",
        *("Frame 001,Frame 002", "calendar city foliage walk", "Vid4/BIx4/calendar"),
    ),
    clips(
        "vid4 test",
        "Vid4/GT/{calendar,city,foliage,walk}",
        "00000000",
        "calendar city foliage walk",
    ),
    clips(
        "vid4 test",
        "{calendar,city,foliage,walk,other}",
        "9,10",
        "calendar city foliage walk",
    ),
    clips("set8 test", f"Set8/{{{GOPRO},{DERFS}}}", "00001", SET8),
    clips(
        "set8 test",
        f"Set8/GoPro/{{{GOPRO}}} Set8/Derfs/{{{DERFS},blue_sky}}",
        "00001",
        SET8,
    ),
    clips("avenue train", "Avenue/training/frames/01", "0000", "01"),
    clips(
        "ucsd train",
        "UCSD_Anomaly_Dataset.v1p2/UCSDped{1,2}/Train/Train001",
        *("001,002", "1/Train001 2/Train001"),
    ),
    clips(
        "shanghaitech test", "shanghaitech/testing/frames/01_0014", "000,001", "01_0014"
    ),
]


def both(file: str) -> tuple[str, str]:
    """The degraded and the clean file of `a{b,c}d`."""
    before, degraded, clean, after = re.fullmatch(
        r"(.*)\{(.*),(.*)\}(.*)", file
    ).groups()
    return before + degraded + after, before + clean + after


def numbered(rows: list[tuple[str, str, list[str]]] | list[Clips]) -> list[str]:
    return [f"{row[0]}-{row[1]}-{number}" for number, row in enumerate(rows)]


@pytest.mark.parametrize(("name", "split", "files"), PAIRS, ids=numbered(PAIRS))
def test_degraded_pictures_are_paired_with_their_clean_ones(
    tmp_path, name, split, files
):
    write(tmp_path, *(file for pair in files for file in both(pair)))
    result = find(name, tmp_path, split)
    assert {(pair.degraded, pair.clean) for pair in result} == {
        tuple(tmp_path / file for file in both(pair)) for pair in files
    }
    assert (len(result), result.name, result.split) == (len(files), name, split)
    assert all(pair.degraded.is_file() and pair.clean.is_file() for pair in result)


@pytest.mark.parametrize(
    ("name", "files"),
    [
        ("sots-indoor", ["ITS/{hazy/1_1_0.90179,clear/1}.png"]),
        ("sots-indoor", ["{hazy/1_1_0.90179,clear/1}.png"]),
        ("sots-outdoor", ["OTS/{hazy/0005_1_0.2,clear/0005}.jpg"]),
    ],
)
def test_a_training_set_of_haze_is_not_its_test_set(tmp_path, name, files):
    write(tmp_path, *(file for pair in files for file in both(pair)))
    with pytest.raises(DatasetError, match="no RESIDE's (in|out)door test set"):
        find(name, tmp_path, "test")


@pytest.mark.parametrize("row", CLIPS, ids=numbered(CLIPS))
def test_clips_are_found_with_their_frames_in_order(tmp_path, row):
    suffix = ".tif" if row.name == "ucsd" else ".png"
    write(
        tmp_path,
        *(
            f"{folder}/{frame}{suffix}"
            for folder in row.folders
            for frame in row.frames
        ),
    )
    result = find(row.name, tmp_path, row.split)
    assert [clip.name for clip in result] == row.found
    for clip in result:
        assert [path.stem for path in clip.clean] == row.frames and all(
            path.is_file() for path in clip.clean
        )
        assert not clip.video and len(clip) == len(row.frames)
    assert result[0].degraded_folder == (tmp_path / row.small if row.small else None)
    assert [path.stem for path in result[0].degraded] == (
        row.frames if row.small else []
    )


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("root", ["", "vimeo_septuplet"])
def test_septuplets_are_those_of_the_list(tmp_path, split, root):
    frames = [f"im{number}.png" for number in range(1, 8)]
    for clip in ("00001/0001", "00001/0002", "00002/0001"):
        for folder in (
            "vimeo_septuplet/sequences",
            "vimeo_septuplet_matlabLRx4/sequences",
        ):
            write(tmp_path, *(f"{folder}/{clip}/{frame}" for frame in frames))
    (tmp_path / "vimeo_septuplet" / f"sep_{split}list.txt").write_text(
        "00001/0002\n00002/0001\n\n"
    )
    result = find("vimeo-90k", tmp_path / root, split)
    assert [clip.name for clip in result] == ["00001/0002", "00002/0001"]
    assert [path.name for path in result[1].clean] == frames
    assert len(result[1].degraded) == (0 if root else 7)
    assert result.measured_frames == ((3,) if split == "test" else ())
    # not so many thousand times the same names
    assert result[0].clean_frames is result[1].clean_frames


@pytest.mark.parametrize(
    ("split", "listed"),
    [("train", "train"), ("validation", "val"), ("test", "test-dev")],
)
def test_clips_of_davis_are_those_of_its_lists(tmp_path, split, listed):
    write(
        tmp_path,
        *(
            f"DAVIS/JPEGImages/480p/{clip}/{number:05d}.jpg"
            for clip in ("bear", "bus", "camel")
            for number in range(2)
        ),
    )
    write(tmp_path, f"DAVIS/ImageSets/2017/{listed}.txt")
    (tmp_path / f"DAVIS/ImageSets/2017/{listed}.txt").write_text("bear\ncamel\n")
    assert [clip.name for clip in find("davis", tmp_path, split)] == ["bear", "camel"]


@pytest.mark.parametrize(
    ("name", "split", "folder", "clips"),
    [
        ("avenue", "test", "Avenue Dataset/testing_videos", ["01", "21"]),
        ("avenue", "train", "training_videos", ["01", "16"]),
        ("shanghaitech", "train", "shanghaitech/training/videos", ["01_001", "13_007"]),
    ],
)
def test_a_clip_may_be_one_video_file(tmp_path, name, split, folder, clips):
    write(tmp_path, *(f"{folder}/{clip}.avi" for clip in clips), f"{folder}/notes.txt")
    result = find(name, tmp_path, split)
    assert [(clip.name, clip.video, clip.clean) for clip in result] == [
        (clip, True, (tmp_path / folder / f"{clip}.avi",)) for clip in clips
    ]


def test_masks_beside_the_clips_of_ucsd_are_left_out(tmp_path):
    write(
        tmp_path,
        "UCSDped1/Test/Test003/001.tif",
        "UCSDped1/Test/Test003/._001.tif",
        "UCSDped1/Test/Test003_gt/001.bmp",
    )
    (clip,) = find("ucsd", tmp_path, "test")
    assert (clip.name, clip.clean_frames) == ("1/Test003", ("001.tif",))


def test_the_sets_of_real_haze_are_split_before_the_last_five_scenes(tmp_path):
    write(
        tmp_path,
        *(
            f"NH-HAZE/{scene:02d}_{kind}.png"
            for scene in range(1, 56)
            for kind in ("hazy", "GT")
        ),
    )
    scenes = {
        split: [int(pair.clean.name[:2]) for pair in find("nh-haze", tmp_path, split)]
        for split in ("train", "test")
    }
    assert scenes == {"train": [*range(1, 51)], "test": [*range(51, 56)]}


def test_rain_and_its_parts_are_found_in_one_folder(tmp_path):
    kinds = ("rain", "norain", "rainregion", "rainstreak")
    write(
        tmp_path,
        *(
            f"rain_data_test_Heavy/{kind}-{number:03d}.png"
            for kind in kinds
            for number in (1, 2)
        ),
    )
    pairs = find("rain100h", tmp_path / "rain_data_test_Heavy", "test")
    assert [(pair.degraded.name, pair.clean.name) for pair in pairs] == [
        (f"rain-00{n}.png", f"norain-00{n}.png") for n in (1, 2)
    ]
