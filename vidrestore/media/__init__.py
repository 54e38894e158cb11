"""Read and write video files; the only package that imports av.

Reading: `probe` describes a file, `reader` yields its frames (`decoding`, `damage`, `structure`, `scan`,
`deinterlace`, `y4m`, `pictures`). Writing: `encoders` chooses an encoder of `encoder_table`, `writer` and
`segment_file` encode, `muxer` writes and verifies the file. `streams` decides by a trial which audio,
subtitle and other streams a container can hold; `stream_copier` copies them.
"""
