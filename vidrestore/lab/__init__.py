"""The lab: what trains, measures and compares networks, the systems of the papers, and compressed sensing.

Nothing outside imports it. Its commands and families are named in `cli.app` and `settings.families`, and
loaded when they are asked for; without this folder, videos are restored as with it.
"""
