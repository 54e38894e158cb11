"""Pictures that are computed: a landscape with a train, and a table with a page and a ball. Used by
make_clip.py.

Pictures and layers are float32 arrays (height, width, 4): red, green, blue in [0, 1], already multiplied by
the opacity that comes last. Everything is drawn at twice the size and halved at the end, so that edges are
smooth.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import cos, floor, pi, sin
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]  # float32
Colour = tuple[float, float, float]
FINE = 2  # drawn pixels per pixel
# Seven rows of five dots for each letter, as hexadecimal digits.
LETTERS = {
    "A": "0E11111F111111", "B": "1E11111E11111E", "C": "0E11101010110E", "D": "1E11111111111E",
    "E": "1F10101E10101F", "F": "1F10101E101010", "G": "0E11101711110E", "H": "1111111F111111",
    "I": "0E04040404040E", "J": "0702020202120C", "K": "11121418141211", "L": "1010101010101F",
    "M": "111B1515111111", "N": "11191513111111", "O": "0E11111111110E", "P": "1E11111E101010",
    "Q": "0E11111115120D", "R": "1E11111E141211", "S": "0F10100E01011E", "T": "1F040404040404",
    "U": "1111111111110E", "V": "11111111110A04", "W": "11111115151B11", "X": "11110A040A1111",
    "Y": "11110A04040404", "Z": "1F01020408101F", " ": "00000000000000",
}  # fmt: skip
PAGE = (
    "LESS NOISE",
    "THE SAME FILM",
    "EVERY FRAME KEEPS ITS TIME AND SIZE",
    "PATCHES FOLLOW THE MOTION OF A CLIP",
    "A CUT BEGINS A NEW SCENE",
    "SOUND AND TITLES ARE COPIED",
    "THE QUICK BROWN FOX JUMPS OVER",
    "THE LAZY DOG WITH VEX AND ZEAL",
)


def landscape(width: int, height: int, frames: int) -> Iterator[Array]:
    """Yield R'G'B' pictures (height, width, 3): a pan over mountains while a train crosses and a balloon
    rises.
    """
    random = np.random.default_rng(1)
    wide, high = width * FINE, height * FINE
    far, near, bridge = (
        mountains(wide * 2, high, random),
        meadow(wide * 2, high, random),
        viaduct(wide * 2, high, random),
    )
    heavens, train, flyer = sky(wide * 2, high, random), railway(random), balloon()
    for number in range(frames):
        pan = 4.6 * number  # drawn pixels
        picture = heavens[:, floor(pan / 8) :][:, :wide].copy()
        paste(picture, far, -pan * 0.3, 0)
        paste(picture, flyer, wide * 0.62 - pan * 0.4, high * 0.26 - 2.3 * number)
        paste(picture, near, -pan * 0.65, 0)
        paste(picture, train, -190 + 9.3 * number - pan, high * 0.615)
        paste(picture, bridge, -pan, 0)
        yield halved(picture)


def table(width: int, height: int, frames: int) -> Iterator[Array]:
    """Yield R'G'B' pictures (height, width, 3): a camera turns and zooms over a page on wood and cloth, where
    a ball rolls.
    """
    random = np.random.default_rng(2)
    wide, high = width * FINE, height * FINE
    surface = wood(wide * 2, high * 2, random)
    paste(surface, cloth(wide, high * 2, random), wide * 1.28, 0)
    paste(surface, page(random), wide * 0.6, high * 0.56)
    for number in range(frames):
        picture = seen(surface, wide, high, angle=-0.12 + 0.009 * number, zoom=0.92 + 0.012 * number)
        x, y = wide * 0.92 - 11.3 * number, high * 0.70 - 1.2 * number
        paste(picture, shadow(62), x - 40, y - 22)
        paste(picture, ball(54, -11.3 * number / 54), x - 54, y - 54)
        yield halved(picture)


# Tools


def halved(picture: Array) -> Array:
    """Colours at half the size, each the mean of four."""
    height, width, _ = picture.shape
    return (
        picture[..., :3].reshape(height // FINE, FINE, width // FINE, FINE, 3).mean((1, 3), dtype=np.float32)
    )


def paste(picture: Array, layer: Array, x: float, y: float) -> None:
    """Draw `layer` over `picture` with its top left corner at (x, y), between pixels too; what sticks out is
    cut off.
    """
    left, top = floor(x), floor(y)
    first_row, first_column = max(0, top), max(0, left)
    stop_row, stop_column = (
        min(picture.shape[0], top + layer.shape[0] + 1),
        min(picture.shape[1], left + layer.shape[1] + 1),
    )
    if first_row >= stop_row or first_column >= stop_column:
        return
    rows, columns = np.arange(first_row, stop_row) - top, np.arange(first_column, stop_column) - left
    drawn = between(between(layer, rows, y - top, 0), columns, x - left, 1)
    under = picture[first_row:stop_row, first_column:stop_column]
    under *= 1 - drawn[..., 3:]
    under += drawn


def between(layer: Array, places: NDArray[np.int64], fraction: float, axis: int) -> Array:
    """Rows or columns of a layer that was moved on by a fraction of a pixel; nothing lies outside."""
    padding = [(1, 1) if axis == each else (0, 0) for each in range(3)]
    padded = np.pad(layer, padding)
    here, before = padded.take(places + 1, axis), padded.take(places, axis)
    return here * np.float32(1 - fraction) + before * np.float32(fraction)


def seen(surface: Array, width: int, height: int, angle: float, zoom: float) -> Array:
    """A picture of the middle of `surface`, turned by `angle` (radians) and enlarged by `zoom`."""
    rows, columns = np.mgrid[0:height, 0:width].astype(np.float32)
    rows, columns = (rows - height / 2) / zoom, (columns - width / 2) / zoom
    down = surface.shape[0] / 2 + cos(angle) * rows + sin(angle) * columns
    right = surface.shape[1] / 2 + cos(angle) * columns - sin(angle) * rows
    top, left = down.astype(int), right.astype(int)
    below, beside = (down - top)[..., None].astype(np.float32), (right - left)[..., None].astype(np.float32)
    upper = surface[top, left] * (1 - beside) + surface[top, left + 1] * beside
    lower = surface[top + 1, left] * (1 - beside) + surface[top + 1, left + 1] * beside
    return upper * (1 - below) + lower * below


def fractal(
    height: int, width: int, cell: tuple[float, float], random: np.random.Generator, octaves: int = 5
) -> Array:
    """A cloudy field (height, width) in about [0, 1]: smooth random values on ever finer grids, the first of
    cells (rows, columns).
    """
    total = np.zeros((height, width), np.float32)
    for octave in range(octaves):
        down, right = (
            np.arange(length) * 2**octave / size for length, size in zip((height, width), cell, strict=True)
        )
        values = random.random((floor(down[-1]) + 2, floor(right[-1]) + 2)).astype(np.float32)
        total += smooth(smooth(values, down).T, right).T * np.float32(0.5 ** (octave + 1))
    return total / np.float32(1 - 0.5**octaves)


def smooth(values: Array, places: NDArray[np.float64]) -> Array:
    """Rows of `values` at fractional places, eased from one row to the next."""
    lower = places.astype(int)
    part = ((places - lower) ** 2 * (3 - 2 * (places - lower))).astype(np.float32)[:, None]
    return values[lower] * (1 - part) + values[lower + 1] * part


def painted(colour: Colour, light: Array | float, opacity: Array) -> Array:
    """A layer in one colour, lit by `light` (height, width) and covered by `opacity`."""
    cover = np.asarray(opacity, np.float32)
    shades = np.clip(
        np.array(colour, np.float32) * np.broadcast_to(np.float32(light), cover.shape)[..., None], 0, 1
    )
    return np.concatenate([shades * cover[..., None], cover[..., None]], axis=2)


def solid(height: int, width: int) -> Array:
    """The opacity of a rectangle."""
    return np.ones((height, width), np.float32)


def relief(field: Array, strength: float) -> Array:
    """How light falls from the upper left on a surface of these heights: 1 where it is level."""
    down, right = np.gradient(field)
    return (1 + strength * (right + 0.6 * down)).astype(np.float32)


def written(line: str, scale: int) -> NDArray[np.bool_]:
    """A line of text as dots, (7 * scale, 6 * scale * letters)."""
    rows = [[int(LETTERS[letter][2 * row : 2 * row + 2], 16) for letter in line] for row in range(7)]
    dots = [[value >> (4 - bit) & 1 if bit < 5 else 0 for value in row for bit in range(6)] for row in rows]
    return np.kron(np.array(dots, bool), np.ones((scale, scale), bool))


def write_on(layer: Array, line: str, scale: int, x: int, y: int, colour: Colour) -> None:
    dots = written(line, scale)
    paste(layer, painted(colour, 1.0, dots), x, y)


def disc(size: int) -> tuple[Array, Array, NDArray[np.bool_]]:
    """Coordinates from -1 to 1 over a square, and what lies in the circle."""
    down, right = np.mgrid[0:size, 0:size].astype(np.float32) * 2 / (size - 1) - 1
    return down, right, down**2 + right**2 <= 1


# What is in the landscape


def sky(width: int, height: int, random: np.random.Generator) -> Array:
    height_above = np.linspace(0, 1, height, dtype=np.float32)[:, None]
    clouds = np.clip(fractal(height, width, (70, 190), random) * 3.2 - 1.35, 0, 1)
    blue = np.stack(
        [0.30 + 0.55 * height_above, 0.50 + 0.38 * height_above, 0.80 + 0.12 * height_above], axis=2
    )
    cover = (clouds * (1 - 0.5 * height_above))[..., None]
    colours = blue * (1 - cover) + np.array((0.97, 0.96, 0.94), np.float32) * cover
    return np.concatenate([colours, np.ones((height, width, 1), np.float32)], axis=2)


def mountains(width: int, height: int, random: np.random.Generator) -> Array:
    ridge = height * (0.62 - 0.5 * fractal(1, width, (1, 150), random, 6)[0])
    rows = np.arange(height, dtype=np.float32)[:, None]
    rock = fractal(height, width, (60, 50), random, 6)
    light = np.clip(0.75 * relief(rock, 22), 0.25, 1.35)
    snow = np.clip((height * 0.42 - rows) / 22 + (rock - 0.5) * 9, 0, 1) * (rows > ridge)
    layer = painted((0.47, 0.45, 0.50), light, rows > ridge)
    paste(layer, painted((0.93, 0.95, 1.0), np.clip(0.85 * relief(rock, 12), 0.4, 1.1), snow), 0, 0)
    return layer


def meadow(width: int, height: int, random: np.random.Generator) -> Array:
    hill = height * (0.74 - 0.2 * fractal(1, width, (1, 260), random, 3)[0])
    rows = np.arange(height, dtype=np.float32)[:, None]
    grass = (
        fractal(height, width, (40, 90), random, 3) * 0.6 + fractal(height, width, (5, 2.5), random, 2) * 0.5
    )
    layer = painted((0.36, 0.55, 0.20), 0.55 + grass * 0.8, rows > hill)
    for _ in range(230):
        x = int(random.integers(0, width - 30))
        size = int(random.integers(14, 34))
        paste(layer, tree(size, random), x, hill[x] + random.random() * height * 0.2 - size * 0.8)
    return layer


def tree(size: int, random: np.random.Generator) -> Array:
    down, right, inside = disc(size)
    leaves = fractal(size, size, (3, 3), random, 2)
    return painted(
        (0.16, 0.36, 0.13), 0.45 + 1.1 * leaves - 0.45 * (right + down) * 0.6, inside & (leaves > 0.2)
    )


def viaduct(width: int, height: int, random: np.random.Generator) -> Array:
    """A wall of bricks with arches, and the rails on it."""
    rows, columns = np.mgrid[0:height, 0:width].astype(np.float32)
    deck = height * 0.755
    across = (columns % 104) - 52
    arch = (across**2 / 40**2 + np.clip(deck + 58 - rows, 0, None) ** 2 / 44**2 < 1) & (np.abs(across) < 40)
    course = (rows // 6).astype(int)
    brick = ((columns + course % 2 * 7) // 14).astype(int)
    tones = random.random((course.max() + 1, brick.max() + 1)).astype(np.float32)[course, brick]
    mortar = (rows % 6 < 1) | ((columns + course % 2 * 7) % 14 < 1.5)
    light = np.where(mortar, 1.25, 0.72 + 0.4 * tones) * (
        0.9 + 0.2 * fractal(height, width, (30, 60), random)
    )
    layer = painted((0.62, 0.36, 0.27), light, (rows > deck) & ~arch)
    paste(
        layer,
        painted((0.80, 0.77, 0.70), 0.8 + 0.3 * fractal(9, width, (4, 5), random, 2), solid(9, width)),
        0,
        deck - 4,
    )
    for x in range(0, width, 26):  # a railing
        paste(layer, painted((0.2, 0.2, 0.24), 1.0, solid(16, 3)), x, deck - 20)
    paste(layer, painted((0.2, 0.2, 0.24), 1.0, solid(2, width)), 0, deck - 20)
    return layer


def railway(random: np.random.Generator) -> Array:
    """An engine and its carriages, with a name and windows."""
    layer = np.zeros((60, 560, 4), np.float32)
    for number, colour in enumerate(
        ((0.75, 0.13, 0.12), (0.10, 0.33, 0.60), (0.93, 0.75, 0.20), (0.10, 0.45, 0.33))[::-1]
    ):
        x = 4 + number * 138
        shade = np.linspace(1.25, 0.65, 46, dtype=np.float32)[:, None] * solid(46, 130)
        paste(layer, painted(colour, shade, solid(46, 130)), x, 4)
        for window in range(6):
            glass = 0.5 + 0.9 * fractal(13, 15, (9, 9), random, 2)
            paste(layer, painted((0.55, 0.70, 0.80), glass, solid(13, 15)), x + 6 + window * 21, 9)
        write_on(layer, "VIDRESTORE", 2, x + 5, 28, (0.98, 0.97, 0.92))
        for wheel in (12, 34, 84, 106):
            _, _, inside = disc(15)
            paste(layer, painted((0.13, 0.13, 0.15), 1.0, inside), x + wheel, 44)
    return layer


def balloon() -> Array:
    down, right, inside = disc(74)
    gores = np.sin(8 * np.arcsin(np.clip(right / np.sqrt(np.maximum(1 - down**2, 1e-3)), -1, 1))) > 0
    light = 0.95 - 0.35 * right - 0.25 * down
    layer = np.zeros((108, 74, 4), np.float32)
    paste(layer, painted((0.90, 0.24, 0.18), light, inside & gores), 0, 0)
    paste(layer, painted((0.98, 0.86, 0.40), light, inside & ~gores), 0, 0)
    paste(layer, painted((0.45, 0.30, 0.16), 1.0, solid(16, 20)), 27, 90)
    for x in (28, 45):
        paste(layer, painted((0.2, 0.16, 0.1), 1.0, solid(22, 2)), x, 70)
    return layer


# What is on the table


def wood(width: int, height: int, random: np.random.Generator) -> Array:
    rows = np.arange(height, dtype=np.float32)[:, None]
    plank = (rows // 120).astype(int)
    bend = fractal(height, width, (90, 420), random, 3)
    rings = np.sin(2 * pi * (rows / 26 + 7 * bend + plank * 0.37))
    pores = fractal(height, width, (1.6, 36), random, 2)
    light = 0.72 + 0.13 * rings + 0.55 * (pores - 0.5) + 0.08 * (plank % 3)
    return painted((0.70, 0.46, 0.26), np.where(rows % 120 < 2, 0.3, light), solid(height, width))


def cloth(width: int, height: int, random: np.random.Generator) -> Array:
    """A woven cloth with coloured squares and folds."""
    rows, columns = np.mgrid[0:height, 0:width].astype(np.float32)
    weave = 0.8 + 0.25 * np.sin(pi * rows / 3) * np.sin(pi * columns / 3)
    folds = relief(fractal(height, width, (150, 110), random, 3), 30)
    down, across = rows % 72 < 36, columns % 72 < 36
    layer = painted((0.93, 0.90, 0.84), weave * folds, ~(down | across))
    paste(layer, painted((0.62, 0.30, 0.36), weave * folds, down ^ across), 0, 0)
    paste(layer, painted((0.40, 0.09, 0.17), weave * folds, down & across), 0, 0)
    return layer


def page(random: np.random.Generator) -> Array:
    paper = 0.96 + 0.08 * (fractal(330, 470, (3, 3), random, 2) - 0.5)
    layer = painted((0.97, 0.96, 0.91), paper, solid(330, 470))
    y = 22
    for number, line in enumerate(PAGE):
        scale = (6, 4)[number] if number < 2 else 2
        write_on(
            layer,
            line,
            scale,
            24,
            y,
            ((0.55, 0.08, 0.10), (0.12, 0.22, 0.45))[number] if number < 2 else (0.1, 0.1, 0.12),
        )
        y += 7 * scale + (18 if scale > 2 else 14)
    return layer


def ball(radius: int, turn: float) -> Array:
    """A striped and chequered ball, turned by `turn` radians about an axis towards the upper left."""
    down, right, inside = disc(2 * radius)
    near = np.sqrt(np.clip(1 - down**2 - right**2, 0, 1))
    light = (
        np.clip(0.35 + 0.75 * (0.6 * near - 0.5 * down - 0.4 * right), 0.15, 1.25)
        + np.clip(near * 0.6 - down * 0.5 - right * 0.45, 0, 1) ** 24
    )
    along, high = right * cos(0.35) - down * sin(0.35), right * sin(0.35) + down * cos(0.35)
    angle = np.arctan2(along, near) - turn
    chequers = (np.sin(5 * angle) * np.sin(4 * np.arcsin(np.clip(high, -1, 1)) + 0.6)) > 0
    layer = painted((0.95, 0.94, 0.88), light, inside & ~chequers)
    paste(layer, painted((0.08, 0.38, 0.55), light, inside & chequers), 0, 0)
    return layer


def shadow(radius: int) -> Array:
    down, right, _ = disc(2 * radius)
    return painted((0.05, 0.03, 0.02), 1.0, np.clip(1 - down**2 - right**2, 0, 1) * 0.7)
