"""The way from a statement's text to its answer."""
