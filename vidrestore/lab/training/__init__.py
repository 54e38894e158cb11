"""Train networks.

    config = read_config(Path("examples/train/dust-denoise.toml"), ["training.steps=100"])
    weights = train(config, Path("runs"), on_event=print)

The interface is `config` (`read_config`, `config_toml`), `loop` (`train`), `dry_run` and
`training_events`.
A family of networks of your own names an `objective.Objective` and a source of `data`.
"""
