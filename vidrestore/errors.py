"""Everything that can go wrong for a reason the user can act on; each kind carries the exit code of the
command.
"""

from __future__ import annotations


class VidRestoreError(Exception):
    """Base of all errors for users. Messages give the place, what was found and expected, and what to do."""

    exit_code = 1


class MediaError(VidRestoreError):
    """A file that can't be read or written as asked."""


class OutputExistsError(MediaError):
    """The output is already there and `--overwrite` was not given."""


class CheckpointError(VidRestoreError):
    """Weights that are missing, damaged, or not what they say."""


class PlanError(VidRestoreError):
    """A job that can't be done as asked, found before any frame was restored."""


class ConfigError(VidRestoreError):
    """A training or evaluation configuration with a wrong value."""


class DatasetError(VidRestoreError):
    """A dataset that isn't where it was looked for, or whose pictures don't belong together."""


class OptionError(VidRestoreError):
    """An option whose value the library refuses (the command line's own syntax errors also end with 2)."""

    exit_code = 2
