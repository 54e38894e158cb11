"""`vidrestore denoise|dehaze|derain|desnow|deblur|sr`: restore videos. The options come from
`RestoreOptions`.
"""

from __future__ import annotations

from collections.abc import Callable

from vidrestore.cli.declared import with_options
from vidrestore.cli.restoring import RunOptions, run_task
from vidrestore.options import RestoreOptions

HELP = {
    "denoise": """Remove noise; everything else stays as it is.

    Examples:
      vidrestore denoise in.mp4                        measure the noise
      vidrestore denoise in.mkv -o out.mkv --sigma 20 --best
      vidrestore denoise camera/ -o clean/ --recursive
    """,
    "dehaze": """Remove haze; everything else stays as it is.

    Examples:
      vidrestore dehaze in.mp4
      vidrestore dehaze in.mp4 --preview 3s            see before | after first
      vidrestore dehaze in.mp4 --strength 0.7 --steady
    """,
    "derain": """Remove rain; everything else stays as it is.

    Examples:
      vidrestore derain in.mp4
      vidrestore derain in.mp4 --preview 3s            see before | after first
      vidrestore derain *.mp4 -o dry/ --skip-existing
    """,
    "desnow": """Remove snow; everything else stays as it is.

    Examples:
      vidrestore desnow in.mp4
      vidrestore desnow in.mp4 --preview 3s            see before | after first
      vidrestore desnow *.mp4 -o clear/ --skip-existing
    """,
    "deblur": """Remove blur of motion or focus; everything else stays as it is.

    Examples:
      vidrestore deblur in.mp4
      vidrestore deblur in.mp4 --start 1:30 --duration 10s
      vidrestore deblur in.mp4 --dry-run               encoder, time and size
    """,
    "sr": """Make videos four times larger, with detail from neighbouring frames.

    Examples:
      vidrestore sr in.mp4
      vidrestore sr in.mp4 --preview 2s                see before | after first
      vidrestore sr in.mp4 --encoder libx265 --crf 20 -o large.mkv
    """,
}


def _restore_command(task: str, help: str) -> Callable[..., None]:
    """Return the command of a task, with the options for it."""

    def command(run: RunOptions, options: Callable[[], RestoreOptions]) -> None:
        run_task(task, run, options)

    command.__name__, command.__doc__ = task, help
    return with_options(task)(command)


RESTORE_COMMANDS = [_restore_command(task, help) for task, help in HELP.items()]
