"""Made-up test sets of the three papers in the layouts that they are distributed in, and networks."""

from pathlib import Path

import numpy as np
from dataset_folders import VID4
from sample_pictures import write_rgb
from sample_videos import write_video

from vidrestore.weights import build_network, save_model

PAIRS = (  # names of the degraded and the clean picture
    "SOTS/indoor/{hazy/1400_1,gt/1400}.png",
    "SOTS/outdoor/{hazy/0001_0.8_0.2,clear/0001}.png",
    "Haze4K/test/{haze/1_0.89_1.56,gt/1}.png",
    "O-HAZE/Test/{Haze/41_outdoor_haze,GT/41_outdoor_GT}.png",
    "Dense_Haze_NTIRE19/{hazy/51_hazy,GT/51_GT}.png",
    "NH-HAZE/55_{hazy,GT}.png",
    *(f"test/{name}/{{input,target}}/1.png" for name in ("Rain100H", "Rain100L")),
    *(
        f"test/{name}/{{input,target}}/1.png"
        for name in ("Test100", "Test1200", "Test2800")
    ),
    "Snow100K/test2000/{Haze,GT}/a_1.png",
    "SRRS/test2000/{Snow/1,Gt/1}.png",
    *(f"test/{name}/{{input,target}}/1.png" for name in ("GoPro", "HIDE")),
    "val/SIDD/{input,target}_crops/1.png",
)
CLIPS = (
    *(f"REDS/train_sharp/{name}/00000000.png" for name in ("000", "011", "015", "020")),
    *(f"vimeo_septuplet/sequences/00001/0001/im{number}.png" for number in range(1, 8)),
    *(f"Vid4/GT/{name}/00000000.png" for name in VID4),
    *(
        f"UCSD_Anomaly_Dataset.v1p2/UCSDped{number}/Test/Test001/001.png"
        for number in (1, 2)
    ),
    "shanghaitech/testing/frames/01_0014/000.png",
)


def write_test_sets(root: Path, frames: int = 1) -> None:
    """Pictures of 36x40, and two videos of Avenue with this many frames at 32x180."""
    for number, pattern in enumerate(PAIRS):
        before, choice = pattern.split("{")
        sides, after = choice.split("}")
        for side, name in enumerate(sides.split(",")):
            write_rgb(root / f"{before}{name}{after}", picture(number, side))
    for number, name in enumerate(CLIPS):
        write_rgb(
            root / name, picture(number, 1, 180 if "shanghaitech" in name else 36)
        )
    (root / "vimeo_septuplet" / "vimeo_septuplet").mkdir()
    (root / "vimeo_septuplet" / "sep_testlist.txt").write_text("00001/0001\n")
    for name in ("training_videos/01.avi", "testing_videos/01.avi"):
        path = root / "Avenue Dataset" / name
        path.parent.mkdir(parents=True)
        write_video(path, frames, size=(32, 180))


def picture(number: int, side: int, height: int = 36, width: int = 40) -> np.ndarray:
    """Waves; `side` 0 is darker and in noise."""
    rows, columns = np.mgrid[:height, :width] / 5
    waves = np.stack(
        [
            128 + 80 * np.sin(rows + number + channel) * np.cos(columns)
            for channel in range(3)
        ]
    )
    noise = np.random.default_rng(number).normal(0, 6, waves.shape)
    return (waves if side else 0.8 * waves + noise).clip(0, 255).astype(np.uint8)


def write_patch_network(
    path: Path,
    *,
    family: str = "dust",
    sensing: bool = True,
    frames: int = 20,
    **config: object,
) -> str:
    """A small network of the paper's patches of 16x16, with drawn weights, at a CS rate of 0.2."""
    settings = {
        "patch": 16,
        "measurements": 51 if sensing else None,
        "atoms": 256,
    } | config
    if family == "dust":
        settings["kind"] = "printed"
    network = build_network(family, settings)
    training = {"configuration": f"[data]\nframes = {frames}\n"}
    task = "recover" if sensing else "denoise"
    save_model(
        path,
        network,
        family=family,
        config=settings,
        task=task,
        extra={"training": training},
    )
    return str(path)
