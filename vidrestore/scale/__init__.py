"""Restore one video in several processes: on several devices, on machines that share a folder, on a Ray
cluster.

All restore parts of the same job (`jobs.segmented`), so the output is the one that a single process makes.
"""
