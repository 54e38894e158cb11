"""Errors that a user can act on, each with the exit code of the command."""

from __future__ import annotations


class VidRestoreError(Exception):
    """Base of all errors for users. Messages name the place, what was found and expected, and a way out."""

    exit_code = 1


class MediaError(VidRestoreError):
    """A file can't be read or written as asked."""


class OutputExistsError(MediaError):
    """The output already exists and `overwrite` is not set."""


class BusyError(MediaError):
    """Another process is working on the same job.

    Attributes:
        host: the name of its machine if the lock stays there when that is gone; None if the system frees it.
    """

    def __init__(self, message: str, host: str | None = None) -> None:
        super().__init__(message)
        self.host = host


class Cancelled(VidRestoreError):
    """Work ended because `Restorer.cancel` was called. The restored frames of a file are kept."""

    exit_code = 130


class CheckpointError(VidRestoreError):
    """Weights are missing, damaged, or not as described."""


class PlanError(VidRestoreError):
    """A job can't be done as asked; found before any frame was restored."""


class ConfigError(VidRestoreError):
    """A training or evaluation configuration has a wrong value."""


class DatasetError(VidRestoreError):
    """A dataset is missing, or its pictures don't match."""


class OptionError(VidRestoreError):
    """An option has a value that the library refuses (as for syntax errors of the command line, the exit code
    is 2).
    """

    exit_code = 2
