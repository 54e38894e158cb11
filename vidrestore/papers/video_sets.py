"""Datasets of clips: for super-resolution, for denoising, and the three of surveillance cameras in the DUST
paper.
"""

from __future__ import annotations

from dataclasses import replace

from vidrestore.papers.layouts import Dataset, SequenceLayout, Split

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


DATASETS = {
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
