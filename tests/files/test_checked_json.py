"""JSON that others may have written is small, not deep, and of the expected types, or one line says what is
wrong.
"""

import json
import zlib
from base64 import b64encode
from typing import Annotated, Any

import pytest
from pydantic import Strict

from vidrestore.files.regular import DEEPEST, Count, parse_json, parse_object, stored
from vidrestore.pipeline.plan import MOST_FRAMES, Clip, Timeline

CLIP = Annotated[tuple[Count, list[float]], Strict(False)]
SCHEMA = stored(name=str, times=list[Count], clips=list[CLIP], said=str | None)
RIGHT = {"name": "a", "times": [0, 1], "clips": [[0, [0.5, 1]], [1, []]], "said": None}


def test_an_object_of_the_expected_types_passes_with_further_fields():
    assert (
        parse_object(json.dumps(RIGHT | {"more": {}}), SCHEMA)["clips"]
        == RIGHT["clips"]
    )


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"name": 1}, "name must be a valid string, found 1"),
        ({"name": ...}, "missing: name"),
        ({"times": [0, "1"]}, "times, item 1 must be a valid integer, found '1'"),
        ({"times": [0, True]}, "times, item 1 must be a valid integer, found True"),
        ({"times": [-1]}, "times, item 0 must be greater than or equal to 0, found -1"),
        ({"times": [1 << 70]}, "times, item 0 must be less than 4611686018427387904"),
        ({"times": {}}, "times must be a valid list, found {}"),
        ({"clips": [[0]]}, "missing: clips.0.1"),
        (
            {"clips": [[0, [float("nan")]]]},
            "clips, item 0, item 1, item 0 must be a finite number",
        ),
        (
            {"clips": [[0, [10**400]]]},
            "clips, item 0, item 1, item 0 must be a valid number, found 1000",
        ),
        (
            {"clips": [[0, [True]]]},
            "clips, item 0, item 1, item 0 must be a valid number, found True",
        ),
        ({"said": 5}, "said must be a valid string, found 5"),
    ],
    ids=str,
)
def test_a_field_of_a_wrong_type_is_named_with_its_place(change, reason):
    with pytest.raises(ValueError, match=f"^{reason}"):
        parse_object(
            json.dumps({key: v for key, v in (RIGHT | change).items() if v is not ...}),
            SCHEMA,
        )


@pytest.mark.parametrize(
    "depth, fine",
    [(DEEPEST, True), (DEEPEST + 1, False), (900, False), (100_000, False)],
)
@pytest.mark.parametrize("opens, closes", [("[", "]"), ('{"a":', "}")])
def test_json_of_more_levels_than_allowed_is_refused(depth, fine, opens, closes):
    content = opens * depth + ("" if opens == "[" else "1") + closes * depth
    if fine:
        assert json.dumps(parse_json(content), separators=(",", ":")) == content
    else:
        with pytest.raises(ValueError, match="too deep"):
            parse_json(content)


# The plan


CODED = Clip(3, 5, (2.0,), (1.0,), (2.0,), (0.5, 1.5))


def plan(**changes: Any) -> dict[str, Any]:
    timeline = Timeline(4, 1, cuts=[3], clips=[Clip(0, 3, (1.0,)), CODED])
    timeline.pts.extend(range(5))
    timeline.durations.extend([1] * 5)
    return json.loads(json.dumps(timeline.to_compact())) | changes


def times(raw: bytes) -> str:
    return b64encode(zlib.compress(raw, 9)).decode()


def test_a_plan_comes_back_as_it_was():
    again = Timeline.from_compact(plan())
    assert again.pts.tolist() == [0, 1, 2, 3, 4] and again.clips[1] == CODED
    assert json.loads(json.dumps(again.to_compact())) == plan()


BOMB = times(bytes(8 * MOST_FRAMES + 8))  # 134 MB in 130 KB


@pytest.mark.parametrize(
    "changes",
    [
        {"pts": BOMB},
        {"pts": times(bytes(8 * 5))[:-8]},
        {"pts": times(bytes(7))},
        {"pts": times(bytes(8 * 4))},
        {"pts": "é"},
        {"pts": "not base64!"},
        {"clips": []},
        {"clips": [[0, 3, [1.0], []], [3, 6, [1.0], []]]},
        {"clips": [[0, 3, [1.0], []], [4, 5, [1.0], []]]},
        {"clips": [[0, 5, [1.0], []], [3, 5, [1.0], []]]},
        {"clips": [[0, 3, [1.0], []], [3, 5, [], []]]},
        {"clips": [[0, 5, [-1.0], []]]},
        {"clips": [[0, 5, 1.0, []]]},
        {"clips": [[0, 5, [1.0], [], [], [0.5, 1.5]]]},
        {"clips": [[0, 5, [1.0], [], [], [-1.0] * 5]]},
        {"cuts": [0]},
        {"cuts": [3, 3]},
        {"cuts": [9]},
        {"length": 0},
        {"version": "2"},
        {"durations": 5},
    ],
    ids=lambda changes: "bomb" if changes.get("pts") == BOMB else str(changes)[:60],
)
def test_an_inconsistent_plan_is_refused(changes):
    with pytest.raises(ValueError, match="."):
        Timeline.from_compact(plan(**changes))


@pytest.mark.parametrize(
    "content, reason",
    [("[]", "an object was expected"), ("{", "Expecting"), (b"\xff{}", "not text")],
)
def test_content_that_is_not_an_object_is_refused(content, reason):
    with pytest.raises(ValueError, match=reason):
        parse_object(content)
