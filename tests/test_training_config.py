"""A configuration is believed only as a whole: every wrong value is named, and where it stands."""

from __future__ import annotations

from pathlib import Path

import pytest
from training_runs import CONFIG, write_config

from vidrestore.errors import ConfigError
from vidrestore.training.config import DataConfig, TrainingConfig, read_config


def test_a_configuration_reads_as_written_with_defaults_for_the_rest(tmp_path: Path) -> None:
    config = read_config(write_config(tmp_path, {"training": {"clip_norm": 2}}))
    assert (config.name, config.task, config.family, config.model) == ("tiny", "denoise", "dust", CONFIG["model"])
    assert config.data.validation == ("held.mkv",)
    assert config.data.still_share == DataConfig("clips").still_share
    assert config.training == TrainingConfig(
        12, 16, sigma=(10.0, 40.0), warmup=4, learning_rate=0.003, precision="fp32", validate_every=5, clip_norm=2.0
    )
    assert config.folder == tmp_path


def test_parameters_for_the_card_are_optional(tmp_path: Path) -> None:
    assert read_config(write_config(tmp_path)).parameters == {}
    assert read_config(write_config(tmp_path, {"parameters": {"rate": 0.2}})).parameters == {"rate": 0.2}


def test_every_example_is_a_configuration_named_as_its_file(repository: Path) -> None:
    examples = sorted((repository / "examples" / "train").glob("*.toml"))
    assert examples
    assert [read_config(path).name for path in examples] == [path.stem for path in examples]


WRONG: list[tuple[str, str, object, str]] = [
    ("", "name", "../tiny", "name must be of lower-case letters"),
    ("", "name", 3, "name must be a string, found 3"),
    ("", "colour", "red", "unknown: colour; there are: name, task, family, model, data, training, parameters"),
    ("", "family", None, "missing: family"),
    ("data", "clips", None, "[data]: missing: clips"),
    ("data", "clip", "clips", "[data]: unknown: clip; there are: clips, stills"),
    ("data", "clips", 1, "[data]: clips must be a string, found 1"),
    ("data", "validation", "held.mkv", "[data]: validation must be a list, found 'held.mkv'"),
    ("data", "validation", [1], "[data]: validation, item 0 must be a string, found 1"),
    ("data", "still_share", 1.5, "[data]: still_share must be in [0, 1], found 1.5"),
    ("data", "chroma_share", -0.1, "[data]: chroma_share must be in [0, 1], found -0.1"),
    ("data", "match_share", "most", "[data]: match_share must be a number, found 'most'"),
    ("data", "strides", [], "[data]: strides must be one or more, each at least 1, found []"),
    ("data", "strides", [8, 0], "[data]: strides must be one or more, each at least 1, found [8, 0]"),
    ("data", "groups_per_window", 0, "[data]: groups_per_window must be at least 1, found 0"),
    ("data", "reuse", 0, "[data]: reuse must be at least 1, found 0"),
    ("data", "pool", 39, "[data]: pool must be at least one window of 40 groups, found 39"),
    ("training", "steps", None, "[training]: missing: steps"),
    ("training", "steps", 0, "[training]: steps must be at least 1, found 0"),
    ("training", "steps", 10.0, "[training]: steps must be a whole number, found 10.0"),
    ("training", "steps", True, "[training]: steps must be a whole number, found True"),
    ("training", "batch", 0, "[training]: batch must be at least 1, found 0"),
    ("training", "sigma", 20, "[training]: sigma must be a list, found 20"),
    ("training", "sigma", [0.0], "[training] sigma must be above 0 to denoise, found [0.0]"),
    ("training", "sigma", [0.0, 50.0], "[training]: sigma must be one level of 0 or more, or a lowest and a highest above 0"),
    ("training", "sigma", [50.0, 10.0], "[training]: sigma must be"),
    ("training", "sigma", [1, 2, 3], "[training]: sigma must be"),
    ("training", "sigma", [], "[training]: sigma must be"),
    ("training", "learning_rate", 0, "[training]: learning_rate must be above 0, found 0.0"),
    ("training", "clip_norm", -1.0, "[training]: clip_norm must be above 0, found -1.0"),
    ("training", "warmup", -1, "[training]: warmup must be 0 or more, found -1"),
    ("training", "decay", 2.0, "[training]: decay must be in [0, 1], found 2.0"),
    ("training", "seed", -1, "[training]: seed must be in [0, 2^31), found -1"),
    ("training", "precision", "fp16", "[training]: precision must be bf16 or fp32, found 'fp16'"),
    ("training", "validate_every", 0, "[training]: validate_every must be at least 1, found 0"),
    ("training", "checkpoint_minutes", -1, "[training]: checkpoint_minutes must be 0 or more, found -1.0"),
]


@pytest.mark.parametrize(("section", "name", "value", "message"), WRONG, ids=[f"{name}={value}" for _, name, value, _ in WRONG])
def test_a_wrong_value_is_named_with_its_place(tmp_path: Path, section: str, name: str, value: object, message: str) -> None:
    path = write_config(tmp_path, {section: {name: value}})
    with pytest.raises(ConfigError) as error:
        read_config(path)
    assert str(error.value).startswith(str(path))
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["learning_rate", "decay", "still_share", "sigma"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_numbers_that_are_none_are_refused(tmp_path: Path, name: str, value: str) -> None:
    path = write_config(tmp_path, {"data" if name == "still_share" else "training": {name: "HERE"}})
    path.write_text(path.read_text().replace("'HERE'", f"[{value}]" if name == "sigma" else value))
    with pytest.raises(ConfigError, match=f"{name} must be"):
        read_config(path)


@pytest.mark.parametrize("section", ["model", "data", "training"])
def test_a_section_that_is_no_table_is_refused(tmp_path: Path, section: str) -> None:
    path = tmp_path / "run.toml"
    others = "".join(f"[{name}]\nsteps = 1\n" for name in ("model", "data", "training") if name != section)
    path.write_text(
        f'name = "a"\ntask = "denoise"\nfamily = "dust"\n{section} = 3\n' + others.replace("[data]\nsteps = 1", '[data]\nclips = "a"')
    )
    with pytest.raises(ConfigError, match=f"{section}.* must be a table, found 3"):
        read_config(path)


def test_a_file_that_is_no_toml_or_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="none.toml: can't be read"):
        read_config(tmp_path / "none.toml")
    for content in (b"steps == 3", b"\xff\xfe"):
        (tmp_path / "bad.toml").write_bytes(content)
        with pytest.raises(ConfigError, match="bad.toml: not valid TOML"):
            read_config(tmp_path / "bad.toml")
