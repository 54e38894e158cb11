"""A configuration is believed only as a whole: every wrong value is named, and where it stands."""

import os
import tomllib
from dataclasses import replace

import pytest
from training_runs import CLIPS, CONFIG, PAIRS, tiny_run, write_config

from vidrestore.errors import ConfigError, OptionError, VidRestoreError
from vidrestore.lab.run_config import (
    DataConfig,
    PairDataConfig,
    TrainingConfig,
    config_toml,
    read_config,
    toml,
)
from vidrestore.lab.training.networks import new_network, with_full_model


def test_a_configuration_reads_as_written_with_defaults_for_the_rest(tmp_path):
    config = read_config(write_config(tmp_path, {"training": {"clip_norm": 2}}))
    assert (config.name, config.task, config.family, config.model) == (
        "tiny",
        "denoise",
        "dust",
        CONFIG["model"],
    )
    assert config.data.validation == ("held.mkv",)
    assert config.data.still_share == DataConfig("clips").still_share
    assert config.training == TrainingConfig(
        12,
        16,
        sigma=(10.0, 40.0),
        warmup=4,
        learning_rate=0.003,
        precision="fp32",
        validate_every=5,
        clip_norm=2.0,
    )
    assert config.folder == tmp_path


def test_every_example_is_a_configuration_named_as_its_file(repository):
    examples = sorted((repository / "examples" / "train").glob("*.toml"))
    assert examples
    assert [read_config(path).name for path in examples] == [
        path.stem for path in examples
    ]


WRONG: list[tuple[str, object, str]] = [
    ("name", "../tiny", "name must match pattern"),
    (
        "colour",
        "red",
        "unknown: colour; there are: name, task, family, model, data, training, parameters",
    ),
    ("family", None, "missing: family"),
    ("task", "denoize", "task must be denoise or recover for dust, found 'denoize'"),
    (
        "task",
        "recover",
        "task must be recover with [model] measurements, else denoise, found 'recover'",
    ),
    ("data.clips", None, "[data]: missing: clips"),
    ("data.clip", "clips", "[data]: unknown: clip; there are: clips, stills"),
    (
        "data.validation",
        "held.mkv",
        "[data]: validation must be a valid array, found 'held.mkv'",
    ),
    (
        "data.validation",
        ["clips/held.mkv"],
        "[data]: validation must be names of files in the folder data.",
    ),
    (
        "data.still_share",
        1.5,
        "[data]: still_share must be less than or equal to 1, found 1.5",
    ),
    (
        "data.strides",
        [],
        "[data]: strides must have at least 1 item after validation, not 0, found []",
    ),
    (
        "data.strides",
        [8, 0],
        "[data]: strides, item 1 must be greater than or equal to 1, found 0",
    ),
    (
        "data.pool",
        39,
        "[data]: pool must be at least one window of 40 groups, found 39",
    ),
    ("training.steps", None, "[training]: missing: steps"),
    ("training.steps", 10.0, "[training]: steps must be a valid integer, found 10.0"),
    ("training.sigma", 20, "[training]: sigma must be a valid array, found 20"),
    (
        "training.sigma",
        [1e308],
        "[training]: sigma, item 0 must be less than or equal to 255",
    ),
    (
        "training.sigma",
        [0.0],
        "[training] sigma must be above 0 to denoise, found [0.0]",
    ),
    (
        "training.sigma",
        [0.0, 50.0],
        "sigma must be one level of 0 or more, or a lowest and a highest",
    ),
    ("training.precision", "fp8", "precision must be 'bf16' or 'fp32', found 'fp8'"),
    (
        "training.schedule",
        "linear",
        "schedule must be 'cosine', 'restarts' or 'plateau', found 'linear'",
    ),
    (
        "training.floor",
        0.5,
        "[training]: floor must be at most the learning rate's 0.003, found 0.5",
    ),
    (
        "training.restarts",
        [1.0, 0.0],
        "[training]: restarts, item 1 must be greater than 0, found 0.0",
    ),
    ("training.factor", 1, "[training]: factor must be less than 1, found 1"),
    (
        "training.betas",
        [0.9, 1.0],
        "[training]: betas, item 1 must be less than 1, found 1.0",
    ),
    (
        "training.clip_norm",
        -1,
        "[training]: clip_norm must be greater than or equal to 0, found -1",
    ),
    (
        "training.warmup",
        13,
        "[training] warmup must be at most the 12 steps of the run, found 13",
    ),
]
EVERY = "haze, rain, snow, blur, noise, white"
WRONG_OF_PAIRS: list[tuple[str, object, str]] = [
    ("data.degradations", [], f"degradations must be one or more of {EVERY}, found []"),
    ("data.degradations", ["fog"], "degradations must be one or more of haze"),
    ("data.crop", 20, "crop must be a multiple of 8, found 20"),
    ("data.crop", 296, "crop must be less than or equal to 288, found 296"),
    ("data.widest", 8, "widest must be from the crop's 16 to 1080, found 8"),
    (
        "data.strides",
        [8],
        "[data]: unknown: strides; there are: clips, stills, validation, still_share",
    ),
    ("training.sigma", [20.0], "[training]: unknown: sigma"),
]
WRONG_OF_CLIPS: list[tuple[str, object, str]] = [
    ("data.frames", 0, "frames must be greater than or equal to 1, found 0"),
    ("data.practical", 1, "practical must be a valid boolean, found 1"),
    (
        "training.loss",
        "spectrum",
        "loss must be 'charbonnier' or 'psnr', found 'spectrum'",
    ),
]


@pytest.mark.parametrize(
    ("base", "place", "value", "message"),
    [
        (base, *case)
        for base, cases in (
            (CONFIG, WRONG),
            (PAIRS, WRONG_OF_PAIRS),
            (CLIPS, WRONG_OF_CLIPS),
        )
        for case in cases
    ],
    ids=lambda value: (
        value if isinstance(value, str) and value.count(".") == 1 else None
    ),
)
def test_a_wrong_value_is_named_with_its_place(tmp_path, base, place, value, message):
    (tmp_path / "clips").mkdir()
    section, _, name = place.rpartition(".")
    with pytest.raises(ConfigError) as error:
        tiny_run(tmp_path, {section: {name: value}}, base)
    assert str(error.value).startswith(str(tmp_path / "tiny.toml"))
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["learning_rate", "decay", "still_share", "sigma"])
@pytest.mark.parametrize("value", ["nan", "inf"])
def test_numbers_that_are_none_are_refused(tmp_path, name, value):
    path = write_config(
        tmp_path, {"data" if name == "still_share" else "training": {name: "HERE"}}
    )
    path.write_text(
        path.read_text().replace("'HERE'", f"[{value}]" if name == "sigma" else value)
    )
    with pytest.raises(ConfigError, match=f"{name}.* must be a finite number"):
        read_config(path)


@pytest.mark.parametrize("place", ["training.learning_rate", "model.atoms"])
@pytest.mark.parametrize(
    "value", [str(1 << 63), "9" * 400, "0x" + "f" * 5000, f"[[-{10**400}]]"], ids=len
)
def test_whole_numbers_that_toml_does_not_have_are_refused(tmp_path, place, value):
    section, name = place.split(".")
    path = write_config(tmp_path, {section: {name: "HERE"}})
    path.write_text(path.read_text().replace("'HERE'", value))
    with pytest.raises(
        ConfigError, match="not valid TOML .a whole number of more than 64 bits"
    ):
        read_config(path)
    with pytest.raises(ConfigError, match="steps must be a valid integer, found '"):
        read_config(write_config(tmp_path), [f"training.steps={value}"])


@pytest.mark.parametrize("section", ["model", "data", "training"])
def test_a_section_must_be_a_table(tmp_path, section):
    path = tmp_path / "run.toml"
    others = "".join(
        f"[{name}]\nsteps = 1\n"
        for name in ("model", "data", "training")
        if name != section
    )
    path.write_text(
        f'name = "a"\ntask = "denoise"\nfamily = "dust"\n{section} = 3\n'
        + others.replace("[data]\nsteps = 1", '[data]\nclips = "a"')
    )
    for data in (None, tmp_path):
        with pytest.raises(ConfigError, match=f"{section} must be an object, found 3"):
            read_config(path, data=data)


def test_a_missing_file_and_one_that_is_not_toml_are_refused(tmp_path):
    with pytest.raises(ConfigError, match="none.toml: can't be read"):
        read_config(tmp_path / "none.toml")
    for content in (b"steps == 3", b"\xff\xfe"):
        (tmp_path / "bad.toml").write_bytes(content)
        with pytest.raises(ConfigError, match="bad.toml: not valid TOML"):
            read_config(tmp_path / "bad.toml")


# Values from the command line


def test_a_value_that_is_set_stands_in_place_of_the_files_and_has_its_fields_type(
    tmp_path,
):
    settings = [
        "training.steps=7",
        "training.sigma=20",
        "training.learning_rate = 1",
        "data.validation=[]",
        "data.still_share=0.5",
    ]
    config = read_config(
        write_config(tmp_path),
        [
            *settings,
            "name=3",
            "model.atoms=256",
            "model.kind=printed",
            "parameters.rate=0.2",
        ],
    )
    assert (
        config.name,
        config.model["atoms"],
        config.model["kind"],
        config.parameters,
    ) == (
        "3",
        256,
        "printed",
        {"rate": 0.2},
    )
    assert (config.data.validation, config.data.still_share) == ((), 0.5)
    expected = TrainingConfig(
        7,
        16,
        sigma=(20.0,),
        warmup=4,
        learning_rate=1.0,
        precision="fp32",
        validate_every=5,
    )
    assert config.training == expected and isinstance(
        config.training.learning_rate, float
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a.mkv", ("a.mkv",)),
        ("a.mkv, b.mkv", ("a.mkv", "b.mkv")),
        ('["a, b.mkv"]', ("a, b.mkv",)),
        ("", ()),
    ],
)
def test_a_list_that_is_set_needs_no_brackets(tmp_path, text, expected):
    assert (
        read_config(write_config(tmp_path), [f"data.validation={text}"]).data.validation
        == expected
    )


def test_another_family_or_dataset_that_is_set_is_checked_by_its_own_names(tmp_path):
    without = {
        "training": {"sigma": None},
        "data": dict.fromkeys(
            ("strides", "groups_per_window", "pool", "reuse", "match_share")
        ),
    }
    config = read_config(
        write_config(tmp_path, without), ["family=mb-taylorformer", "data.crop=64"]
    )
    assert isinstance(config.data, PairDataConfig) and config.data.crop == 64


SET_WRONG: list[tuple[str, type[VidRestoreError], str]] = [
    (
        "training.learnign_rate=3",
        ConfigError,
        "[training]: unknown: learnign_rate; there are: learning_rate, steps, batch, ",
    ),
    (
        "training.steps=many",
        ConfigError,
        "[training]: steps must be a valid integer, found 'many'",
    ),
    (
        "training.sigma=10,x",
        ConfigError,
        "[training]: sigma must be a valid array, found '10,x'",
    ),
    (
        "trainng.steps=3",
        OptionError,
        "`settings=trainng.steps=3`: no section 'trainng'; there are: training, model, data, parameters",
    ),
    (
        "training=3",
        OptionError,
        "`settings=training=3`: training is a section; say which of its values, as in training.KEY=VALUE",
    ),
    (
        "training.steps",
        OptionError,
        "`settings=training.steps`: expected KEY=VALUE, as in training.steps=VALUE",
    ),
    ("famly=dust", ConfigError, "unknown: famly; there are: family, name, "),
]


@pytest.mark.parametrize(
    ("setting", "kind", "message"),
    SET_WRONG,
    ids=[setting for setting, *_ in SET_WRONG],
)
def test_a_wrong_setting_is_an_error_that_suggests_the_nearest_name_first(
    tmp_path, setting, kind, message
):
    with pytest.raises(kind) as error:
        read_config(write_config(tmp_path), [setting])
    assert message in str(error.value)


def test_unknown_values_of_the_model_and_of_its_tables_are_named_with_those_that_there_are(
    tmp_path,
):
    config = read_config(write_config(tmp_path), ["model.atom=64", "model.depth=2"])
    other = replace(
        config,
        family="mb-taylorformer",
        model={"size": "t", "attention": {"focuss": 1}},
    )
    for wrong, message in (
        (config, r"\[model\]: unknown: atom, depth; there are: atoms, kind"),
        (other, r"\[model\] attention: unknown: focuss; there are: focus"),
    ):
        with pytest.raises(ConfigError, match=f"tiny.toml, {message}"):
            new_network(wrong)


@pytest.mark.parametrize("part", ["a", '"a.b"', "'a'"])
def test_keys_of_very_many_parts_are_refused_before_they_take_memory(tmp_path, part):
    path = tmp_path / "tiny.toml"
    for before, after in (
        ("", " = 1"),
        ("[", "]"),
        ("x = {", " = 1}"),
        ('x = {y = """\n""" , ', ' = 1} # "'),
    ):
        path.write_text(before + " . ".join([part] * 20_000) + after)
        with pytest.raises(
            ConfigError, match="tiny.toml: .* has more than 16 parts; use a shorter key"
        ):
            read_config(path)
    path.write_text("x = " + "[" * 100_000)
    with pytest.raises(ConfigError, match="tiny.toml: not valid TOML"):
        read_config(path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_folder_a_pipe_and_a_file_too_large_for_a_configuration_are_refused_at_once(
    tmp_path,
):
    os.mkfifo(tmp_path / "pipe.toml")
    with (tmp_path / "large.toml").open("wb") as stream:
        stream.truncate((1 << 20) + 1)
    for path, message in (
        (tmp_path, "a folder"),
        (tmp_path / "pipe.toml", "a named pipe, but a regular file was expected"),
        (tmp_path / "large.toml", "larger than 1 MB"),
    ):
        with pytest.raises(ConfigError, match=message):
            read_config(path)


# Written back


def test_a_configuration_that_is_printed_has_all_defaults_and_reads_back_equal(
    repository, tmp_path
):
    examples = [
        path
        for path in (repository / "examples" / "train").rglob("*.toml")
        if not path.name.startswith("mb-taylorformer-b")
    ]
    assert len(examples) > 20
    for path in examples:
        config = with_full_model(read_config(path))
        copy = tmp_path / path.name
        copy.write_text(config_toml(config))
        again = replace(read_config(copy), path=path)
        assert vars(again) | {"model": config.model} == vars(config), path.name
        assert (
            config_toml(again)
            == config_toml(with_full_model(again))
            == copy.read_text()
        ), path.name
        assert set(tomllib.loads(copy.read_text())["training"]) >= {
            "steps",
            "batch",
            "seed",
            "clip_norm",
        }


def test_any_string_is_written_so_that_it_reads_back():
    strings = ["", 'a"b\\c', "line\nbreak\ttab", "é\x7f\x01", "'"]
    values = {
        "strings": strings,
        "yes": True,
        "many": 3,
        "small": 1e-7,
        "large": 1e30,
        "table": {"within": {"deep": [1.5, 2.0]}},
    }
    assert tomllib.loads(toml(values | {"nothing": None})) == values


def test_clips_and_photos_may_lie_in_several_folders(tmp_path):
    one = read_config(write_config(tmp_path)).data
    several = read_config(
        write_config(tmp_path, {"data": {"clips": ["a", "../b"], "stills": ["c", "d"]}})
    ).data
    assert isinstance(one, DataConfig) and isinstance(several, DataConfig)
    assert (several.clip_folders, several.still_folders) == (("a", "../b"), ("c", "d"))
    assert (one.clip_folders, one.still_folders) == ((one.clips,), ())
    assert several.card_entries()["clips"] == "a, b"
    typed = read_config(write_config(tmp_path), ['data.clips=["a", "b"]']).data
    assert isinstance(typed, DataConfig) and typed.clip_folders == ("a", "b")
    with pytest.raises(ConfigError, match="item 1 must be a valid string, found 3"):
        read_config(write_config(tmp_path, {"data": {"clips": ["a", 3]}}))
    with pytest.raises(ConfigError, match="item 1 must be a valid string, found 3"):
        read_config(write_config(tmp_path), ['data.clips=["a", 3]'])


def test_a_folder_of_data_with_too_long_a_name_is_refused_as_one_that_does_not_exist(
    tmp_path,
):
    with pytest.raises(ConfigError, match="1: no such folder"):
        read_config(write_config(tmp_path), data=tmp_path / ("1" * 400))
