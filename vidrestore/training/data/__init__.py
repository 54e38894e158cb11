"""Batches to train on: where they come from and how they are drawn."""
