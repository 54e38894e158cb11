"""Training data: sources of batches, from footage, photos and the papers' datasets."""
