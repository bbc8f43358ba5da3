"""Results against the expectations of files: every engine's print format is accepted, another value is not."""

from __future__ import annotations

import datetime
import hashlib
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from tests.sqllogictest.compare import Result, difference
from tests.sqllogictest.records import Place, Query
from tests.sqllogictest.values import has_value, printed

HERE = Place(Path("file.slt"), 1)


def query(types: str, expected: list[str], **more: Any) -> Query:
    return Query(HERE, "SELECT", types, expected=tuple(expected), **more)


def result(rows: list[tuple[Any, ...]], ties: list[int] | None = None) -> Result:
    return Result(tuple(rows), tuple(ties if ties is not None else [1] * len(rows)))


@pytest.mark.parametrize(
    ("value", "kind", "text"),
    [
        (None, "I", "NULL"),
        (3.9, "I", "3"),
        (True, "I", "1"),
        (2, "R", "2.000"),
        (Decimal("1.2345"), "R", "1.234"),
        ("", "T", "(empty)"),
        ("a\tb", "T", "a@b"),
        (1.5, "T", "1.5"),
        (datetime.date(2020, 1, 2), "T", "2020-01-02"),
    ],
)
def test_values_are_printed_as_sqlite_prints_them(value: Any, kind: str, text: str) -> None:
    """Hashes are made of these texts."""
    assert printed(value, kind) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (True, "t"),
        (False, "false"),
        (1.5, "1.500"),
        (0.1 + 0.2, "0.3"),
        (2 / 3, "0.667"),
        (float("inf"), "Infinity"),
        (float("nan"), "NaN"),
        (Decimal("1.50"), "1.5"),
        (None, "null"),
        ("a b", "a·b"),
        (datetime.datetime(2020, 1, 2, tzinfo=datetime.UTC), "2020-01-02 00:00:00+00"),
        (datetime.datetime(2020, 1, 2, 3, 4, 5, 500000), "2020-01-02T03:04:05.5"),
        ([1, None], "{1,NULL}"),
    ],
)
def test_other_ways_of_printing_are_the_same(value: Any, text: str) -> None:
    """PostgreSQL, DuckDB, CockroachDB and others print them so."""
    assert has_value(value, "T", text)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1, "2"),
        (1, "1.001"),
        (1.5, "1.501"),
        (1.46, "1.5"),
        (None, "(empty)"),
        ("", "NULL"),
        ("a", "b"),
        (True, "0"),
        (10**18, str(10**18 + 1)),
        (datetime.date(2020, 1, 2), "2020-01-03"),
    ],
)
def test_another_value_is_another_value(value: Any, text: str) -> None:
    """However near it is."""
    assert not has_value(value, "T", text)


def test_rows_may_be_lines_or_values_may_be() -> None:
    """The number of lines tells; text with spaces is found in its line."""
    rows: list[tuple[Any, ...]] = [(1, "a b"), (2, None)]
    assert difference(query("IT", ["1", "a b", "2", "NULL"]), result(rows)) is None
    assert difference(query("IT", ["1 a b", "2 NULL"]), result(rows)) is None
    assert difference(query("IT", ["1\ta b", "2\tNULL"]), result(rows)) is None
    assert difference(query("IT", ["1 a b", "2 x"]), result(rows)) is not None
    assert difference(query("IT", ["1", "a b"]), result(rows)) is not None


def test_order_counts_but_not_among_tied_rows() -> None:
    """Three rows, of which the query's order leaves the first two tied."""
    rows: list[tuple[Any, ...]] = [(1, 5), (2, 5), (3, 6)]
    swapped, wrong = query("II", ["2 5", "1 5", "3 6"]), query("II", ["1 5", "3 6", "2 5"])
    assert difference(swapped, result(rows, [2, 1])) is None
    assert difference(swapped, result(rows, [1, 1, 1])) is not None
    assert difference(wrong, result(rows, [2, 1])) is not None


def test_sorted_results_have_no_order() -> None:
    """Rows as wholes, or all values."""
    rows: list[tuple[Any, ...]] = [(2, 1), (10, 3)]
    assert difference(query("II", ["10", "3", "2", "1"], sort="rowsort"), result(rows)) is None
    assert difference(query("II", ["1", "10", "2", "3"], sort="valuesort"), result(rows)) is None
    assert difference(query("II", ["10", "1", "2", "3"], sort="rowsort"), result(rows)) is not None


def test_a_hash_is_of_the_sorted_values() -> None:
    """Rows sorted as text, one value a line."""
    made = hashlib.md5(b"10\n3\n2\n1\n").hexdigest()
    asked = query("II", [], sort="rowsort", hash=(4, made))
    assert difference(asked, result([(2, 1), (10, 3)])) is None
    assert difference(asked, result([(2, 1), (10, 4)])) is not None


def test_another_number_of_rows_is_wrong() -> None:
    """Also when the rows that are there are right, or all are gone."""
    assert difference(query("I", ["1", "1"]), result([(1,)])) is not None
    assert difference(query("I", []), result([(1,)])) is not None
    assert difference(query("I", ["1"]), result([])) is not None
    assert difference(query("I", []), result([])) is None
