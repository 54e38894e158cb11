"""Notes of photographs (EXIF, ICC, density, thumbnails) and HEIC."""
