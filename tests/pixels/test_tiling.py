from itertools import pairwise

import pytest
import torch
from torch.nn.functional import conv2d, interpolate, pad

from vidrestore.errors import OptionError
from vidrestore.pixels.tiling import (
    apply_by_centres,
    apply_tiled,
    even_side,
    padded,
    tile_sides,
    tile_spans,
)


def test_the_last_tile_reaches_back_to_full_size():
    assert tile_spans(20, 8, 2) == [(0, 8), (6, 14), (12, 20)]
    assert tile_spans(21, 8, 2) == [(0, 8), (6, 14), (12, 20), (13, 21)]


@pytest.mark.parametrize("tile, overlap", [(8, 0), (8, 3), (8, 7), (1, 0)])
def test_spans_cover_the_side_and_neighbours_share_the_overlap(tile, overlap):
    for length in range(tile + 1, 60):
        spans = tile_spans(length, tile, overlap)
        assert (spans[0][0], spans[-1][1]) == (0, length)
        assert all(stop - start == tile for start, stop in spans)
        assert all(stop - start >= overlap for (_, stop), (start, _) in pairwise(spans))
        assert len(set(spans)) == len(spans)


@pytest.mark.parametrize("overlap", [-1, 8])
def test_an_overlap_that_leaves_no_step_is_refused(overlap):
    with pytest.raises(
        ValueError, match=r"overlap must be in \[0, 8\) for tiles of 8 pixels, got"
    ):
        tile_spans(20, 8, overlap)


@pytest.mark.parametrize("height, width", [(16, 16), (33, 50), (7, 64)])
@pytest.mark.parametrize("tile, overlap", [(16, 0), (16, 5), (64, 8)])
def test_identity_model_returns_the_clip(height, width, tile, overlap):
    clip = torch.rand(1, 3, 3, height, width)
    torch.testing.assert_close(
        apply_tiled(lambda pixels: pixels, clip, tile, overlap), clip
    )


def test_a_model_that_enlarges_is_placed_at_its_scale():
    clip = torch.rand(2, 3, 1, 21, 30)

    def enlarged(pixels):
        return interpolate(
            pixels.flatten(0, 1), scale_factor=4, mode="nearest"
        ).unflatten(0, pixels.shape[:2])

    torch.testing.assert_close(
        apply_tiled(enlarged, clip, 8, 3, scale=4), enlarged(clip)
    )


def test_a_model_may_keep_the_centre_frame_and_change_the_channels():
    clip = torch.rand(1, 5, 3, 20, 20)
    centre = clip[:, 2:3].mean(2, keepdim=True)
    torch.testing.assert_close(
        apply_tiled(lambda pixels: pixels[:, 2:3].mean(2, keepdim=True), clip, 8, 2),
        centre,
    )


@pytest.mark.parametrize("scale", [1, 2])
def test_tiles_that_disagree_are_blended_without_a_step(scale):
    tiles, overlap = iter([0.0, 1.0]), 8 * scale
    blended = apply_tiled(
        lambda pixels: torch.full((1, 1, 1, 8 * scale, 16 * scale), next(tiles)),
        torch.zeros(1, 1, 1, 8, 24),
        16,
        8,
        scale,
    )
    ramp = torch.arange(1, overlap + 1) / (overlap + 1)
    torch.testing.assert_close(
        blended[0, 0, 0, 3],
        torch.cat([torch.zeros(overlap), ramp, torch.ones(overlap)]),
    )


def test_half_precision_tiles_are_summed_in_single():
    clip = torch.rand(1, 1, 1, 20, 20).bfloat16()
    joined = apply_tiled(lambda pixels: pixels, clip, 8, 6)
    assert joined.dtype == torch.float32
    torch.testing.assert_close(joined, clip.float())


@pytest.mark.parametrize("tile", [8, 32])
def test_an_output_of_the_wrong_size_is_an_error(tile):
    with pytest.raises(ValueError, match="expected"):
        apply_tiled(
            lambda pixels: pixels[..., 1:], torch.zeros(1, 1, 1, 20, 20), tile, 2
        )


@pytest.mark.parametrize("height, width", [(8, 16), (9, 23), (20, 2), (5, 3), (1, 1)])
def test_frames_are_continued_to_the_next_multiple_by_reflection_or_where_too_small_by_their_last_pixel(
    height, width
):
    frames = torch.rand(2, 3, height, width)
    done = padded(frames, 8)
    assert (
        done.shape[-2] % 8 == done.shape[-1] % 8 == 0
        and done.shape[-2] - height < 8
        and done.shape[-1] - width < 8
    )
    margins = (0, done.shape[-1] - width, 0, done.shape[-2] - height)
    across = pad(
        frames,
        (*margins[:2], 0, 0),
        mode="reflect" if margins[1] < width else "replicate",
    )
    torch.testing.assert_close(
        done,
        pad(
            across,
            (0, 0, *margins[2:]),
            mode="reflect" if margins[3] < height else "replicate",
        ),
    )


def test_frames_are_continued_to_the_least_size():
    assert padded(torch.rand(1, 3, 10, 70), 1, 64).shape == (1, 3, 64, 70)


@pytest.mark.parametrize(
    "length, most, overlap",
    [(1920, 512, 32), (640, 512, 32), (520, 512, 0), (80, 64, 32)],
)
def test_even_tiles_are_as_many_as_the_largest_and_no_larger_than_they_need_to_be(
    length, most, overlap
):
    side = even_side(length, most, overlap, 8)
    count = len(tile_spans(length, most, overlap))
    assert side % 8 == 0 and side <= most
    assert len(tile_spans(length, side, overlap)) == count
    assert count * side - (count - 1) * overlap - length < 8 * count


def test_tiles_equal_the_full_frame_for_a_filter_that_reaches_at_most_half_the_overlap():
    clip, kernel = torch.rand(2, 1, 50, 37), torch.rand(1, 1, 5, 5)

    def filtered(tiles):
        return conv2d(tiles.flatten(0, 1), kernel, padding=2).unflatten(
            0, tiles.shape[:2]
        )

    for batch in (1, 3, 100):
        done = apply_by_centres(filtered, clip, 16, 4, batch=batch)
        torch.testing.assert_close(done, filtered(clip[None])[0])


def test_centres_that_are_enlarged_are_placed_at_their_scale():
    clip = torch.rand(1, 3, 20, 30)
    done = apply_by_centres(
        lambda tiles: tiles.repeat_interleave(4, -1).repeat_interleave(4, -2),
        clip,
        16,
        8,
        scale=4,
        batch=2,
    )
    torch.testing.assert_close(
        done, clip.repeat_interleave(4, -1).repeat_interleave(4, -2)
    )


def test_a_tile_may_be_higher_than_wide():
    clip, seen = torch.rand(1, 1, 3, 40, 50), set()

    def note(tile):
        seen.add(tuple(tile.shape[-2:]))
        return tile

    torch.testing.assert_close(apply_tiled(note, clip, (24, 16), 4), clip)
    assert seen == {(24, 16)}


def test_an_overlap_too_wide_for_the_tiles_that_are_chosen_is_refused():
    assert tile_sides(
        480, 854, tile=None, pixels=320 * 320, overlap=160, multiple=8
    ) == (320, 304)
    with pytest.raises(
        OptionError,
        match="the memory is enough for tiles of 320 pixels, but they share 168",
    ):
        tile_sides(480, 854, tile=None, pixels=320 * 320, overlap=168, multiple=8)
    # no tiles, no overlap
    assert tile_sides(
        300, 300, tile=None, pixels=320 * 320, overlap=168, multiple=4
    ) == (300, 300)
