"""What files, streams and pixels can be: formats, encoders, sources, damage, side data, notes of cameras."""
