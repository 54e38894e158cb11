"""Compressed sensing of videos.

    vidrestore.sense("in.mp4", "in.safetensors", rate=0.2)      # a fifth as many numbers as pixels
    vidrestore.recover("in.safetensors", "recovered.mp4")

The interface is `sense.sense` and `recover.recover`, with the options in `sensing_options`;
`measurements_file` describes and reads the file.
"""
