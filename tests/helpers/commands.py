"""The real command line in processes of its own that start in no time: forked from one that has imported
everything and done nothing yet.

Each command is a whole process: it can be killed, limited and waited for. Its model changes nothing, and
takes its time where asked to.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from no_change import ADDED

SERVER = """
import json, os, resource, signal, sys, threading, time, traceback
import av, torch, rich.progress
import torch._dynamo, vidrestore.lab.training.loop  # which a first training step loads
from vidrestore.cli import main
from vidrestore.files import locks
from vidrestore.jobs import batch, plan_ahead, resume, segmented
from vidrestore.media.reading import reader
from vidrestore.media.writing import muxer
import no_change
from vidrestore.settings.tasks import TASKS
from vidrestore.scale import workers

def slowed(home, name, seconds):
    quick = getattr(home, name)
    def slow(*arguments, **options):
        if seconds:
            print("slowly:", name, file=sys.stderr, flush=True)
            time.sleep(seconds)
        return quick(*arguments, **options)
    setattr(home, name, slow)

def marked(home, name):
    plain = getattr(home, name)
    def telling(*arguments, **options):
        print("begins:", name, file=sys.stderr, flush=True)
        return plain(*arguments, **options)
    setattr(home, name, telling)

def child(order):
    os.setsid()
    os.chdir(order["cwd"])
    locks.POLL = workers.POLL = 0.02
    segmented.LENGTH = 20
    for number, name in enumerate(("/dev/null", order["output"], order["errors"])):
        os.dup2(os.open(name, os.O_RDWR | os.O_CREAT), number)
    TASKS["denoise"] = no_change.IDENTITY_DENOISE
    slowed(no_change.IdentityRestorer, "restore", order["slow_clip"])
    slowed(plan_ahead, "check_stop", order["slow_plan"])
    slowed(muxer.Muxer, "put", order["slow_join"])
    slowed(os, "link", order["slow_name"])
    slowed(resume.WorkFolder, "remove", order["slow_name"])
    marked(segmented.SegmentedWork, "run")
    marked(segmented.SegmentedWork, "join")
    if order["memory"]:
        pages = int(open("/proc/self/statm").read().split()[0])
        room = pages * resource.getpagesize() + order["memory"]
        resource.setrlimit(resource.RLIMIT_AS, (room, resource.RLIM_INFINITY))
    exec(order["before"], globals())
    if order["largest_file"]:
        resource.setrlimit(resource.RLIMIT_FSIZE, (order["largest_file"], resource.RLIM_INFINITY))
    main(order["arguments"])

for line in sys.stdin:
    order = json.loads(line)
    if "wait" in order:
        done, status = os.waitpid(order["wait"], 0 if order["block"] else os.WNOHANG)
        print(json.dumps(os.waitstatus_to_exitcode(status) if done else None), flush=True)
        continue
    process = os.fork()
    if process == 0:
        code = 1
        try:
            child(order)
        except SystemExit as end:
            code = end.code or 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            threading._shutdown()  # as Python does at its end: waits for threads
            os._exit(code)
    print(process, flush=True)
"""


@dataclass
class Command:
    """A command that was started. `said` is what stdout and stderr hold so far."""

    commands: Commands
    pid: int
    folder: Path
    code: int | None = None

    @property
    def said(self) -> str:
        return self.read("output") + self.read("errors")

    def read(self, name: str) -> str:
        """Return what it has written so far: its "output" or its "errors"."""
        return (self.folder / name).read_text(errors="replace")

    def send(self, number: signal.Signals) -> None:
        os.kill(self.pid, number)

    def kill(self) -> None:
        """SIGKILL unless it has ended, and wait until it is gone."""
        if not self.is_done():
            self.send(signal.SIGKILL)
            self.wait()

    def is_done(self) -> bool:
        if self.code is None:
            self.code = self.commands.ask({"wait": self.pid, "block": False})
        return self.code is not None

    def wait(self, seconds: float = 300) -> int:
        """The exit code."""
        wait_for(self.is_done, seconds, lambda: self.said)
        return self.code

    def until(self, condition: Callable[[], object], seconds: float = 300) -> Command:
        """Wait until something is so; the command must still be at work then."""
        wait_for(lambda: condition() or self.is_done(), seconds, lambda: self.said)
        assert condition(), f"ended with {self.code}: {self.said}"
        return self


@dataclass
class Commands:
    """Starts commands; `close` ends what they are forked from."""

    folder: Path
    count: int = 0
    preload: Path | None = None  # a library that stands before the system's
    server: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        code = [sys.executable, "-c", f"{ADDED}\n{SERVER}"]
        more = {"LD_PRELOAD": str(self.preload)} if self.preload else {}
        self.server = subprocess.Popen(
            code,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | more,
        )

    def ask(self, order: dict[str, Any]) -> Any:
        print(json.dumps(order), file=self.server.stdin, flush=True)
        return json.loads(self.server.stdout.readline())

    def start(
        self,
        *arguments: object,
        slow_clip: float = 0,
        slow_plan: float = 0,
        slow_join: float = 0,
        slow_name: float = 0,
        largest_file: int = 0,
        memory: int = 0,
        before: str = "",
        cwd: Path | None = None,
    ) -> Command:
        """Run `vidrestore ARGUMENTS`; each clip takes `slow_clip` seconds more, its planning
        `slow_plan`, each packet that is joined `slow_join`, giving the video its name and clearing up
        `slow_name` each.

        `memory`: bytes that it may take more than it has. `before`: Python code that it runs first. `cwd`:
        the folder that it begins in. Segments have 20 frames.
        """
        self.count += 1
        folder = self.folder / str(self.count)
        folder.mkdir()
        order = {
            "arguments": [str(each) for each in arguments],
            "cwd": str(cwd or folder),
        }
        order |= {
            "output": f"{folder}/output",
            "errors": f"{folder}/errors",
            "before": before,
        }
        order |= {"slow_plan": slow_plan}
        order |= {
            "slow_clip": slow_clip,
            "slow_join": slow_join,
            "slow_name": slow_name,
        }
        order |= {"largest_file": largest_file, "memory": memory}
        pid = self.ask(order)
        wait_for(lambda: (folder / "errors").exists())
        return Command(self, pid, folder)

    def run(self, *arguments: object, **options: Any) -> tuple[int, str]:
        """The exit code of a command, and what it said."""
        command = self.start(*arguments, **options)
        return command.wait(), command.said

    def close(self) -> None:
        self.server.stdin.close()
        self.server.wait(timeout=60)
        self.server.stdout.close()


def work_of(output: Path) -> Path:
    """The work folder of an output."""
    return output.with_name(f"{output.name}.vidrestore")


def segments(output: Path) -> list[str]:
    """The names of the finished segments of an output."""
    return sorted(path.name for path in work_of(output).glob("*.segment"))


def wait_for(
    condition: Callable[[], object],
    seconds: float = 60,
    said: Callable[[], str] = lambda: "",
) -> None:
    """Wait until something is so; after `seconds`, fail with what was said until then."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"waited in vain for {seconds} s: {said()}"
        time.sleep(0.003)
