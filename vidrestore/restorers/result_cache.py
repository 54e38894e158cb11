"""Results that several clips need, computed once."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from concurrent.futures import Future
from threading import Lock
from typing import Any, TypeVar

from vidrestore.cores import result_of_other
from vidrestore.working import Stopped, check_stop

T = TypeVar("T")


class ResultCache:
    """The latest results for the frames of one video, by the numbers of the frames that they are computed
    from; any method may run in several threads at once.

    shakes: by the number of each frame that was searched for motion blur, its length in pixels if it is
        undone, else 0.
    hopeless: the numbers of those that are blurred and stay as they are, since no kernel is believable.
    specks: by the number of each frame that was searched for dust, how many were found.
    """

    def __init__(self) -> None:
        self.shakes: dict[int, float] = {}
        self.hopeless: set[int] = set()
        self.specks: dict[int, int] = {}
        self.lock = Lock()
        self.results: dict[Hashable, Future[Any]] = {}

    def get(
        self,
        keys: Mapping[int, Hashable],
        compute: Callable[[list[int]], Iterable[T]],
        room: int,
    ) -> dict[int, T]:
        """Return results by frame, which have these keys. `compute` is called once, with those frames whose
        results no thread has computed or is computing; for the others' results this thread waits. The latest
        `room` results are cached.
        """
        with self.lock:
            missing = []
            for frame, key in keys.items():
                if key not in self.results:
                    self.results[key] = Future()
                    missing.append(frame)
            results = {frame: self.results[key] for frame, key in keys.items()}
            for oldest in list(self.results)[:-room]:
                del self.results[oldest]
        if missing:
            try:
                for frame, result in zip(missing, compute(missing), strict=True):
                    results[frame].set_result(result)
            except BaseException as error:
                with self.lock:
                    for frame in missing:
                        self.results.pop(keys[frame], None)
                for frame in missing:
                    results[frame].set_exception(error)
        try:
            return {frame: result_of_other(result) for frame, result in results.items()}
        except Stopped:  # not in a block that others wait for
            check_stop()
        return self.get(keys, compute, room)
