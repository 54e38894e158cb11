"""The dropouts of a tape are counted once, however its restoration is divided or resumed."""

from pathlib import Path

import pytest
from fake_restorer import Fake, request_of
from scanned_videos import interlaced, moments, write_frames

from vidrestore.events import Summary
from vidrestore.jobs import segmented
from vidrestore.jobs.batch import Batch
from vidrestore.jobs.request import Step
from vidrestore.jobs.run import restore_request
from vidrestore.media.writing.segment_file import SegmentWriter
from vidrestore.pixels.frames import Frame
from vidrestore.scale.shards import Shard
from vidrestore.settings.options import EncoderOptions, RestoreOptions

DASHES = {2: 50, 7: 61, 8: 22, 13: 71}  # the row by frame
LOSSLESS = EncoderOptions(lossless=True)


class Killed(Exception):
    """Ends a run as SIGKILL does."""


@pytest.fixture
def tape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """16 frames in segments of 8, with a dash on either side of the border between them."""
    monkeypatch.setattr(segmented, "LENGTH", 8)
    frames = interlaced(moments(32, 1))
    for number, row in DASHES.items():
        frames[number][row, 30:80] = 240
    return write_frames(tmp_path / "tape.mkv", frames, order="tt")


def restored(tape: Path, output: Path) -> Summary:
    """Clips of 6 frames with 2 shared."""
    return restore_request(
        request_of(tape, output, encoder=LOSSLESS, sigma=5), lambda _: Fake()
    )


def test_shards_count_the_dropouts_of_all(tape, tmp_path):
    steps, summaries = [Step("<identity>", RestoreOptions(encoder=LOSSLESS))], []
    for number in (1, 2):
        batch = Batch(
            [str(tape)], f"{tmp_path}/out.mkv", steps, runner=Shard(number, 2)
        )
        summaries.append(batch.restore(batch.request(str(tape))))
    assert summaries[0] is None
    assert summaries[1].dropouts == (len(DASHES), len(DASHES))


def test_a_resumed_run_counts_the_dropouts_of_the_one_before(
    tape, tmp_path, monkeypatch
):
    write, frames = SegmentWriter.write, []

    def stopping(self: SegmentWriter, frame: Frame) -> None:
        frames.append(frame)
        if len(frames) > 13:
            raise Killed
        write(self, frame)

    with monkeypatch.context() as patched, pytest.raises(Killed):
        patched.setattr(SegmentWriter, "write", stopping)
        restored(tape, tmp_path / "out.mkv")
    summary = restored(tape, tmp_path / "out.mkv")
    assert 0 < summary.reused < 16
    assert summary.dropouts == (len(DASHES), len(DASHES))
