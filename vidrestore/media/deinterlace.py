"""Deinterlace by FFmpeg's bwdif: one progressive picture per interlaced one, or one per field.

Pictures that are marked progressive pass unchanged.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from itertools import chain, islice
from typing import TYPE_CHECKING

from vidrestore.errors import MediaError
from vidrestore.media.formats import layout_of

if TYPE_CHECKING:
    from av.filter import Graph
    from av.video.frame import VideoFrame

    from vidrestore.media.probe import VideoInfo

# the command to suggest for a pipe
PIPE_DEINTERLACED = "ffmpeg -i IN -vf bwdif=send_frame -f yuv4mpegpipe -"
_FILTER = "mode={}:parity=auto:deint=interlaced"


class Deinterlacer:
    """Returns each picture of a stream with its own time, deinterlaced if it is marked as interlaced; `count`
    is their number.

    With `fields` each field becomes a picture, and times count halves of the stream's tick. The order of
    fields is each picture's own; if the pictures of an interlaced stream are not marked, it is the stream's.
    Raises MediaError for a size or pixel format that bwdif doesn't support.
    """

    def __init__(self, source: str, video: VideoInfo, *, fields: bool = False) -> None:
        self.video, self.fields = video, fields
        self.count = 0
        self._try(source)

    def _try(self, source: str) -> None:
        """Filter two blank pictures: libavfilter silently converts unsupported formats, which shows only in
        its output.
        """
        import av

        size = self.video.width, self.video.height
        blank = [av.VideoFrame(*size, self.video.pix_fmt) for _ in range(2)]
        for pts, picture in enumerate(blank):
            picture.pts = pts
        try:
            made = next(self._filtered(blank))
        except av.error.FFmpegError:
            raise MediaError(
                f"{source}: {size[0]}x{size[1]} is too small to deinterlace {self.video.pix_fmt}; no way is "
                "known"
            ) from None
        if layout_of(made.format.name).format != self.video.format:
            raise MediaError(
                f"{source}: {self.video.pix_fmt} can't be deinterlaced without a loss; convert it first, "
                "for example: ffmpeg -i IN -vf format=yuv444p16le,bwdif=send_frame -c:v ffv1 -c:a copy "
                "OUT.mkv"
            )

    def pictures(self, pictures: Generator[VideoFrame]) -> Generator[VideoFrame]:
        """Yield the pictures, deinterlaced."""
        with closing(pictures):
            first = next(pictures, None)
            # The first picture is filtered twice and one result dropped: without a picture before it, the
            # filter would halve its height.
            if first is not None:
                twice = 2 if self.fields and self._is_interlaced(first) else 1
                yield from islice(
                    self._filtered(chain([first], map(self._counted, chain([first], pictures)))), twice, None
                )

    def _is_interlaced(self, picture: VideoFrame) -> bool:
        return picture.interlaced_frame or self.video.unmarked_order is not None

    def _counted(self, picture: VideoFrame) -> VideoFrame:
        self.count += self._is_interlaced(picture)
        return picture

    def _filtered(self, pictures: Iterable[VideoFrame]) -> Iterator[VideoFrame]:
        graph = self._graph()
        waiting: deque[tuple[int | None, int]] = deque()
        for picture in chain(pictures, [None]):
            graph.vpush(picture)
            if picture is not None:
                waiting.append((picture.pts, picture.duration))
            for made in _ready(graph):
                if not self.fields:  # the filter counts in halves of a tick
                    made.pts, made.duration = waiting.popleft()
                yield made

    def _graph(self) -> Graph:
        from av import VideoFormat
        from av.filter import Graph

        video, graph = self.video, Graph()
        kind = _FILTER.format("send_field" if self.fields else "send_frame")
        stored = VideoFormat(video.pix_fmt, video.width, video.height)
        source = graph.add_buffer(
            width=video.width, height=video.height, format=stored, time_base=video.time_base
        )
        marking = [graph.add("setfield", video.unmarked_order)] if video.unmarked_order else []
        graph.link_nodes(source, *marking, graph.add("bwdif", kind), graph.add("buffersink")).configure()
        return graph


def _ready(graph: Graph) -> Iterator[VideoFrame]:
    import av

    while True:
        try:
            yield graph.vpull()
        except (av.error.BlockingIOError, av.error.EOFError):
            return
