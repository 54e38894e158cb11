"""Odd and damaged inputs through the real command.

Every input has an outcome that is stated beside it (odd_damage.py, odd_shapes.py, odd_company.py); `verdict`
says what differs from it.
"""

import contextlib
import io
import re
import shutil
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import chain
from pathlib import Path

import av
import numpy as np
from commands import Commands
from no_change import IDENTITY_DENOISE
from odd_case import Case
from odd_company import changes, names, no_videos, streams
from odd_damage import bits, cuts, headers
from odd_shapes import pixels, sizes, times
from written_videos import packets

from vidrestore.cli import main
from vidrestore.media.formats.pixel_formats import planes_of
from vidrestore.media.reading.probe import probe, video_stream
from vidrestore.settings.tasks import TASKS

CASES = tuple(
    chain(
        cuts(),
        bits(),
        headers(),
        sizes(),
        times(),
        pixels(),
        streams(),
        names(),
        no_videos(),
        changes(),
    )
)


@dataclass(frozen=True)
class Got:
    """What a command did: its exit code, all that it said, and the file that it wrote."""

    code: int
    said: str
    output: Path | None


SECONDS = 60  # a command that takes longer hangs: all inputs are tiny


def run(case: Case, folder: Path, commands: Commands) -> Got:
    """Make the input in the current folder, which is empty, and restore it by a model without effect."""
    case.write(folder / case.name)
    arguments = ["denoise", *case.arguments, "--", case.name]
    code, printed = (
        _apart(arguments, folder, commands) if case.apart else _here(arguments)
    )
    written = [path for path in folder.iterdir() if path.name != case.name]
    return Got(code, printed, written[0] if len(written) == 1 else None)


def _apart(arguments: list[str], folder: Path, commands: Commands) -> tuple[int, str]:
    """Run a command that may crash or hang; the code is that of a signal, negative, where one ended it."""
    command = commands.start(*arguments, cwd=folder)
    try:
        return command.wait(SECONDS), command.said
    finally:
        command.kill()


def _here(arguments: list[str]) -> tuple[int, str]:
    printed, identity = io.StringIO(), TASKS["denoise"]
    TASKS["denoise"] = IDENTITY_DENOISE
    try:
        with contextlib.redirect_stdout(printed), contextlib.redirect_stderr(printed):
            main(arguments)
    except SystemExit as end:
        return int(end.code or 0), printed.getvalue()
    finally:
        TASKS["denoise"] = identity
    return 0, printed.getvalue()


def verdict(case: Case, got: Got, folder: Path) -> str | None:
    """What is wrong with what a case got; None where it is as stated."""
    wanted = case.outcome
    if got.code not in wanted.codes:
        return f"exit code {got.code}, expected {' or '.join(map(str, wanted.codes))}"
    if "Traceback" in got.said:
        return "a traceback"
    if not re.search(wanted.says, got.said, re.DOTALL):
        return f"it does not say {wanted.says!r}"
    if wanted.codes == (0,) and not wanted.says and "warning" in got.said:
        return "an unexpected warning"
    others = sorted(path.name for path in folder.iterdir() if path.name != case.name)
    if wanted.frames is None and others:
        return f"it leaves {others}"
    if wanted.frames is None:
        return None if named(case.name, got.said) else "it does not name the file"
    if got.output is None:
        return f"one output was expected, found {others}"
    return difference(folder / case.name, got.output, case)


def named(name: str, said: str) -> bool:
    """Outputs that can't be named so are called by the input's stem."""
    return any(each in said for each in (name, ascii(name)[1:-1], Path(name).stem))


def difference(source: Path, output: Path, case: Case) -> str | None:
    """How an output differs from what it should be."""
    wanted, found = shown(source), shown(output)
    if len(found) != case.outcome.frames:
        return f"{len(found)} frames, expected {case.outcome.frames}"
    tick = Fraction(probe(str(output)).video.time_base) / 2
    moved = found[0].time - wanted[0].time if case.outcome.moved else Fraction(0)
    known = [frame.time + moved for frame in wanted]
    apart = sum(min(abs(frame.time - time) for time in known) > tick for frame in found)
    if apart != case.outcome.mended:
        return "times that the source does not have"
    if case.outcome.codes != (0,):
        return None
    if len(found) != len(wanted):
        return f"{len(found)} frames, but the source shows {len(wanted)}"
    exact = "--lossless" in case.arguments
    if exact and any(
        frame.samples != other.samples
        for frame, other in zip(found, wanted, strict=True)
    ):
        return "other samples"
    return tags_differ(source, output) or packets_differ(source, output, case, moved)


@dataclass(frozen=True)
class Shown:
    time: Fraction
    samples: list[bytes]


def shown(path: Path) -> list[Shown]:
    """The pictures of a file as FFmpeg gives them, in one thread, without any check."""
    result = []
    with av.open(f"file:{path}", metadata_errors="replace") as container:
        stream = video_stream(container)
        stream.codec_context.thread_type = "NONE"
        for packet in container.demux(stream):
            with contextlib.suppress(av.error.FFmpegError):
                for frame in packet.decode():
                    pts = frame.pts if frame.pts is not None else frame.dts
                    time = (
                        len(result) / stream.guessed_rate
                        if pts is None
                        else pts * stream.time_base
                    )
                    planes = planes_of(frame)
                    result.append(
                        Shown(
                            time,
                            [np.ascontiguousarray(plane).tobytes() for plane in planes],
                        )
                    )
    return result


def tags_differ(source: Path, output: Path) -> str | None:
    before, after = probe(str(source)), probe(str(output))
    for name in ("width", "height", "format", "rotation", "display_matrix", "colour"):
        old, new = getattr(before.video, name), getattr(after.video, name)
        if name == "colour":
            # untagged is limited
            old, new = (
                replace(each, chroma_location=0, range=each.range or 1)
                for each in (old, new)
            )
        if old != new:
            return f"{name} was {old}, is {new}"
    if (before.video.sample_aspect_ratio or 1) != (
        after.video.sample_aspect_ratio or 1
    ):
        return f"pixels of {before.video.sample_aspect_ratio} became {after.video.sample_aspect_ratio}"
    lost = (
        {key.lower() for key in before.metadata}
        - _MUXERS_OWN
        - {key.lower() for key in after.metadata}
    )
    if lost:
        return f"metadata is lost: {lost}"
    return "chapters are lost" if before.chapters != after.chapters else None


# What muxers write for themselves, the second half that of MXF.
_MUXERS_OWN = {
    *(
        "major_brand",
        "minor_version",
        "compatible_brands",
        "encoder",
        "software",
        "duration",
        "genre",
    ),
    *(
        "creation_time",
        "company_name",
        "product_name",
        "product_version",
        "application_platform",
    ),
    *(
        "product_uid",
        "material_package_umid",
        "modification_date",
        "operational_pattern_ul",
        "uid",
    ),
    *("generation_uid", "toolkit_version"),
}


def packets_differ(
    source: Path, output: Path, case: Case, moved: Fraction
) -> str | None:
    """How packets of the other streams, or their times to a millisecond, differ."""
    if "--drop" in case.arguments:
        return None
    before, after = other_packets(source, case), other_packets(output, case)
    if [len(each) for each in before] != [len(each) for each in after]:
        return "another number of packets of other streams"
    for number, (old, new) in enumerate(zip(before, after, strict=True)):
        if [data for data, _ in old] != [data for data, _ in new]:
            return f"other stream {number} has other packets"
        times = [
            (a, b)
            for (_, a), (_, b) in zip(old, new, strict=True)
            if None not in (a, b)
        ]
        if any(abs(a + moved - b) > Fraction(1, 1000) for a, b in times):
            return f"other stream {number} has other times"
    return None


def other_packets(path: Path, case: Case) -> list[list[tuple[bytes, Fraction | None]]]:
    info = probe(str(path))
    left_out = {info.video.index}
    if "data" not in case.what:  # tracks that QuickTime makes again
        left_out |= {
            each.index
            for each in info.streams
            if (each.kind, each.codec) == ("data", "unknown")
        }
    return [
        result
        for index, result in sorted(packets(path).items())
        if index not in left_out
    ]


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(
            path
        ) if path.is_dir() and not path.is_symlink() else path.unlink()
