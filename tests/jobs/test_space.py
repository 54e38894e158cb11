"""Room for the film, asked for before the work begins."""

import numpy as np
import pytest
from written_videos import described, fast_choice, write

from vidrestore.jobs.segmented import least_size
from vidrestore.pixels.frames import Frame
from vidrestore.settings.options import EncoderOptions


@pytest.mark.parametrize(
    "options",
    [
        EncoderOptions(encoder="libx264", crf=40),
        EncoderOptions(encoder="ffv1"),
        EncoderOptions(lossless=True),
    ],
)
def test_a_still_video_takes_no_less_than_what_is_asked_for_at_least(tmp_path, options):
    source, output = described(width=640, height=360), tmp_path / "still.mkv"
    planes = tuple(
        np.full(size, 99, np.uint8) for size in ((360, 640), (180, 320), (180, 320))
    )
    choice = fast_choice(source, output, options)
    write(
        source,
        output,
        [Frame(planes, 1000 * number, 1000) for number in range(200)],
        choice=choice,
    )
    assert least_size(source.video, choice, 200) < output.stat().st_size
