"""Expressions as Spark SQL text that never fails, and as Catalyst projections."""
