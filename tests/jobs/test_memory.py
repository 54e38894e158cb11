"""Memory is bounded by options, never by length."""

from pathlib import Path

import pytest
from command_line import python
from no_change import ADDED

from vidrestore.jobs.bench import write_video

COMMAND = f"""
{ADDED}
import sys, vidrestore
from vidrestore.jobs.frame_progress import peak_memory
from vidrestore.settings.options import EncoderOptions
encoder = EncoderOptions(encoder="libx264", preset="ultrafast")
vidrestore.restore(sys.argv[1], sys.argv[2], task="<identity>", encoder=encoder)
print(peak_memory())
"""
# 100 small frames don't quite fill what runs ahead: 0.05 to 0.065 seen; keeping every frame would be 0.25
TOLERANCE = 0.1


def peak(folder: Path, frames: int) -> int:
    """Bytes that a process of its own takes for a film of so many frames."""
    source = folder / f"{frames}.mkv"
    write_video(str(source), 320, 180, frames)
    return int(
        python(
            "-c", COMMAND, str(source), str(folder / f"{frames}.out.mkv"), check=True
        ).stdout
    )


@pytest.mark.slow
def test_a_video_ten_times_as_long_takes_hardly_more_memory(tmp_path):
    short, long = peak(tmp_path, 100), peak(tmp_path, 1000)
    assert long / short - 1 < TOLERANCE, (
        f"{short / 1e6:.0f} MB for 100 frames, {long / 1e6:.0f} MB for 1000"
    )
