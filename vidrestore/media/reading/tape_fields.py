"""Remove the dropouts of tapes from the fields of interlaced pictures, before these become whole frames."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction
from functools import cached_property
from itertools import chain

import numpy as np
import torch
from av.filter import Graph
from av.video.frame import VideoFrame
from torch import Tensor

from vidrestore.cores import dealt, one_thread
from vidrestore.media.formats.pixel_formats import Plane, planes_of, store_plane
from vidrestore.media.reading.scan import TAPE_REACH
from vidrestore.models.dropouts import Dropouts, FieldView, filled, found_dropouts
from vidrestore.pixels.frames import PixelFormat
from vidrestore.pixels.scenes import Thumbnail, novelty, thumbnail

# least novelty of a picture that begins a scene; others have nothing to fill from
NEW_SCENE = 0.45


class Moment:
    """A picture, and what is asked of it if fields are near.

    planes: as delivered
    luma: (1, 1, H, W) in grey levels
    thumbnail: of the luma
    """

    def __init__(self, picture: VideoFrame, pixels: PixelFormat) -> None:
        self.picture, self._pixels = picture, pixels

    @cached_property
    def planes(self) -> tuple[Plane, ...]:
        return planes_of(self.picture)

    @property
    def _guide(self) -> Plane:
        return self.planes[1 if self._pixels.family == "rgb" else 0]

    @cached_property
    def luma(self) -> Tensor:
        luma = np.divide(self._guide, self._pixels.unit, dtype=np.float32)
        return torch.from_numpy(luma)[None, None]

    @cached_property
    def thumbnail(self) -> Thumbnail:
        return thumbnail(self._guide, self._pixels.unit)

    def begins_scene_after(self, before: Moment) -> bool:
        """Return whether another scene begins with this picture."""
        return novelty(before.thumbnail, self.thumbnail) > NEW_SCENE


class DropoutFilter:
    """Removes dropouts from those pictures of a video that `is_interlaced` is true for; `early` is the parity
    of the rows of the earlier field.

    counts: dropouts that were found, by the pts of the picture
    """

    def __init__(
        self,
        pixels: PixelFormat,
        early: int,
        is_interlaced: Callable[[VideoFrame], bool],
    ) -> None:
        self.counts: dict[int, int] = {}
        self._format, self._early, self._is_interlaced = pixels, early, is_interlaced

    def pictures(self, pictures: Iterable[VideoFrame]) -> Iterator[VideoFrame]:
        """Yield the pictures, two behind; those with dropouts as copies."""
        self.counts = {}
        window: list[Moment | None] = [None] * TAPE_REACH
        for picture in chain(pictures, [None] * TAPE_REACH):
            window.append(Moment(picture, self._format) if picture else None)
            if len(window) > 2 * TAPE_REACH:
                if moment := window[TAPE_REACH]:
                    yield self._mended(moment, window)
                del window[0]

    def _mended(self, moment: Moment, window: Sequence[Moment | None]) -> VideoFrame:
        """Return the picture in the middle of a window without its dropouts."""
        if not self._is_interlaced(moment.picture):
            return moment.picture
        # two frames of the same scene, best one on either side
        scene = _scene_around(window)
        pairs = [
            pair for pair in ((-1, 1), (1, 2), (-2, -1)) if scene.keys() >= {*pair}
        ]
        if not pairs:
            return moment.picture
        # each field is searched by itself, and filled from the same field of the neighbours
        with one_thread(), torch.inference_mode():
            views = [self._view(parity, scene, pairs[0]) for parity in (0, 1)]
            results = zip(views, dealt(found_dropouts, views), strict=True)
            fields = [(view, dropouts) for view, dropouts in results if dropouts]
            if not fields:
                return moment.picture
            planes = [plane.copy() for plane in moment.planes]
            neighbours = [scene[offset].planes for offset in pairs[0]]
            for view, dropouts in fields:
                for plane, sources in zip(
                    self._colours(planes), zip(*neighbours, strict=True), strict=False
                ):
                    _fill(
                        plane[view.parity :: 2],
                        [source[view.parity :: 2] for source in sources],
                        dropouts,
                    )
        self.counts[moment.picture.pts or 0] = sum(
            dropouts.dashes for _, dropouts in fields
        )
        result = copied(moment.picture)
        for index, plane in enumerate(planes):
            store_plane(result, index, plane)
        return result

    def _colours(self, planes: list[Plane]) -> list[Plane]:
        """Return the planes without that of alpha."""
        return planes[: self._format.plane_count - self._format.alpha]

    def _view(
        self, parity: int, scene: dict[int, Moment], pair: tuple[int, int]
    ) -> FieldView:
        """Return a field of the picture at 0 of a scene, by its parity, with those around it."""
        field, *neighbours = (
            scene[offset].luma[..., parity::2, :] for offset in (0, *pair)
        )
        lead = 0.5 if parity == self._early else -0.5  # of the other field of a picture
        nearest = sorted(scene, key=lambda offset: abs(offset + lead))[:2]
        opposites = [scene[offset].luma[..., 1 - parity :: 2, :] for offset in nearest]
        times = [offset + lead for offset in nearest]
        return FieldView(field, parity, torch.cat(neighbours), pair, opposites, times)


def _scene_around(window: Sequence[Moment | None]) -> dict[int, Moment]:
    """Return the pictures of a window that belong to the scene of its middle, which has the key 0."""
    middle = window[TAPE_REACH]
    assert middle is not None
    scene = {0: middle}
    for offset in range(1, TAPE_REACH + 1):
        later = window[TAPE_REACH + offset]
        if later is None or later.begins_scene_after(scene[offset - 1]):
            break
        scene[offset] = later
    for offset in range(-1, -TAPE_REACH - 1, -1):
        earlier = window[TAPE_REACH + offset]
        if earlier is None or scene[offset + 1].begins_scene_after(earlier):
            break
        scene[offset] = earlier
    return scene


def _fill(field: Plane, neighbours: Sequence[Plane], dropouts: Dropouts) -> None:
    """Fill the dropouts of a field of a plane, in place, by that of its neighbours."""
    if not field.size:
        return
    around = torch.from_numpy(np.stack(neighbours).astype(np.float32))[:, None]
    values, pixels = (result.numpy() for result in filled(around, dropouts))
    if field.dtype.kind == "u":
        values = values.round().clip(0, around.max().item())
    field[pixels] = values[pixels].astype(field.dtype)


def copied(picture: VideoFrame) -> VideoFrame:
    """Return a copy of a picture that owns its samples: a decoder refers to those that it gave out."""
    graph = Graph()
    source = graph.add_buffer(
        width=picture.width,
        height=picture.height,
        format=picture.format,
        time_base=picture.time_base or Fraction(1),
    )
    graph.link_nodes(source, graph.add("copy"), graph.add("buffersink")).configure()
    graph.vpush(picture)
    return graph.vpull()
