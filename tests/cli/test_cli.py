import errno
import io
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import pytest
from command_line import on_terminal, python, run
from fresh_interpreter import interrupted
from sample_videos import write_video

import vidrestore
from vidrestore import event_log
from vidrestore.cli import app as command_line
from vidrestore.cli import main, progress, weights_commands
from vidrestore.cli.inputs import run_each, with_numbers
from vidrestore.errors import MediaError, OptionError
from vidrestore.event_log import result_of
from vidrestore.events import (
    Event,
    Failed,
    Planned,
    Progressed,
    Started,
    Summary,
    Warned,
)
from vidrestore.files.stopping import STOPS, stops_cleanly
from vidrestore.jobs import frame_progress
from vidrestore.pipeline.conversions import Changes
from vidrestore.pipeline.plan import Scene
from vidrestore.settings import option_values
from vidrestore.weights import Card, manifest, write_manifest


@pytest.mark.parametrize("flag", ["--version", "-V"])
def test_version_names_the_tool_and_its_version(capsys, flag):
    assert run(flag) == 0
    assert capsys.readouterr().out == f"vidrestore {vidrestore.__version__}\n"


def test_an_error_of_ours_is_one_line_on_stderr_and_its_exit_code(capsys):
    assert run("weights", "verify", "no-such-weights") == 1
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.startswith(
        "vidrestore: no weights named 'no-such-weights'; the manifest has: "
    )
    assert written.err.count("\n") == 1


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        RuntimeError(
            "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes"
        ),
        RuntimeError("can't start new thread"),
        RuntimeError("std::bad_alloc"),
        ImportError("_core.so: failed to map segment from shared object"),
        OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)),
        SystemError("error return without exception set"),
        SystemError("<class 'list'> returned NULL without setting an exception"),
    ],
    ids=str,
)
def test_too_little_memory_is_one_line(error, monkeypatch, capsys):
    monkeypatch.setattr(command_line, "app", Mock(side_effect=error))
    assert run() == 1
    printed = capsys.readouterr().err
    assert (
        printed.startswith("vidrestore: there is too little memory")
        and printed.count("\n") == 1
    )


def test_an_error_of_the_system_is_one_line(monkeypatch, capsys):
    monkeypatch.setattr(
        command_line,
        "app",
        Mock(side_effect=OSError(errno.EIO, "broken", "a.safetensors")),
    )
    assert run() == 1
    line = "a.safetensors: can't be read or written (broken); check the disk, or the share that it is on"
    assert capsys.readouterr().err == f"vidrestore: {line}\n"


@pytest.mark.parametrize("error", [ZeroDivisionError(), RuntimeError("a bug")])
def test_a_bug_keeps_its_traceback(monkeypatch, error):
    monkeypatch.setattr(command_line, "app", Mock(side_effect=error))
    with pytest.raises(type(error)):
        main([])


@pytest.mark.skipif(
    os.name == "nt", reason="needs a signal that can be sent to one process"
)
def test_an_interrupted_command_ends_with_130_and_leaves_its_objects_unexamined():
    code = """
import atexit, gc, time
from vidrestore.cli import app, main
# without those that are frozen; what is registered first runs last
atexit.register(lambda: print(len(gc.get_objects())))
@app.app.command()
def wait():
    print("ready", flush=True)
    time.sleep(60)
main(["wait"])
"""
    exit_code, objects, errors = interrupted(code)
    assert exit_code == 130
    assert "Traceback" not in errors
    assert int(objects) < 1000


@pytest.mark.skipif(
    os.name == "nt", reason="Windows ends a process at a raised SIGTERM"
)
@pytest.mark.parametrize("number", STOPS)
def test_a_stop_while_the_commands_are_imported_is_one_line(number):
    code = f"""
import signal, sys
class Stopped:
    def find_spec(self, name, *more):
        if name == "vidrestore.cli.app":
            signal.raise_signal({int(number)})
sys.meta_path.insert(0, Stopped())
from vidrestore.cli import main
main(["--version"])
"""
    done = python("-c", code)
    assert (done.returncode, done.stdout) == (130, "")
    assert done.stderr == "vidrestore: stopping; once more stops at once\n"


CLOSED = """
import os, signal, time
if IGNORED:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
from vidrestore.cli.progress import listening
from vidrestore.events import Progressed, Warned
from vidrestore.files.stopping import stops_cleanly
failures = 0
with stops_cleanly(), listening() as tell:
    try:
        while failures < 20:
            tell(Progressed("a.mp4", 1, 2, stage="restore"))
            time.sleep(0.02)
            try:
                os.write(1, b" ")
            except OSError:
                failures += IGNORED
    finally:
        tell(Warned("a.mp4", "what is finished is kept"))
        open(PLACE, "w").write("cleaned up")
"""


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo terminal")
@pytest.mark.parametrize("ignored", [False, True])
def test_a_terminal_that_is_closed_stops_cleanly_and_under_nohup_not_at_all(
    tmp_path, ignored
):
    code = f"IGNORED, PLACE = {ignored}, {str(tmp_path / 'end')!r}\n{CLOSED}"
    process, terminal = os.forkpty()
    if process == 0:
        os.execve(
            sys.executable, [sys.executable, "-c", code], os.environ | {"TERM": "xterm"}
        )
    assert os.read(terminal, 1 << 16)  # the bar is there
    os.close(terminal)
    status = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    assert (tmp_path / "end").read_text() == "cleaned up"
    # of KeyboardInterrupt, which `main` makes 130
    assert status == (0 if ignored else -signal.SIGINT)


def test_a_stop_is_a_stop_even_where_nobody_reads_stderr_any_more(monkeypatch):
    def gone(descriptor: int, text: bytes) -> None:
        raise BrokenPipeError

    monkeypatch.setattr(os, "write", gone)
    with pytest.raises(KeyboardInterrupt), stops_cleanly():
        signal.raise_signal(signal.SIGTERM)


def test_a_deleted_current_folder_is_one_line_and_exit_code_1(tmp_path):
    folder = tmp_path / "gone"
    folder.mkdir()
    shell = f'cd "{folder}" && rmdir "{folder}" && exec "$0" -m vidrestore --version'
    result = subprocess.run(
        ["sh", "-c", shell, sys.executable], capture_output=True, text=True, check=False
    )
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("vidrestore: the current folder is gone")
    assert result.stderr.count("\n") == 1


def test_no_room_for_temporary_files_is_one_line_that_names_tmpdir(monkeypatch, capsys):
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", list)
    monkeypatch.setattr(command_line, "app", lambda *_, **__: tempfile.gettempdir())
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code == 1
    assert capsys.readouterr().err.endswith(
        "make room there, or name another with TMPDIR\n"
    )


@pytest.mark.skipif(
    not Path("/dev/full").exists(), reason="needs a file that is always full"
)
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_standard_output_that_is_full_is_one_line_and_exit_code_1(unbuffered):
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    with Path("/dev/full").open("w") as full:
        result = python("-m", "vidrestore", "--version", stdout=full, env=environment)
    reason = "standard output can't be written (No space left on device); make room, or send it elsewhere"
    assert (result.returncode, result.stderr) == (1, f"vidrestore: {reason}\n")


@pytest.mark.skipif(os.name == "nt", reason="needs pipes that break")
def test_a_broken_pipe_is_not_an_error(monkeypatch):
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)
    reading, writing = os.pipe()
    os.close(reading)
    code = "from vidrestore.cli import app, main; app.app.command('a')(lambda: print('a word')); main(['a'])"
    result = python("-c", code, stdout=writing)
    os.close(writing)
    assert (result.returncode, result.stderr) == (0, "")


# weights


def test_weights_list_json_is_one_entry_per_line_as_in_the_manifest(capsys, repository):
    assert run("weights", "list", "--json") == 0
    entries = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    manifest = json.loads(
        (repository / "weights" / "manifest.json").read_text(encoding="utf-8")
    )["weights"]
    assert [entry["name"] for entry in entries] == [entry["name"] for entry in manifest]


def test_all_bundled_weights_are_open_by_their_cards(capsys):
    assert run("weights", "list", "--json") == 0
    for line in capsys.readouterr().out.splitlines():
        openness = json.loads(line)["openness"]
        assert (openness["licence"], openness["osaid"]) == (
            "Apache-2.0",
            "Open Source AI",
        ), line
        assert openness["mof"] == "Class III (Open Model)"
        assert "vidrestore train" in openness["training_command"]


@pytest.mark.parametrize(
    ("licence", "training"),
    [
        ("", {"data": "photos", "command": "vidrestore train"}),
        ("CC-BY-NC-4.0", {"data": "photos", "command": "vidrestore train"}),
        ("MIT", {"data": "photos"}),
    ],
)
def test_weights_without_an_open_licence_or_a_recipe_are_not_called_open(
    licence, training
):
    card = Card(
        "net", "dust", {}, "denoise", "0" * 64, 1, licence=licence, training=training
    )
    assert [card.openness()[key] for key in ("osaid", "mof")] == ["unknown", "unknown"]


def test_weights_list_shows_the_task_and_the_parameters_of_each(
    capsys, monkeypatch, tmp_path
):
    here = Card(
        "dust-denoise",
        "dust",
        {},
        "denoise",
        "0" * 64,
        3_147_776,
        {"sigma": [1.0, 75.0]},
        file="dust-denoise.safetensors",
    )
    away = Card(
        "dust-cs20",
        "dust",
        {},
        "recover",
        "0" * 64,
        999,
        {"rate": 0.2, "mode": "gray"},
        file="dust-cs20.safetensors",
    )
    write_manifest([away, here], tmp_path)
    monkeypatch.setattr(manifest, "weights_folder", lambda: tmp_path)
    assert run("weights", "list") == 0
    assert capsys.readouterr().out.splitlines() == [
        "task     name            parameters  size    speed",
        "denoise  dust-denoise *  sigma 1-75  3.1 MB  fast",
        "recover  dust-cs20       rate 0.2    0.0 MB  fast",
        "",
        "* is taken unless --model names another; sr takes one of two, by --input",
    ]


def test_the_list_of_weights_fits_a_narrow_terminal(capsys):
    assert run("weights", "list") == 0
    assert max(map(len, capsys.readouterr().out.splitlines())) <= 80


def test_what_tasks_take_by_default_is_bundled():
    assert set(manifest.read_manifest()) >= weights_commands.DEFAULTS


def test_weights_verify_of_a_damaged_file_fails_and_names_it(capsys, tmp_path):
    path = tmp_path / "broken.safetensors"
    path.write_bytes(b"nothing")
    assert run("weights", "verify", str(path)) == 1
    assert f"{path}: damaged" in capsys.readouterr().out


def test_weights_import_wants_its_config_as_a_json_object(capsys, tmp_path):
    line = f"weights import a.pth -o {tmp_path}/a.safetensors --family dust --task denoise --config"
    arguments = line.split()
    assert run(*arguments, "{patch: 16}") == 2
    assert run(*arguments, "[16]") == 2
    assert run(*arguments, str(tmp_path / "none.json")) == 2
    assert "--config" in capsys.readouterr().err
    (tmp_path / "list.json").write_text("[16]")
    assert run(*arguments, str(tmp_path / "list.json")) == 2


# How events are shown

JOB: list[Event] = [
    Started(
        "in.mp4", output="out.mp4", task="denoise", model="dust-denoise", device="cpu"
    ),
    Planned("in.mp4", frames=60, scenes=1, clips=4),
    Progressed("in.mp4", done=20, total=60, seconds=2.0, memory=1_500_000_000),
    Warned("in.mp4", "captions are dropped", frame=7),
    Progressed("in.mp4", done=60, total=60, seconds=6.0),
    Summary(
        "in.mp4",
        output="out.mp4",
        frames=60,
        seconds=6.0,
        damage="the source is damaged: frame 9 is missing",
    ),
]


def show(events: list[Event], *, json: bool = False, quiet: bool = False) -> None:
    with progress.listening(json=json, quiet=quiet) as listener:
        for event in events:
            listener(event)


def test_away_from_a_terminal_progress_is_plain_lines_and_the_result_is_on_stdout(
    capsys,
):
    show(JOB)
    written = capsys.readouterr()
    assert written.out == "in.mp4 -> out.mp4: 60 frames in 6.0 s, 10.0 fps\n"
    assert written.err.splitlines() == [
        "in.mp4: denoise with dust-denoise on cpu",
        "in.mp4: 60 frames, 1 scene, 4 clips",
        "in.mp4, frame 7: warning: captions are dropped",
        "in.mp4: restoring 60/60 frames, 10.0 fps",
        "in.mp4: warning: the source is damaged: frame 9 is missing",
    ]


def test_plain_lines_come_at_most_every_ten_seconds(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: clock[0])
    stream = io.StringIO()
    listener = progress.PlainLines(stream)
    for second in range(35):
        clock[0] = float(second)
        listener(Progressed("-", done=second, seconds=float(second)))
    assert [line.split()[2] for line in stream.getvalue().splitlines()] == [
        "10",
        "20",
        "30",
    ]


def test_quiet_leaves_errors_and_damage(capsys):
    show([*JOB, Failed("b.mp4", "b.mp4: no video")], quiet=True)
    written = capsys.readouterr()
    assert written.out == ""
    assert written.err.splitlines() == [
        "in.mp4: warning: the source is damaged: frame 9 is missing",
        "vidrestore: b.mp4: no video",
    ]


def test_a_result_names_the_noise_that_was_measured_in_the_longest_scene(capsys):
    scenes = (
        Scene(0, 40, (25.0,) * 3, (19.8,) * 3),
        Scene(40, 60, (0.0,) * 3, (2.0,) * 3),
    )
    for shown in (scenes, scenes[:1]):
        show(
            [Summary("in.mp4", output="out.mp4", frames=60, seconds=6.0, scenes=shown)]
        )
    line = "in.mp4 -> out.mp4: 60 frames in 6.0 s, 10.0 fps; noise: luma 19.8, coarse; chroma 19.8, coarse"
    assert (
        capsys.readouterr().out
        == f"{line.replace('noise:', 'noise in the longest of 2 scenes:')}\n{line}\n"
    )


@pytest.mark.parametrize(
    "mean, words",
    [
        (0.3, "derain changed 0.3 levels: little rain found"),
        (4.0, "derain changed 4 levels"),
        (20.0, "derain changed 20 levels: if that is too much, set a strength below 1"),
    ],
)
def test_the_last_line_shows_how_much_a_task_on_pictures_changed(mean, words):
    changes = Changes(frames=2, total=2 * mean)
    done = Summary(
        "a.mp4", output="b.mp4", frames=2, seconds=1.0, changes=(("derain", changes),)
    )
    assert result_of(done) == f"2 frames in 1.0 s, 2.0 fps; {words}"


def test_a_stage_is_shown_at_once_and_the_time_left_once_a_clip_is_done(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(frame_progress.time, "monotonic", lambda: clock[0])
    events: list[Progressed] = []

    def frames() -> Iterator[int]:
        for number in range(40):
            # a clip takes 10 seconds, then its frames are encoded
            clock[0] = 10.0 + 0.25 * number if number < 20 else 30.0
            yield number

    # 41, says the container
    list(frame_progress.counted(frames(), "a.mp4", 41, "restore", events.append))
    assert events[0] == replace(events[0], done=0, total=41, seconds=0.0, settled=False)
    early = {event.done: event.eta for event in events if event.done < 20}
    assert early[1] is None
    # 30 frames are left, and 11 took 12.5 seconds
    assert early[11] == pytest.approx(30 / 11 * 12.5)
    assert (events[-1].done, events[-1].total, events[-1].eta) == (40, 40, 0.0)


def test_the_sentence_about_a_piped_video_stays_off_stdout(capsys):
    show([Summary("in.mp4", output="-", frames=1, seconds=0.0)])
    written = capsys.readouterr()
    assert written.out == ""
    assert "in.mp4 -> stdout: 1 frame in 0.0 s" in written.err


@pytest.mark.skipif(os.name == "nt", reason="needs a pseudo terminal")
@pytest.mark.parametrize("json_lines", [False, True])
def test_a_bar_on_the_terminal_leaves_stdout_to_the_result(json_lines):
    code = f"""
from vidrestore.cli.progress import listening
from vidrestore.events import Summary, Progressed
with listening(json={json_lines}) as listener:
    listener(Progressed("a.mp4", done=1, total=2, seconds=1.0))
    listener(Summary("a.mp4", output="b.mp4", frames=2, seconds=2.0))
"""
    stdout, shown = on_terminal(code)
    events = (
        [json.loads(line)["event"] for line in stdout.splitlines()]
        if json_lines
        else []
    )
    assert events == (["progress", "done"] if json_lines else [])
    assert json_lines or stdout == "a.mp4 -> b.mp4: 2 frames in 2.0 s, 1.0 fps\n"
    assert "1/2 frames" in shown


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (4.24, "4.2 s"),
        (59.9, "59.9 s"),
        (187, "3:07"),
        (3599.6, "1:00:00"),
        (3750, "1:02:30"),
    ],
)
def test_lengths_of_time_read_well(seconds, text):
    assert event_log.length_of_time(seconds) == text


# Several inputs


def test_an_input_that_is_done_is_not_interrupted_but_the_command_is():
    events: list[Event] = []
    listener = with_numbers(events.append, ["a", "b"])

    def work(source: str) -> int:
        if source == "a":
            listener(Summary(source, "out", 1, 1.0))
        raise KeyboardInterrupt

    for name in "ab":
        with pytest.raises(KeyboardInterrupt):
            run_each([name], work, listener)
    ends = [event for event in events if isinstance(event, Summary | Failed)]
    assert [(type(event), event.source) for event in ends] == [
        (Summary, "a"),
        (Failed, "b"),
    ]


@pytest.mark.parametrize(
    ("outcomes", "code"),
    [
        ([0], 0),
        ([4], 4),
        ([0, 4, 0], 4),
        ([MediaError("x")], 1),
        ([OptionError("x")], 2),
        ([0, MediaError("x"), 4], 3),
        ([MediaError("x")] * 2, 1),
    ],
    ids=str,
)
def test_the_exit_code_of_a_batch_is_that_of_the_worst(outcomes, code, capsys):
    events: list[Event] = []

    def work(source: str) -> int:
        if isinstance(outcome := outcomes[int(source)], Exception):
            raise outcome
        return outcome

    names = [str(number) for number in range(len(outcomes))]
    assert run_each(names, work, events.append) == code
    assert [event for event in events if isinstance(event, Progressed)] == [
        Progressed(name, 0, stage="read") for name in names
    ]
    assert [event for event in events if isinstance(event, Failed)] == [
        Failed(name, "x", kind=type(outcome).__name__, exit_code=outcome.exit_code)
        for name, outcome in zip(names, outcomes, strict=True)
        if isinstance(outcome, Exception)
    ]
    damaged = f"1 of {len(outcomes)} inputs is damaged: {outcomes.index(4) if 4 in outcomes else ''}"
    assert (damaged in capsys.readouterr().err) == (4 in outcomes and len(outcomes) > 1)


# Odd values


@pytest.mark.parametrize(
    ("option", "sentence"),
    [
        (
            "--preset potato",
            "--preset potato: libx264 has no such preset; expected ultrafast, superfast",
        ),
        (
            "--encoder libsvtav1 --preset potato -o out.mkv",
            "libsvtav1 has no such preset; expected -1 to 13",
        ),
        ("--encoder potato", "no encoder 'potato'; this version has: libx264"),
        (
            "--preset tape",
            "the encoder's speeds; recipes for kinds of videos are in examples/README.md",
        ),
        ("--cfr 25", "is for a pipe"),
        ("--fps 30", "--fps 30 is for pictures"),
        (
            "--model foo",
            "no weights named 'foo'; the manifest has for denoise: dust-denoise, dust-mh-",
        ),
    ],
)
def test_odd_values_get_a_sentence(option, sentence, tmp_path, capsys, monkeypatch):
    write_video(tmp_path / "in.mp4", 2, codec="libx264")
    monkeypatch.chdir(tmp_path)
    assert run("denoise", "in.mp4", *option.split()) == (
        1 if "--model" in option else 2
    )
    printed = capsys.readouterr().err
    assert sentence in printed and "avcodec" not in printed


TIMES = {
    "90": 90,
    "1m30s": 90,
    "1:30": 90,
    "90s": 90,
    "1h2m": 3720,
    "2m": 120,
    "1:02:03.5": 3723.5,
}


@pytest.mark.parametrize(("text", "seconds"), [*TIMES.items(), ("0.5s", 0.5)])
def test_times_are_read_as_people_write_them(text, seconds):
    assert option_values.moment(text) == seconds


@pytest.mark.parametrize("text", ["", "soon", "1m30", "-5", "1:2:3:4", "m", "s"])
def test_a_value_that_is_not_a_time_is_refused(text):
    with pytest.raises(ValueError, match="expected a time such as 90, 1m30s"):
        option_values.moment(text)
