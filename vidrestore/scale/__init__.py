"""One film, many processes: on several devices of a machine, on machines that share a folder, on a Ray cluster.

All of them restore segments of the same job (`jobs.segmented`), so the film is the one that a single process makes.
"""
