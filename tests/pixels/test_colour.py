from fractions import Fraction

import av
import av.filter
import numpy as np
import pytest
import torch

from vidrestore.errors import MediaError
from vidrestore.pixels.colour import (
    OPPONENT,
    OPPONENT_NORMS,
    downsample_chroma,
    grey_to_planes,
    opponent_to_rgb,
    planes_to_grey,
    rgb_to_opponent,
    rgb_to_yuv,
    upsample_chroma,
    yuv_to_rgb,
)
from vidrestore.pixels.frames import ColourTags, PixelFormat

GRAY, GRAY10 = PixelFormat("gray", "gray", 8), PixelFormat("gray10le", "gray", 10)


@pytest.mark.parametrize("depth", [8, 9, 10, 12, 14, 16])
def test_every_sample_value_comes_back_through_grey(depth):
    format = PixelFormat("any", "gray", depth)
    samples = np.arange(2**depth, dtype=np.uint8 if depth == 8 else np.uint16).reshape(
        2, -1
    )
    (grey,) = planes_to_grey([samples], format)
    assert grey.dtype == torch.float32
    assert float(grey.max()) == (2**depth - 1) / 2 ** (depth - 8)
    (back,) = grey_to_planes([grey], format)
    assert back.dtype == samples.dtype
    np.testing.assert_array_equal(back, samples)


def test_restored_samples_are_rounded_to_nearest_and_clipped():
    restored = torch.tensor([[-3.0, 0.49, 0.51, 254.4, 254.6, 300.0]])
    np.testing.assert_array_equal(
        grey_to_planes([restored], GRAY)[0], [[0, 0, 1, 254, 255, 255]]
    )
    np.testing.assert_array_equal(
        grey_to_planes([restored], GRAY10)[0], [[0, 2, 2, 1018, 1018, 1023]]
    )


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
    (grey,) = planes_to_grey([view], GRAY)
    grey += 1
    np.testing.assert_array_equal(wide, np.arange(24).reshape(4, 6))
    tensor = torch.from_numpy(wide).float()
    (tensor_grey,) = planes_to_grey([tensor], GRAY)
    tensor_grey += 1
    np.testing.assert_array_equal(tensor_grey.numpy()[::-1, ::2], grey.numpy())
    np.testing.assert_array_equal(tensor.numpy(), wide)


# ---- YUV and RGB: expected values from Kr and Kb in float64, and from swscale ----

WEIGHTS = {
    1: (0.2126, 0.0722),
    4: (0.3, 0.11),
    5: (0.299, 0.114),
    7: (0.212, 0.087),
    9: (0.2627, 0.0593),
}
WEIGHTS[6] = WEIGHTS[5]
LIMITED, FULL = 1, 2


def quantised(rgb, matrix, range, depth):
    """H.273, section 8.3: float64 samples Y, Cb, Cr of analogue R, G, B in [0, 1], not rounded."""
    red, green, blue = (np.asarray(channel, dtype=np.float64) for channel in rgb)
    kr, kb = WEIGHTS[matrix]
    luma = kr * red + (1 - kr - kb) * green + kb * blue
    chroma = (blue - luma) / (2 * (1 - kb)), (red - luma) / (2 * (1 - kr))
    if range == FULL:
        return [
            (2**depth - 1) * luma,
            *((2**depth - 1) * c + 2 ** (depth - 1) for c in chroma),
        ]
    return [
        (219 * luma + 16) * 2 ** (depth - 8),
        *((224 * c + 128) * 2 ** (depth - 8) for c in chroma),
    ]


def yuv444(depth=8):
    return PixelFormat(f"yuv444p{depth}", "yuv", depth)


@pytest.mark.parametrize("depth", [8, 10, 12, 16])
@pytest.mark.parametrize("range", [LIMITED, FULL])
@pytest.mark.parametrize("matrix", WEIGHTS)
def test_matrix_range_and_depth_follow_h273(matrix, range, depth):
    rgb = np.random.default_rng(1).random((3, 5, 7))
    expected = np.stack(quantised(rgb, matrix, range, depth))
    format, tags = yuv444(depth), ColourTags(matrix=matrix, range=range)
    planes = rgb_to_yuv(torch.tensor(rgb, dtype=torch.float32), format, tags, 5)
    np.testing.assert_allclose(
        np.stack(planes) * format.unit, expected, atol=1e-4 * format.unit
    )
    grey = [
        torch.tensor(plane / format.unit, dtype=torch.float32) for plane in expected
    ]
    np.testing.assert_allclose(yuv_to_rgb(grey, format, tags, 5), rgb, atol=2e-6)


@pytest.mark.parametrize(
    "range, y, cg, co",
    [
        (LIMITED, 219 * 0.35 + 16, 219 * 0.05 + 128, 219 * 0.1 + 128),
        (FULL, 89.25, 140.75, 153.5),
    ],
)
def test_ycgco_follows_h273(range, y, cg, co):
    rgb = torch.tensor([0.4, 0.4, 0.2]).reshape(3, 1, 1)
    tags = ColourTags(matrix=8, range=range)
    planes = rgb_to_yuv(rgb, yuv444(), tags, 1)
    assert [float(plane) for plane in planes] == pytest.approx([y, cg, co])
    torch.testing.assert_close(yuv_to_rgb(planes, yuv444(), tags, 1), rgb)


def test_identity_matrix_holds_green_blue_red():
    rgb, full, limited = (
        torch.tensor([0.1, 0.2, 0.3]),
        ColourTags(0, range=FULL),
        ColourTags(0, range=LIMITED),
    )
    planes = rgb_to_yuv(rgb.reshape(3, 1, 1), yuv444(), full, 1)
    assert [float(plane) for plane in planes] == pytest.approx([51, 76.5, 25.5])
    black = rgb_to_yuv(torch.zeros(3, 1, 1), yuv444(), limited, 1)
    assert [float(plane) for plane in black] == [16, 16, 16]


@pytest.mark.parametrize("height, matrix", [(719, 6), (720, 1)])
def test_untagged_is_709_from_720_lines_on_and_limited(height, matrix):
    rgb = torch.rand(3, 2, 2)
    inputs = rgb_to_yuv(rgb, yuv444(), ColourTags(matrix=matrix, range=LIMITED), 2)
    torch.testing.assert_close(rgb_to_yuv(rgb, yuv444(), ColourTags(), height), inputs)


def test_yuvj_is_full_range_whatever_the_tag():
    format = PixelFormat("yuvj444p", "yuv", 8)
    black = rgb_to_yuv(torch.zeros(3, 1, 1), format, ColourTags(range=LIMITED), 1)
    assert [float(plane) for plane in black] == [0, 128, 128]


def test_an_unknown_matrix_is_refused_with_the_known_ones():
    with pytest.raises(
        MediaError, match=r"colour matrix 10 .*\[0, 1, 4, 5, 6, 7, 8, 9\].*ffmpeg"
    ):
        rgb_to_yuv(torch.zeros(3, 1, 1), yuv444(), ColourTags(matrix=10), 1)


@pytest.mark.parametrize("depth, white", [(8, 255), (10, 255.75), (32, 255)])
def test_rgb_and_gray_planes_are_scaled_to_one(depth, white):
    rgb, format, tags = (
        torch.rand(3, 4, 4),
        PixelFormat("gbrp", "rgb", depth),
        ColourTags(matrix=0),
    )
    planes = rgb_to_yuv(rgb, format, tags, 4)
    torch.testing.assert_close(torch.stack(planes), rgb * white)
    torch.testing.assert_close(yuv_to_rgb(planes, format, tags, 4), rgb)
    format, half = PixelFormat("gray", "gray", depth), torch.full((2, 2), white / 2)
    gray = yuv_to_rgb([half], format, ColourTags(), 2)
    torch.testing.assert_close(gray, torch.full((3, 2, 2), 0.5))
    torch.testing.assert_close(rgb_to_yuv(gray, format, ColourTags(), 2)[0], half)


def test_limited_gray_runs_from_16_to_235():
    gray = yuv_to_rgb(
        [torch.tensor([[16.0, 235.0]])], GRAY, ColourTags(range=LIMITED), 1
    )
    torch.testing.assert_close(gray, torch.tensor([0.0, 1.0]).expand(3, 1, 2))


@pytest.mark.parametrize("range", [LIMITED, FULL])
@pytest.mark.parametrize("matrix", [0, 8, *WEIGHTS])
def test_every_444_sample_comes_back_exactly_through_rgb(matrix, range):
    # far outside the RGB cube, too
    samples = np.random.default_rng(2).integers(0, 256, (3, 64, 64), dtype=np.uint8)
    tags = ColourTags(matrix=matrix, range=range)
    rgb = yuv_to_rgb(planes_to_grey(samples, yuv444()), yuv444(), tags, 64)
    back = rgb_to_yuv(rgb, yuv444(), tags, 64)
    assert (
        max(
            float((a - torch.tensor(b)).abs().max())
            for a, b in zip(back, samples, strict=True)
        )
        < 1e-3
    )
    np.testing.assert_array_equal(np.stack(grey_to_planes(back, yuv444())), samples)


def test_a_batch_of_clips_converts_as_its_frames_do():
    format, tags = PixelFormat("yuv420p", "yuv", 8, 1, 1), ColourTags()
    planes = [
        255 * torch.rand(2, 3, *format.plane_size(plane, 6, 9)) for plane in range(3)
    ]
    rgb = yuv_to_rgb(planes, format, tags, 6)
    assert rgb.shape == (2, 3, 3, 6, 9)
    torch.testing.assert_close(
        rgb[1, 2], yuv_to_rgb([plane[1, 2] for plane in planes], format, tags, 6)
    )
    assert [each.shape for each in rgb_to_yuv(rgb, format, tags, 6)] == [
        each.shape for each in planes
    ]


# ---- chroma siting ----

SUBSAMPLED = {
    "yuv420p": (1, 1),
    "yuv422p": (1, 0),
    "yuv440p": (0, 1),
    "yuv411p": (2, 0),
    "yuv410p": (2, 2),
}
SITES = [  # of chroma locations 1 to 6: right, down, and swscale's word
    *(
        ("left", "middle", "left"),
        ("middle", "middle", "center"),
        ("left", "top", "topleft"),
    ),
    *(
        ("middle", "top", "top"),
        ("left", "bottom", "bottomleft"),
        ("middle", "bottom", "bottom"),
    ),
]


def subsampled(name):
    return PixelFormat(name, "yuv", 8, *SUBSAMPLED[name])


def sites(count, shift, where):
    """Where chroma samples lie, in luma samples."""
    first = {"left": 0, "top": 0, "middle": (2**shift - 1) / 2, "bottom": 2**shift - 1}[
        where
    ]
    return first + 2**shift * np.arange(count)


@pytest.mark.parametrize("height, width", [(24, 32), (25, 35)])
@pytest.mark.parametrize(
    "location, across, down", [(at, *site[:2]) for at, site in enumerate(SITES, 1)]
)
@pytest.mark.parametrize("name", SUBSAMPLED)
def test_a_ramp_keeps_its_place_through_chroma_sampling(
    name, location, across, down, height, width
):
    format, tags = subsampled(name), ColourTags(chroma_location=location)
    rows, columns = format.plane_size(1, height, width)
    x = sites(columns, format.chroma_width_shift, across)
    y = sites(rows, format.chroma_height_shift, down)
    small = torch.tensor(3 * y[:, None] + 2 * x, dtype=torch.float32)
    full = torch.tensor(
        3.0 * np.arange(height)[:, None] + 2.0 * np.arange(width), dtype=torch.float32
    )
    # beyond the outermost sites the edge value continues
    inside = (slice(4, -4), slice(4, -4))
    torch.testing.assert_close(
        upsample_chroma(small, format, tags, height, width)[inside], full[inside]
    )
    resampled = downsample_chroma(full, format, tags)
    assert resampled.shape == small.shape
    torch.testing.assert_close(resampled[2:-2, 2:-2], small[2:-2, 2:-2])


def test_untagged_chroma_lies_left():
    plane = torch.rand(4, 4)
    inputs = upsample_chroma(
        plane, subsampled("yuv420p"), ColourTags(chroma_location=1), 8, 8
    )
    torch.testing.assert_close(
        upsample_chroma(plane, subsampled("yuv420p"), ColourTags(), 8, 8), inputs
    )


@pytest.mark.parametrize("name", SUBSAMPLED)
def test_flat_chroma_stays_flat_to_the_edges(name):
    flat = torch.full((5, 7), 77.0)
    for location in range(7):
        tags = ColourTags(chroma_location=location)
        small = downsample_chroma(flat, subsampled(name), tags)
        for plane in (
            small,
            upsample_chroma(flat[:2, :2], subsampled(name), tags, 5, 7),
        ):
            torch.testing.assert_close(plane.unique(), torch.tensor([77.0]))


def test_one_pixel_frames_convert():
    format = subsampled("yuv420p")
    planes = rgb_to_yuv(torch.full((3, 1, 1), 0.5), format, ColourTags(), 1)
    torch.testing.assert_close(
        yuv_to_rgb(planes, format, ColourTags(), 1), torch.full((3, 1, 1), 0.5)
    )


# ---- against swscale: bilinear, accurate rounding, full chroma interpolation ----


def smooth_planes(sizes, low=100, high=150):
    """Random samples that vary smoothly and stay inside the RGB cube."""
    rng = torch.Generator().manual_seed(3)
    noise = [
        torch.rand(1, 1, height // 4 + 2, width // 4 + 2, generator=rng)
        for height, width in sizes
    ]
    smooth = [
        torch.nn.functional.interpolate(n, size=size, mode="bilinear")[0, 0]
        for n, size in zip(noise, sizes, strict=True)
    ]
    return [
        (low + (high - low) * plane).round().to(torch.uint8).numpy() for plane in smooth
    ]


def swscale(planes, source, target, options):
    height, width = planes[0].shape
    frame = av.VideoFrame(width, height, source)
    for plane, samples in zip(frame.planes, planes, strict=True):
        rows = np.frombuffer(plane, dtype=np.uint8).reshape(
            plane.height, plane.line_size
        )
        rows[:, : samples.shape[1]] = samples
    graph = av.filter.Graph()
    facts = {"format": av.VideoFormat(source), "time_base": Fraction(1, 25)}
    buffer = graph.add_buffer(width=width, height=height, **facts)
    flags = "bilinear+accurate_rnd+full_chroma_int+full_chroma_inp+bitexact"
    scale = graph.add("scale", f"flags={flags}:{options}")
    graph.link_nodes(
        buffer, scale, graph.add("format", target), graph.add("buffersink")
    ).configure()
    graph.push(frame)
    graph.push(None)
    out = graph.pull()
    return [
        np.frombuffer(p, dtype=np.uint8)
        .reshape(p.height, p.line_size)[:, : p.width]
        .astype(np.float64)
        for p in out.planes
    ]


@pytest.mark.parametrize(
    "location, word", [(at, site[2]) for at, site in enumerate(SITES, 1)]
)
@pytest.mark.parametrize("name", SUBSAMPLED)
def test_chroma_sampling_is_that_of_swscale(name, location, word):
    format, tags = subsampled(name), ColourTags(chroma_location=location)
    planes = smooth_planes([format.plane_size(plane, 16, 24) for plane in range(3)])
    theirs = swscale(planes, name, "yuv444p", f"in_chroma_loc={word}")
    for plane, expected in zip(planes[1:], theirs[1:], strict=True):
        ours = upsample_chroma(
            torch.tensor(plane, dtype=torch.float32), format, tags, 16, 24
        )
        assert np.abs(ours.numpy() - expected).max() <= 0.51
    planes = smooth_planes([(16, 24)] * 3)
    theirs = swscale(planes, "yuv444p", name, f"out_chroma_loc={word}")
    for plane, expected in zip(planes[1:], theirs[1:], strict=True):
        ours = downsample_chroma(torch.tensor(plane, dtype=torch.float32), format, tags)
        assert np.abs(ours.numpy() - expected).max() <= 0.51


def test_luma_and_colour_differences_hold_the_same_colours_and_white_noise_of_their_norms():
    generator = torch.Generator().manual_seed(6)
    planes = [255 * torch.rand(2, 90, 110, generator=generator) for _ in range(3)]
    opponent = rgb_to_opponent(planes)
    for plane, other in zip(planes, opponent_to_rgb(opponent), strict=True):
        torch.testing.assert_close(other, plane, atol=1e-4, rtol=0)
    for grey in (0.0, 255.0):
        luma, *differences = rgb_to_opponent([torch.full((1, 2, 2), grey)] * 3)
        assert (
            float(luma.mean()) == pytest.approx(grey)
            and float(differences[0].mean()) == 127.5
        )
    # of orthogonal rows, so that the planes' noise is independent
    products = OPPONENT @ OPPONENT.T
    np.testing.assert_allclose(products, np.diag(products.diagonal()), atol=1e-12)
    noise = [5 * torch.randn(200, 200, generator=generator) for _ in range(3)]
    result = [float(plane.std()) for plane in rgb_to_opponent(noise)]
    assert result == pytest.approx([5 * norm for norm in OPPONENT_NORMS], rel=0.02)
