"""From frames to a file: the encoder that is chosen, copied streams, the tag of a finished output."""
