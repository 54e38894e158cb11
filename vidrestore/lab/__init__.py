"""The lab: what trains, measures and compares networks, the systems of the papers, and compressed sensing.

Nothing outside imports it. What is public of it is named in `vidrestore`, its commands in `cli.app`, its
families in `settings.families`, and loaded when asked for;
without this folder, videos are restored as with it.
"""
