"""Clean video made worse in known ways, for training and evaluation.

Weather, blur and camera noise are functions of a clip (T, 3, H, W) of R'G'B' in [0, 1], float32, and a NumPy
generator; they give the degraded clip, of the same shape, within [0, 1]. Same generator state, same result on
every machine. What stands in a scene stays as it is from frame to frame, what falls goes on falling, noise is
new in every frame.
"""

from vidrestore.degrade.added_noise import add_camera_noise, add_gaussian_noise, drawn_noise
from vidrestore.degrade.blur import drawn_blur, gaussian_blurred, mean_light, means_of_light, motion
from vidrestore.degrade.haze import add_haze, drawn_haze
from vidrestore.degrade.resize import imresize
from vidrestore.degrade.weather import add_rain, add_snow, drawn_rain, drawn_snow

DEGRADATIONS = {
    "haze": drawn_haze,
    "rain": drawn_rain,
    "snow": drawn_snow,
    "blur": drawn_blur,
    "noise": drawn_noise,
}

__all__ = [
    "DEGRADATIONS",
    "add_camera_noise",
    "add_gaussian_noise",
    "add_haze",
    "add_rain",
    "add_snow",
    "drawn_blur",
    "drawn_haze",
    "drawn_noise",
    "drawn_rain",
    "drawn_snow",
    "gaussian_blurred",
    "imresize",
    "mean_light",
    "means_of_light",
    "motion",
]
