"""The networks, each in a file that reads beside its paper; torch only, no files and no video.

The file of a network also builds it from a configuration (`build`), and `weights.checkpoint.FAMILIES` lists
these builders: a new family begins there. `fast` has what networks for a processor share: products, strips of
maps, compiling. The systems that
DUST is compared with are in `vidrestore.papers`.
"""
