"""Batches: the immutable files of an arrangement, opened, cached, searched and deleted."""
