from __future__ import annotations

import numpy as np
import pytest
import torch

from vidrestore.colour import grey_to_planes, planes_to_grey
from vidrestore.frames import PixelFormat

DTYPES = {8: np.uint8, 9: np.uint16, 10: np.uint16, 12: np.uint16, 14: np.uint16, 16: np.uint16}


@pytest.mark.parametrize("depth", DTYPES)
def test_every_sample_value_comes_back_through_grey(depth):
    format = PixelFormat("any", "gray", depth)
    samples = np.arange(2**depth, dtype=DTYPES[depth]).reshape(2, -1)
    (grey,) = planes_to_grey([samples], format)
    assert grey.dtype == torch.float32
    assert float(grey.max()) == (2**depth - 1) / 2 ** (depth - 8)
    (back,) = grey_to_planes([grey], format)
    assert back.dtype == samples.dtype
    np.testing.assert_array_equal(back, samples)


def test_restored_samples_are_rounded_to_nearest_and_clipped():
    restored = torch.tensor([[-3.0, 0.49, 0.51, 254.4, 254.6, 300.0]])
    np.testing.assert_array_equal(grey_to_planes([restored], PixelFormat("gray", "gray", 8))[0], [[0, 0, 1, 254, 255, 255]])
    np.testing.assert_array_equal(grey_to_planes([restored], PixelFormat("gray10le", "gray", 10))[0], [[0, 2, 2, 1018, 1018, 1023]])


def test_float_samples_are_neither_rounded_nor_clipped():
    format = PixelFormat("gbrpf32le", "rgb", 32)
    samples = np.array([[-0.01, 0.2, 1.0, 7.5]], dtype=np.float32)
    (grey,) = planes_to_grey([samples], format)
    torch.testing.assert_close(grey, torch.tensor([[-2.55, 51.0, 255.0, 1912.5]]))
    np.testing.assert_allclose(grey_to_planes([grey], format)[0], samples, rtol=1e-6)


def test_grey_is_a_copy_of_any_view():
    wide = np.arange(24, dtype=np.uint8).reshape(4, 6)
    view = wide[::-1, ::2]
    view.flags.writeable = False
    (grey,) = planes_to_grey([view], PixelFormat("gray", "gray", 8))
    grey += 1
    np.testing.assert_array_equal(wide, np.arange(24).reshape(4, 6))
    (tensor_grey,) = planes_to_grey([torch.from_numpy(wide)], PixelFormat("gray", "gray", 8))
    np.testing.assert_array_equal(tensor_grey.numpy()[::-1, ::2] + 1, grey.numpy())
