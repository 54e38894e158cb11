"""Run an exported network on a video with PyAV and onnxruntime alone, as other programs do.

vidrestore weights export mb-taylorformer-h-denoise -o denoise.onnx
python examples/onnx_video.py denoise.onnx noisy.mp4 restored.mkv

It has neither scene cuts, sound nor the video's own YUV matrix: `vidrestore` has. Neighbours beyond the ends
are the end's frame.
"""

from __future__ import annotations

import argparse
import json
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import av
import numpy as np
import onnxruntime
from numpy.typing import NDArray


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "network", type=Path, help=".onnx, with its card (.json) beside it"
    )
    parser.add_argument("source", type=Path)
    parser.add_argument(
        "output", type=Path, help="losslessly coded video to write (.mkv)"
    )
    arguments = parser.parse_args()
    count = json.loads(arguments.network.with_suffix(".json").read_text())["frames"]
    session = onnxruntime.InferenceSession(str(arguments.network))
    with (
        av.open(str(arguments.source)) as source,
        av.open(str(arguments.output), "w") as output,
    ):
        frames = (frame.to_ndarray(format="rgb24") for frame in source.decode(video=0))
        stream: Any = None
        for window in windows(frames, count):
            restored = run(session, window)
            if stream is None:
                stream = output.add_stream(
                    "ffv1", rate=source.streams.video[0].average_rate
                )
                stream.height, stream.width, stream.pix_fmt = (
                    *restored.shape[:2],
                    "bgr0",
                )
            output.mux(
                stream.encode(av.VideoFrame.from_ndarray(restored, format="rgb24"))
            )
        if stream is not None:
            output.mux(stream.encode(None))


def windows(
    frames: Iterator[NDArray[np.uint8]], count: int
) -> Iterator[list[NDArray[np.uint8]]]:
    """Yield each frame in the middle of `count`; the ends are repeated."""
    window = deque[NDArray[np.uint8]](maxlen=count)
    for frame in frames:
        window.extend([frame] * (1 if window else count // 2 + 1))
        if len(window) == count:
            yield list(window)
    for _ in range(count // 2 if window else 0):
        window.append(window[-1])
        if len(window) == count:
            yield list(window)


def run(
    session: onnxruntime.InferenceSession, window: list[NDArray[np.uint8]]
) -> NDArray[np.uint8]:
    """Return the restored middle frame (H, W, 3) of frames (H, W, 3)."""
    channels = np.concatenate([frame.transpose(2, 0, 1) for frame in window])[
        None
    ] / np.float32(255)
    (result,) = session.run(None, {"input": channels})
    restored: NDArray[np.uint8] = (
        np.rint(255 * result[0].transpose(1, 2, 0)).clip(0, 255).astype(np.uint8)
    )
    return restored


if __name__ == "__main__":
    main()
