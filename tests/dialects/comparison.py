"""Compares Spark's answers with those of the engine whose dialect a query is in. The engine's values are texts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

from tests.dialects.statements import COLUMNS
from tests.oracle.reference import SETTINGS

TextRow = Sequence[str | None]


def session_of(spark: Any) -> Any:
    """A session with the settings of Tidemark."""
    session = spark.newSession()
    for key, setting in SETTINGS.items():
        session.conf.set(key, setting)
    return session


def typed(session: Any, rows: Iterable[TextRow]) -> Any:
    """A DataFrame of the engine's rows of table `t`, cast to the types of COLUMNS."""
    casts = ", ".join(f"CAST(_{n} AS {of}) AS {name}" for n, (name, of) in enumerate(COLUMNS.items()))
    texts = session.createDataFrame(list(rows), ", ".join(f"_{n} string" for n in range(len(COLUMNS))))
    texts.createOrReplaceTempView("texts")
    return session.sql(f"SELECT {casts} FROM texts")


def assert_same_rows(sql: str, theirs: Iterable[TextRow], ours: Iterable[Sequence[Any]]) -> None:
    """In the same order where the query has one."""
    left = [tuple(map(value, row)) for row in theirs]
    right = [tuple(value(spoken(v)) for v in row) for row in ours]
    if "ORDER BY" not in sql.rpartition(")")[2]:
        left, right = sorted(left, key=repr), sorted(right, key=repr)
    assert len(right) == len(left), sql
    for their, our in zip(left, right, strict=True):
        assert all(is_equal(a, b) for a, b in zip(our, their, strict=True)), (sql, right, left)


def spoken(found: Any) -> str | None:
    """A value of Spark as text."""
    return {True: "t", False: "f"}[found] if isinstance(found, bool) else None if found is None else str(found)


def value(text: str | None) -> Any:
    """A number if it is one: 3.50 and 3.5 are equal."""
    if text is None:
        return None
    try:
        return Decimal(text) + 0
    except InvalidOperation:
        return text


def is_equal(left: Any, right: Any) -> bool:
    if isinstance(left, Decimal) and isinstance(right, Decimal):
        # an average of integers is numeric there, and double precision here
        return left == right or math.isclose(left, right, rel_tol=1e-14)
    return bool(left == right)
