"""Weave pictures of one field each, as HEVC may code 1080i of DVB and ATSC, into frames."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import cast

import av
from av import VideoFormat
from av.filter import Graph
from av.video.frame import VideoFrame

from vidrestore.media.formats.damage import Damage
from vidrestore.pixels.frames import VideoInfo


class Weaver:
    """Weaves the pictures of a stream in pairs: one of the earlier field, by the mark of the stream's first
    picture, and one of the later. A field without its pair, as behind damage, stands for both.
    """

    def __init__(self, video: VideoInfo, damage: Damage) -> None:
        self.video, self.damage = video, damage
        first, mark = (
            ("bottom", "BOTTOMFIRST")
            if video.marked_order == "bff"
            else ("top", "TOPFIRST")
        )
        # PyAV doesn't have the mark
        self._early = self._graph("select", f"eq(interlace_type,{mark})")
        self._weave = self._graph("weave", f"first_field={first}")

    def _graph(self, name: str, options: str) -> Graph:
        video, graph = self.video, Graph()
        width, height = video.width, video.height // 2
        stored = VideoFormat(video.pix_fmt, width, height)
        source = graph.add_buffer(
            width=width, height=height, format=stored, time_base=video.time_base
        )
        graph.link_nodes(
            source, graph.add(name, options), graph.add("buffersink")
        ).configure()
        return graph

    def frames(
        self, pictures: Iterator[VideoFrame], start_pts: int | None
    ) -> Generator[VideoFrame]:
        """Yield frames with the times of their earlier fields; from `start_pts` on, without a field before
        whose pair was not read.
        """
        # a field waits for the one after it
        early: VideoFrame | None = None
        for picture in pictures:
            if self._is_early(picture):
                if early is not None:
                    self.damage.add(f"the frame with pts {early.pts} lacks a field")
                    yield self._woven(early, early)
                early = picture
            else:
                if (
                    early is not None
                    or start_pts is None
                    or cast("int", picture.pts) >= start_pts
                ):
                    yield self._woven(early or picture, picture)
                early = None
        if early is not None:
            yield self._woven(early, early)

    def _is_early(self, picture: VideoFrame) -> bool:
        self._early.push(picture)
        # the filter passes the earlier field alone
        try:
            self._early.pull()
        except av.error.BlockingIOError:  # the filter let nothing through
            return False
        return True

    def _woven(self, early: VideoFrame, late: VideoFrame) -> VideoFrame:
        for field in (early, late):
            self._weave.push(field)
        frame = cast("VideoFrame", self._weave.pull())
        frame.pts, frame.duration, frame.time_base = (
            early.pts,
            2 * (late.duration or 0),
            self.video.time_base,
        )
        if early.is_corrupt and not frame.is_corrupt:
            self.damage.corrupt_pts.append(cast("int", early.pts))
        return frame
