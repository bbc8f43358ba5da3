"""The first rows of an answer in order: memory follows the answer, not the multiplicities."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from tests.arrangement.histories import updates
from tidemark_protocol.plan.lir import OrderKey
from tidemark_replica.peek import collection_reader
from tidemark_replica.peek.collection_reader import Finish, FinishTop

BY_VALUE = (OrderKey(0),)
MANY = 1 << 62


def values(finish: Finish | FinishTop, *batches: list[tuple[int | None, int]]) -> Any:
    """The rows that come out of (value, multiplicity), or the code of the error."""
    contents = [updates([pa.int64()], [((v,), 0, n) for v, n in batch]) for batch in batches]
    made: list[Any] = []
    for batch in finish(contents):
        made += [v if e is None else json.loads(e)["code"] for v, e in zip(*batch.to_pydict().values(), strict=True)]
    return made


@pytest.mark.parametrize("thins", [False, True])
def test_the_first_rows_are_found_whatever_comes_when(monkeypatch: pytest.MonkeyPatch, thins: bool) -> None:
    """In order; a row that is there several times takes several places; the last one is cut."""
    if thins:
        monkeypatch.setattr(collection_reader, "BATCH_ROWS", 0)
    batches = [[(5, 1), (9, 2)], [(1, 1), (7, 3)], [(3, 2)], [(None, 1)], [(8, 1), (2, 0)]]

    assert values(FinishTop(10_000, 5, BY_VALUE), *batches) == [None, 1, 3, 3, 5]
    assert values(FinishTop(10_000, 7, BY_VALUE), *batches) == [None, 1, 3, 3, 5, 7, 7]
    assert values(FinishTop(10_000, 0, BY_VALUE), *batches) == []
    assert values(FinishTop(10_000, 100, (OrderKey(0, descending=True, nulls_last=True),)), *batches) == [
        *(9, 9, 8, 7, 7, 7, 5, 3, 3, 1, None)
    ]


def test_a_huge_multiplicity_is_no_huge_memory() -> None:
    """Only what is shown is ever repeated."""
    batches = [[(5, MANY), (4, 1)], [(6, MANY), (7, MANY)]]

    assert values(FinishTop(10_000, 3, BY_VALUE), *batches) == [4, 5, 5]
    assert values(FinishTop(10_000, MANY, BY_VALUE), *batches) == ["RESULT_TOO_LARGE"]
    assert values(Finish(10_000, 3), *batches) == [5, 5, 5]
    assert values(Finish(10_000), *batches) == ["RESULT_TOO_LARGE"]


def test_wide_rows_that_have_no_place_are_not_too_large(monkeypatch: pytest.MonkeyPatch) -> None:
    """Columns that are thinned away do not count."""
    rows = [[(n, 1)] for n in range(1000)]

    assert values(FinishTop(1000, 2, BY_VALUE), *rows) == [0, 1]
    assert values(FinishTop(1000, 900, BY_VALUE), *rows) == ["RESULT_TOO_LARGE"]
