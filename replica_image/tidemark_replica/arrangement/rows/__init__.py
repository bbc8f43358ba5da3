"""Rows as columns: hashes, equality, order, consolidation, and the layout of an arrangement's columns."""
