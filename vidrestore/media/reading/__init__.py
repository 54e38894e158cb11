"""From a file to frames: probing, decoding, fields, pictures."""
