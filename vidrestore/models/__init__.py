"""The networks, each in a file that reads beside its paper; torch only, no files and no video.

`dust_family`, `mb_taylorformer_family` and `vsr_transformer_family` build a family's networks from their
configurations, and `weights.checkpoint.FAMILIES` lists these builders: a new family begins there. `fast` has
faster forms with the same results; the systems that DUST is compared with are in `vidrestore.papers`.
"""
