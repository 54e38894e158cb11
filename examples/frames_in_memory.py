"""Denoise frames that are in memory: python frames_in_memory.py in.mp4 out.png

Reads the first frames of a video with PyAV, restores them, and writes the first one, before and after, as a
picture.
"""

import sys
from itertools import islice

import av
import numpy as np

import vidrestore

FRAMES = 20


def main() -> None:
    source, target = sys.argv[1:]
    with av.open(source) as video:
        # (T, H, W, 3)
        frames = np.stack(
            [frame.to_ndarray(format="rgb24") for frame in islice(video.decode(video=0), FRAMES)]
        )
    restorer = vidrestore.Restorer("denoise", sigma="auto")  # also takes an iterator of frames, or a file
    restored = restorer(frames)
    both = np.concatenate([frames[0], restored[0]], axis=1)
    with av.open(target, "w", format="image2") as picture:
        stream = picture.add_stream("png", rate=1, width=both.shape[1], height=both.shape[0], pix_fmt="rgb24")
        picture.mux(stream.encode(av.VideoFrame.from_ndarray(both, format="rgb24")))
    print(f"{len(frames)} frames restored; the first, before and after: {target}")


if __name__ == "__main__":
    main()
