"""Nexmark's queries that a view can be: `queries/qNN.sql`, over the tables of a `loadGenerator: {nexmark: ...}`.

q12 counts bids by the time at which they are processed, which no relation has: a continual task can tell it.
"""

from __future__ import annotations

from pathlib import Path

QUERIES = {path.stem: path.read_text() for path in sorted((Path(__file__).parent / "queries").glob("q*.sql"))}
STATELESS = frozenset({"q00", "q01", "q02", "q10", "q14", "q21", "q22"})
"""They keep nothing of the rows that they have seen."""
DUCKDB_MACROS = """
    CREATE MACRO unix_seconds(t) AS CAST(floor(epoch(t)) AS bigint);
    CREATE MACRO timestamp_seconds(s) AS to_timestamp(s);
    CREATE MACRO explode(list) AS unnest(list);
    CREATE MACRO sequence(first, last, step) AS generate_series(first, last, step);
    CREATE MACRO date_format(t, f) AS
      CASE f WHEN 'yyyy-MM-dd' THEN strftime(t, '%Y-%m-%d') ELSE strftime(t, '%H:%M') END;
"""
"""Spark's functions that DuckDB calls otherwise, as far as the queries use them."""
