from itertools import pairwise

import pytest
import torch

from vidrestore.pixels.clips import (
    clip_bounds,
    crossfade,
    crossfade_weights,
    join_clips,
    live_clips,
    needed_clips,
    owned_span,
    owners,
)

# count, cuts, length, overlap; of (9, ...) the last clip shares seven frames with the one before, and in
# (15, ...) three clips have frame 7
LAYOUTS = [(count, (), 8, 2) for count in (0, 1, 7, 8, 9, 14, 15)]
LAYOUTS += [(40, (1, 5, 13, 30), 8, 3), (33, (), 8, 0), (29, (11,), 8, 7)]


def number(value: float) -> tuple[torch.Tensor, ...]:
    return (torch.full((2, 3), float(value)),)


def clips_of(bounds, clips):
    """Clips whose restored frames show where they are and, a little, which clip made them."""
    return [
        (bounds[i], [number(frame + 0.01 * (i + 1)) for frame in range(*bounds[i])])
        for i in clips
    ]


def values(frames):
    return [float(planes[0][0, 0]) for planes in frames]


def test_bounds_cover_the_video_and_the_last_takes_a_short_rest_in():
    assert clip_bounds(20, [], 8, 2) == [(0, 8), (6, 14), (12, 20)]
    assert clip_bounds(23, [], 8, 2) == [(0, 8), (6, 14), (12, 23)]
    assert clip_bounds(24, [], 8, 2) == [(0, 8), (6, 14), (12, 20), (18, 24)]
    assert clip_bounds(0, [], 8, 2) == []


def test_bounds_never_cross_a_cut():
    assert clip_bounds(15, [3], 8, 2) == [(0, 3), (3, 11), (9, 15)]


@pytest.mark.parametrize("count, cuts, length, overlap", LAYOUTS)
def test_neighbours_in_a_scene_share_at_least_the_overlap(count, cuts, length, overlap):
    for (_, stop), (first, _) in pairwise(clip_bounds(count, cuts, length, overlap)):
        assert stop - first >= overlap if first not in cuts else stop == first


@pytest.mark.parametrize("overlap", [-1, 8])
def test_an_overlap_that_leaves_no_step_is_refused(overlap):
    with pytest.raises(
        ValueError, match=r"overlap must be in \[0, 8\) for clips of 8 frames, got"
    ):
        clip_bounds(20, [], 8, overlap)
    with pytest.raises(ValueError, match="overlap must be"):
        next(live_clips([(True, 0)], 8, overlap))


@pytest.mark.parametrize("cuts", [(0,), (20,), (7, 5), (5, 5)])
def test_cuts_outside_the_video_or_out_of_order_are_refused(cuts):
    with pytest.raises(ValueError, match="cuts must increase"):
        clip_bounds(20, cuts, 8, 2)


@pytest.mark.parametrize("count, cuts, length, overlap", LAYOUTS)
def test_joining_clips_gives_every_frame_back_in_order(count, cuts, length, overlap):
    bounds = clip_bounds(count, cuts, length, overlap)
    clips = [
        ((first, stop), [number(frame) for frame in range(first, stop)])
        for first, stop in bounds
    ]
    assert values(join_clips(clips, crossfade)) == list(range(count))


def test_shared_frames_fade_steeply_from_one_clip_to_the_next():
    clips = [((0, 4), [number(0)] * 4), ((1, 5), [number(82)] * 4)]
    # 1 : 3^4, even, 3^4 : 1
    assert values(join_clips(clips, crossfade)) == pytest.approx([0, 1, 41, 81, 82])
    assert crossfade_weights(1) == [0.5]


def test_no_frame_is_blended_from_three_clips():
    bounds = [(0, 8), (6, 14), (7, 15)]
    clips = [
        (bound, [number(value)] * 8)
        for bound, value in zip(bounds, (0, 17, 100), strict=True)
    ]
    joined = values(join_clips(clips, crossfade))
    # frame 7 without the third clip
    assert joined[:8] == pytest.approx([0] * 6 + [1, 16])
    assert joined[8:] == pytest.approx(
        [17 + 83 * weight for weight in crossfade_weights(6)] + [100]
    )


@pytest.mark.parametrize("count, cuts, length, overlap", LAYOUTS)
def test_owned_spans_tile_the_video(count, cuts, length, overlap):
    bounds = clip_bounds(count, cuts, length, overlap)
    spans = [owned_span(bounds, clip) for clip in range(len(bounds))]
    assert [frame for span in spans for frame in range(*span)] == list(range(count))


@pytest.mark.parametrize("count, cuts, length, overlap", LAYOUTS)
def test_any_range_of_clips_gives_the_same_frames_as_a_full_run(
    count, cuts, length, overlap
):
    bounds = clip_bounds(count, cuts, length, overlap)
    whole = values(join_clips(clips_of(bounds, range(len(bounds))), crossfade))
    for begin in range(len(bounds)):
        for end in range(begin + 1, len(bounds) + 1):
            span = owned_span(bounds, begin)[0], owned_span(bounds, end - 1)[1]
            part = join_clips(
                clips_of(bounds, needed_clips(bounds, range(begin, end))),
                crossfade,
                span,
            )
            assert values(part) == whole[slice(*span)]


@pytest.mark.parametrize("count, cuts, length, overlap", LAYOUTS)
def test_the_owners_of_frames_are_the_clips_whose_spans_hold_them(
    count, cuts, length, overlap
):
    bounds = clip_bounds(count, cuts, length, overlap)
    spans = [range(*owned_span(bounds, clip)) for clip in range(len(bounds))]
    for first in range(count):
        for stop in range(first + 1, count + 1):
            holding = [
                n for n, span in enumerate(spans) if {*range(first, stop)} & {*span}
            ]
            assert list(owners(bounds, first, stop)) == holding


def test_a_range_needs_one_clip_more_except_at_a_cut():
    # (0, 8), (6, 14), (14, 22), (20, 28), (22, 30)
    bounds = clip_bounds(30, [14], 8, 2)
    assert needed_clips(bounds, range(1)) == range(2)
    assert needed_clips(bounds, range(2)) == range(2)
    assert needed_clips(bounds, range(3, 5)) == range(3, 5)


def test_a_clip_that_lost_a_frame_is_an_error():
    with pytest.raises(ValueError, match="8 frames expected, got 7"):
        list(join_clips([((0, 8), [number(0)] * 7)], crossfade))


@pytest.mark.parametrize("count, cuts, length, overlap", LAYOUTS)
def test_a_stream_of_unknown_length_is_cut_into_the_same_clips(
    count, cuts, length, overlap
):
    bounds = clip_bounds(count, cuts, length, overlap)
    live = list(
        live_clips(((frame in cuts, frame) for frame in range(count)), length, overlap)
    )
    assert live == [((first, stop), list(range(first, stop))) for first, stop in bounds]


def test_the_join_keeps_no_more_than_two_clips():
    alive = set()

    class Counted(tuple):
        def __new__(cls, planes):
            frame = super().__new__(cls, planes)
            alive.add(id(frame))
            return frame

        def __del__(self):
            alive.discard(id(self))

    bounds = clip_bounds(200, [], 8, 2)
    clips = (
        (bound, [Counted(number(frame)) for frame in range(*bound)]) for bound in bounds
    )
    assert max(len(alive) for _ in join_clips(clips, crossfade)) <= 2 * 8
