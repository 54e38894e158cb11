"""Memory that the heap holds idle goes back to the system, now and then."""

import ctypes
from pathlib import Path

import pytest

from vidrestore.pipeline.chain import IdleMemory, find_trim

BLOCK, COUNT = 64 << 10, 1000  # bytes each, too small for glibc to map apart


def test_idle_memory_is_given_back_once_a_period_however_often_it_is_asked_for():
    now, given = [0.0], []
    idle = IdleMemory(lambda pad: given.append((now[0], pad)) or 1, period=2.0, clock=lambda: now[0])
    for tenth in range(70):
        now[0] = tenth / 10
        idle.give_back()
    assert given == [(2.0, 0), (4.0, 0), (6.0, 0)]


def test_without_such_a_call_in_the_c_library_nothing_happens():
    IdleMemory(None, period=0.0).give_back()


def test_what_lies_idle_below_a_used_block_leaves_the_process():
    trim = find_trim()
    if trim is None:
        pytest.skip("the C library here has no malloc_trim")
    library = ctypes.CDLL(None)
    library.malloc.restype, library.malloc.argtypes, library.free.argtypes = (
        ctypes.c_void_p,
        [ctypes.c_size_t],
        [ctypes.c_void_p],
    )
    blocks = [library.malloc(BLOCK) for _ in range(COUNT)]
    for block in blocks:
        ctypes.memset(block, 1, BLOCK)
    for block in blocks[:-1]:  # the last one is on top, and the heap can't shrink below it
        library.free(block)
    held = resident()
    IdleMemory(trim, period=0.0).give_back()
    given_back = held - resident()
    library.free(blocks[-1])
    assert given_back > 0.9 * BLOCK * COUNT


def resident() -> int:
    """Bytes of this process that lie in memory."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096
