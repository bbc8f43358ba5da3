"""Flink's changes as rows: what is left of those that it printed, with the types of the wanted rows."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from bench.harness.answers import WrongAnswer
from bench.nexmark.queries import QUERIES
from bench.peers.flink_streaming import NOT_EXPRESSED, OTHER_TEXTS, left_of, rows_of

AT = datetime(2023, 11, 14, 22, 13, 25, 946000, UTC)


@pytest.mark.parametrize(
    ("changes", "left"),
    [
        (['1> +I[["a",1]]', '2> +I[["b",2]]'], ['["a",1]', '["b",2]']),
        (['1> +I[["a",1]]', '1> -U[["a",1]]', '1> +U[["a",2]]'], ['["a",2]']),
        (['2> -U[["a",1]]', '1> +I[["a",1]]', '1> +I[["a",1]]'], ['["a",1]']),
        (['1> +I[["[a]",1]]', '1> -D[["[a]",1]]'], []),
        (['+I[["only one task",1]]'], ['["only one task",1]']),
    ],
    ids=["new rows", "an update", "tasks out of order", "a deletion", "one task"],
)
def test_rows_are_those_that_were_given_and_not_taken_back(changes: list[str], left: list[str]) -> None:
    assert left_of(changes) == left


def test_must_fail_where_more_is_taken_back_than_given() -> None:
    with pytest.raises(WrongAnswer, match="took back more rows"):
        left_of(['1> +I[["a",1]]', '1> -D[["a",1]]', '1> -D[["a",1]]'])


def test_values_have_the_types_of_the_wanted_rows() -> None:
    types = {
        "n": pa.int64(),
        "t": pa.timestamp("us", "UTC"),
        "x": pa.float64(),
        "d": pa.decimal128(10, 3),
        "s": pa.string(),
    }
    texts = ['[1,"2023-11-14T22:13:25.946Z",0.1,0.908,"a"]', "[2,null,null,null,null]"]
    rows = rows_of(texts, pa.schema(types)).to_pylist()
    assert rows == [
        {"n": 1, "t": AT, "x": 0.1, "d": Decimal("0.908"), "s": "a"},
        {"n": 2, "t": None, "x": None, "d": None, "s": None},
    ]
    assert rows_of([], pa.schema(types)).num_rows == 0


def test_other_texts_are_of_queries_that_flink_is_asked() -> None:
    assert OTHER_TEXTS.keys() <= QUERIES.keys() - NOT_EXPRESSED
