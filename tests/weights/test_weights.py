import errno
import hashlib
import json
import os
import pickle
import re
import signal
import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import command_line
import hub_server
import pytest
import safetensors
import torch
from commands import Commands
from tiny_family import Tiny, TinyConfig

from vidrestore import weights
from vidrestore.errors import CheckpointError, MediaError, OutputExistsError
from vidrestore.files.stopping import stops_cleanly
from vidrestore.settings.families import FAMILIES, Family
from vidrestore.weights import (
    Card,
    load_model,
    read_card,
    read_manifest,
    save_model,
    write_manifest,
)
from vidrestore.weights.checkpoint import all_tensors, opened, read_model
from vidrestore.weights.hub import HubAddress

HELPERS = str(Path(__file__).parents[1] / "helpers")  # for processes of their own
ADDRESS = f"hf:{hub_server.REPOSITORY}@{hub_server.COMMIT}/tiny.safetensors"


@pytest.fixture(autouse=True)
def tiny_is_a_family(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(FAMILIES, "tiny", Family("tiny_family:build"))


def tiny(width: int = 4) -> Tiny:
    torch.manual_seed(width)
    return Tiny(TinyConfig(width))


def saved(path: Path, width: int = 4, **settings: Any) -> Card:
    return save_model(
        path,
        tiny(width),
        family="tiny",
        config=TinyConfig(width),
        task="denoise",
        **settings,
    )


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of bundled weights: a manifest and one file."""
    folder = tmp_path / "weights"
    folder.mkdir()
    monkeypatch.setattr("vidrestore.weights.manifest.weights_folder", lambda: folder)
    write_manifest(
        [replace(saved(folder / "tiny-denoise.safetensors"), licence="Apache-2.0")],
        folder,
    )
    return folder


@contextmanager
def limited_memory(room: int) -> Iterator[None]:
    """Let this process take `room` bytes more than it has; MemoryError beyond."""
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_AS)
    pages = (
        int(Path("/proc/self/statm").read_text().split()[0])
        if Path("/proc/self/statm").exists()
        else 0
    )
    if pages:
        resource.setrlimit(
            resource.RLIMIT_AS, (pages * resource.getpagesize() + room, limits[1])
        )
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


def edit_manifest(folder: Path, **changes: Any) -> None:
    """Change fields of the first entry; None takes a field away."""
    document = json.loads((folder / "manifest.json").read_text())
    document["weights"][0] |= changes
    for key in [key for key, value in changes.items() if value is None]:
        del document["weights"][0][key]
    (folder / "manifest.json").write_text(json.dumps(document))


# A file builds its own network


def test_a_saved_model_loads_as_the_same_function(tmp_path):
    network = tiny(6)
    save_model(
        tmp_path / "six.safetensors",
        network,
        family="tiny",
        config=TinyConfig(6),
        task="denoise",
        parameters={"sigma": [1, 75]},
    )
    model = load_model(tmp_path / "six.safetensors")
    values = torch.rand(3, 6)
    assert torch.equal(model.network(values), network(values))
    assert not model.network.training
    assert (
        model.card.name,
        model.card.task,
        model.card.config,
        model.card.parameters,
    ) == (
        "six",
        "denoise",
        {"width": 6},
        {"sigma": [1, 75]},
    )


def test_weights_for_which_there_is_no_space_say_what_to_do(tmp_path, monkeypatch):
    def full(path: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("vidrestore.weights.checkpoint.replacing", full)
    with pytest.raises(CheckpointError, match="a.safetensors: no space left .*; free"):
        saved(tmp_path / "a.safetensors")


def test_the_same_tensors_give_the_same_bytes_in_any_process(commands, tmp_path):
    code = f"""
sys.path.insert(0, {HELPERS!r})
from tiny_family import Tiny, TinyConfig
from vidrestore.settings.families import FAMILIES, Family
from vidrestore.files.stopping import stops_cleanly
from vidrestore.weights import save_model; FAMILIES["tiny"] = Family("tiny_family:build")
torch.manual_seed(4)
extra = {{"licence": "", "training": {{}}}}
card = save_model(
    {str(tmp_path / "there.safetensors")!r},
    Tiny(TinyConfig(4)),
    family="tiny",
    config={{"width": 4}},
    task="denoise",
    extra=extra,
)
print(card.sha256)
sys.exit()
"""
    digests = {
        saved(
            tmp_path / "here.safetensors", extra={"licence": "", "training": {}}
        ).sha256
    }
    # sets and dictionaries of strings have another order there
    command = commands.start(before=code)
    assert command.wait() == 0, command.said
    assert digests == {command.read("output").strip()}


def test_loading_leaves_the_callers_random_numbers_alone(tmp_path):
    saved(tmp_path / "a.safetensors")
    torch.manual_seed(1)
    expected = torch.rand(4)
    torch.manual_seed(1)
    load_model(tmp_path / "a.safetensors")
    assert torch.equal(torch.rand(4), expected)


@pytest.mark.parametrize(
    ("value", "half"), [(float("nan"), False), (float("inf"), True), (1e6, True)]
)
def test_values_that_would_not_be_finite_in_the_file_are_refused_and_the_old_file_stays(
    tmp_path, value, half
):
    path = tmp_path / "a.safetensors"
    before = saved(path)
    network = tiny()
    network.linear.bias.data[0] = value
    with pytest.raises(
        CheckpointError, match=r"linear\.bias: has values that are not finite"
    ):
        save_model(
            path, network, family="tiny", config=TinyConfig(), task="denoise", half=half
        )
    assert read_card(path) == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["a.safetensors"]


# Files that don't fit are refused, never repaired


def rewritten(path: Path, change: dict[str, torch.Tensor | None]) -> Path:
    """The file at `path` with tensors replaced, added, or (None) taken away; its metadata stays."""
    from safetensors import safe_open
    from safetensors.torch import load_file, save_file

    with safe_open(path, framework="pt") as stream:
        metadata = stream.metadata()
    tensors = {
        name: tensor
        for name, tensor in (load_file(path) | change).items()
        if tensor is not None
    }
    save_file(tensors, path, metadata)
    return path


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"linear.bias": None},
            r"lacks linear\.bias; file and config are of different networks",
        ),
        ({"stray": torch.zeros(1)}, r"has unexpected stray"),
        (
            {"linear.bias": torch.zeros(5)},
            r"linear\.bias: shape \[5\], but the config asks for \[4\]",
        ),
        (
            {"linear.bias": torch.zeros(4, dtype=torch.float64)},
            r"linear\.bias: stored as float64, but the network holds float32",
        ),
        (
            {"steps": torch.zeros((), dtype=torch.float16)},
            r"steps: stored as float16, but the network holds int64",
        ),
    ],
    ids=["missing", "stray", "shape", "dtype", "half for an integer"],
)
def test_a_tensor_that_is_not_the_networks_own_is_refused(tmp_path, change, message):
    saved(tmp_path / "a.safetensors")
    with pytest.raises(CheckpointError, match=message):
        load_model(rewritten(tmp_path / "a.safetensors", change))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (
            {"linear.weight.scales": None},
            "linear.weight: stored as int8, but the network holds float32",
        ),
        (
            {"linear.weight.scales": torch.ones(3).half()},
            r"stored in 8 bits as .* scales float16 \[3\], but",
        ),
        (
            {"linear.weight.scales": torch.ones(2)},
            r"stored in 8 bits as .* scales float32 \[2\], but",
        ),
        (
            {"linear.weight.scales": torch.full((2,), torch.inf).half()},
            "linear.weight: has NaN or infinity",
        ),
        ({"linear.weight": torch.zeros(8, 8)}, r"stored in 8 bits as float32 \[8, 8\]"),
        (
            {"steps.scales": torch.ones(0).half()},
            r"steps: stored in 8 bits as int64 \[\]",
        ),
    ],
    ids=["no scales", "too many", "dtype", "infinite", "no integers", "a counter"],
)
def test_eight_bits_without_the_scales_that_belong_to_them_are_refused(
    tmp_path, change, message
):
    saved(tmp_path / "a.safetensors", width=8, eight_bit_from=64)
    with pytest.raises(CheckpointError, match=message):
        load_model(rewritten(tmp_path / "a.safetensors", change))


def test_matrices_in_eight_bits_are_off_by_half_a_step_and_the_rest_is_in_sixteen(
    tmp_path,
):
    network = tiny(64)
    settings = {
        "family": "tiny",
        "config": TinyConfig(64),
        "task": "denoise",
        "half": True,
    }
    for least in (4096, 4097):
        save_model(
            tmp_path / f"{least}.safetensors", network, **settings, eight_bit_from=least
        )
    whole = network.state_dict()
    small, half = (
        load_model(tmp_path / f"{least}.safetensors").network.state_dict()
        for least in (4096, 4097)
    )
    assert torch.equal(small["linear.bias"], whole["linear.bias"].half().float())
    assert torch.equal(half["linear.weight"], whole["linear.weight"].half().float())
    blocks = whole["linear.weight"].view(-1, 32)
    error = (small["linear.weight"].view(-1, 32) - blocks).abs() / (
        blocks.abs().amax(1, keepdim=True) / 127
    )
    assert 0.4 < error.max() < 0.6  # scales are rounded, too


def test_a_matrix_of_zeros_comes_back_from_eight_bits(tmp_path):
    network = tiny(8)
    network.linear.weight.data.zero_()
    settings = {
        "family": "tiny",
        "config": TinyConfig(8),
        "task": "denoise",
        "eight_bit_from": 1,
    }
    save_model(tmp_path / "a.safetensors", network, **settings)
    assert (
        not load_model(tmp_path / "a.safetensors")
        .network.state_dict()["linear.weight"]
        .any()
    )


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"width": 200_000},
            r"linear\.weight: shape \[4, 4\], but the config asks for \[200000, 200000\]",
        ),
        ({"width": 10**30}, "can't be built from the config"),
        ({"width": [4]}, "can't be built from the config"),
        ({"colour": 3}, "'tiny' can't be built from the config .*colour"),
        (
            {"width": 4, "depth": 10**9},
            "it asks for more than the 3 tensors of the file",
        ),
    ],
    ids=["160 GB", "overflow", "list", "unknown", "a billion layers"],
)
def test_a_config_of_absurd_size_is_refused_before_memory_is_taken(
    tmp_path, config, message
):
    path = tmp_path / "a.safetensors"
    save_model(path, tiny(), family="tiny", config=config, task="denoise")
    with (
        limited_memory(4 << 30),
        pytest.raises(CheckpointError, match=message) as error,
    ):
        load_model(path)
    assert len(str(error.value).splitlines()) == 1


@pytest.mark.parametrize(
    ("key", "text", "message"),
    [
        (
            "config",
            "[3]",
            "its metadata is not JSON .an object was expected, found list",
        ),
        ("config", "[" * 100_000, "its metadata is not JSON"),
        ("measured", "3", "measured must be an object, found 3"),
        ("licence", "{}", "licence must be a valid string, found {}"),
        (
            "config",
            "[" + "{}," * 500_000 + "{}]",
            "its metadata has 15000.. characters; at most 1048576",
        ),
        (
            "notes",
            " " * (1 << 20),
            "its metadata has 10485.. characters; at most 1048576",
        ),
    ],
    ids=lambda value: value[:40],
)
def test_a_card_of_wrong_types_is_one_line_that_names_the_file(
    tmp_path, key, text, message
):
    from safetensors.torch import save_file

    metadata = {"family": "tiny", "task": "denoise", "config": "{}"} | {key: text}
    save_file(tiny().state_dict(), tmp_path / "a.safetensors", metadata)
    with pytest.raises(CheckpointError, match=f"a.safetensors.*{message}"):
        load_model(tmp_path / "a.safetensors")


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_tensor_that_is_not_finite_is_named(tmp_path, value):
    saved(tmp_path / "a.safetensors")
    rewritten(
        tmp_path / "a.safetensors", {"linear.bias": torch.tensor([0, value, 0, 0])}
    )
    ((_, problem),) = weights.verify([str(tmp_path / "a.safetensors")])
    assert "linear.bias: has NaN or infinity" in problem


def test_an_unknown_family_is_answered_with_the_known_ones(tmp_path):
    save_model(
        tmp_path / "a.safetensors", tiny(), family="huge", config={}, task="denoise"
    )
    with pytest.raises(
        CheckpointError, match="unknown model family 'huge'; this version has: .*tiny"
    ):
        load_model(tmp_path / "a.safetensors")


def test_files_that_are_not_weights_are_refused_with_the_reason(tmp_path):
    from safetensors.torch import save_file

    (tmp_path / "text.safetensors").write_text("hello")
    (tmp_path / "empty.safetensors").write_bytes(b"")
    (tmp_path / "huge.safetensors").write_bytes(struct.pack("<Q", 2**60) + b"{}")
    saved(tmp_path / "cut.safetensors")
    (tmp_path / "cut.safetensors").write_bytes(
        (tmp_path / "cut.safetensors").read_bytes()[:-3]
    )
    for name in ("text", "empty", "huge", "cut"):
        with pytest.raises(
            CheckpointError,
            match=f"{name}.safetensors: damaged or not a safetensors file",
        ):
            load_model(tmp_path / f"{name}.safetensors")
    save_file({"a": torch.zeros(1)}, tmp_path / "foreign.safetensors")
    with pytest.raises(
        CheckpointError,
        match=r"its metadata lacks family, config, task; .*weights import",
    ):
        load_model(tmp_path / "foreign.safetensors")
    with pytest.raises(CheckpointError, match=r"nowhere\.safetensors: no such file"):
        load_model(tmp_path / "nowhere.safetensors")
    with pytest.raises(CheckpointError, match="read from .safetensors files only"):
        load_model(tmp_path / "model.pth")


# The manifest


def test_a_name_of_the_manifest_loads_its_file(folder):
    model = load_model("tiny-denoise")
    assert torch.equal(model.network.linear.weight, tiny().linear.weight)
    assert model.card.licence == "Apache-2.0"


def test_a_file_is_hashed_once_to_be_loaded_and_not_to_know_its_family(
    folder, monkeypatch
):
    hashed: list[object] = []
    digest = hashlib.file_digest
    monkeypatch.setattr(
        hashlib,
        "file_digest",
        lambda stream, name: hashed.append(stream) or digest(stream, name),
    )
    name = next(iter(read_manifest()))
    for source, times in ((name, 1), (folder / str(read_manifest()[name].file), 1)):
        hashed.clear()
        assert weights.card_of(source).family == "tiny" and not hashed
        load_model(source)
        assert len(hashed) == times


def test_the_bundled_manifest_is_sound_and_its_files_load():
    entries = json.loads((weights.weights_folder() / "manifest.json").read_text())[
        "weights"
    ]
    assert list(weights.verify()) == [(entry["name"], "") for entry in entries]
    for entry in entries:
        card = read_card(weights.weights_folder() / entry["file"]).to_entry()
        assert all(card[key] == entry[key] for key in ("family", "config", "task"))


def test_an_unknown_name_is_answered_with_the_known_ones(folder):
    with pytest.raises(
        CheckpointError, match="no weights named 'dust'; the manifest has: tiny-denoise"
    ):
        load_model("dust")


def flipped(content: bytes) -> bytes:
    return content[:-1] + bytes([content[-1] ^ 1])


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (
            lambda path: path.write_bytes(flipped(path.read_bytes())),
            r"sha256 [0-9a-f]{12}… but the manifest says [0-9a-f]{12}…; fetch the file again",
        ),
        (Path.unlink, "the file of 'tiny-denoise' is missing"),
    ],
    ids=["a bit", "all"],
)
def test_a_file_that_is_not_the_manifests_is_refused(folder, damage, message):
    damage(folder / "tiny-denoise.safetensors")
    with pytest.raises(CheckpointError, match=message):
        load_model("tiny-denoise")
    [(name, problem)] = weights.verify()
    assert name == "tiny-denoise" and re.search(message, problem)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sha256": None}, "missing: sha256"),
        ({"colour": "red"}, "unknown: colour; there are: name, family"),
        ({"bytes": "12"}, "bytes must be a valid integer, found '12'"),
        ({"bytes": True}, "bytes must be a valid integer, found True"),
        ({"config": []}, r"config must be an object, found \[\]"),
    ],
    ids=lambda value: None if isinstance(value, str) else json.dumps(value),
)
def test_a_wrong_entry_is_refused_with_its_place_and_the_expected_value(
    folder, changes, message
):
    edit_manifest(folder, **changes)
    with pytest.raises(CheckpointError, match=rf"manifest\.json, entry 0: {message}"):
        read_manifest()


def test_a_manifest_must_be_json_of_this_version(folder):
    path = folder / "manifest.json"
    for text, message in [
        ("{", "can't be read as JSON"),
        ("[]", 'expected {"version": 1'),
        ('{"version": 2, "weights": []}', "another version of vidrestore wrote it"),
        (
            json.dumps({"version": 1, "weights": [3]}),
            "entry 0 must be an object, found 3",
        ),
    ]:
        path.write_text(text)
        with pytest.raises(CheckpointError, match=message):
            read_manifest()
    path.unlink()
    with pytest.raises(CheckpointError, match="the manifest is missing"):
        read_manifest()


# The hub, imitated on this machine


@pytest.fixture
def run_with_hub(commands: Commands) -> Callable[..., str]:
    """Run code with a hub at `endpoint` and a cache beside `folder`; return the last line printed."""

    def run(code: str, folder: Path, endpoint: str, **environment: str) -> str:
        before = hub_server.client(endpoint, folder.parent / "cache", **environment)
        before += f"""
sys.path.insert(0, {HELPERS!r})
from pathlib import Path
from vidrestore.settings.families import Family
from vidrestore.weights import *; FAMILIES["tiny"] = Family("tiny_family:build")
folder = Path({str(folder)!r})
{code}
sys.exit()
"""
        command = commands.start(before=before)
        said = command.read("output" if command.wait() == 0 else "errors")
        return (said.strip().splitlines() or [""])[-1]

    return run


LOAD = f"print(load_model({ADDRESS!r}).card.family)"
PULL = f"print(pull({ADDRESS!r}, quiet=True)[1])"


@pytest.fixture
def content(folder: Path) -> bytes:
    return (folder / "tiny-denoise.safetensors").read_bytes()


def test_the_file_of_an_address_is_fetched_once_and_then_loads_without_the_hub(
    run_with_hub, folder, content
):
    with hub_server.serving({"tiny.safetensors": content}) as server:
        assert run_with_hub(LOAD, folder, server.address) == "tiny"
        pulled = Path(run_with_hub(PULL, folder, server.address))
        assert pulled.read_bytes() == content
        assert run_with_hub(PULL, folder, server.address) == str(pulled)
        assert server.downloads == 1
        endpoint = server.address
    assert run_with_hub(LOAD, folder, endpoint) == "tiny"
    assert run_with_hub(PULL, folder, endpoint, HF_HUB_OFFLINE="1") == str(pulled)


@pytest.mark.parametrize(
    ("served", "truncate", "message"),
    [
        ("whole", 40, "can't be fetched; check the address and the network"),
        ("none", 0, "can't be fetched; check the address and the network"),
        ("short", 0, "damaged or not a safetensors file"),
    ],
)
def test_a_file_that_is_missing_or_incomplete_is_not_loaded(
    run_with_hub, folder, content, served, truncate, message
):
    files = {
        "whole": {"tiny.safetensors": content},
        "none": {},
        "short": {"tiny.safetensors": content[:-9]},
    }
    with hub_server.serving(files[served]) as server:
        server.truncate = truncate
        assert message in run_with_hub(PULL, folder, server.address)


def test_a_branch_is_resolved_to_its_commit(run_with_hub, folder, content):
    with hub_server.serving({"model.safetensors": content}) as server:
        for name in (
            hub_server.REPOSITORY,
            f"hf:{hub_server.REPOSITORY}@main/model.safetensors",
        ):
            result = run_with_hub(f"print(*pull({name!r}))", folder, server.address)
            address, path = result.split(" ")
            assert (
                address
                == f"hf:{hub_server.REPOSITORY}@{hub_server.COMMIT}/model.safetensors"
            )
            assert Path(path).read_bytes() == content
        result = run_with_hub("pull('someone/else')", folder, server.address)
        assert (
            "someone/else: can't be resolved to a commit; check the address and the network"
            in result
        )
    result = run_with_hub(
        "pull('someone/else')", folder, server.address, HF_HUB_OFFLINE="1"
    )
    assert "HF_HUB_OFFLINE is set" in result


def test_an_address_needs_a_full_commit_and_a_safetensors_file():
    assert HubAddress.parse(ADDRESS) == HubAddress(
        hub_server.REPOSITORY, hub_server.COMMIT, "tiny.safetensors"
    )
    assert str(HubAddress.parse(ADDRESS)) == ADDRESS
    assert HubAddress.parse(ADDRESS.rpartition("/")[0]).file == "model.safetensors"
    commit = hub_server.COMMIT
    for text in (
        "hf:a/b",
        "hf:a/b@main/x.safetensors",
        f"hf:a/b@{commit[:7]}",
        f"hf:a/b@{commit}/x.pth",
        f"hf:a/b@{commit}/../x.safetensors",
    ):
        with pytest.raises(
            CheckpointError, match="is not a hub address; expected hf:owner/repo@commit"
        ):
            HubAddress.parse(text)


# Checkpoints of other code


def imported(
    tmp_path: Path, content: Any, config: dict[str, int] | None = None
) -> Card:
    torch.save(content, tmp_path / "other.pth")
    return weights.import_checkpoint(
        tmp_path / "other.pth",
        tmp_path / "ours.safetensors",
        family="tiny",
        config=config or {"width": 4},
        overwrite=True,
    )


@pytest.mark.parametrize("wrapper", [None, "state_dict", "model", "params"])
@pytest.mark.parametrize("prefix", ["", "module.", "_orig_mod.module."])
def test_a_state_dict_is_found_under_the_keys_of_common_trainers(
    tmp_path, wrapper, prefix
):
    state = {prefix + name: tensor for name, tensor in tiny().state_dict().items()}
    imported(tmp_path, {wrapper: state, "epoch": 3} if wrapper else state)
    assert torch.equal(
        load_model(tmp_path / "ours.safetensors").network.linear.weight,
        tiny().linear.weight,
    )


def test_tensors_of_other_code_are_renamed_by_the_adopter(tmp_path, monkeypatch):
    monkeypatch.setitem(
        FAMILIES, "tiny", Family("tiny_family:build", adopt="tiny_family:adopt")
    )
    card = imported(
        tmp_path,
        {
            name.replace("linear", "fc"): tensor
            for name, tensor in tiny().state_dict().items()
        },
        {"size": 4},
    )
    assert torch.equal(
        load_model(tmp_path / "ours.safetensors").network.linear.bias,
        tiny().linear.bias,
    )
    assert (card.config, card.task, card.parameters) == (
        {"width": 4},
        "count",
        {"scale": 2},
    )
    with pytest.raises(
        CheckpointError, match="other.pth: size is -1, expected 1 or more"
    ):
        imported(tmp_path, tiny().state_dict(), {"size": -1})


@pytest.mark.parametrize("family", ["dust", "sista", "nothing"])
def test_families_that_nobody_can_import_are_refused_with_those_that_can(
    family, tmp_path, capsys
):
    files = (tmp_path / "a.pth", "-o", tmp_path / "b.safetensors")
    assert command_line.run("weights", "import", *files, "--family", family) == 2
    expected = "can't be imported; expected mb-taylorformer, spynet, vsr-transformer"
    assert f"--family {family}: {expected}" in capsys.readouterr().err


def test_an_import_replaces_a_file_only_where_that_is_asked_for_and_never_its_source(
    tmp_path,
):
    from safetensors.torch import save_file

    source, output = tmp_path / "other.safetensors", tmp_path / "ours.safetensors"
    save_file(tiny().state_dict(), source)
    output.write_text("precious")
    arguments: dict[str, Any] = {"family": "tiny", "config": {"width": 4}}
    with pytest.raises(
        OutputExistsError, match="ours.safetensors: already exists; add `overwrite`"
    ):
        weights.import_checkpoint(source, output, **arguments)
    assert output.read_text() == "precious"
    assert (
        weights.import_checkpoint(source, output, **arguments, overwrite=True).task
        == "restore"
    )
    assert torch.equal(load_model(output).network.linear.weight, tiny().linear.weight)
    before = source.read_bytes()
    with pytest.raises(MediaError, match="the output is the input"):
        weights.import_checkpoint(source, source, **arguments, overwrite=True)
    assert source.read_bytes() == before


def test_verifying_an_unknown_name_raises_an_error(tmp_path):
    with pytest.raises(CheckpointError, match="nosuch"):
        list(weights.verify(["nosuch"]))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"linear.bias": torch.zeros(4)}, r"lacks linear\.weight, steps"),
        (
            tiny(5).state_dict(),
            r"linear\.bias: shape \[5\]|linear\.weight: shape \[5, 5\], but the config asks",
        ),
        ({"epoch": 3}, "has no state dict"),
        ({0: torch.zeros(4)}, "has no state dict"),
        ({"linear.bias": torch.zeros(1).expand(10**6, 10**6)}, "has no state dict"),
    ],
    ids=["lacking", "size", "numbers", "names", "a view of any size"],
)
def test_a_checkpoint_of_another_network_or_of_none_is_refused(
    tmp_path, content, message
):
    with pytest.raises(CheckpointError, match=rf"other\.pth.*{message}"):
        imported(tmp_path, content)
    assert not (tmp_path / "ours.safetensors").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_folder_or_a_pipe_in_place_of_a_checkpoint_is_refused_at_once(tmp_path):
    (tmp_path / "folder.pth").mkdir()
    os.mkfifo(tmp_path / "pipe.pth")
    for name in ("folder.pth", "pipe.pth"):
        with pytest.raises(
            CheckpointError, match=f"{name}: can't be read .*, but a regular file"
        ):
            weights.import_checkpoint(
                tmp_path / name, tmp_path / "ours.safetensors", family="tiny"
            )


class Touch:
    """Creates a file when it is unpickled: what an attacker would put into a checkpoint."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:
        return (Path.touch, (self.path,))


def test_code_in_a_checkpoint_is_not_run(tmp_path):
    with pytest.raises(
        CheckpointError, match="not a checkpoint that can be read safely"
    ) as error:
        imported(tmp_path, {"linear.weight": Touch(tmp_path / "ran")})
    assert "weights_only" not in str(error.value)  # torch's advice: to load it unsafely
    (tmp_path / "other.pth").write_bytes(
        pickle.dumps(Touch(tmp_path / "ran"), protocol=2)
    )
    with pytest.raises(
        CheckpointError, match="not a checkpoint that can be read safely"
    ):
        weights.import_checkpoint(
            tmp_path / "other.pth",
            tmp_path / "ours.safetensors",
            family="tiny",
            config={},
            task="denoise",
        )
    assert not (tmp_path / "ran").exists()
    pickle.loads(pickle.dumps(Touch(tmp_path / "ran")))
    assert (tmp_path / "ran").exists()  # the measure sees what it is to see


def test_a_wrong_output_name_is_refused_before_any_file_is_read(tmp_path):
    with pytest.raises(
        CheckpointError, match=r"out\.pth: weights are written as \.safetensors"
    ):
        weights.import_checkpoint(
            tmp_path / "no.pth",
            tmp_path / "out.pth",
            family="tiny",
            config={},
            task="denoise",
        )


def test_weights_whose_file_cannot_be_closed_are_an_error_of_ours(folder, monkeypatch):
    """PyTorch, which reads tensors for safetensors, makes a RuntimeError of it."""
    path = folder / "tiny-denoise.safetensors"
    error = RuntimeError(f"Error closing file <{path}>: Input/output error (5)")
    monkeypatch.setattr("safetensors.safe_open", Mock(side_effect=error))
    with pytest.raises(
        CheckpointError, match="tiny-denoise.safetensors: can't be read as weights"
    ):
        read_model(path)


@pytest.mark.skipif(
    os.name == "nt", reason="Windows ends a process at a raised SIGTERM"
)
def test_a_signal_while_weights_are_read_is_no_error_of_theirs(tmp_path, monkeypatch):
    class Reading:
        """As of the library, whose compiled code makes another error of an interruption."""

        def __init__(self, *_: object, **__: object) -> None:
            self.get_tensor("")

        def get_tensor(self, name: str) -> torch.Tensor:
            try:
                signal.raise_signal(signal.SIGTERM)
            except KeyboardInterrupt:
                raise ValueError(
                    "could not determine the shape of object type UntypedStorage"
                ) from None
            return torch.zeros(1)

        def keys(self) -> list[str]:
            return ["weight"]

    with pytest.raises(KeyboardInterrupt), stops_cleanly():
        all_tensors(Reading.__new__(Reading))
    path = tmp_path / "tiny.safetensors"
    saved(path)
    monkeypatch.setattr(safetensors, "safe_open", Reading)
    with pytest.raises(KeyboardInterrupt), stops_cleanly(), opened(path):
        pass
