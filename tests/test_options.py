"""Options and frames of any type are taken as what they mean, or refused with a sentence."""

import ast
import inspect
import math
import pydoc
import re
from dataclasses import fields
from fractions import Fraction
from pathlib import Path
from typing import Any, get_type_hints

import numpy as np
import pytest
from pydantic import TypeAdapter

import vidrestore
from vidrestore import restore_frames
from vidrestore.errors import OptionError
from vidrestore.event_log import Logged
from vidrestore.events import Event, Started
from vidrestore.lab.sensing.sensing_options import (
    RecoverKeywords,
    RecoverOptions,
    SenseKeywords,
    SenseOptions,
)
from vidrestore.settings.options import EncoderOptions, RestoreKeywords, RestoreOptions

NUMBERS = "sigma strength chroma_strength grain start duration fps cfr threads scale tile height"


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, 1e30, 10**30, [1], "x", True, b"1", -math.inf],
    ids=repr,
)
@pytest.mark.parametrize("name", NUMBERS.split())
def test_values_out_of_range_are_refused_by_the_option_itself(name, value):
    with pytest.raises(OptionError, match=f"^{name} must be"):
        RestoreOptions(**{name: value})


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        (RestoreOptions, {"sigma": None}),
        (RestoreOptions, {"strength": None}),
        (RestoreOptions, {"drop": "audio"}),
        (RestoreOptions, {"encoder": "libx264"}),
        (RestoreOptions, {"haze": True}),
        (RestoreOptions, {"device": None}),
        (RestoreOptions, {"quality": "good"}),
        (EncoderOptions, {"crf": math.nan}),
        (EncoderOptions, {"options": ["a=b"]}),
        (EncoderOptions, {"threads": -1}),
        (SenseOptions, {"rate": "0.2"}),
        (SenseOptions, {"sigma": -1, "rate": 0.2}),
        (SenseOptions, {"sigma": math.nan, "rate": 0.2}),
        (SenseOptions, {"seed": -1, "rate": 0.2}),
        (RecoverOptions, {"threads": 1.5}),
    ],
)
def test_what_has_another_type_is_refused(kind, values):
    with pytest.raises(OptionError, match=f"{next(iter(values))} must be"):
        kind(**values)


def test_numpy_numbers_and_path_objects_are_accepted():
    options = RestoreOptions(
        sigma=np.float64(20),
        tile=np.int64(128),
        fps=29.97,
        start=np.float32(0.5),
        work_dir=Path("work"),
    )
    assert (options.sigma, options.tile, options.work_dir) == (20.0, 128, "work")
    assert type(options.sigma) is float and type(options.tile) is int
    assert options.fps == Fraction("29.97") and options.start == Fraction(1, 2)


@pytest.mark.parametrize(
    "frames", [None, "frames", [[0.5]], [np.zeros((4, 4, 3))], np.full(4, None)]
)
def test_arrays_that_cannot_be_frames_are_refused(frames):
    with pytest.raises(OptionError, match="frames must"):
        restore_frames(frames)


def test_a_listener_can_not_end_an_iteration_unseen():
    def listen(event: Event) -> None:
        raise StopIteration

    with pytest.raises(
        RuntimeError, match="the listener on_event raised StopIteration"
    ):
        Logged(listen)(Started("a.mp4"))


@pytest.mark.parametrize(
    "keywords, options",
    [
        (RestoreKeywords, RestoreOptions()),
        (SenseKeywords, SenseOptions(rate=0.2)),
        (RecoverKeywords, RecoverOptions()),
    ],
)
def test_the_keywords_that_type_checkers_know_are_the_fields_of_the_options(
    keywords, options
):
    defaults = {field.name: getattr(options, field.name) for field in fields(options)}
    assert list(keywords.__annotations__) == list(defaults)
    for name, hint in get_type_hints(keywords).items():
        kind: TypeAdapter[Any] = TypeAdapter(hint)
        assert kind.validate_python(defaults[name]) == defaults[name]
        with pytest.raises((ValueError, OptionError)):
            kind.validate_python(object())


@pytest.mark.parametrize(
    "kind", [RestoreOptions, EncoderOptions, SenseOptions, RecoverOptions]
)
def test_the_help_of_options_shows_names_and_defaults_and_no_declarations(kind):
    text = pydoc.plain(pydoc.render_doc(kind))
    call, first = f"|  {kind.__name__}(", f"{fields(kind)[0].name}="
    # from 3.13 on, a line an argument
    signature = text.partition(call)[2].partition(") ->")[0]
    assert signature.lstrip("\n |").startswith(first) and "Annotated" not in signature
    assert max(map(len, text.splitlines())) < 520


def test_the_help_of_restore_has_an_example_with_its_own_keywords():
    (line, *_) = (
        line
        for line in vidrestore.restore.__doc__.splitlines()
        if "vidrestore.restore(" in line
    )
    assert {"sigma", "task"} <= set(
        line.replace("=", " ").replace("(", " ").replace(",", " ").split()
    )


@pytest.mark.parametrize(
    "kind", [RestoreOptions, EncoderOptions, SenseOptions, RecoverOptions]
)
def test_the_docstring_of_options_has_each_field_with_its_type_and_default(kind):
    _, _, arguments = str(inspect.getdoc(kind)).partition("Args:\n")
    items = re.findall(
        r"^    (\w+) \((.+?)\): (.+?)(?=^    \w|\Z)",
        arguments,
        re.MULTILINE | re.DOTALL,
    )
    words = {name: " ".join(text.split()) for name, _, text in items}
    assert list(words) == [field.name for field in fields(kind)]
    for field in fields(kind):
        stated = words[field.name].rpartition("default ")[2]
        if isinstance(field.default, str | int | float | None):
            stated_default = re.match(r'"\w+"|None|True|False|[\d.]*\d', stated)
            assert (
                stated_default and ast.literal_eval(stated_default[0]) == field.default
            )
            assert field.default is not None or re.match("None[,:] ", stated), (
                "what None means"
            )
        else:
            assert stated  # empty, {} or EncoderOptions()


@pytest.mark.parametrize(
    "function", [vidrestore.restore, vidrestore.restore_frames, vidrestore.Restorer]
)
def test_the_docstring_of_a_function_has_each_argument(function):
    _, _, arguments = str(inspect.getdoc(function)).partition("Args:\n")
    assert re.findall(r"^    (\w+)[ :]", arguments, re.MULTILINE) == list(
        inspect.signature(function).parameters
    )
