"""Reproduction of the three papers: baselines, layouts of datasets, tables, and protocols of suites.

`vidrestore.evaluation` loads `suites`, `vidrestore.training` loads `dataset_files` and `training_sets`, and
`vidrestore.weights` builds the baselines, each when it is needed; nothing else in the package imports from
here.
"""
