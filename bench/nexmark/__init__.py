"""Nexmark: its queries as views (`queries/`), which tests/nexmark compares with DuckDB."""
