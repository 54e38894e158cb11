"""What tells one job from another: all that alters pixels or bits, in values that JSON knows."""

from __future__ import annotations

from dataclasses import asdict, fields, is_dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from vidrestore import __version__
from vidrestore.jobs.job import Job
from vidrestore.jobs.work_folder import digest
from vidrestore.options import RestoreOptions

# Options that alter neither pixels nor bits.
IMMATERIAL = frozenset({"device", "threads", "cfr", "strict", "overwrite", "skip_existing", "work_dir", "restart"})


def identity(job: Job) -> dict[str, Any]:
    """All that alters pixels or bits, in values that JSON knows; two jobs with the same come to the same file."""
    source = {key: value for key, value in asdict(job.plan.source).items() if key != "path"}
    options = {key: value for key, value in request(job.options).items() if key != "model"}
    return {
        "source": source,
        "task": job.plan.task,
        "weights": getattr(job.restorer, "weights", job.restorer.name),
        **options,
        "encoder": asdict(job.plan.encoder),
        "copied_streams": list(job.plan.copy),
        "span": asdict(job.plan.span),
        "versions": {"vidrestore": __version__, **{name: _version(name) for name in ("av", "torch")}},
    }


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:  # a build that was not installed as a package
        return None


def request(options: RestoreOptions) -> dict[str, Any]:
    """The options that alter pixels or bits, in values that JSON knows."""
    values = {field.name: getattr(options, field.name) for field in fields(options) if field.name not in IMMATERIAL}
    return {key: _plain(value) for key, value in values.items()}


def _plain(value: Any) -> Any:
    if isinstance(value, frozenset):
        return sorted(value)
    if is_dataclass(value) and not isinstance(value, type):
        return {key: _plain(each) for key, each in asdict(value).items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)  # 20 and 20.0 ask for the same
    return value if value is None or isinstance(value, (str, int, float, dict)) else str(value)


def request_name(task: str, options: RestoreOptions) -> str:
    """A short name for what was asked for, whatever the film."""
    return digest({"task": task} | request(options))
