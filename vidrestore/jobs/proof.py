"""Check that a device restores as the CPU does: every bundled model is compared with the CPU and timed stage
by stage, its memory is measured, and two encoders are tried. Each check is one line of a report.

Inputs are synthetic, the same on every machine. In fp32 samples in [0, 1] may differ by `LARGEST`; half
precision is judged by its PSNR over the CPU's fp32.
"""

from __future__ import annotations

import math
import platform
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from vidrestore import __version__
from vidrestore.errors import VidRestoreError
from vidrestore.files.atomic import check_output, write_whole
from vidrestore.jobs.bench import NOISE, stages_of, write_video
from vidrestore.jobs.check import open_job
from vidrestore.jobs.frame_progress import peak_memory
from vidrestore.jobs.in_memory import restore_frames
from vidrestore.jobs.request import Request, Step
from vidrestore.jobs.run import restore
from vidrestore.media.source import Source, Target
from vidrestore.media.streams import EVERY_KIND
from vidrestore.models.fast.linear import PackedLinear
from vidrestore.models.grouping import GROUP
from vidrestore.models.matching import Grid, matched_positions
from vidrestore.options import EncoderOptions, RestoreOptions
from vidrestore.restorers.base import load_restorer
from vidrestore.restorers.devices import torch_device
from vidrestore.restorers.task_weights import takes_sigma
from vidrestore.tasks import TASKS
from vidrestore.weights import load_model, read_manifest
from vidrestore.weights.manifest import Card

LARGEST = 1e-4  # difference of a sample in [0, 1], in fp32
LEAST_PSNR = 40.0  # dB, of half precision over fp32
LEAST_SAME = 0.99  # share of the patches that are found at the same place: ties are broken by rounding
SIDE, FRAMES = 64, 5  # of the synthetic clip on which devices are compared


Verdict = Literal["PASS", "FAIL", "NOTE"]


@dataclass(frozen=True)
class Line:
    """The outcome of one check; a note is neither passed nor failed."""

    verdict: Verdict
    name: str
    found: str

    def __str__(self) -> str:
        return f"{self.verdict}  {self.name}: {self.found}"


@dataclass(frozen=True)
class Check:
    """One check. `work` returns True if it passed (None: for information only) and a line of text."""

    name: str
    work: Callable[[], tuple[bool | None, str]]

    def run(self) -> Line:
        """Return the outcome; an error is a failure of this check alone."""
        try:
            passed, found = self.work()
        except (VidRestoreError, RuntimeError, TypeError, ValueError, NotImplementedError) as error:
            return Line("FAIL", self.name, f"{type(error).__name__}: {str(error).splitlines()[0]}")
        return Line("NOTE" if passed is None else "PASS" if passed else "FAIL", self.name, found)


def prove(report: str, device: str, size: tuple[int, int], frames: int) -> Iterator[Line]:
    """Yield the outcome of each check of a device, the verdict last, and write the report.

    Videos to time and to encode have `size` (width, height) and `frames` frames. Raises OptionError for a
    device that isn't there, MediaError if the report can't be written.
    """
    torch_device(device)
    check_output(report, (), option="report")
    lines = []
    for each in checks(device, size, frames):
        lines.append(each.run())
        yield lines[-1]
    tried = [line for line in lines if line.verdict != "NOTE"]
    failed = sum(line.verdict == "FAIL" for line in tried)
    found = f"{failed} of {len(tried)} checks failed" if failed else f"all {len(tried)} checks passed"
    lines.append(Line("FAIL" if failed else "PASS", "all", found))
    write_whole(report, "".join(f"{line}\n" for line in lines).encode())
    yield lines[-1]


def checks(device: str, size: tuple[int, int], frames: int) -> list[Check]:
    """Return all checks of a device."""
    there = torch_device(device)
    cards = [card for card in read_manifest().values() if card.file]
    found = [Check("device", lambda: (None, described(there)))]
    for card in cards:
        for precision in ("fp32", "bf16"):
            work = partial(parity, card, there, precision)
            found.append(Check(f"{card.name}, {precision} as on the CPU", work))
    found.append(Check("patches found as on the CPU", partial(places, there)))
    for card in cards:
        if card.task in TASKS:
            work = partial(speed, card, device, size, frames)
            found.append(Check(f"{card.name}, {size[0]}x{size[1]}", work))
    work = partial(encoded, device, size, frames)
    return [*found, Check("libx264 behind denoise", work)]


def described(device: torch.device) -> str:
    """Return the device and what drives it."""
    made = f"vidrestore {__version__}, torch {torch.__version__}, Python {platform.python_version()}"
    if device.type != "cuda":
        return f"{device} ({platform.machine()}), {made}"
    facts = torch.cuda.get_device_properties(device)
    memory = f"{facts.total_memory / 2**30:.0f} GiB, {facts.multi_processor_count} processors"
    return f"{facts.name}, {memory}, compute {facts.major}.{facts.minor}, CUDA {torch.version.cuda}; {made}"


@cache
def made_up() -> NDArray[np.float32]:
    """Return (T, H, W, 3) in [0, 1]: a texture that moves, in noise."""
    frames, rows, columns, colours = np.ogrid[:FRAMES, :SIDE, :SIDE, :3]
    texture: NDArray[np.float64] = np.sin((rows + 2 * frames) / 9 + colours) * np.cos((columns - frames) / 7)
    noise = np.random.default_rng(0).normal(0, NOISE / 255, texture.shape)
    noisy: NDArray[np.float64] = 0.5 + 0.3 * texture + noise
    return noisy.clip(0, 1).astype(np.float32)


def parity(card: Card, device: torch.device, precision: str) -> tuple[bool, str]:
    """Compare a model on the device with the CPU in fp32."""
    made = _recovered if card.task == "recover" else _restored
    expected, found = made(card, torch.device("cpu"), "fp32"), made(card, device, precision)
    apart = np.abs(found.astype(np.float64) - expected)
    if precision == "fp32":
        return bool(apart.max() <= LARGEST), f"largest difference {apart.max():.1e}, {LARGEST:.0e} allowed"
    squared = float(np.square(apart).mean())
    psnr = -10 * math.log10(squared) if squared else math.inf
    return psnr >= LEAST_PSNR, f"{psnr:.1f} dB over fp32, {LEAST_PSNR:.0f} needed"


def _restored(card: Card, device: torch.device, precision: Any) -> NDArray[np.float32]:
    """Return the synthetic clip, restored; patches of DUST stay at their places, which `places` looks at."""
    options = RestoreOptions(model=card.name, device=str(device), precision=precision, scene_detect=False)
    if takes_sigma(card):
        options = replace(options, sigma=NOISE, match=False)
    return restore_frames(made_up(), task=card.task, options=options)


def _recovered(card: Card, device: torch.device, precision: str) -> NDArray[np.float32]:
    """Return groups of patches that were recovered from their compressed-sensing measurements."""
    network: Any = load_model(card.name, str(device)).network
    pixels = torch.from_numpy(np.resize(made_up(), (8, GROUP, network.config.patch**2)))
    with torch.inference_mode():
        measurements = network.measure(255 * pixels.to(device))
        dtype = torch.float32 if precision == "fp32" else torch.bfloat16
        recovered: Tensor = network.at(0.0, dtype, PackedLinear)(measurements) / 255
    return recovered.float().cpu().numpy()


def places(device: torch.device) -> tuple[bool, str]:
    """Compare the places of patches that follow the motion."""
    luma = torch.from_numpy(255 * made_up()[..., 1])
    grid = Grid(SIDE, SIDE, 16, 16)
    same = (matched_positions(luma.to(device), grid).cpu() == matched_positions(luma, grid)).all(-1)
    share = float(same.float().mean())
    return share >= LEAST_SAME, f"{share:.1%} at the same place, {LEAST_SAME:.0%} needed"


def speed(card: Card, device: str, size: tuple[int, int], frames: int) -> tuple[bool, str]:
    """Time each stage of a restoration alone; passes if every stage ends."""
    with tempfile.TemporaryDirectory() as folder:
        video = str(Path(folder) / "video.mkv")
        write_video(video, *size, frames)
        encoder = EncoderOptions(lossless=True)
        options = RestoreOptions(model=card.name, device=device, encoder=encoder, drop=EVERY_KIND)
        if takes_sigma(card):
            options = replace(options, sigma=NOISE)
        on_gpu = torch_device(device).type == "cuda"
        restorer = load_restorer(card.task, options)
        output = Target(str(Path(folder) / "output.mkv"))
        request = Request(Source(video), output, (Step(card.task, options),))
        with open_job(request, lambda _: restorer) as job:
            if on_gpu:
                stages_of(job, frames)  # loads kernels and takes memory, which is not to be timed
                torch.cuda.reset_peak_memory_stats(device)
            stages = stages_of(job, frames)
        memory = torch.cuda.max_memory_allocated(device) if on_gpu else peak_memory() or 0
    rates = ", ".join(f"{stage.name} {1 / stage.seconds:.1f}" for stage in stages)
    return True, f"frames per second: {rates}; {memory / 1e6:.0f} MB"


def encoded(device: str, size: tuple[int, int], frames: int) -> tuple[bool, str]:
    """Restore a video into a file, and count its frames."""
    with tempfile.TemporaryDirectory() as folder:
        video, output = str(Path(folder) / "video.mkv"), str(Path(folder) / "output.mp4")
        write_video(video, *size, frames)
        options = RestoreOptions(device=device, sigma=NOISE)
        began = time.perf_counter()
        summary = restore(video, output, task="denoise", options=options)
        rate = summary.frames / (time.perf_counter() - began)
    return summary.frames == frames, f"{summary.frames} of {frames} frames, {rate:.1f} per second"
