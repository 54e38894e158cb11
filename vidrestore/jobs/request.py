"""The request for a restoration, and the one way to begin it: everything checked first, the model loaded
last.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from fractions import Fraction
from typing import Any, TypeAlias

from vidrestore.errors import OptionError, PlanError
from vidrestore.files.atomic import check_output
from vidrestore.jobs.job import Job
from vidrestore.jobs.work_folder import WorkFolder, digest
from vidrestore.media.containers import container_of, names_pictures
from vidrestore.media.deinterlace import PIPE_DEINTERLACED
from vidrestore.media.encoder_table import EncoderChoice
from vidrestore.media.encoders import choose_encoder
from vidrestore.media.hdr import hdr_warning
from vidrestore.media.pipes import PIPE
from vidrestore.media.probe import SourceInfo, VideoInfo
from vidrestore.media.reader import VideoReader
from vidrestore.media.sequence_output import check_pictures, losses, side_data_left_out
from vidrestore.media.sequences import is_pattern
from vidrestore.media.side_data import lost_side_data
from vidrestore.media.span import Span
from vidrestore.media.streams import check_streams, other_kinds
from vidrestore.options import RestoreOptions
from vidrestore.pipeline.excerpt import find_span
from vidrestore.pipeline.pipelines import output_scale
from vidrestore.pipeline.plan import Plan, SourceIdentity, Timeline
from vidrestore.restorers.base import SCALES, Restorer

RestorerLoader: TypeAlias = Callable[[], Restorer]
FindSpan: TypeAlias = Callable[[VideoReader, RestoreOptions], Span]

# Options that alter neither pixels nor bits.
IMMATERIAL = frozenset(
    {
        "device",
        "compile",
        "threads",
        "cfr",
        "strict",
        "overwrite",
        "skip_existing",
        "work_dir",
        "restart",
        "trust_group",
    }
)


@dataclass(frozen=True)
class Request:
    """Restore the video `source` into `output`; either may be "-", a pipe."""

    source: str
    output: str
    task: str
    options: RestoreOptions = field(default_factory=RestoreOptions)

    @property
    def is_piped(self) -> bool:
        return PIPE in (self.source, self.output)

    def work_folder(self) -> WorkFolder:
        return WorkFolder(self.output, self.options.work_dir, trust_group=self.options.trust_group)

    def values(self) -> dict[str, Any]:
        """Return the options that alter pixels or bits, as JSON values."""
        names = [each.name for each in fields(self.options) if each.name not in IMMATERIAL]
        return {name: _plain(getattr(self.options, name)) for name in names}

    @property
    def name(self) -> str:
        """A short name for the task and the options that alter pixels or bits, the same for any source."""
        return digest({"task": self.task} | self.values())


def reader_of(source: str, options: RestoreOptions) -> VideoReader:
    """Return the reader of a source, as the options want it read."""
    return VideoReader(
        source,
        threads=options.threads,
        deinterlace=options.deinterlace,
        double_rate=options.double_rate,
        fps=options.fps,
    )


@contextmanager
def open_job(request: Request, loader: RestorerLoader, find: FindSpan | None = None) -> Iterator[Job]:
    """Open the source, check all that can be checked before work, load the model last, and yield the job.

    `find` finds the part of the source to restore, by default that of `start` and `duration`. Raises
    VidRestoreError.
    """
    options, output = request.options, request.output
    with reader_of(request.source, options) as reader:
        info = reader.info
        check_picture(request.source, info.video)
        span = (find or asked_span)(reader, options)
        copy = check_streams(info, output, options.drop)
        scale = output_scale(SCALES.get(request.task, 1), options, info.video.height)
        encoder = choose_encoder(info, output, options.encoder, scale=scale)
        warnings = reader.warnings + check_side_data(info, encoder, options.drop, strict=options.strict)
        if order := reader.field_order():
            warnings += (_combed(order),)
        others = [kind for kind in other_kinds(info) if kind not in options.drop]
        if lost := losses(info, output, encoder, others):
            warnings += (lost,)
        restorer = loader()
        warnings += restorer.facts.doubts
        length = restorer.clip_length(info.video.height, info.video.width)
        timeline = Timeline(length, restorer.facts.overlap)
        plan = Plan(SourceIdentity.of(info.path), output, request.task, encoder, copy, timeline, span)
        yield Job(request, reader, restorer, plan, warnings)


def _combed(order: str) -> str:
    first = "top" if order == "tff" else "bottom"
    return (
        f"not marked as interlaced, but it looks so ({first} field first): its fields blur into each other "
        "where it moves; stop, and add `deinterlace`, or `double_rate` for a frame of each field"
    )


def asked_span(reader: VideoReader, options: RestoreOptions) -> Span:
    """Return the part of the source that the options name."""
    return find_span(reader, options.start, options.duration)


def check_request(request: Request) -> None:
    """Raise an error for what is wrong even before the source is opened."""
    overwrite = request.options.overwrite or is_half_named(request)
    check_files(request.source, request.output, overwrite=overwrite, cfr=request.options.cfr)


def is_half_named(request: Request) -> bool:
    """Return True if a run was killed while it named its pictures. The first gets its own last."""
    return is_pattern(request.output) and not request.is_piped and bool(request.work_folder().finished())


def check_files(source: str, output: str, *, overwrite: bool, cfr: Fraction | None) -> None:
    """Refuse an output that can't be written, or a rate that it doesn't take."""
    container_of(output)
    if output != PIPE:
        check = check_pictures if names_pictures(output) else check_output
        check(output, source, overwrite=overwrite)
        if cfr is not None:
            raise OptionError(
                f"`cfr={cfr}` is for a pipe (`output=-`); a file keeps the time of every frame, "
                "leave the option out"
            )


def check_picture(source: str, video: VideoInfo, way_out: str | None = None) -> None:
    """Refuse interlaced video."""
    if video.interlaced:
        way_out = way_out or (f"do it before: {PIPE_DEINTERLACED}" if source == PIPE else "add `deinterlace`")
        raise PlanError(
            f"{source}: the video is interlaced, and its fields would be blurred into each other; {way_out}"
        )


def check_side_data(
    info: SourceInfo, encoder: EncoderChoice, drop: Set[str] = frozenset(), *, strict: bool
) -> tuple[str, ...]:
    """Return warnings about what encoding again leaves out, but for what is to be dropped. If `strict`, raise
    PlanError instead, also for lost HDR.
    """
    lost = lost_side_data(side_data_left_out(info, encoder, drop))
    hdr = hdr_warning(encoder.encoder, info.video)  # otherwise the writer warns of it
    if strict and (lost or hdr):
        found = "; ".join(part for part in (lost, hdr) if part)
        raise PlanError(f"{info.path}: {found}; leave `strict` out to restore it all the same")
    return (lost,) if lost else ()


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {key: _plain(each) for key, each in asdict(value).items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 20 and 20.0 mean the same
    return value if value is None or isinstance(value, (str, int, float, dict)) else str(value)
