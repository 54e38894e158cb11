"""A wrong command line is one plain line on stderr and exit code 2."""

import os
import re
from pathlib import Path

import pytest
import torch
from command_line import run

from vidrestore.errors import OptionError
from vidrestore.restorers.devices import gpu_advice, torch_device
from vidrestore.settings import option_values


@pytest.mark.parametrize(
    "arguments, words",
    [
        (
            "denoise a.mp4 --sigma abc",
            ("--sigma", "a number such as 20, or auto", "denoise --help"),
        ),
        ("denoise a.mp4 --threads x", ("--threads", "integer")),
        ("denoise a.mp4 --crf high", ("--crf", "number")),
        ("denoise a.mp4 --shard 9/8", ("--shard", "from 1/8 to 8/8", "got '9/8'")),
        ("denoise a.mp4 --shard 0/4", ("--shard", "from 1/8 to 8/8")),
        ("denoise a.mp4 --shard 1/1000000000", ("--shard", "N up to 4096")),
        ("denoise a.mp4 --engine moon", ("'moon' is not one of 'local', 'ray'",)),
        ("denoise a.mp4 --sigm 3", ("--sigm", "--sigma")),
        ("denoise a.mp4 --zzz", ("--zzz", "denoise --help")),
        ("train --config a.toml --threads -1", ("--threads", "0")),
        ("train", ("--config", "train --help")),
        ("weights import", ("source", "weights import --help")),
        ("denoise a.mp4 --crf", ("--crf",)),
        ("denoise a.mp4 --quiet=yes", ("--quiet", "not take a value")),
        ("polish a.mp4", ("'polish'", "vidrestore --help")),
        (
            "denoise -i a.mp4",
            ("-i: inputs need no option, as in vidrestore denoise in.mp4",),
        ),
        (
            "derain a.mp4 --sigma 20",
            ("No such option: --sigma, which is for denoise; see",),
        ),
        ("inspect a.mp4 b.mp4", ("b.mp4", "inspect --help")),
        (
            "run a.mp4 --steps denoise,,sr",
            ("--steps", "a name is missing beside a comma"),
        ),
        (
            "denoise a.mp4 -crf 18",
            ("No such option: -crf; here it is --crf; see vidrestore denoise",),
        ),
        ("denoise a.mp4 --gpu", ("No such option: --gpu; here it is --device cuda",)),
        ("denoise a.mp4 --bitrate 5M", ("here it is --crf 16",)),
        ("denoise a.mp4 --codec h265", ("here it is --encoder libx265",)),
        ("denoise a.mp4 -s 20", ("here it is --sigma 20",)),
        ("derain a.mp4 -s 20", ("No such option: -s",)),
        ("denoise a.mp4 -o", ("requires an argument; see vidrestore denoise --help",)),
        ("denoise a.mp4 --best --fast", ("--fast and --best exclude each other",)),
        ("denoise a.mp4 --report page.pdf", ("--report page.pdf", "page.html")),
        ("weights download", ("here it is weights pull",)),
        (
            "run a.mp4 --steps denoise --set denoise.sigma",
            ("as in denoise.sigma=VALUE",),
        ),
        ("denoize a.mp4", ("'denoize'", "'denoise'")),
        (
            "upscale a.mp4",
            ("No such command 'upscale'; here it is sr; see vidrestore --help",),
        ),
        ("version", ("here it is --version",)),
        ("list-models", ("here it is weights list",)),
        ("Enhance a.mp4", ("here it is suggest IN, for commands to try",)),
        (
            "deinterlace a.mp4",
            ("here it is denoise IN, which makes whole frames of fields",),
        ),
        (
            "denoise a.mp4 -x4",
            ("No such option: -x4, which is for sr; both", "run IN --steps denoise,sr"),
        ),
        (
            "denoise a.mp4 --scale 2",
            ("which is for sr; both in one go: vidrestore run IN --steps denoise",),
        ),
        (
            "run a.mp4 --steps sr --scale 2",
            ("No such option: --scale, which is for sr; see",),
        ),
        (
            "denoise a.mp4 --deinterlace",
            ("fields become whole frames without an option",),
        ),
        ("denoise a.mp4 --no-sound", ("here it is --drop audio",)),
        ("denoise a.mp4 --format mp4", ("the name says it, as in -o out.mp4",)),
        ("denoise a.mp4 --format=mp4", ("the name says it, as in -o out.mp4",)),
        ("denoise a.mp4 -r", ("here it is --recursive",)),
        ("denoise a.mp4 --half", ("here it is --precision bf16",)),
        ("denoise a.mp4 -d cuda", ("here it is --device cuda",)),
        ("sr a.mp4 -s 2", ("here it is --scale 2",)),
        (
            "denoise a.mp4 --strength much",
            ("expected a number from 0 to 1, such as 0.8, got 'much'",),
        ),
        (
            "denoise a.mp4 --strength 180%",
            ("strength must be less than or equal to 1, found 1.8",),
        ),
        (
            "denoise a.mp4 --device 0",
            ("device '0' is unknown; here it is cuda, or cuda:0",),
        ),
        (
            "denoise a.mp4 --device rocm",
            ("for a GPU of AMD, it is cuda with PyTorch's build for ROCm",),
        ),
        ("bench --device xpu", ("GPUs of Intel are not supported",)),
        (
            "denoise a.mp4 --device tpu",
            ("not supported; expected auto, cpu, cuda, cuda:N or mps",),
        ),
        (
            "denoise a.mp4 --device cuda:x",
            ("device 'cuda:x' is unknown; expected auto, cpu, cuda",),
        ),
        ("denoise a.mp4 --verbos", ("--verbose",)),
        (
            "denoise a.mp4 --preview 1s --dry-run",
            ("--preview", "--dry-run", "leave one out"),
        ),
        ("denoise -", ("-o FILE",)),
        ("denoise", ("expected videos, folders or patterns",)),
        ("denoise a.mp4 --preview soon", ("a time such as 5s",)),
        ("denoise a.mp4 --preview 5 --duration 3", ("--preview", "--duration")),
        ("denoise a.mp4 --start soon", ("--start", "a time such as 90")),
        ("denoise a.mp4 --duration 0", ("--duration", "a time such as 5s", "got '0'")),
        (
            "denoise a.mp4 --sigma -3",
            ("sigma must be greater than or equal to 0 or 'auto', found -3",),
        ),
        (
            "denoise a.mp4 --strength 2",
            ("strength must be less than or equal to 1, found 2",),
        ),
        ("denoise a.mp4 --precision fp8", ("'fp8' is not one of 'auto'",)),
        (
            "denoise a.mp4 --drop everything",
            ("drop must be of audio, ", "found everything"),
        ),
        ("denoise a.mp4 --encoder-option crf", ("KEY=VALUE",)),
        ("denoise a.mp4 --json -o -", ("both need stdout",)),
        ("dehaze a.mp4 --tile large", ("expected auto, or a whole number of pixels",)),
        (
            "dehaze a.mp4 --tile 16",
            ("tile must be greater than or equal to 64, found 16",),
        ),
        ("sr a.mp4 -x5", ("scale must be less than or equal to 4, found 5",)),
        ("sr a.mp4 --height 111", ("height must be a multiple of 2, found 111",)),
        (
            "sr a.mp4 --height 96 -x2",
            ("scale and height both set the size of the output",),
        ),
        ("sense a.mp4 -o m.safetensors", ("a rate such as 0.2 is needed",)),
        (
            "sense a.mp4 -o m.safetensors --rate 2",
            ("rate must be less than or equal to 1, found 2",),
        ),
        ("sense a.mp4 --rate 0.2", ("--output",)),
        ("recover m.safetensors -o - --json", ("both need stdout",)),
        ("recover m.safetensors -o out.mkv --threads -1", ("threads must be",)),
        ("run a.mp4", ("no step was given",)),
        ("run a.mp4 --set denoise.sigma=20", ("no step was given",)),
        (
            "run a.mp4 --steps denoise,polish",
            ("no step named 'polish'; there are: denoise, dehaze",),
        ),
        ("run a.mp4 --steps sr,sr", ("sr can be one of the steps once",)),
        ("run a.mp4 --steps denoise --set sr.scale=2", ("it is none of the steps",)),
        (
            "run a.mp4 --steps denoise --set denoise.sigma=much",
            ("denoise.sigma: expected a number such",),
        ),
        (
            "run a.mp4 --steps denoise --set denoise.tail=1",
            ("no option 'tail'; it has: tile, chroma",),
        ),
        ("run a.mp4 --steps denoise --set sigma=1", ("name the step that it is for",)),
    ],
)
def test_a_wrong_command_line_is_one_plain_line(capsys, arguments, words):
    code = run(*arguments.split())
    printed = capsys.readouterr()
    assert (code, printed.out, printed.err.count("\n")) == (2, "", 1)
    assert printed.err.startswith("vidrestore: ") and all(
        word in printed.err for word in words
    )


@pytest.mark.parametrize(
    "arguments, words",
    [
        (["help"], "denoise"),
        (["help", "denoise"], "--sigma"),
        (["help", "weights"], "pull"),
    ],
)
def test_help_is_a_command_too(capsys, arguments, words):
    assert run(*arguments) == 0
    assert words in capsys.readouterr().out


def test_cuda_on_a_pytorch_without_it_is_an_error_with_its_build_and_the_remedy(
    monkeypatch,
):
    monkeypatch.setattr("torch.version.cuda", None)
    monkeypatch.setattr("torch.__version__", "2.13.0+cpu")
    with pytest.raises(
        OptionError,
        match=r"this PyTorch \(2.13.0\+cpu\) is for CPUs only; .* pip install",
    ):
        torch_device("cuda")
    declared = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    versions = re.search(r'"(torch>=[^"]+)"', declared)
    assert versions and f'pip install --force-reinstall "{versions[1]}"' in str(
        gpu_advice()
    )
    monkeypatch.setattr("torch.version.cuda", "13.0")
    assert gpu_advice() is None
    for device, reason in (
        ("tpu", "device 'tpu' is unknown"),
        ("meta", "expected auto, cpu"),
    ):
        with pytest.raises(OptionError, match=reason):
            torch_device(device)


def test_a_file_in_the_place_of_an_option_names_the_option(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    for name in ("run.toml", "-dash.mp4"):
        (tmp_path / name).touch()
    assert (
        run("train", "run.toml") == 2
        and "as in --config run.toml" in capsys.readouterr().err
    )
    assert (
        run("denoise", "-dash.mp4") == 2
        and "write it as ./-dash.mp4" in capsys.readouterr().err
    )


def test_steps_may_have_blanks_between_them(tmp_path, capsys):
    assert run("run", tmp_path / "gone.mp4", "--steps", "denoise, sr") == 1
    assert "no such file" in capsys.readouterr().err


def test_a_file_in_the_place_of_the_command_names_where_it_goes(tmp_path, capsys):
    (tmp_path / "in.mp4").touch()
    run(f"{tmp_path}/in.mp4", "denoise")
    way_out = f"name the command first, such as vidrestore denoise {tmp_path}/in.mp4"
    assert (
        capsys.readouterr().err
        == f"vidrestore: {tmp_path}/in.mp4 is no command; {way_out}\n"
    )


def test_an_output_without_its_option_is_reported_before_any_work(tmp_path, capsys):
    (tmp_path / "in.mp4").touch()
    assert run("denoise", f"{tmp_path}/in.mp4", "out.mp4") == 2
    assert capsys.readouterr().err == (
        "vidrestore: out.mp4: no such file; if it is to be written, use -o out.mp4\n"
    )


def test_advice_can_be_pasted(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("tape one.mp4", "a run.toml"):
        (tmp_path / name).touch()
    assert run("tape one.mp4") == 2
    assert "such as vidrestore denoise 'tape one.mp4'\n" in capsys.readouterr().err
    assert (
        run("train", "a run.toml") == 2
        and "as in --config 'a run.toml'" in capsys.readouterr().err
    )
    assert run("denoise", "tape", "one.mp4") == 2
    line = "tape one.mp4: a name with blanks is put in quotation marks, as in 'tape one.mp4'"
    assert capsys.readouterr().err == f"vidrestore: {line}\n"


def test_percents_are_shares():
    assert option_values.share("80%") == option_values.share("0.8") == 0.8


@pytest.mark.parametrize("arguments", [[], ["weights"]])
def test_without_a_command_the_help_is_all_there_is(capsys, arguments):
    assert run(*arguments) == 2
    said = capsys.readouterr()
    assert "Usage: " in said.out and not said.err


def test_more_threads_than_cores_are_not_started(tmp_path):
    before, config = torch.get_num_threads(), tmp_path / "run.toml"
    config.write_text(
        'name = "tiny"\ntask = "denoise"\nfamily = "dust"\n[data]\nclips = "."\n'
    )
    run("train", "--config", config, "--threads", "1000", "--print-config")
    found = torch.get_num_threads()
    torch.set_num_threads(before)
    assert found <= os.cpu_count()
