"""Read and write video files; the only package that imports av.

`formats` is what files and streams can be, with `source`, the name of what is read, and `photo_notes` of
cameras; `containers` reads their structure byte by byte. `reading`: `probe` describes a file, `reader`
yields its frames. `writing`: `encoders` chooses an encoder of `formats.encoder_table`, `writer` and
`segment_file` encode, `muxer` writes and verifies the file, `finished` knows it again. `streams` decides by a
trial which audio, subtitle and other streams a container can hold; `stream_copier` copies them.
"""
