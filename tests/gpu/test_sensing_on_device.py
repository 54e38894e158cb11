"""Recover videos on a device: little crosses the bus, and memory may run out."""

from pathlib import Path

import numpy as np
import torch
from sample_videos import write_video
from sensing_networks import exact_network, save_network
from stand_in import Rehearsal

from vidrestore.lab.sensing.recover import recover
from vidrestore.lab.sensing.sense import sense
from vidrestore.media.reading.reader import VideoReader
from vidrestore.models.dust import FastDust


def test_frames_are_recovered_there_and_memory_may_run_out(tmp_path, monkeypatch):
    model, video, measured = (
        str(tmp_path / name) for name in ("m.safetensors", "video.mkv", "f.safetensors")
    )
    save_network(Path(model), exact_network())
    write_video(Path(video), frames=4, size=(32, 24))
    sense(video, measured, model=model, device="cpu")
    inner, sizes = FastDust.__call__, []

    def limited(self: FastDust, groups: torch.Tensor) -> torch.Tensor:
        sizes.append(len(groups))
        if len(groups) > 2:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return inner(self, groups)

    outputs = [str(tmp_path / f"{number}.mkv") for number in range(3)]
    recover(measured, outputs[0], model=model, device="cpu", precision="fp32")
    for number in (1, 2):
        with Rehearsal() as device:
            recover(
                measured, outputs[number], model=model, device="cuda", precision="fp32"
            )
            stored = Path(measured).stat().st_size
            assert device.moved["to device"] <= stored + Path(model).stat().st_size
        monkeypatch.setattr(FastDust, "__call__", limited)
    assert max(sizes) > 2 and min(sizes) <= 2
    frames = [list(VideoReader(output).frames()) for output in outputs]
    for here, there, again in zip(*frames, strict=True):
        for first, second, third in zip(
            here.planes, there.planes, again.planes, strict=True
        ):
            assert (
                np.abs(first.astype(int) - second).max() <= 1
                and (second == third).all()
            )
