"""The video in `examples/`, the scripts beside it, and the commands and links of the documents."""

import io
import json
import os
import re
import shlex
import subprocess
import sys
from base64 import b64decode
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

import av
import numpy as np
import pytest
import torch
from command_line import run as command
from no_change import IDENTITY_DENOISE, WITH_IDENTITY
from numpy.typing import NDArray
from sample_videos import sample_planes, video_frame, write_stream, write_video
from typer.main import get_command
from written_videos import frames_of

import vidrestore
from vidrestore.cli.app import app
from vidrestore.events import Started
from vidrestore.jobs.inspection import inspect
from vidrestore.settings.tasks import TASKS

DOCUMENTS = (
    "README.md",
    "examples/README.md",
    "weights/README.md",
    "examples/train/README.md",
    "examples/experiments/README.md",
)
SECOND_COMMAND = 'pip install -e ".[test]" && pytest'


class Script(NamedTuple):
    """One of the scripts of `examples/`, run in this process: torch takes seconds to load."""

    name: str
    monkeypatch: pytest.MonkeyPatch
    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: object) -> tuple[int, str]:
        """The exit code and what was said on stderr."""
        self.monkeypatch.setattr(sys, "argv", [f"{self.name}.py", *map(str, arguments)])
        code = 0
        try:
            import_module(self.name).main()
        except SystemExit as end:
            code = int(end.code or 0)
        return code, self.capsys.readouterr().err


@pytest.fixture
def script(
    repository: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Callable[[str], Script]:
    monkeypatch.syspath_prepend(repository / "examples")
    return lambda name: Script(name, monkeypatch, capsys)


def planes_of(path: Path) -> NDArray[np.float32]:
    """All frames of a video as decoded, (frames, rows of Y, U and V, width)."""
    with av.open(str(path)) as container:
        return np.stack(
            [
                frame.to_ndarray().astype(np.float32)
                for frame in container.decode(video=0)
            ]
        )


def rgb(path: Path, number: int = 0) -> NDArray[np.float32]:
    with av.open(str(path)) as container:
        return (
            list(container.decode(video=0))[number]
            .to_ndarray(format="rgb24")
            .astype(np.float32)
        )


def test_the_video_is_small_and_has_sound_colour_tags_a_cut_and_noise(repository):
    path = repository / "examples" / "noisy.mp4"
    found = inspect(str(path))
    assert path.stat().st_size < 1_000_000
    assert [stream.kind for stream in found.info.streams] == ["video", "audio"]
    colour = found.info.video.colour
    assert (colour.matrix, colour.primaries, colour.transfer, colour.range) == (
        1,
        1,
        1,
        1,
    )
    assert [(scene.first, scene.stop) for scene in found.scenes] == [(0, 24), (24, 44)]
    assert all(17 < sigma < 22 for scene in found.scenes for sigma in scene.sigma)


def test_before_after_is_half_of_each_or_both_side_by_side(tmp_path, script):
    for name, number in (("before.mkv", 1), ("after.mkv", 9)):
        pictures = [sample_planes("yuv444p", number + step) for step in range(2)]
        smooth = [tuple(plane // 4 + 90 for plane in planes) for planes in pictures]
        write_stream(
            tmp_path / name, [video_frame("yuv444p", planes) for planes in smooth]
        )
    output = tmp_path / "picture.png"
    arguments = (
        tmp_path / "before.mkv",
        tmp_path / "after.mkv",
        "--frame",
        1,
        "--zoom",
        3,
        "-o",
        output,
    )
    assert script("before_after")(*arguments) == (0, "")
    picture = rgb(output)
    assert picture.shape == (144, 192, 3)
    assert (picture[:, 95:97] == 255).all()
    assert (
        np.abs(picture[1::3, 1:94:3] - rgb(tmp_path / "before.mkv", 1)[:, :31]).max()
        <= 2
    )
    assert (
        np.abs(picture[1::3, 100::3] - rgb(tmp_path / "after.mkv", 1)[:, 33:]).max()
        <= 2
    )
    part = tmp_path / "part.jpg"
    assert script("before_after")(
        *arguments[:4], "--crop", "24x16+8+4", "--zoom", 1, "-o", part
    ) == (0, "")
    assert (
        np.abs(rgb(part)[:, :10] - rgb(tmp_path / "before.mkv", 1)[4:20, 8:18]).mean()
        < 6
    )
    assert script("before_after")(
        *arguments[:4], "--zoom", 1, "--beside", "-o", output
    ) == (0, "")
    both = rgb(output)
    assert both.shape == (48, 128, 3)
    assert np.abs(both[:, 66:] - rgb(tmp_path / "after.mkv", 1)[:, 2:]).max() <= 2
    assert script("before_after")(*arguments[:4], "--crop", "24x16")[0] == 2


def test_the_notebook_restores_frames_of_a_generator(repository, monkeypatch):
    monkeypatch.chdir(repository / "examples")
    notebook = json.loads(Path("restorer.ipynb").read_text(encoding="utf-8"))
    names: dict[str, Any] = {}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    shown = [
        output["data"]
        for cell in notebook["cells"]
        for output in cell.get("outputs", ())
    ]
    assert [each["text/plain"][0] for each in shown[::2]] == [
        repr((8, names["both"][:, ::2].shape, np.dtype("uint8"))),
        repr((names["again"].shape, type(names["events"][-1]).__name__)),
    ]
    picture = av.open(io.BytesIO(b64decode(shown[1]["image/png"])), format="png_pipe")
    stored = next(picture.decode(video=0)).to_ndarray(format="rgb24")
    assert np.abs(stored.astype(float) - names["both"]).mean() < 3, (
        "run the notebook again"
    )
    assert len(names["restored"]) == 8 and names["again"].shape == names["clip"].shape
    rough = [
        np.diff(frame.astype(float), axis=1).std()
        for frame in (names["restored"][0], names["given"])
    ]
    assert rough[0] < 0.6 * rough[1]


def test_the_page_of_the_api_is_that_of_the_docstrings_and_its_links_lead_somewhere(
    repository, script
):
    script("api_page")
    text = (repository / "examples" / "api.md").read_text(encoding="utf-8")
    assert text == import_module("api_page").page(), "run: python examples/api_page.py"
    headings = {
        line.removeprefix("## ").lower()
        for line in text.splitlines()
        if line.startswith("## ")
    }
    links = set(re.findall(r"\]\(#([^)]+)\)", text))
    assert (
        links == headings
        and set(map(str.lower, vidrestore.__all__)) - {"__version__"} == headings
    )


def test_denoisers_are_compared_on_the_same_noise(repository, monkeypatch):
    monkeypatch.syspath_prepend(repository / "examples")
    compare = import_module("compare_denoisers")
    clean = (
        torch.from_numpy(planes_of(repository / "examples" / "noisy.mp4")[:2, :64, :80])
        .mean(0)
        .expand(3, -1, -1)
    )
    found = {
        places: compare.measure([clean], "dust-denoise", places, 16, 20.0)
        for places in ("fixed", "matched")
    }
    noisy = 10 * np.log10(255**2 / 20.0**2)
    assert all(
        noisy + 1 < quality < noisy + 15 and cost > 0
        for quality, cost in found.values()
    )
    assert (
        compare.measure([clean], "dust-denoise", "fixed", 16, 20.0)[0]
        == found["fixed"][0]
    )


@pytest.fixture
def programs(tmp_path: Path, repository: Path) -> dict[str, str]:
    """An environment whose `vidrestore` changes nothing and whose `ffmpeg` copies: y4m to its output, or the
    file $Y4M to a pipe.

    Its `ffprobe` finds one colour tag of three, the matrix.
    """
    folder = tmp_path / "programs"
    folder.mkdir()
    identity = f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -c "{WITH_IDENTITY}main()" "$@"\n'
    copying = (
        '#!/bin/sh\nfor last; do :; done\nif [ "$last" = - ]; then cat "$Y4M"; else cat > "$last"; '
        'echo "$@" > "$last.said"; fi\n'
    )
    tagged = '#!/bin/sh\ncase "$*" in *color_space*) echo bt709;; *color_primaries*) echo unknown;; esac\n'
    for name, text in (
        ("vidrestore", identity),
        ("ffmpeg", copying),
        ("ffprobe", tagged),
    ):
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    return os.environ | {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(repository),
        "Y4M": str(tmp_path / "in.y4m"),
    }


def shell(
    repository: Path, programs: dict[str, str], name: str, *arguments: object
) -> subprocess.CompletedProcess[str]:
    command = ["bash", str(repository / "examples" / name), *map(str, arguments)]
    return subprocess.run(
        command, capture_output=True, text=True, timeout=120, env=programs
    )


def test_a_folder_is_denoised_and_done_videos_are_left_out(
    repository, tmp_path, programs
):
    videos, restored = tmp_path / "videos", tmp_path / "restored"
    videos.mkdir()
    write_video(videos / "a.mkv", 3)
    (videos / "b.mkv").write_text("no video")
    first = shell(repository, programs, "denoise_folder.sh", videos, restored)
    assert (
        first.returncode == 3
        and "b.mkv" in first.stderr
        and "could not be restored" in first.stderr
    )
    written = (restored / "a.denoised.mkv").stat().st_mtime_ns
    write_video(videos / "b.mkv", 2)
    second = shell(
        repository, programs, "denoise_folder.sh", videos, restored, "--sigma", 20
    )
    assert (second.returncode, second.stdout.splitlines()[-1]) == (
        0,
        f"all done: {restored}",
    )
    assert (restored / "a.denoised.mkv").stat().st_mtime_ns == written
    assert len(frames_of(restored / "b.denoised.mkv")) == 2


def test_frames_go_through_a_pipe(repository, tmp_path, programs):
    write_video(Path(programs["Y4M"]), 3, "rawvideo")
    result = shell(
        repository,
        programs,
        "through_a_pipe.sh",
        tmp_path / "video.mkv",
        tmp_path / "out.y4m",
    )
    assert result.returncode == 0, result.stderr
    assert (planes_of(tmp_path / "out.y4m") == planes_of(tmp_path / "in.y4m")).all()
    printed = (tmp_path / "out.y4m.said").read_text()
    assert "-vf setparams=range=-1:colorspace=bt709 -c:v" in printed


def blocks(repository: Path, language: str, document: str = "README.md") -> list[str]:
    return re.findall(
        rf"```{language}\n(.*?)```",
        (repository / document).read_text(encoding="utf-8"),
        re.DOTALL,
    )


def shell_lines(repository: Path, document: str) -> list[list[str]]:
    """Split the lines of all shell blocks of a document into words."""
    text = "".join(blocks(repository, "sh", document)).replace("\\\n", " ")
    return [shlex.split(line, comments=True) for line in text.splitlines()]


@pytest.mark.parametrize(
    ("document", "least"), list(zip(DOCUMENTS, (15, 10, 5, 5, 4), strict=True))
)
def test_every_command_of_a_document_is_understood(repository, document, least):
    group = get_command(app)
    lines = shell_lines(repository, document)
    commands = [
        line[line.index("vidrestore") + 1 :] for line in lines if "vidrestore" in line
    ]
    assert len(commands) >= least
    for arguments in commands:
        context = group.make_context(
            "vidrestore", list(arguments), resilient_parsing=False
        )
        name, command, rest = group.resolve_command(context, list(arguments))
        command.make_context(name, rest, parent=context)


def test_the_python_of_the_readme_runs(repository, tmp_path, monkeypatch):
    (tmp_path / "examples").mkdir()
    write_video(tmp_path / "examples" / "noisy.mp4", 3, codec="libx264")
    monkeypatch.setitem(TASKS, "denoise", IDENTITY_DENOISE)
    monkeypatch.chdir(tmp_path)
    (code,) = blocks(repository, "python")
    exec(code, {})
    assert len(frames_of(tmp_path / "restored.mp4")) == 3


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_files_that_a_document_names_are_there(repository, document):
    path = repository / document
    links = re.findall(r"\]\(([^):]+)\)", path.read_text(encoding="utf-8"))
    words = {word for line in shell_lines(repository, document) for word in line}
    scripts = [word for word in words if word.startswith(("examples/", "tests/"))]
    assert len(links) > 1
    for link in links:
        name, _, heading = link.partition("#")
        assert (path.parent / name).exists()
        assert (
            not heading
            or f"\n## {heading}\n"
            in (path.parent / name).read_text(encoding="utf-8").lower()
        )
    assert [script for script in scripts if not (repository / script).exists()] == []


@pytest.mark.parametrize("document", ["CONTRIBUTING.md", "SECURITY.md"])
def test_the_paths_that_a_document_for_contributors_names_are_there(
    repository, document
):
    folder = repository / ".github"
    text = (folder / document).read_text(encoding="utf-8")
    links = re.findall(r"\]\(([^):#]+)[^):]*\)", text)
    quoted = " ".join(re.findall(r"`([^`]+)`", text)).split()
    paths = [
        word
        for word in quoted
        if word.startswith(("vidrestore/", "tests/", "examples/", "weights/"))
    ]
    assert links
    assert [link for link in links if not (folder / link).exists()] == []
    assert [path for path in paths if not (repository / path).exists()] == []


def test_the_workflow_lints_as_continuous_integration_here_does(repository):
    run = (repository / ".ci" / "run").read_text(encoding="utf-8")
    workflow = (repository / ".github" / "workflows" / "tests.yml").read_text(
        encoding="utf-8"
    )
    lint = ["ruff format --check .", "ruff check .", "mypy"]
    assert all(
        f"\n{command}\n" in run and f"- run: {command}\n" in workflow
        for command in lint
    )


def test_a_citation_names_the_version_of_the_package(repository):
    citation = (repository / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\nversion: {vidrestore.__version__}\n" in citation


def test_the_readme_has_at_most_10_kilobytes(repository):
    assert (repository / "README.md").stat().st_size <= 10 * 1024


def test_the_readme_names_the_small_torch_before_the_command_that_fetches_a_large_one(
    repository,
):
    text = (repository / "README.md").read_text(encoding="utf-8")
    assert (
        0
        < text.index("https://download.pytorch.org/whl/cpu")
        < text.index("pip install . ")
    )


def test_weights_load_as_their_readme_shows(repository):
    (code,) = blocks(repository, "python", "weights/README.md")
    names: dict[str, object] = {}
    exec(code, names)
    assert isinstance(names["network"], torch.nn.Module)


def test_continuous_integration_runs_the_commands_of_the_readme(repository):
    run = (repository / ".ci" / "run").read_text(encoding="utf-8")
    first, *others = (block.strip() for block in blocks(repository, "sh"))
    assert first.startswith("pip install . && vidrestore denoise") and first in run
    assert SECOND_COMMAND in others and SECOND_COMMAND in run


def test_the_readme_gives_the_current_event_schema(repository):
    (line,) = blocks(repository, "json")
    event = Started(
        "in.mp4", "in.denoised.mp4", "denoise", "dust-denoise", "cpu", index=1, count=1
    )
    event = replace(event, time="2026-11-25T09:30:00.000+00:00")
    assert line.strip() == event.to_json()


def test_a_container_is_described_by_known_instructions_and_files_that_are_there(
    repository,
):
    text = (
        (repository / "examples" / "docker" / "Dockerfile")
        .read_text(encoding="utf-8")
        .replace("\\\n", " ")
    )
    lines = [
        line.split() for line in text.splitlines() if line and not line.startswith("#")
    ]
    known = {"FROM", "WORKDIR", "COPY", "RUN", "USER", "ENTRYPOINT", "CMD"}
    assert lines[0][0] == "FROM" and {line[0] for line in lines} == known
    copied = [name for line in lines if line[0] == "COPY" for name in line[1:-1]]
    assert [name for name in copied if not (repository / name).exists()] == []
    names = [" ".join(line) for line in lines]
    # not root
    assert names.index("USER restorer") < names.index('ENTRYPOINT ["vidrestore"]')
    small = next(number for number, line in enumerate(names) if "whl/cpu" in line)
    assert names[small].index("whl/cpu") < names[small].index(
        "install --no-cache-dir ."
    )


def test_a_minute_of_training_on_the_example_clip_restores_it(
    repository, tmp_path, capsys
):
    """Shortened to two steps."""
    config = repository / "examples" / "train" / "quick.toml"
    short = (
        "--set",
        "training.steps=2",
        "--set",
        "training.validate_every=2",
        "--cache-gb",
        "0",
    )
    assert (
        command("train", "--config", config, "-o", tmp_path, "--device", "cpu", *short)
        == 0
    )
    weights = tmp_path / "quick.safetensors"
    result = (
        "--model",
        weights,
        "--sigma",
        "20",
        "--device",
        "cpu",
        "-o",
        tmp_path / "quick.mkv",
    )
    assert (
        command(
            "denoise",
            repository / "examples" / "noisy.mp4",
            "--duration",
            "0.2",
            *result,
        )
        == 0
    )
    assert len(frames_of(tmp_path / "quick.mkv")) == 5


def test_the_data_of_training_is_a_folder_of_the_users(repository, tmp_path, capsys):
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "a.mp4").touch()
    shown = ("--data", tmp_path / "own", "--print-config")
    for name, own in (
        ("dust-denoise", f'clips = "{tmp_path / "own"}"'),
        ("mb-taylorformer-b-gopro", "folder"),
    ):
        config = repository / "examples" / "train" / f"{name}.toml"
        assert command("train", "--config", config, *shown) == 0
        text = capsys.readouterr().out
        assert own in text and str(tmp_path / "own") in text and "davis" not in text
    assert command("train", "--config", config, "--data", tmp_path / "absent") == 1
    assert "absent: no such folder" in capsys.readouterr().err


def test_devices_are_listed_with_the_one_that_is_taken(capsys):
    assert command("devices") == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("cpu") and " cores, " in lines[0]
    assert sum(" * " in line for line in lines) == 1


def test_an_exported_network_runs_on_videos_without_this_package(script, tmp_path):
    onnx = pytest.importorskip("onnx")
    pytest.importorskip("onnxruntime")
    # the mean of three frames, colour by colour
    kernel = np.tile(np.eye(3, dtype=np.float32) / 3, (1, 3))[..., None, None]
    node = onnx.helper.make_node("Conv", ["input", "kernel"], ["output"])
    pictures = [
        onnx.helper.make_tensor_value_info(
            name, onnx.TensorProto.FLOAT, [1, channels, "height", "width"]
        )
        for name, channels in (("input", 9), ("output", 3))
    ]
    graph = onnx.helper.make_graph(
        [node],
        "mean",
        pictures[:1],
        pictures[1:],
        [onnx.numpy_helper.from_array(kernel, "kernel")],
    )
    model = onnx.helper.make_model(
        graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8
    )
    onnx.save(model, str(tmp_path / "mean.onnx"))
    (tmp_path / "mean.json").write_text('{"frames": 3}')
    frames = np.random.default_rng(1).integers(0, 256, (4, 18, 33, 3), dtype=np.uint8)
    source, output = tmp_path / "in.mkv", tmp_path / "out.mkv"
    coloured = (av.VideoFrame.from_ndarray(frame, format="rgb24") for frame in frames)
    write_stream(source, (frame.reformat(format="bgr0") for frame in coloured))
    assert script("onnx_video")(tmp_path / "mean.onnx", source, output) == (0, "")
    around = np.stack([frames[[0, 0, 1, 2]], frames, frames[[1, 2, 3, 3]]]).astype(
        float
    )
    restored = np.stack([rgb(output, number) for number in range(4)])
    assert np.abs(restored - around.mean(0)).max() <= 0.51


def test_the_filter_of_vapoursynth_restores_in_any_order_as_the_library_does(
    repository, monkeypatch
):
    vs = pytest.importorskip("vapoursynth")
    monkeypatch.syspath_prepend(repository / "examples")
    filters = import_module("vapoursynth_filter")
    frames = np.random.default_rng(4).random((5, 48, 64, 3), dtype=np.float32)

    def paste(n: int, f: Any) -> Any:
        picture = f.copy()
        for channel in range(3):
            np.copyto(np.asarray(picture[channel]), frames[n, ..., channel])
        return picture

    blank = vs.core.std.BlankClip(width=64, height=48, format=vs.RGBS, length=5)
    options = {"sigma": 20.0, "device": "cpu"}
    clip = filters.restored(blank.std.ModifyFrame(blank, paste), "denoise", **options)
    expected = vidrestore.restore_frames(frames, **options)
    begun_anew = vidrestore.restore_frames(frames[1:], **options)
    for number, picture in (
        (1, begun_anew[0]),
        (0, expected[0]),
        (2, expected[2]),
        (4, expected[4]),
    ):
        with clip.get_frame(number) as frame:
            result = np.stack([np.asarray(frame[channel]) for channel in range(3)], -1)
        assert np.array_equal(result, picture), number
    with pytest.raises(vs.Error, match="expected a clip of the format RGBS"):
        filters.restored(blank.resize.Bicubic(format=vs.YUV420P8, matrix_s="709"))
