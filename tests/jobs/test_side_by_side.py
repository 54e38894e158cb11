"""Small files of a batch are restored at once, and look to the caller as if one came after another."""

import threading
import time
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
from fake_restorer import Fake
from sample_videos import write_video
from written_videos import pictures

from vidrestore.errors import BusyError, MediaError
from vidrestore.events import Event, Progressed, Warned
from vidrestore.jobs.batch import Batch
from vidrestore.jobs.request import Step
from vidrestore.jobs.resume import WorkFolder
from vidrestore.jobs.side_by_side import SideBySide
from vidrestore.settings.options import EncoderOptions, RestoreOptions
from vidrestore.working import steps

PATIENCE = 5.0  # seconds until what never comes is missed


class Watched(Fake):
    """Counts the clips that are restored at the same time, and calls `begin` in each."""

    def __init__(self, begin: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self.begin, self.lock, self.running, self.most = begin, threading.Lock(), 0, 0

    def restore(self, clip: Any, sigma: Any, **settings: Any) -> Any:
        with self.lock:
            self.running += 1
            self.most = max(self.most, self.running)
        try:
            self.begin()
        finally:
            with self.lock:
                self.running -= 1
        return clip


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Three clips of three frames, and two workers on any machine."""
    for module in ("jobs.side_by_side", "pipeline.clip_restorer"):
        monkeypatch.setattr(f"vidrestore.{module}.threads_for", lambda count: 2)
    for name in ("a.mkv", "b.mkv", "c.mkv"):
        write_video(tmp_path / "films" / name, 3)
    return tmp_path / "films"


@pytest.fixture(autouse=True)
def there(tmp_path: Path) -> None:
    (tmp_path / "films").mkdir()


def batch_of(folder: Path, monkeypatch: pytest.MonkeyPatch, restorer: Fake) -> Batch:
    monkeypatch.setattr(
        "vidrestore.restorers.base.load_restorer", lambda task, options: restorer
    )
    options = RestoreOptions(
        device="cpu", sigma=10.0, encoder=EncoderOptions(lossless=True)
    )
    runner = SideBySide()
    return Batch(
        [str(folder)], f"{folder}/out/", [Step("denoise", options)], runner=runner
    )


def test_two_clips_are_restored_at_the_same_time_and_their_events_come_in_order(
    folder, monkeypatch
):
    together = threading.Barrier(2, timeout=PATIENCE)
    write_video(folder / "d.mkv", 3)
    batch, events = batch_of(folder, monkeypatch, Watched(together.wait)), list[Event]()
    for source in batch.sources:
        assert batch.restore(batch.request(source), events.append).frames == 3
        output = batch.outputs[source].path
        assert pictures(output) == pictures(Path(source))
    assert batch.close() is None
    shown = [source for source, _ in groupby(events, lambda event: event.source)]
    assert shown == batch.sources
    stages = [
        [event.name for event in group if not isinstance(event, Progressed)]
        for _, group in groupby(events, lambda event: event.source)
    ]
    assert stages == [["start", "plan", "done"]] * 4


def test_a_video_with_a_clip_for_each_worker_is_restored_alone(folder, monkeypatch):
    for name in ("b.mkv", "c.mkv"):
        write_video(folder / name, 2 * Fake.facts.clip + 1)
    others = list[int]()
    restorer = Watched()

    def look() -> None:
        others.append(len([t for t in runner._turns.values() if t.share]))

    restorer.begin = look
    batch = batch_of(folder, monkeypatch, restorer)
    runner: Any = batch._runner
    for source in batch.sources:
        batch.restore(batch.request(source))
    batch.close()
    assert set(others) == {1}


def test_an_error_comes_in_its_turn_and_leaves_the_other_files_alone(
    folder, monkeypatch
):
    (folder / "b.mkv").write_bytes((folder / "b.mkv").read_bytes()[:200])
    batch = batch_of(folder, monkeypatch, Watched())
    first, second, third = map(batch.request, batch.sources)
    assert batch.restore(first).frames == 3
    with pytest.raises(MediaError, match="b.mkv"):
        batch.restore(second)
    assert batch.restore(third).frames == 3
    batch.close()
    names = sorted(path.name for path in (folder / "out").iterdir())
    assert names == ["a.denoised.mkv", "c.denoised.mkv"]


def test_a_file_that_another_process_has_worked_on_gets_another_turn(
    folder, monkeypatch
):
    batch = batch_of(folder, monkeypatch, Watched())
    first, second, third = map(batch.request, batch.sources)
    with WorkFolder.of(second).locked():
        batch.restore(first)
        with pytest.raises(BusyError):
            batch.restore(second)
        batch.restore(third)
    assert batch.restore(second).frames == 3
    batch.close()


def test_an_output_that_exists_is_left_alone_with_a_warning_in_its_turn(
    folder, monkeypatch
):
    batch, events = batch_of(folder, monkeypatch, Watched()), list[Event]()
    write_video(batch.outputs[batch.sources[1]].path, 1)
    for source in batch.sources:
        batch.restore(batch.request(source), events.append)
    batch.close()
    others = [event for event in events if event.source == batch.sources[1]]
    assert [type(event) for event in others] == [Warned]


def test_an_interruption_stops_all_files_and_the_next_run_finishes_them(
    folder, monkeypatch
):
    both = threading.Barrier(2, timeout=PATIENCE)

    def slowly() -> None:
        both.wait()
        for _ in steps(range(10_000)):
            time.sleep(0.001)

    def interrupt(event: Event) -> None:
        events.append(event)
        if isinstance(event, Progressed) and both.n_waiting == 0 and restorer.most == 2:
            raise KeyboardInterrupt

    restorer, events = Watched(slowly), list[Event]()
    batch = batch_of(folder, monkeypatch, restorer)
    with pytest.raises(KeyboardInterrupt):
        batch.restore(batch.request(batch.sources[0]), interrupt)
    batch.close()
    assert {event.source for event in events} == {batch.sources[0]}
    assert "nothing is kept" in events[-1].message
    assert not (folder / "out").exists(), "no work folder, no partial file"
    again = batch_of(folder, monkeypatch, Watched())
    counts = [again.restore(again.request(source)).frames for source in again.sources]
    assert counts == [3, 3, 3]
    again.close()
