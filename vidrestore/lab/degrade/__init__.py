"""Degrade clean video in known ways, for training and evaluation.

Weather, blur and noise are functions of a clip (T, 3, H, W) of R'G'B' in [0, 1], float32, and a NumPy
generator; they return the degraded clip, of the same shape, within [0, 1]. Those of BATCHED take clips
(B, T, 3, H, W) and `Counters` of B samples. The same generator state or counters give the same result on
every machine. Still objects are the same in every frame, rain and snow continue to fall, and noise differs
from frame to frame.
"""

from vidrestore.lab.degrade.added_noise import (
    add_gaussian_noise,
    camera_noise,
    white_noise,
)
from vidrestore.lab.degrade.blur import (
    average_exposures,
    blur,
    gaussian_blurred,
    motion,
)
from vidrestore.lab.degrade.haze import add_haze, haze
from vidrestore.lab.degrade.moving_objects import add_moving_objects
from vidrestore.lab.degrade.per_sample import Degradation, of_one_clip
from vidrestore.lab.degrade.resize import imresize
from vidrestore.lab.degrade.weather import add_rain, add_snow, rain, snow

# in physical order: from the scene through the lens to the sensor
BATCHED: dict[str, Degradation] = {
    "haze": haze,
    "rain": rain,
    "snow": snow,
    "blur": blur,
    "noise": camera_noise,
    "white": white_noise,
}
DEGRADATIONS = {name: of_one_clip(batched) for name, batched in BATCHED.items()}

__all__ = [
    "DEGRADATIONS",
    "add_gaussian_noise",
    "add_haze",
    "add_moving_objects",
    "add_rain",
    "add_snow",
    "average_exposures",
    "gaussian_blurred",
    "imresize",
    "motion",
]
