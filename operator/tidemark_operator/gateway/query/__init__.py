"""From a statement's text to its answer."""
