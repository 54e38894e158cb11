import json
from fractions import Fraction
from importlib import resources
from pathlib import Path
from typing import Any

import pytest

from vidrestore.events import (
    SCHEMA_VERSION,
    Event,
    Failed,
    Planned,
    Progressed,
    Started,
    Summary,
    Warned,
)
from vidrestore.pipeline.conversions import Changes
from vidrestore.pipeline.plan import Scene

ONE_OF_EACH: list[tuple[Event, dict[str, object]]] = [
    (
        Started(
            "in.mp4",
            output="out.mp4",
            task="denoise",
            model="dust-denoise",
            device="cpu",
        ),
        {
            "event": "start",
            "output": "out.mp4",
            "task": "denoise",
            "model": "dust-denoise",
            "device": "cpu",
        },
    ),
    (
        Planned("in.mp4", frames=60, scenes=2, clips=4, reused=20, details={"crf": 16}),
        {
            "event": "plan",
            "frames": 60,
            "scenes": 2,
            "clips": 4,
            "reused": 20,
            "details": {"crf": 16},
        },
    ),
    (
        Progressed("in.mp4", done=20, total=60, seconds=2.0, memory=10**9),
        {
            "event": "progress",
            "stage": "restore",
            "done": 20,
            "total": 60,
            "seconds": 2.0,
            "fps": 10.0,
        }
        | {"eta": 4.0, "memory": 10**9, "settled": True, "worked": None},
    ),
    (
        Warned("in.mp4", "captions are dropped", frame=7),
        {"event": "warning", "message": "captions are dropped", "frame": 7},
    ),
    (
        Summary(
            "in.mp4",
            output="out.mp4",
            frames=60,
            seconds=6.0,
            damage="frame 4 is missing",
        ),
        {
            "event": "done",
            "output": "out.mp4",
            "frames": 60,
            "seconds": 6.0,
            "exit_code": 4,
        }
        | {"damage": "frame 4 is missing"}
        | {
            "details": {
                "fps": 10.0,
                "retried": 0,
                "reused": 0,
                "before": False,
                "scenes": [],
            }
        },
    ),
    (
        Failed("in.mp4", "in.mp4: no video", kind="MediaError", exit_code=1),
        {
            "event": "error",
            "message": "in.mp4: no video",
            "kind": "MediaError",
            "exit_code": 1,
        },
    ),
]


@pytest.mark.parametrize(
    ("event", "expected"), ONE_OF_EACH, ids=lambda value: type(value).__name__
)
def test_an_event_is_one_line_of_json_with_the_fields_of_the_schema(event, expected):
    line = event.to_json()
    assert "\n" not in line
    common = {
        "version": SCHEMA_VERSION,
        "source": "in.mp4",
        "index": None,
        "count": None,
        "time": event.time,
    }
    assert json.loads(line) == common | expected


GOLDEN = Path(__file__).parent / "golden"
# that runs of the first schema printed
LINES = (GOLDEN / "events.jsonl").read_text().splitlines()
JSON_TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "number": (int, float),
    "boolean": bool,
    "null": type(None),
}


def fits(value: Any, schema: dict[str, Any]) -> bool:
    """Whether a value is as the schema says, by the words of JSON Schema that are in the file."""
    words = "$schema title description const enum type minimum required properties items oneOf"
    assert schema.keys() <= {*words.split()}
    names = schema.get("type", list(JSON_TYPES))
    types = [names] if isinstance(names, str) else names
    if not any(isinstance(value, JSON_TYPES[name]) for name in types):
        return False
    if isinstance(value, bool) and "boolean" not in types:  # an int in Python
        return False
    if value not in schema.get("enum", [value]) or value != schema.get("const", value):
        return False
    if (
        "oneOf" in schema
        and sum(fits(value, choice) for choice in schema["oneOf"]) != 1
    ):
        return False
    if isinstance(value, dict):
        parts = schema.get("properties", {})
        has_all = value.keys() >= {*schema.get("required", ())}
        return has_all and all(
            fits(value[name], parts[name]) for name in value.keys() & parts.keys()
        )
    if isinstance(value, list):
        return all(fits(item, schema.get("items", {})) for item in value)
    return not isinstance(value, int | float) or value >= schema.get("minimum", value)


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return json.loads(
        resources.files("vidrestore").joinpath("events.schema.json").read_text()
    )


def test_the_schema_in_the_package_fits_each_event_and_the_lines_that_runs_have_printed(
    schema,
):
    scenes = (
        Scene(0, 40, (20.0, 20.0, 20.0)),
        Scene(40, 60, (9.0, 8.0, 8.0), (9.0, 8.0, 8.0)),
    )
    changes = ("deblur", Changes(60, 1, 90.0, (12.0, 0.0)))
    whole = Summary(
        "a",
        "b",
        60,
        6.0,
        scenes=scenes,
        retried=1,
        reused=20,
        changes=(changes,),
        dropouts=(9, 2),
    )
    lines = [event.to_json() for event, _ in ONE_OF_EACH] + [whole.to_json(), *LINES]
    for line in lines:
        assert fits(json.loads(line), schema), line
    assert {json.loads(line)["event"] for line in LINES} == {
        event.name for event, _ in ONE_OF_EACH
    }


@pytest.mark.parametrize("line", LINES, ids=lambda line: json.loads(line)["event"])
def test_the_schema_misses_every_field_that_is_left_out_and_sees_a_value_of_another_type(
    schema, line
):
    event = json.loads(line)
    for name in event:
        assert not fits(
            {key: value for key, value in event.items() if key != name}, schema
        ), name
        assert not fits(event | {name: [1]}, schema), name


def test_an_event_has_the_fields_that_were_printed_before(schema):
    """Version 1 stays: what a run printed when the schema was new is still there."""
    now = {event.name: event.to_dict() for event, _ in ONE_OF_EACH}
    for line in map(json.loads, LINES):
        assert now[line["event"]].keys() == line.keys()
        if line["event"] == "done":
            assert now["done"]["details"].keys() >= line["details"].keys() - {"changes"}


def test_values_json_does_not_know_become_null_strings_and_lists():
    details = {"psnr": float("inf"), "rate": Fraction(24000, 1001), "path": Path("a/b")}
    details |= {"sigma": (1.5, float("nan")), 3: {"x": range(2)}}
    written = json.loads(Planned("in.mp4", details=details).to_json())["details"]
    expected = {
        "psnr": None,
        "rate": "24000/1001",
        "path": "a/b",
        "sigma": [1.5, None],
        "3": {"x": [0, 1]},
    }
    assert written == expected


def test_a_name_with_a_newline_stays_on_one_line():
    line = Warned("a\nb.mp4", "ключ").to_json()
    assert "\n" not in line
    assert json.loads(line)["source"] == "a\nb.mp4"


def test_speed_and_remaining_time_are_unknown_before_the_first_frame_and_without_a_total():
    assert Progressed("-", done=0, total=10, seconds=1.0).fps is None
    assert Progressed("-", done=0, total=10, seconds=1.0).eta is None
    assert Progressed("-", done=5, total=None, seconds=1.0).eta is None
    assert Progressed("-", done=5, total=5, seconds=1.0).eta == 0
