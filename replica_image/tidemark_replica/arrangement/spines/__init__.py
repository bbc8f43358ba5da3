"""Spines: which batches an arrangement consists of, how they are merged, and how they are read."""
