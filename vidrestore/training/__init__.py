"""Train networks: configurations, data made from clips and photos, and the loop."""
