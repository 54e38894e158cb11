"""What a y4m header may say: anything else is one line, before a frame is looked at."""

import io
from fractions import Fraction

import pytest

from vidrestore.errors import MediaError
from vidrestore.media.y4m import Y4mInput


@pytest.mark.parametrize(
    "header, reason",
    [
        ("W64 H48 F2147483648:1", "F2147483648:1, but a ratio"),
        ("W64 H48 F1:99999999999", "F1:99999999999, but a ratio"),
        ("W64 H48 F25:1 A99999999999:1", "A99999999999:1, but a ratio"),
        ("W32768 H32768 F25:1", "W32768 H32768, which is more"),
        ("W16384 H16384 F25:1", "W16384 H16384, which is more"),
        ("W99999 H2 F25:1", "must be a size from 1 to 32768"),
        ("W" + "9" * 900 + " H2 F25:1", "must be a size"),
    ],
)
def test_a_header_beyond_what_ffmpeg_takes_is_refused_as_it_is_read(header, reason):
    with pytest.raises(MediaError, match=reason):
        Y4mInput(io.BytesIO(f"YUV4MPEG2 {header}\n".encode()))


def test_the_largest_terms_and_sizes_are_read():
    video = Y4mInput(io.BytesIO(b"YUV4MPEG2 W16000 H16000 F2147483647:2147483646 A1:1\n")).info.video
    assert (video.width, video.rate) == (16000, Fraction(2147483647, 2147483646))
