"""Lookups over the PostgreSQL protocol; `__main__` measures, `clients` ask."""
