"""Spark's parser and analyser, and what they print: trees, types, errors."""
