"""Train networks.

    config = read_config(Path("examples/train/dust-denoise.toml"), ["training.steps=100"])
    weights = train(config, Path("runs"), on_event=print)

The interface is `loop` (`train`) and `dry_run`, and beside this room `lab.run_config` (`read_config`,
`config_toml`) and `lab.training_events`.
A family of networks of your own names an `objective.Objective` and a source of `data`.
"""
