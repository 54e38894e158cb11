"""Reading and writing video files, the only package that imports av.

Reading: `probe` describes a file, `reader` yields its frames (`decoding`, `damage`, `deinterlace`, `y4m`,
`pictures`). Writing: `encoder_table` lists the encoders, of which `jobs.encoder_choice` takes one, `writer`
and `segment_file` encode, `muxer` writes and verifies the file. Which streams a container can hold, subtitles
among them, is decided in `streams`, by a trial before any work.
"""
