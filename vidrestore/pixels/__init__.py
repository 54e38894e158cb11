"""Pictures as numbers: frames and clips of them, colour, light, scenes, tiles, and metrics."""
