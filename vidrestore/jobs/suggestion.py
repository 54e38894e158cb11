"""Look at a few places of a video (`jobs.findings`), and suggest commands with reasons."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from fractions import Fraction
from itertools import islice
from typing import Any

from vidrestore.errors import MediaError, OptionError
from vidrestore.events import Listener, Progressed, ignore_event, plain
from vidrestore.jobs.findings import (
    SEEN,
    VERDICT_LIMITS,
    Finding,
    Place,
    Verdict,
    blur_finding,
    compression_finding,
    dust_finding,
    flicker_finding,
    noise_finding,
    size_finding,
    tape_findings,
    weather_findings,
)
from vidrestore.media.formats.source import Source
from vidrestore.media.reading.probe import SourceInfo
from vidrestore.media.reading.reader import VideoReader
from vidrestore.media.reading.scan import Scan
from vidrestore.settings.options import RestoreOptions

SAMPLED_PLACES = (Fraction(1, 6), Fraction(1, 2), Fraction(5, 6))  # of the video
# before the whole video; a photograph is restored at once
PREVIEW_OPTION = "--preview 5s"
# by how a video was scanned: options of denoise, and what comes of them
RECIPES = {
    "fields": (" --double-rate", "a frame for each field, which keeps all motion"),
    "film": ("", "film on an NTSC disc or tape: its 24 frames of 30"),
    "mixed": ("", "whole frames as they were, and fields deinterlaced"),
    "whole": ("", "film on a PAL disc, or video like it: its frames stay whole"),
}


@dataclass(frozen=True)
class Command:
    """A command line to try, and the reason."""

    line: str
    reason: str


@dataclass(frozen=True)
class Suggestion:
    """The findings about a video, and the commands for them, the best first."""

    info: SourceInfo
    findings: tuple[Finding, ...]
    commands: tuple[Command, ...]

    def tasks(self, *verdicts: Verdict) -> list[str]:
        """Return the tasks of the findings with these verdicts, in the order in which they are applied."""
        return [
            finding.task
            for finding in self.findings
            if finding.task and finding.verdict in verdicts
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return the description as JSON values."""
        values = asdict(self)
        return dict(
            plain(
                {
                    "path": self.info.path,
                    **{key: values[key] for key in ("findings", "commands")},
                }
            )
        )


def suggest(
    source: str,
    options: RestoreOptions | None = None,
    on_event: Listener = ignore_event,
) -> tuple[Suggestion, list[Place]]:
    """Return what a video needs, and the places that were looked at. Only the device of the options is used.

    Raises OptionError for a pipe, MediaError if the video can't be read.
    """
    if Source.of(source).is_pipe:
        raise OptionError(
            "suggest looks at several places of a video, which a pipe doesn't have; name a file"
        )
    options = options or RestoreOptions()
    # one pass reads all the places; what is looked for comes after it
    on_event(Progressed(str(source), 0, stage="read"))
    with VideoReader.of(source, options) as reader:
        info, scan = reader.info, reader.scan
        places, damage = list(read_places(reader)), reader.damage.sentence
    interlacing = Finding("interlacing", "no", "frames are whole")
    if scan and scan.why:
        interlacing = Finding(
            "interlacing", "no" if scan.kind == "whole" else "yes", str(scan.in_words)
        )
    on_event(Progressed(str(source), 0, stage="look"))
    # an old film flickers and has dust: it isn't blurred, but soft
    flicker, dust = (
        flicker_finding(places, info.video),
        dust_finding(places, info.video, options),
    )
    is_film = flicker.verdict == dust.verdict == "yes"
    noise = noise_finding(places, info)
    noisy = (noise.value or 0) >= VERDICT_LIMITS.strong_noise
    findings = [
        interlacing,
        *tape_findings(places, info.video, scan),
        flicker,
        dust,
        noise,
    ]
    findings += weather_findings(places, info, options, on_event, noisy=noisy)
    findings += [blur_finding(places, info.video, noisy=noisy, is_film=is_film)]
    findings += [compression_finding(info), size_finding(info.video)]
    findings += [Finding("damage", "yes", damage)] if damage else []
    is_photo = [len(place.frames) for place in places] == [1]
    commands = _commands(info.path, findings, scan, "" if is_photo else PREVIEW_OPTION)
    return Suggestion(info, tuple(findings), tuple(commands)), places


def read_places(reader: VideoReader) -> Iterator[Place]:
    """Yield `SEEN` frames at each of `SAMPLED_PLACES`; of a video that is short, cut short, or of unknown
    length, as many at its beginning. Raises MediaError without a frame.
    """
    video, info = reader.info.video, reader.info
    # the container may know a duration that the stream doesn't
    ticks = video.duration or (
        int(info.duration / video.time_base) if info.duration else 0
    )
    starts = [int((video.start or 0) + place * ticks) for place in SAMPLED_PLACES]
    if not ticks or (video.rate and ticks * video.time_base * video.rate < 4 * SEEN):
        starts = []
    is_empty = True
    # a place may lie behind the end of a video that is cut short
    for start in starts:
        with closing(reader.frames(start)) as frames:
            if sample := tuple(islice(frames, SEEN)):
                is_empty = False
                yield Place(sample)
    if is_empty:
        with closing(reader.frames()) as frames:
            sample = tuple(islice(frames, len(SAMPLED_PLACES) * SEEN))
        if not sample:
            raise MediaError(
                f"{reader.source}: no frame of it can be decoded; record or copy it again"
            )
        yield Place(sample)


def _commands(
    path: str, findings: Sequence[Finding], scan: Scan | None, preview: str
) -> Iterator[Command]:
    """Yield the command for all that is sure and for its scan, then those for what may be there, each with
    the option of a preview or "".
    """
    # one command for all that is sure, in the order in which the tasks are applied
    by_task = {finding.task: finding for finding in findings if finding.task}
    sure = [task for task, finding in by_task.items() if finding.verdict == "yes"]
    small = by_task["sr"]
    options, scanned = RECIPES[scan.kind] if scan and scan.why else ("", "")
    if sure or scanned:
        why = ", ".join(by_task[task].name for task in sure)
        advice = f": run it with {preview} first" if preview else ""
        reasons = [f"against {why}{advice}"] if sure else []
        reasons += [scanned] if scanned else []
        yield Command(
            f"{command_line(path, sure or ['denoise'])}{options}", "; ".join(reasons)
        )
    # then each doubtful one alone, to be looked at
    for task, finding in by_task.items():
        if finding.verdict == "maybe" and finding is not small:
            yield Command(
                f"{command_line(path, [task])} {preview}".rstrip(),
                f"{finding.name}: {finding.reason}",
            )
    if small.verdict == "maybe":
        yield Command(
            f"{command_line(path, [*sure, 'sr'])}{options}",
            f"if {small.reason} is too small",
        )


def command_line(source: str, tasks: Sequence[str], strength: float = 1.0) -> str:
    """Return the command that restores a file by these tasks in turn, each at a strength."""
    # or it is read as an option
    path = f"./{source}" if source.startswith("-") else source
    name, weaker = shlex.quote(path), strength != 1
    if len(tasks) == 1:
        return f"vidrestore {tasks[0]} {name}" + (
            f" --strength {strength:g}" if weaker else ""
        )
    more = "".join(f" --set {task}.strength={strength:g}" for task in tasks if weaker)
    return f"vidrestore run {name} --steps {','.join(tasks)}{more}"
