"""Aggregates: the grouping of a SELECT, each aggregate call, and what is computed from them."""
