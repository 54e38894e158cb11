"""A photograph in which nothing was changed is its own file, not a further generation of it."""

from dataclasses import replace

import numpy as np
import pytest
from sample_pictures import write_picture

from vidrestore.media.reading.reader import VideoReader
from vidrestore.media.writing.picture_writer import COPIED_FILE
from vidrestore.media.writing.writer import VideoWriter
from vidrestore.settings.options import EncoderOptions


def written(source, output, *, change=0, drop=(), **options):
    """Write a photograph's frame, one of its samples changed; return the bytes and the warnings."""
    with VideoReader(str(source)) as reader:
        (frame,) = reader.frames()
        planes = [np.array(plane) for plane in frame.planes]
        planes[0][0, 0] ^= change
        with VideoWriter(
            str(output),
            source=reader.info,
            encoder=EncoderOptions(**options),
            drop=frozenset(drop),
        ) as writer:
            writer.write(replace(frame, planes=tuple(planes)))
    return output.read_bytes(), writer.warnings


@pytest.mark.parametrize("suffix", [".jpg", ".png", ".tiff"])
def test_an_unchanged_photograph_is_copied_and_one_changed_in_a_sample_is_not(
    tmp_path, suffix
):
    source = tmp_path / f"a{suffix}"
    write_picture(source, (200, 100, 50))
    # what an encoder would not write, as of another program
    source.write_bytes(source.read_bytes() + b"\0" * (suffix != ".jpg"))
    copy, warnings = written(source, tmp_path / f"b{suffix}")
    assert copy == source.read_bytes() and COPIED_FILE in warnings
    other, warnings = written(source, tmp_path / f"c{suffix}", change=64)
    assert other != copy and COPIED_FILE not in warnings


def test_an_unchanged_photograph_is_encoded_if_the_user_asks_for_other_settings(
    tmp_path,
):
    source = tmp_path / "a.jpg"
    write_picture(source, (200, 100, 50))
    for name, options in {
        "b.jpg": {"drop": ["exif"]},
        "c.jpg": {"options": {"qmin": "9", "qmax": "9"}},
        "d.png": {},
    }.items():
        assert COPIED_FILE not in written(source, tmp_path / name, **options)[1]
