"""A statement to its answer."""
