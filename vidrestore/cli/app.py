"""The `vidrestore` command: its subcommands, and how a run ends.

A command parses, calls one library function and prints. This module and the command modules that it imports
load fast: torch, av and numpy are imported inside the commands that need them.
"""

from __future__ import annotations

import atexit
import gc
import io
import os
import sys
import threading
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from vidrestore import __version__
from vidrestore.cli import weights_commands
from vidrestore.cli.bench_commands import bench
from vidrestore.cli.command_options import LegibleCommand, LegibleGroup, TaskCommand
from vidrestore.cli.config_commands import config, use_user_file
from vidrestore.cli.inputs import line_about
from vidrestore.cli.inspect_commands import devices, inspect, suggest, verify
from vidrestore.cli.restoring import RESTORE_COMMANDS
from vidrestore.cli.run_command import run
from vidrestore.cli.terminal import as_options, is_of_stdout, print_line, show
from vidrestore.cli.usage_errors import usage_line
from vidrestore.errors import VidRestoreError
from vidrestore.working import WORKER

LAB = "vidrestore.lab.commands"  # loaded by name: videos are restored without it
# panels of the commands
RESTORE, OTHER, RESEARCH = "Restore", "Look, measure, train", "Research"

app = typer.Typer(
    cls=LegibleGroup,
    help="""Restore videos and photos: less noise, haze, rain, snow and blur, more pixels.

    Examples:
      vidrestore denoise in.mp4                 writes in.denoised.mp4
      vidrestore sr in.mp4 --preview 2s         two seconds, before | after
      vidrestore denoise --help-all             all options, in panels
    """,
    no_args_is_help=True,
    pretty_exceptions_enable=False,  # a bug shows Python's traceback
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _lab_commands() -> dict[str, Callable[..., None]]:
    """Return the commands of the lab by name; none where the package was installed without it."""
    try:
        commands: dict[str, Callable[..., None]] = import_module(LAB).COMMANDS
    except ModuleNotFoundError as error:
        if error.name not in (LAB, LAB.rpartition(".")[0]):
            raise
        return {}
    return commands


PANELS: dict[str, list[Callable[..., None]]] = {
    RESTORE: [*RESTORE_COMMANDS, run],
    OTHER: [suggest, inspect, verify, bench, config, devices],
}
for _panel, _commands in PANELS.items():
    for _command in _commands:
        app.command(
            rich_help_panel=_panel,
            cls=TaskCommand if _panel == RESTORE else LegibleCommand,
        )(_command)
app.add_typer(weights_commands.app, name="weights", rich_help_panel=OTHER)
for _name, _command in _lab_commands().items():
    _panel = RESEARCH if _name in ("sense", "recover") else OTHER
    app.command(_name, rich_help_panel=_panel, cls=LegibleCommand)(_command)


def _print_version(value: bool) -> None:
    if value:
        show(f"vidrestore {__version__}")
        raise typer.Exit


@app.callback()
def _common(
    context: typer.Context,
    version: Annotated[
        bool,
        typer.Option(
            "--version",
            "-V",
            callback=_print_version,
            is_eager=True,
            help="Print the version and exit.",
        ),
    ] = False,
) -> None:
    if context.invoked_subcommand != "config":  # which shows them, with their errors
        use_user_file(context)


def run_command_line(arguments: list[str] | None) -> None:
    """Run the command line, by default that of the process, and exit with its code (`cli.main`)."""
    # streams, variables and a folder that the libraries can work with
    for name in ("stdout", "stderr"):
        # the caller closed it, so discard what is printed
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w"))  # noqa: SIM115
    # read when torch loads: compute operations that Apple's GPUs lack on the CPU, with a warning
    os.environ.setdefault("PYTORCH_ENABLE_MPS_FALLBACK", "1")
    # threads of torch and NumPy: a command deals its work to threads with one each (`cores`), or sets others
    os.environ.update(
        {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    )
    if isinstance(sys.stdout, io.TextIOWrapper):
        # file names may have characters that the terminal's encoding lacks
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        Path.cwd()
    except OSError as error:  # a library of torch ends the process otherwise
        print_line(
            f"vidrestore: the current folder is gone ({error}); change to another one",
            sys.stderr,
        )
        sys.exit(1)

    # else Python examines every object of torch as it ends, for half a second or more
    atexit.register(gc.freeze)

    # run it, and turn errors of users and of the system into one line each
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:], "--help"]
    try:
        code = app(arguments, standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except typer.TyperException as error:
        if line := usage_line(error, arguments):
            print_line(f"vidrestore: {line}", sys.stderr)
        sys.exit(error.exit_code)
    except VidRestoreError as error:
        print_line(f"vidrestore: {as_options(str(error))}", sys.stderr)
        sys.exit(error.exit_code)
    except (MemoryError, RuntimeError, OSError, ImportError, SystemError) as error:
        if isinstance(error, OSError) and is_of_stdout(error):
            _report_full(error)
        if (reason := line_about(error)) is None:
            raise
        print_line(f"vidrestore: {as_options(reason)}", sys.stderr)
        sys.exit(1)
    finally:
        _flush_stdout()  # reports an error of stdout in place of the one that it caused
        _leave_workers(sys.exc_info()[1])


def _leave_workers(error: BaseException | None) -> None:
    """End the process at once if threads were left behind in a call of a network: they don't end with it
    otherwise, and PyTorch aborts in them.
    """
    if isinstance(error, SystemExit) and any(
        thread.name == WORKER for thread in threading.enumerate()
    ):
        sys.stderr.flush()
        os._exit(error.code if isinstance(error.code, int) else 1)


def _flush_stdout() -> None:
    """Flush stdout; an error is one line on stderr and exit code 1, but a broken pipe is not an error."""
    try:
        sys.stdout.flush()
    except OSError as error:
        sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115   # Python would flush again at exit
        if not isinstance(error, BrokenPipeError):
            _report_full(error)


def _report_full(error: OSError) -> NoReturn:
    sys.stdout = Path(os.devnull).open("w")  # noqa: SIM115   # nothing is to be flushed again
    print_line(
        f"vidrestore: standard output can't be written ({error.strerror}); make room, or send it elsewhere",
        sys.stderr,
    )
    sys.exit(1)
