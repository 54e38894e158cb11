"""A job: a restoration that was checked (`run.check`), with its loaded steps, its plan and its writer."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from itertools import islice
from typing import Any

from vidrestore import __version__
from vidrestore.errors import MediaError, OptionError
from vidrestore.event_log import counted_words
from vidrestore.events import Listener, Planned, Started, Warned, ignore_event
from vidrestore.jobs.frame_progress import counted
from vidrestore.jobs.request import Request, StepLoader, load_step, plain_options
from vidrestore.jobs.resume import WorkFolder
from vidrestore.jobs.steps import Steps, measured_input, total_scale
from vidrestore.media.formats.pixel_formats import enlarged_video
from vidrestore.media.formats.side_data import lost_side_data
from vidrestore.media.reading.probe import SourceInfo
from vidrestore.media.reading.reader import VideoReader, expected_frames
from vidrestore.media.writing.encoders import decisions
from vidrestore.media.writing.finished import UNKNOWN
from vidrestore.media.writing.writer import VideoWriter, check_content, refused_if
from vidrestore.pipeline.chain import frames_ahead
from vidrestore.pipeline.clip_restorer import ClipRestorer
from vidrestore.pipeline.plan import PLAN_VERSION, Plan, PlannedClip
from vidrestore.pixels.frames import Frame, Span
from vidrestore.restorers.devices import device_name
from vidrestore.settings.options import DENOISE, Input, RestoreOptions, changed_values
from vidrestore.settings.tasks import TASKS

MOST_APART = 0.05  # seconds between picture and sound that can't be seen


@dataclass
class Job:
    """A restoration that was checked and can begin (`check`)."""

    request: Request
    reader: VideoReader
    steps: Steps
    plan: Plan  # filled as frames are read
    warnings: tuple[str, ...] = ()  # for the user, before it begins
    # the kind of input for `sr`, and the reason
    enlarged_as: tuple[Input, str] | None = None
    # locked; None for work that can't be resumed, and without a lock
    folder: WorkFolder | None = None

    @property
    def info(self) -> SourceInfo:
        return self.reader.info

    @property
    def options(self) -> RestoreOptions:
        return self.request.options

    @property
    def output_info(self) -> SourceInfo:
        """The source as the output has it: larger after `sr`."""
        return replace(
            self.info, video=enlarged_video(self.info.video, self.steps.scale)
        )

    def identity(self) -> dict[str, Any]:
        """Return everything that alters the encoded frames, as JSON values.

        Weights are known by their hash, whatever `model` calls them. The encoder's number of threads and
        the length of clips are left out: a job that was begun keeps its own. So are the streams that are
        copied: they are added when the frames are joined, and `drop` may change until then.
        """
        # a source may be renamed
        source = {
            key: value
            for key, value in asdict(self.plan.source).items()
            if key != "path"
        }
        first, *later = (_identity(stage) for stage in self.steps.stages)
        encoder = asdict(self.plan.encoder)
        return {
            "source": source,
            **first,
            **({"later": later} if later else {}),
            "encoder": {
                key: value
                for key, value in encoder.items()
                if key not in ("threads", "why")
            },
            "span": asdict(self.plan.span),
            "versions": {"plan": PLAN_VERSION, **versions()},
        }

    def begin(self, on_event: Listener) -> None:
        """Announce the job and its warnings."""
        # of all steps the networks, of one the device: they share it
        facts = [stage.restorer.facts for stage in self.steps.stages]
        names = ", ".join(fact.name for fact in facts)
        on_event(
            Started(
                *self.request.names,
                self.request.tasks,
                names,
                device_name(facts[0].device),
            )
        )
        self.warn(self.warnings, on_event)

    def announce_plan(
        self, total: int | None, on_event: Listener, *, reused: int = 0
    ) -> None:
        """Announce how many frames there are, and how they are encoded."""
        encoder = self.plan.encoder
        details: dict[str, Any] = {
            "encoder": encoder.encoder,
            "pix_fmt": encoder.pix_fmt,
            "encoder_threads": encoder.threads,
            "encoder_options": encoder.settings,
            "copied_streams": self.plan.copy,
            "copied": [
                asdict(stream)
                for stream in self.info.streams
                if stream.index in self.plan.copy
            ],
            "decisions": self.decisions(),
            "clips": [
                {"frames": stage.length, "overlap": stage.overlap}
                for stage in self.steps.stages
            ],
            "weights": self.weights(),
            "versions": versions(),
        }
        if self.steps.later:
            details["steps"] = [
                stage.restorer.facts.name for stage in self.steps.stages
            ]
        on_event(Planned(self.info.path, total, reused=reused or None, details=details))

    def weights(self) -> dict[str, str]:
        """Return the sha256 of each file of weights that the steps use, by its name there."""
        # a network may consist of several files
        facts = (stage.restorer.facts for stage in self.steps.stages)
        files = (
            fact.files or ((fact.name, fact.weights),) for fact in facts if fact.weights
        )
        return {name: checksum for part in files for name, checksum in part}

    def tag(self, damage: str | None = None) -> str | None:
        """Return how the output was made, for its tag (`media.writing.finished.Tag`); None without `tags`."""
        if not self.options.tags:
            return None
        # what each step did: its network and the options that differ from their defaults
        parts = []
        for stage in self.steps.stages:
            facts, changes = (
                stage.restorer.facts,
                changed_values(stage.options, "pixels"),
            )
            settings = [
                f"{name}={value}" for name, value in changes.items() if name != "model"
            ]
            parts.append(
                " ".join([stage.task, f"{facts.name}@{facts.weights[:12]}", *settings])
            )
        if frames := len(self.plan.timeline.pts):
            parts.append("; ".join(filter(None, (f"{frames} frames", damage))))
        # the checksum of the file is put in place of the unknown one once it is written
        job = (
            f"{self.request.job(self.plan.source)}+{UNKNOWN} "
            if self.request.source.is_stored
            else ""
        )
        return f"vidrestore {job}{__version__}: {'; '.join(parts)}"

    def decisions(self) -> dict[str, str]:
        """Return what was chosen automatically, in words."""
        # of the source, of the coder, and of the network for it
        plan, scan = self.plan, self.reader.scan
        words = scan.in_words if scan else None
        choices = decisions(
            self.info, self.request.output, plan.encoder, plan.copy, words
        )
        if (shift := self.reader.shift) is not None:
            choices["chroma"] = _moved_chroma(shift)
        if self.enlarged_as:
            choices["input"] = "enlarged as {} video ({})".format(*self.enlarged_as)
        return choices

    def warn(self, warnings: Iterable[str], on_event: Listener) -> None:
        for warning in warnings:
            on_event(Warned(self.info.path, warning))

    def decoded(self) -> Generator[Frame]:
        """Return the decoded frames that are to be restored."""
        return self.reader.frames(self.plan.span.start, self.plan.span.stop)

    def restored(self, decoded: Generator[Frame] | None = None) -> Generator[Frame]:
        """Yield the restored frames, of `decoded` ones if given; the plan is filled."""
        return self.steps.frames(
            self.decoded() if decoded is None else decoded, self.plan.timeline
        )

    def restored_part(
        self, first: int, stop: int, *, from_start: bool = False
    ) -> Generator[Frame]:
        """Yield the frames [first, stop) of the finished plan, the same as in a complete run.

        `from_start` decodes all that comes before, too, instead of jumping there.
        """
        pts = self.plan.timeline.pts

        def decode(first: int) -> Generator[Frame]:
            return (
                _without_first(self.decoded(), first)
                if from_start
                else self.reader.frames(pts[first])
            )

        return self.steps.frames_in((first, stop), self.plan, decode)

    def restored_from(
        self, first: int, clips: Callable[[int], Iterator[int]]
    ) -> Generator[Frame]:
        """Yield the restored frames from `first` on while the plan grows: `clips(index)` yields the indices
        of its clips from that one on, each once it is planned.

        A reader of its own decodes all from the beginning: what a jump would miss isn't known yet.
        """
        with self.reader.again() as reader:

            def decode(index: int) -> Generator[Frame]:
                return _without_first(
                    reader.frames(self.plan.span.start, self.plan.span.stop), index
                )

            yield from self.steps.frames_from(first, self.plan, clips, decode)

    def watched(
        self, frames: Iterable[Frame], stage: str, total: int | None, on_event: Listener
    ) -> Iterator[Frame]:
        """Yield the same frames, with events of their progress, and a warning at the first interlaced frame
        if the beginning of the video is progressive.

        That is not an error: in videos that are progressive except for some marked scenes, most marks are
        wrong, so frames are asked themselves. Closed captions that begin late are a warning, too; if
        `strict`, they raise PlanError.
        """
        # what changes on the way is said once, where it happens
        scan, captioned = self.reader.scan, False
        turns = scan is not None and scan.kind != "whole" and not scan.why
        for index, frame in enumerate(
            counted(frames, self.info.path, total, stage, on_event)
        ):
            if turns and (frame.interlaced or frame.real_rows is not None):
                turns = False
                result = "marked frames with combs are deinterlaced from here on"
                if frame.interlaced:
                    result = "moving parts blur its fields: see `scan`"
                on_event(
                    Warned(
                        self.info.path,
                        f"the video turns interlaced here; {result}",
                        index,
                    )
                )
            if not captioned and self.reader.late_captions:
                captioned = True
                lost = lost_side_data({"A53_CC"})
                if warning := refused_if(self.options.strict, self.info.path, lost):
                    on_event(Warned(self.info.path, warning))
            yield frame
        # times that the reader has mended or moved are all known at the end
        if mended := self.reader.mended:
            count = counted_words(len(mended), "frame")
            first = f"first at {float(mended[0] * self.reader.stored.time_base):.3f} s"
            text = (
                f"{count} had the time of the one before, or one out of step ({first})"
            )
            on_event(
                Warned(
                    self.info.path,
                    f"{text}; each lies in the middle between its neighbours now",
                )
            )
        if self.reader.restarts:
            on_event(Warned(self.info.path, self._set_back()))
        # a change of form that the decoder has hidden
        if change := refused_if(
            self.options.strict, self.info.path, self.reader.change_of_form
        ):
            on_event(Warned(self.info.path, change))

    def _set_back(self) -> str:
        """Return a warning of a clock that is set back. Raises MediaError if copied sound can't follow."""
        (place, moved), *rest = self.reader.restarts
        tick = float(self.reader.stored.time_base)
        text = f"the clock of the video is set back at {place * tick:.3f} s"
        if more := len(rest):
            text += f" and at {more} place{'s' * (more > 1)} after it"
        # sound has a clock of its own: a video that is moved may leave it
        sound = any(
            stream.kind == "audio" and stream.index in self.plan.copy
            for stream in self.info.streams
        )
        if sound and abs(moved) * tick > MOST_APART:
            raise MediaError(
                f"{self.info.path}: {text}, and copied sound does not follow the {moved * tick:.3f} s; split "
                "the file there first, or leave its sound out by `drop=audio`"
            )
        return f"{text}; what follows is moved, by {moved * tick:.3f} s, so that times rise"

    def writer(self, **changed: Any) -> VideoWriter:
        """Return a writer of the output, with `changed` settings."""
        settings: dict[str, Any] = {
            "source": self.output_info,
            "encoder": self.plan.encoder,
            "copy": self.plan.copy,
            "overwrite": self.options.overwrite,
            "rate": self.options.cfr,
            "span": self.plan.span,
            "drop": self.options.drop,
            "tag": self.tag(),
        }
        return VideoWriter(self.request.output, **(settings | changed))

    @property
    def damage(self) -> str | None:
        """The damage of the frames that were decoded so far, in one sentence."""
        return self.reader.damage.sentence


def job_of(
    request: Request, reader: VideoReader, span: Span, load: StepLoader | None
) -> Job:
    """Check the encoder, the streams to copy and losses; load the model last, and return the job."""
    # what can be refused without loading weights comes first
    check_frames(request)
    info, output, options = reader.info, request.output, request.options
    scale = total_scale(request.steps, info.video)
    content = check_content(reader, output, options, span, scale)
    # a step may choose its network by the source
    restorers, enlarged_as = [], None
    for step in request.steps:
        if kind := measured_input(step, reader):
            enlarged_as = kind
            step = step.with_options(input=kind[0])
        restorers.append((load or load_step)(step))
    warnings = (
        *content.warnings,
        *(warning for restorer in restorers for warning in restorer.facts.warnings),
    )
    if any(step.task in DENOISE and step.options.sigma == 0 for step in request.steps):
        warnings += ("`sigma=0` says that there is no noise: nothing is denoised",)
    # clips of later steps follow from the plan of the first
    steps = Steps(request.steps, restorers, info.video)
    timeline = steps.first.timeline([])
    plan = Plan(
        request.source.identity(),
        output.name,
        request.tasks,
        content.encoder,
        content.copy,
        timeline,
        span,
    )
    return Job(request, reader, steps, plan, warnings, enlarged_as=enlarged_as)


def check_frames(request: Request) -> None:
    """Raise OptionError for a task that compares frames, of a single picture."""
    source = request.source
    pictures = source.pictures
    if pictures is None or len(pictures.files) > 1:
        return
    for step in request.steps:
        if step.task in TASKS and TASKS[step.task].compares_frames:
            raise OptionError(
                f"{source}: {step.task} compares the frames of a video, but this is a single picture; name "
                "numbered pictures by a pattern such as %04d.png"
            )


def _without_first(frames: Generator[Frame], count: int) -> Generator[Frame]:
    with closing(frames):
        yield from islice(frames, count, None)


def plan_source(job: Job, on_event: Listener = ignore_event) -> Plan:
    """Decode all frames that are to be restored once, and return the finished plan."""
    # the frames are discarded, the plan remains
    for _ in planned_clips_of(job, on_event):
        pass
    return job.plan


def planned_clips_of(job: Job, on_event: Listener) -> Iterator[PlannedClip]:
    """Decode all frames that are to be restored, and yield each clip once it is in the plan."""
    total = expected_frames(job.info, job.plan.span)
    with frames_ahead(job.decoded()) as decoded:
        yield from job.steps.planned(
            job.watched(decoded, "plan", total, on_event), job.plan.timeline
        )


def damage_summary(video_damage: str | None, stream_damage: str | None) -> str | None:
    """Return the damage of a source in one sentence: of its video, and of its copied streams."""
    if stream_damage and not video_damage:
        return f"the source is damaged: {stream_damage}"
    return "; ".join(part for part in (video_damage, stream_damage) if part) or None


def _moved_chroma(shift: tuple[float, float]) -> str:
    """Return how the chroma of a source is moved, in words."""
    if not any(shift):
        return "chroma left in place, it lies over luma"
    columns, lines = (0 - away for away in shift)  # never -0
    return f"chroma moved by {columns:g} columns and {lines:g} lines"


def _identity(stage: ClipRestorer) -> dict[str, Any]:
    """Return all of a step that alters the encoded frames."""
    options = plain_options(stage.options, "pixels", "file")
    del options["model"]
    facts = stage.restorer.facts
    return {"task": stage.task, "weights": facts.weights or facts.name, **options}


def versions() -> dict[str, str | None]:
    """Return the versions of vidrestore and of the packages that decide what it writes."""
    packages: dict[str, str | None] = {
        "vidrestore": __version__,
        "av": None,
        "torch": None,
    }
    for package in ("av", "torch"):
        # a build that was not installed as a package
        with suppress(PackageNotFoundError):
            packages[package] = version(package)
    return packages
