"""The `vidrestore` command.

    main(["denoise", "in.mp4", "--sigma", "20"])  # prints, and exits with the command's code

The interface is `main`. `app` holds the commands: those of tasks are in `restoring`.
"""

import sys

from vidrestore.files.stopping import INTERRUPTED, stops_cleanly


def main(arguments: list[str] | None = None) -> None:
    """Run the command line and exit with its code; a VidRestoreError is one line on stderr, a bug keeps its
    traceback.
    """
    try:
        with stops_cleanly():  # from the start: importing the commands takes a while
            from vidrestore.cli.app import run_command_line

            run_command_line(arguments)
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)


__all__ = ["main"]
