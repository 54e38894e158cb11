"""The networks, each in a file that reads beside its paper; torch only, no video.

Each file also builds its network from a configuration (`build`). `settings.families` lists the families;
add a new one there. `fast` has faster forms of matrix products and of operations on maps. The baselines of
the papers are in `vidrestore.lab.papers`.
"""
