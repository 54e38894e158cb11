"""The baselines that DUST is compared with."""
