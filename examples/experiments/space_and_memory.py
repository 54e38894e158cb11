"""What a film and one ten times as long take of memory and disk.

    python examples/experiments/space_and_memory.py [--frames N]

Prints a table in Markdown. Memory is the peak of the process; temporary space the most bytes that were seen
in the work folder, looked at every few milliseconds, against the size of the output and of the largest
finished part.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from argparse import ArgumentParser
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from vidrestore.jobs.bench import write_video

TIMES = 10
SIZES = {"identity": (320, 180), "denoise": (854, 480)}
IDENTITY = """
import sys, vidrestore
sys.path.append("tests/helpers")
import no_change  # the task "<identity>", which changes nothing
from vidrestore.options import EncoderOptions
encoder = EncoderOptions(encoder="libx264", preset="veryfast", crf=16)
vidrestore.restore(sys.argv[1], sys.argv[2], task="<identity>", encoder=encoder)
"""


@dataclass
class Taken:
    """Bytes: of memory at its peak, of the work folder at its largest, of the largest part in it, and of the
    output.
    """

    memory: int = 0
    temporary: int = 0
    part: int = 0
    output: int = 0


def take(command: list[str], output: Path) -> Taken:
    """Run a command that writes `output`. Raises RuntimeError where it fails."""
    taken, work = Taken(), output.with_name(output.name + ".vidrestore")
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while True:
        done, status, usage = os.wait4(process.pid, os.WNOHANG)
        if done:
            break
        sizes = folder_sizes(work)
        taken.temporary, taken.part = max(taken.temporary, sum(sizes)), max([taken.part, *sizes])
        time.sleep(0.005)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {process.returncode}")
    taken.memory, taken.output = usage.ru_maxrss * 1024, output.stat().st_size
    return taken


def folder_sizes(folder: Path) -> list[int]:
    """Bytes of each file below a folder; those that vanish meanwhile count nothing."""
    sizes = []
    for root, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append((Path(root) / name).stat().st_size)
            except FileNotFoundError:
                continue
    return sizes


def main() -> int:
    parser = ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=300, help="of the short film")
    options = parser.parse_args()
    sys.stdout.write(
        "| run | frames | peak memory MB | output MB | work folder MB | largest file in it MB "
        "|\n|---|---|---|---|---|---|\n"
    )
    with TemporaryDirectory() as folder:
        for name, size in SIZES.items():
            for frames in (options.frames, TIMES * options.frames):
                source, output = (
                    Path(folder) / f"{name}{frames}.mkv",
                    Path(folder) / f"{name}{frames}.out.mkv",
                )
                write_video(str(source), *size, frames)
                taken = take(command(name, source, output), output)
                figures = " | ".join(
                    f"{size / 1e6:.1f}" for size in (taken.memory, taken.output, taken.temporary, taken.part)
                )
                sys.stdout.write(f"| {name} | {frames} | {figures} |\n")
                sys.stdout.flush()
    return 0


def command(name: str, source: Path, output: Path) -> list[str]:
    """The identity through the library, since it is no command; else the command line."""
    if name == "identity":
        return [sys.executable, "-c", IDENTITY, str(source), str(output)]
    tail = [
        "-o",
        str(output),
        "--sigma",
        "10",
        "--fast",
        "--encoder",
        "libx264",
    ]
    return [sys.executable, "-m", "vidrestore", name, str(source), *tail]


if __name__ == "__main__":
    sys.exit(main())
