"""Spark's answers to TPC-H at the last frontier of `make test`, kept as digests (see tests/oracle/kept_answers.py).

    kept_answers.json   {"q01": {"question": "9c1f...", "rows": "04ab..."}, ...}

`question` is a digest of Spark's version, the SQL and the contents of all tables, by DuckDB's hash of rows. A view that
shows the kept rows needs no batch; where anything differs, also that hash in another version of DuckDB, Spark is asked.
`make oracle-answers` writes the file anew.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import pyspark

from tests.oracle.kept_answers import digest, digest_of_rows
from tests.tpch.maintained import QUERIES
from tests.tpch.stream import Stream
from tidemark_replica.storage.tpch.tables import TABLES

FILE = Path(__file__).with_suffix(".json")


class KeptAnswers:
    """The file's answers, for the tables of a stream at a time."""

    def __init__(self, stream: Stream, time: int) -> None:
        self._contents = contents_digests(stream, time)

    def has(self, name: str, rows: Mapping[Any, int]) -> bool:
        """Whether these are the kept rows of the query over these tables."""
        return _stored_answers().get(name) == self._answer(name, rows)

    def write(self, answer: Callable[[str], Mapping[Any, int]]) -> None:
        """Replace the file. `answer`: the rows of a query, by its name."""
        lines = [f"{json.dumps(name)}: {json.dumps(self._answer(name, answer(name)))}" for name in QUERIES]
        FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")

    def _answer(self, name: str, rows: Mapping[Any, int]) -> dict[str, str]:
        question = digest(pyspark.__version__, QUERIES[name], self._contents)
        return {"question": question, "rows": digest_of_rows(rows)}


def contents_digests(stream: Stream, time: int) -> list[tuple[str, int]]:
    """For each table a number that depends on its rows, and not on their order."""
    sums = []
    with duckdb.connect() as connection:
        for name in TABLES:
            connection.register("t", stream.contents(name, time))
            (found,) = connection.sql("SELECT sum(hash(t)) FROM t").fetchall()
            sums.append((name, int(found[0])))
    return sums


@cache
def _stored_answers() -> dict[str, dict[str, str]]:
    kept: dict[str, dict[str, str]] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return kept
