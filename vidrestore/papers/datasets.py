"""Datasets of degraded pictures and their clean ones, and of clips: how their files are laid out.

Folders are those of the releases, and of the collections in which the papers' authors redistribute them
(MB-TaylorFormer V2, Restormer, ConvIR).

A template is a path below the folder that the user names, without the suffix of its files:
`hazy/{scene}_{haze}` means all pictures in `hazy` whose name has an underscore. `{name}` stands for one or
more characters of one folder's or file's name, as few as fit, and for the same characters wherever it is
repeated, in the same template and in that of the clean pictures. Names are case-sensitive, but the folders
that a template spells out are not: releases have `GT` and `gt`, `Train` and `train`.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Literal

from vidrestore.errors import DatasetError

Kind = Literal["pairs", "clips"]  # pairs of pictures, or clips of frames


@dataclass(frozen=True)
class PairLayout:
    """Pairs of pictures: templates of the degraded ones and of the clean one of each."""

    degraded: str
    clean: str
    centred: bool = False  # larger clean pictures are cropped around their middle
    scenes: tuple[int, int] | None = None  # first and last number of `{scene}` in this split
    others: tuple[str, ...] = ()  # templates of other pictures in these folders, to be ignored


@dataclass(frozen=True)
class SequenceLayout:
    """Clips: the template of their frames, with `{clip}` and, in its last part, `{frame}`; without `{frame}`,
    of video files.

    `degraded` are templates of the low-resolution frames; the first whose folder exists is used. `listed` is
    a file with the name of one `{clip}` per line. `only` and `without` select clips by name. `shift` is added
    to the names, which must be numbers then. `frames` is the number of frames of every clip; 0 if they
    differ.
    """

    clean: str
    degraded: tuple[str, ...] = ()
    listed: str = ""
    only: frozenset[str] = frozenset()
    without: frozenset[str] = frozenset()
    shift: int = 0
    frames: int = 0


@dataclass(frozen=True)
class Split:
    """Layouts that releases have, of pairs or of clips; the first that is found is used. Clips may be in
    several parts.
    """

    pairs: tuple[PairLayout, ...] = ()
    clips: tuple[tuple[SequenceLayout, ...], ...] = ()
    measured_frames: tuple[int, ...] = ()  # see `records.Sequences`


@dataclass(frozen=True)
class Dataset:
    """One dataset: its name in papers, its splits, and the folders that releases wrap it in.

    `layout` describes what is expected, `advice` what to do if it isn't found. `refused` are globs of files
    that hold the pictures in a form that is not supported, each with what to do about it.
    """

    title: str
    layout: str
    splits: Mapping[str, Split]
    folders: tuple[str, ...] = ()
    advice: str = "unpack the release there as it is, or name the folder that holds it"
    refused: tuple[tuple[str, str], ...] = ()

    @property
    def kind(self) -> Kind:
        return "pairs" if any(split.pairs for split in self.splits.values()) else "clips"


Fields = dict[str, str]
_NAMES = re.compile(r"\{(\w+)\}")


def base(template: str) -> str:
    """Return the folders of a template before the first part with a placeholder."""
    parts = template.split("/")
    return "/".join(parts[: next(index for index, part in enumerate(parts) if "{" in part)])


def spelled(root: Path, path: str) -> str:
    """Return `path` as it is spelled below `root` if only upper and lower case differ; else unchanged."""
    found = ""
    for part in path.split("/") if path else []:
        folder = root / found
        exact = (folder / part).exists()
        alike = [] if exact else [name for name in listing(folder) if name.lower() == part.lower()]
        found = f"{found}/{alike[0] if alike else part}".removeprefix("/")
    return found


def filled(template: str, fields: Mapping[str, str]) -> str:
    """Return a template with its placeholders replaced."""
    return _NAMES.sub(lambda name: fields[name[1]], template)


def matches(root: Path, template: str, suffixes: tuple[str, ...] = ()) -> Iterator[tuple[str, Fields]]:
    """Yield the matches below `root`, in order: relative paths, and the values of the template's
    placeholders.

    Matches are files with one of `suffixes`, which the template omits; without suffixes they are folders.
    """
    yield from _walk(root, "", template.split("/"), suffixes, {})


def _walk(
    root: Path, folder: str, parts: list[str], suffixes: tuple[str, ...], known: Fields
) -> Iterator[tuple[str, Fields]]:
    part, *rest = parts
    ends = () if rest else suffixes
    for name, found in _fitting(root / folder, part, ends, known):
        if rest:
            yield from _walk(root, f"{folder}{name}/", rest, suffixes, known | found)
        elif ends or (root / folder / name).is_dir():
            yield folder + name, known | found


def _fitting(folder: Path, part: str, ends: tuple[str, ...], known: Fields) -> Iterator[tuple[str, Fields]]:
    """Yield names in a folder that fit one part of a template; with suffixes `ends`, files by their stems."""
    if "{" not in part:
        yield spelled(folder, part), {}
        return
    pattern = _pattern(part, tuple((name, known[name]) for name in _NAMES.findall(part) if name in known))
    for name in listing(folder):
        if ends and not name.lower().endswith(ends):
            continue
        if found := pattern.fullmatch(os.path.splitext(name)[0] if ends else name):
            yield name, found.groupdict()


@lru_cache
def _pattern(part: str, known: tuple[tuple[str, str], ...]) -> re.Pattern[str]:
    """Compile one part of a template: other text is literal; a known or repeated placeholder must have its
    earlier value.
    """
    pieces = []
    seen: set[str] = set()
    for index, piece in enumerate(_NAMES.split(part)):
        if index % 2 == 0:
            pieces.append(re.escape(piece))
        elif piece in dict(known):
            pieces.append(re.escape(dict(known)[piece]))
        else:
            pieces.append(f"(?P={piece})" if piece in seen else f"(?P<{piece}>.+?)")
            seen.add(piece)
    return re.compile("".join(pieces))


def listing(folder: Path) -> list[str]:
    """Return the sorted names in a folder without hidden ones; none if it doesn't exist. Raises DatasetError
    if it can't be read.
    """
    try:
        return sorted(name for name in os.listdir(folder) if not name.startswith("."))
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise DatasetError(f"{folder}: the folder can't be read ({error.strerror})") from error


def in_order(names: list[str]) -> list[str]:
    """Sort names with numbers by value: im2 before im10."""
    return sorted(
        names,
        key=lambda name: [
            (len(part), part) if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)
        ],
    )


HAZY, CLEAR = ("hazy", "haze", "input"), ("clear", "gt", "target")
INPUT, TARGET = ("input", "input_crops"), ("target", "target_crops")
MAT = (
    "holds pictures in a MATLAB file, which is not supported; write its blocks as PNG files of equal names "
    "(scipy.io.loadmat returns an array of 40x32 blocks of 256x256 R, G, B)"
)


def beside(
    degraded: Sequence[str],
    clean: Sequence[str],
    names: str = "{name}",
    clean_names: str = "{name}",
    *,
    within: Sequence[str] = ("",),
    centred: bool = False,
    scenes: tuple[int, int] | None = None,
) -> tuple[PairLayout, ...]:
    """Return layouts of a folder of degraded and a folder of clean pictures, by any of their names, in any
    folder of `within`.
    """
    return tuple(
        PairLayout(f"{folder}{one}/{names}", f"{folder}{other}/{clean_names}", centred, scenes)
        for folder, one, other in product(within, degraded, clean)
    )


def real_haze(title: str, names: str, clean_names: str, last: int, *folders: str) -> Dataset:
    """Return one of the sets of real haze, whose last five scenes are the test set, as in MB-TaylorFormer
    V2's release.
    """
    splits = {}
    for split, scenes in (("train", (1, last - 5)), ("test", (last - 4, last))):
        whole = (
            *beside(HAZY, CLEAR, names, clean_names, scenes=scenes),
            PairLayout(names, clean_names, scenes=scenes),
        )
        splits[split] = Split((*beside(HAZY, CLEAR, names, clean_names, within=(f"{split}/",)), *whole))
    first, clean = (template.format(scene="01", haze="hazy") for template in (names, clean_names))
    layout = (
        f"hazy/{first} and GT/{clean}, or both in one folder, all {last} scenes; or train/hazy, "
        "train/GT, test/hazy and test/GT"
    )
    return Dataset(title, layout, splits, folders)


def rain_test(name: str, *others: PairLayout) -> Dataset:
    """Return one of the five test sets of Rain13K."""
    splits = {
        "test": Split((*beside(("input",), ("target",), within=(f"test/{name}/", f"{name}/", "")), *others))
    }
    layout = f"test/{name}/input and test/{name}/target, pictures of equal names"
    return Dataset(
        f"{name} (of Rain13K's test sets)",
        layout,
        splits,
        ("Datasets", "Rain13K", "Datasets/Rain13K", "test"),
    )


def yang_rain(name: str) -> tuple[PairLayout, ...]:
    """Return the layouts of Rain100H and Rain100L as released by their own authors: rain-001 pairs with
    norain-001.
    """
    others = ("rainregion-{scene}", "rainstreak-{scene}", "norain-{scene}")
    return tuple(
        PairLayout(f"{folder}{rainy}rain-{{scene}}", f"{folder}norain-{{scene}}", others=others)
        for folder, rainy in product(("", f"{name}/"), ("rainy/", ""))
    )


DATASETS = {
    "its": Dataset(
        "RESIDE's indoor training set (ITS)",
        "hazy/1_1_0.90179.png and clear/1.png, or train/ITS_haze and train/ITS_clear",
        {
            "train": Split(
                (
                    *beside(
                        ("ITS_haze",),
                        ("ITS_clear",),
                        "{scene}_{haze}",
                        "{scene}",
                        within=("train/", ""),
                        centred=True,
                    ),
                    *beside(HAZY, CLEAR, "{scene}_{haze}", "{scene}", within=("train/", ""), centred=True),
                )
            )
        },
        ("ITS", "RESIDE/ITS", "RESIDE", "reside-indoor", "RESIDE-IN"),
    ),
    "ots": Dataset(
        "RESIDE's outdoor training set (OTS)",
        "hazy/0005_0.8_0.04.jpg and clear/0005.jpg, or OTS_ALPHA/OTS and OTS_ALPHA/clear_images",
        {
            "train": Split(
                (
                    *beside(
                        ("OTS", "haze/OTS"),
                        ("clear_images", "clear/clear_images"),
                        "{scene}_{haze}",
                        "{scene}",
                    ),
                    *beside(HAZY, CLEAR, "{scene}_{haze}", "{scene}", within=("train/", "")),
                )
            )
        },
        ("OTS_ALPHA", "OTS", "RESIDE/OTS_ALPHA", "RESIDE/OTS", "reside-outdoor", "RESIDE-OUT"),
    ),
    "sots-indoor": Dataset(
        "RESIDE's indoor test set (SOTS indoor)",
        "SOTS/indoor/hazy/1400_1.png and SOTS/indoor/gt/1400.png, or ITS/test/Haze and ITS/test/GT with "
        "pictures of equal names",
        {
            "test": Split(
                (
                    *beside(
                        HAZY,
                        CLEAR,
                        "{scene}_{haze}",
                        "{scene}",
                        within=("indoor/", "nyuhaze500/", "test/", ""),
                        centred=True,
                    ),
                    *beside(HAZY, CLEAR, within=("indoor/", "nyuhaze500/", "test/", ""), centred=True),
                )
            )
        },
        ("SOTS", "RESIDE/SOTS", "RESIDE", "ITS", "reside-indoor", "RESIDE-IN"),
    ),
    "sots-outdoor": Dataset(
        "RESIDE's outdoor test set (SOTS outdoor)",
        "SOTS/outdoor/hazy/0001_0.8_0.2.jpg and SOTS/outdoor/gt/0001.png, or OTS/test/Haze and OTS/test/GT "
        "with pictures of equal names",
        {
            "test": Split(
                (
                    *beside(HAZY, CLEAR, "{scene}_{haze}", "{scene}", within=("outdoor/", "test/", "")),
                    *beside(HAZY, CLEAR, within=("outdoor/", "test/", "")),
                )
            )
        },
        ("SOTS", "RESIDE/SOTS", "RESIDE", "OTS", "reside-outdoor", "RESIDE-OUT"),
    ),
    "haze4k": Dataset(
        "Haze4K",
        "train/haze/1000_0.74_1.6.png and train/gt/1000.png, and the same in test",
        {
            split: Split(beside(HAZY, CLEAR, "{scene}_{haze}", "{scene}", within=(f"{split}/",)))
            for split in ("train", "test")
        },
        ("Haze4K",),
    ),
    "o-haze": real_haze(
        *("O-HAZE", "{scene}_outdoor_{haze}", "{scene}_outdoor_GT", 45),
        *(
            "O-HAZE",
            "# O-HAZY NTIRE 2018",
            "O-HAZY NTIRE 2018",
            "O-HAZE/# O-HAZY NTIRE 2018",
            "O-HAZE/O-HAZY NTIRE 2018",
        ),
    ),
    "dense-haze": real_haze(
        "Dense-Haze",
        "{scene}_hazy",
        "{scene}_GT",
        55,
        "Dense-Haze",
        "Dense_Haze_NTIRE19",
        "Dense-Haze/Dense_Haze_NTIRE19",
    ),
    "nh-haze": real_haze("NH-HAZE", "{scene}_hazy", "{scene}_GT", 55, "NH-HAZE", "NH-HAZE/NH-HAZE"),
    "rain13k": Dataset(
        "Rain13K",
        "train/Rain13K/input and train/Rain13K/target, pictures of equal names",
        {"train": Split(beside(("input",), ("target",), within=("train/Rain13K/", "train/", "")))},
        ("Rain13K", "Datasets", "Datasets/Rain13K"),
    ),
    "rain100h": rain_test("Rain100H", *yang_rain("Rain100H")),
    "rain100l": rain_test("Rain100L", *yang_rain("Rain100L")),
    "test100": rain_test("Test100"),
    "test1200": rain_test("Test1200"),
    "test2800": rain_test("Test2800"),
    "snow100k": Dataset(
        "Snow100K",
        "all/synthetic and all/gt for training; Snow100K-S/synthetic and Snow100K-S/gt, and so for M and "
        "L, for tests; pictures of equal names; train2500 and test2000 of MB-TaylorFormer V2 as "
        "train2500/Snow and train2500/Gt",
        {
            "train": Split(beside(("synthetic",), ("gt",), within=("all/", "train/", "train/all/"))),
            **{
                f"test-{size.lower()}": Split(
                    beside(
                        *(("synthetic",), ("gt",)),
                        within=(
                            f"Snow100K-{size}/",
                            f"test/Snow100K-{size}/",
                            f"media/jdway/GameSSD/overlapping/test/Snow100K-{size}/",
                        ),
                    )
                )
                for size in "SML"
            },
            "train2500": Split(beside(("Snow", "haze"), ("Gt",), within=("train2500/",))),
            "test2000": Split(beside(("Snow", "haze"), ("Gt",), within=("test2000/",))),
        },
        ("Snow100K",),
    ),
    "srrs": Dataset(
        "SRRS",
        "train2500/Snow/0.tif and train2500/Gt/0.jpg, and the same in test2000",
        {
            split: Split(beside(("Snow",), ("Gt",), within=(f"{split}{count}/",)))
            for split, count in (("train", 2500), ("test", 2000))
        },
        ("SRRS",),
    ),
    "gopro": Dataset(
        "GoPro (GOPRO_Large, blur without gamma)",
        "train/GOPR0372_07_00/blur/000047.png and train/GOPR0372_07_00/sharp/000047.png, and the same in "
        "test; or train/GoPro/input and train/GoPro/target, or input_crops and target_crops",
        {
            split: Split(
                (
                    PairLayout(f"{split}/{{scene}}/blur/{{frame}}", f"{split}/{{scene}}/sharp/{{frame}}"),
                    *beside(
                        INPUT[::-1], TARGET[::-1], within=(f"{split}/GoPro/", f"{split}/", f"GoPro/{split}/")
                    ),
                    *beside(("blur",), ("sharp",), within=(f"{split}/",)),
                )
            )
            for split in ("train", "test")
        },
        ("GOPRO_Large", "GoPro", "Datasets"),
    ),
    "hide": Dataset(
        "HIDE",
        "test/HIDE/input and test/HIDE/target; or train and GT, test/test-close-ups, test/test-long-shot "
        "and GT; pictures of equal names",
        {
            "train": Split((PairLayout("train/{name}", "GT/{name}"),)),
            "test": Split(
                (
                    *beside(("input",), ("target",), within=("test/HIDE/", "HIDE/", "")),
                    PairLayout("test/{shot}/{name}", "GT/{name}"),
                )
            ),
        },
        ("HIDE", "HIDE_dataset", "Datasets"),
    ),
    "sidd": Dataset(
        "SIDD (sRGB)",
        "Data/0001_001_S6_00100_00060_3200_L/0001_NOISY_SRGB_010.PNG and 0001_GT_SRGB_010.PNG beside it "
        "for training (SIDD-Medium), or train/SIDD/input_crops and target_crops; val/SIDD/input_crops and "
        "target_crops for validation, pictures of equal names",
        {
            "train": Split(
                (
                    PairLayout(
                        "Data/{scene}/{number}_NOISY_SRGB_{place}", "Data/{scene}/{number}_GT_SRGB_{place}"
                    ),
                    PairLayout("Data/{scene}/NOISY_SRGB_{place}", "Data/{scene}/GT_SRGB_{place}"),
                    *beside(INPUT[::-1], TARGET[::-1], within=("train/SIDD/", "SIDD/train/", "train/")),
                )
            ),
            "validation": Split(
                (
                    *beside(INPUT[::-1], TARGET[::-1], within=("val/SIDD/", "SIDD/val/", "val/")),
                    *beside(("input_crops",), ("gt_crops",), within=("val/", "")),
                    *beside(("input",), ("groundtruth",), within=("val/", "")),
                )
            ),
        },
        ("SIDD_Medium_Srgb", "SIDD_Small_sRGB_Only", "SIDD", "SIDD/SIDD_Medium_Srgb", "Datasets"),
        refused=tuple(
            (f"{folder}*BlocksSrgb.mat", MAT)
            for folder in ("", "test/", "test/SIDD/", "val/", "SIDD/", "SIDD/test/")
        ),
    ),
}


REDS4 = frozenset({"000", "011", "015", "020"})  # clips of the training set that are EDVR's test set
VALIDATION_FIRST = 240  # number of REDS's first validation clip when it is used for training, as in BasicSR
SEPTUPLET, SEPTUPLET_MEASURED = 7, 3  # frames, and the index of the one that is measured
VID4 = frozenset({"calendar", "city", "foliage", "walk"})
SET8 = frozenset(
    {"tractor", "touchdown", "park_joy", "sunflower", "hypersmooth", "motorbike", "rafting", "snowboard"}
)
FRAMES = "{clip}/{frame}"


def reds(
    part: str,
    folder: str,
    only: frozenset[str] = frozenset(),
    without: frozenset[str] = frozenset(),
    shift: int = 0,
) -> SequenceLayout:
    """Return `part` of REDS ("train", "val"), its folders in `folder`."""
    small = f"{folder}{part}_sharp_bicubic/X4/{FRAMES}"
    return SequenceLayout(f"{folder}{part}_sharp/{FRAMES}", (small,), only=only, without=without, shift=shift)


def reds_train(train: str, val: str) -> tuple[SequenceLayout, ...]:
    return reds("train", train, without=REDS4), reds("val", val, shift=VALIDATION_FIRST)


def vimeo(split: str, measured_frames: tuple[int, ...] = ()) -> Split:
    frames, listed = "{clip}/im{frame}", f"sep_{split}list.txt"
    small = "vimeo_septuplet_matlabLRx4/sequences/" + frames
    layouts = (
        SequenceLayout(f"vimeo_septuplet/sequences/{frames}", (small,), listed=f"vimeo_septuplet/{listed}"),
        SequenceLayout(f"sequences/{frames}", listed=listed),
        SequenceLayout(f"GT/{frames}", (f"BIx4/{frames}",), listed=listed),
    )
    return Split(
        clips=tuple((replace(layout, frames=SEPTUPLET),) for layout in layouts),
        measured_frames=measured_frames,
    )


def davis(listed: str) -> Split:
    return Split(
        clips=((SequenceLayout(f"JPEGImages/480p/{FRAMES}", listed=f"ImageSets/2017/{listed}.txt"),),)
    )


DATASETS |= {
    "reds": Dataset(
        "REDS",
        "train_sharp/000/00000000.png, with val_sharp beside it or its clips in train_sharp as 240 to 269; "
        "the small frames, where they are not to be made, in train_sharp_bicubic/X4 and "
        "val_sharp_bicubic/X4. REDS4, the test split, may lie in GT and sharp_bicubic",
        {
            "train": Split(
                clips=(reds_train("", ""), reds_train("train/", "val/"), (reds("train", "", without=REDS4),))
            ),
            "test": Split(
                clips=(
                    (SequenceLayout(f"GT/{FRAMES}", (f"sharp_bicubic/{FRAMES}",), only=REDS4),),
                    (reds("train", "", only=REDS4),),
                    (reds("train", "train/", only=REDS4),),
                )
            ),
        },
        ("REDS", "REDS4"),
    ),
    "vimeo-90k": Dataset(
        "Vimeo-90K septuplets",
        "vimeo_septuplet/sequences/00001/0001/im1.png to im7.png, vimeo_septuplet/sep_trainlist.txt and "
        "sep_testlist.txt; the small frames, where they are not to be made, in "
        "vimeo_septuplet_matlabLRx4/sequences",
        {"train": vimeo("train"), "test": vimeo("test", (SEPTUPLET_MEASURED,))},
        ("vimeo90k", "vimeo_septuplet"),
    ),
    "vid4": Dataset(
        "Vid4",
        "GT/calendar, GT/city, GT/foliage and GT/walk with their frames, and the same in BIx4 where the "
        "small frames are not to be made",
        {
            "test": Split(
                clips=(
                    (SequenceLayout(f"GT/{FRAMES}", (f"BIx4/{FRAMES}",), only=VID4),),
                    (SequenceLayout(f"original/{FRAMES}", (f"BIx4/{FRAMES}",), only=VID4),),
                    (SequenceLayout(FRAMES, only=VID4),),
                )
            )
        },
        ("Vid4",),
    ),
    "davis": Dataset(
        "DAVIS 2017 at 480p",
        "JPEGImages/480p/bear/00000.jpg and ImageSets/2017/train.txt, val.txt, or test-dev.txt for the test "
        "split",
        {"train": davis("train"), "validation": davis("val"), "test": davis("test-dev")},
        (
            "DAVIS",
            "DAVIS-2017-trainval-480p/DAVIS",
            "DAVIS-2017-test-dev-480p/DAVIS",
            "trainval/DAVIS",
            "test-dev/DAVIS",
        ),
    ),
    "set8": Dataset(
        "Set8",
        f"folders {', '.join(sorted(SET8))} with frames of 960x540, there or in Derfs and GoPro",
        {
            "test": Split(
                clips=(
                    (SequenceLayout(FRAMES, only=SET8),),
                    (
                        SequenceLayout(f"Derfs/{FRAMES}", only=SET8),
                        SequenceLayout(f"GoPro/{FRAMES}", only=SET8),
                    ),
                )
            )
        },
        ("Set8",),
    ),
    "avenue": Dataset(
        "CUHK Avenue",
        "training_videos/01.avi to 16.avi and testing_videos/01.avi to 21.avi",
        {
            "train": Split(
                clips=(
                    (SequenceLayout("training_videos/{clip}"),),
                    (SequenceLayout(f"training/frames/{FRAMES}"),),
                )
            ),
            "test": Split(
                clips=(
                    (SequenceLayout("testing_videos/{clip}"),),
                    (SequenceLayout(f"testing/frames/{FRAMES}"),),
                )
            ),
        },
        ("Avenue Dataset", "Avenue_Dataset/Avenue Dataset", "Avenue"),
    ),
    "ucsd": Dataset(
        "UCSD Anomaly Detection (Ped1 and Ped2)",
        "UCSDped1/Train/Train001/001.tif and UCSDped1/Test/Test001/001.tif, and the same in UCSDped2",
        {
            split: Split(clips=((SequenceLayout(f"UCSDped{{scene}}/{split}/{FRAMES}"),),))
            for split in ("train", "test")
        },
        ("UCSD_Anomaly_Dataset.v1p2", "UCSD"),
    ),
    "shanghaitech": Dataset(
        "ShanghaiTech Campus",
        "training/videos/01_001.avi and testing/frames/01_0014/000.jpg",
        {
            "train": Split(
                clips=(
                    (SequenceLayout("training/videos/{clip}"),),
                    (SequenceLayout(f"training/frames/{FRAMES}"),),
                )
            ),
            "test": Split(
                clips=(
                    (SequenceLayout(f"testing/frames/{FRAMES}"),),
                    (SequenceLayout("testing/videos/{clip}"),),
                )
            ),
        },
        ("shanghaitech",),
    ),
}
