"""What a stage takes is counted once, by the stage itself."""

from __future__ import annotations

import denoise_stages
import numpy as np
import pytest
import torch
from denoise_stages import REST, ByFormat, Spent, divided

from vidrestore.models.finisher import LUMA, finisher


class Work:
    """Two stages, one inside the other, that move the hand of a meter."""

    hand = 0.0

    def outer(self) -> None:
        Work.hand += 1
        self.inner()
        Work.hand += 2

    def inner(self) -> None:
        Work.hand += 10


def test_a_stage_has_what_it_takes_without_the_stages_inside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(denoise_stages, "STAGES", {"outer": (Work, "outer"), "inner": (Work, "inner")})
    before, spent = Work.outer, Spent()
    with divided(lambda: np.array(Work.hand), spent):
        Work.hand += 100
        Work().outer()
        Work().inner()
    assert spent == {REST: 100, "outer": 3, "inner": 20}
    assert Work.outer is before


@torch.inference_mode()
def test_packed_layers_are_counted_as_plain_ones_by_number_format() -> None:
    counted = []
    for dtype in (torch.float32, torch.bfloat16):
        network, seen = finisher(LUMA, dtype, torch.device("cpu")), torch.zeros(1, LUMA, 8, 9, dtype=dtype)
        with ByFormat() as meter:
            network.for_inference()(seen)
        counted.append((meter.fp32, meter.bf16))
    (plain, none), (nothing, packed) = counted
    assert none == nothing == 0 and plain == packed == 2 * 8 * 9 * (9 * 16 * (LUMA + 4 * 16) + 16)
