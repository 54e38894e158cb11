"""Datasets of degraded pictures and their clean ones.

Folders are those of the releases, and of the collections in which the papers' authors redistribute them
(MB-TaylorFormer V2, Restormer, ConvIR).
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from vidrestore.papers.layouts import Dataset, PairLayout, Split

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
