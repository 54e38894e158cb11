import json
from fractions import Fraction
from pathlib import Path

import pytest

from vidrestore.events import SCHEMA_VERSION, Event, Failed, Finished, Planned, Progressed, Started, Warned

ONE_OF_EACH: list[tuple[Event, dict[str, object]]] = [
    (
        Started("in.mp4", output="out.mp4", task="denoise", model="dust-denoise", device="cpu"),
        {"event": "start", "output": "out.mp4", "task": "denoise", "model": "dust-denoise", "device": "cpu"},
    ),
    (
        Planned("in.mp4", frames=60, scenes=2, clips=4, reused=20, details={"crf": 16}),
        {"event": "plan", "frames": 60, "scenes": 2, "clips": 4, "reused": 20, "details": {"crf": 16}},
    ),
    (
        Progressed("in.mp4", done=20, total=60, seconds=2.0, memory=10**9),
        {"event": "progress", "stage": "restore", "done": 20, "total": 60, "seconds": 2.0, "fps": 10.0}
        | {"eta": 4.0, "memory": 10**9, "settled": True, "worked": None},
    ),
    (
        Warned("in.mp4", "captions are dropped", frame=7),
        {"event": "warning", "message": "captions are dropped", "frame": 7},
    ),
    (
        Finished("in.mp4", output="out.mp4", frames=60, seconds=6.0, damage="frame 4 is missing"),
        {"event": "done", "output": "out.mp4", "frames": 60, "seconds": 6.0, "details": {}}
        | {"damage": "frame 4 is missing", "exit_code": 4},
    ),
    (
        Failed("in.mp4", "in.mp4: no video", kind="MediaError", exit_code=1),
        {"event": "error", "message": "in.mp4: no video", "kind": "MediaError", "exit_code": 1},
    ),
]


@pytest.mark.parametrize(("event", "expected"), ONE_OF_EACH, ids=lambda value: type(value).__name__)
def test_an_event_is_one_line_of_json_with_the_fields_of_the_schema(event, expected):
    line = event.to_json()
    assert "\n" not in line
    common = {"version": SCHEMA_VERSION, "source": "in.mp4", "index": None, "count": None, "time": event.time}
    assert json.loads(line) == common | expected


def test_values_json_does_not_know_become_null_strings_and_lists():
    details = {"psnr": float("inf"), "rate": Fraction(24000, 1001), "path": Path("a/b")}
    details |= {"sigma": (1.5, float("nan")), 3: {"x": range(2)}}
    written = json.loads(Planned("in.mp4", details=details).to_json())["details"]
    expected = {"psnr": None, "rate": "24000/1001", "path": "a/b", "sigma": [1.5, None], "3": {"x": [0, 1]}}
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
