"""Reproduction of the three papers: baselines, layouts of datasets, tables, and protocols of suites.

`lab.evaluation` loads `suites`, `lab.training` loads `datasets`, `training_groups` and `training_sets`, and
`settings.families` names the baselines, each when it is needed; nothing else in the package imports from
here.
"""
