"""A compiled network gives what the plain one gives, and where compiling fails the plain one is there."""

import shutil
import warnings
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from vidrestore.models.fast.compiled import Compiled
from vidrestore.models.mb_taylorformer import build
from vidrestore.restorers.devices import all_bits

CPU = torch.device("cpu")
TINY = {"size": "h", "widths": [4, 8, 8, 8], "heads": [1, 1, 1, 1], "blocks": [1, 1, 1, 1]}
TINY |= {"branches": [1, 1, 1, 1]}


def network() -> nn.Module:
    torch.manual_seed(1)
    return build(TINY).eval()


@torch.inference_mode()
def assert_as_plain(device: torch.device) -> None:
    plain = network().to(device)
    compiled, clips = Compiled(plain, device), torch.rand(2, 1, 3, 3, 16, 16, device=device)
    with warnings.catch_warnings(), all_bits(device, None):
        warnings.simplefilter("error", RuntimeWarning)  # as of one that failed
        found = [compiled(clip) for clip in clips]
        for restored, clip in zip(found, clips, strict=True):
            torch.testing.assert_close(restored, plain(clip), atol=1e-4, rtol=1e-4)


@pytest.mark.compiler
def test_a_network_is_one_graph_that_gives_what_it_gives(monkeypatch):
    """Traced as for compiling, and run operation by operation."""
    traced = partial(torch.compile, backend="eager", fullgraph=True)
    monkeypatch.setattr(torch, "compile", lambda work, *, dynamic, mode: traced(work, dynamic=dynamic))
    assert_as_plain(CPU)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_gpu_gives_the_same_from_a_graph_in_the_threads_of_two_jobs():
    for _ in range(2):
        with ThreadPoolExecutor(1) as pool:
            pool.submit(assert_as_plain, torch.device("cuda")).result()


@pytest.mark.compiler
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a compiler")
def test_a_compiled_network_gives_what_the_plain_one_does():
    assert_as_plain(CPU)


def failing(error: Exception) -> Any:
    def compiled(*given: Tensor) -> Tensor:
        raise error

    return lambda work, **options: compiled


def test_where_compiling_fails_one_line_says_so_and_the_model_runs_as_it_is(monkeypatch):
    monkeypatch.setattr(torch, "compile", failing(RuntimeError("no C++ compiler\nand much more")))
    doubled = Compiled(lambda maps: 2 * maps, CPU)
    with pytest.warns(RuntimeWarning) as caught:
        assert doubled(torch.ones(3)).tolist() == doubled(torch.ones(3)).tolist() == [2, 2, 2]
    assert [str(each.message) for each in caught] == [
        "torch.compile failed; the model runs uncompiled: RuntimeError: no C++ compiler"
    ]


def test_less_at_once_is_tried_where_memory_runs_out_in_a_compiled_network(monkeypatch):
    monkeypatch.setattr(torch, "compile", failing(torch.OutOfMemoryError("CUDA out of memory")))
    with pytest.raises(torch.OutOfMemoryError):
        Compiled(lambda maps: maps, CPU)(torch.ones(3))
