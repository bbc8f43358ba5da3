"""Proven expressions are remembered, and no others."""

from __future__ import annotations

from typing import Any

import pytest

from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.catalyst.lru import LruSet
from tidemark_planner.errors import Refusal
from tidemark_planner.expressions.round_trip import check_round_trip
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal
from tidemark_protocol.plan.lir import Get, MapFilterProject, Mfp
from tidemark_protocol.types import BIGINT, INT, STRING, ColumnType, SqlType


def plan(expr: Any, *row: SqlType) -> Mfp:
    schema = tuple(map(ColumnType, row))
    return Mfp(Get(GlobalId("row"), schema), MapFilterProject(schema, (expr,)))


@pytest.fixture
def analysed(catalyst: Catalyst, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that Spark analysed."""
    texts: list[str] = []
    analyse = catalyst.analyse
    monkeypatch.setattr(catalyst, "analyse", lambda sql: (texts.append(sql), analyse(sql))[1])
    monkeypatch.setattr(catalyst, "proven_expressions", LruSet(100))
    return texts


def test_an_expression_is_proved_once_wherever_its_columns_stand(catalyst: Catalyst, analysed: list[str]) -> None:
    """The same sum over other columns of a wider row is proven already; a sum of other types is not."""
    first = plan(Call("+", (ColumnRef(0, INT), ColumnRef(1, INT)), INT), INT, INT)
    moved = plan(Call("+", (ColumnRef(2, INT), ColumnRef(0, INT)), INT), INT, STRING, INT)
    wider = plan(Call("+", (ColumnRef(0, BIGINT), ColumnRef(1, BIGINT)), BIGINT), BIGINT, BIGINT)
    counts = []
    for one in (first, moved, wider):
        check_round_trip(catalyst, [one])
        catalyst.drop_relations()
        counts.append(len(analysed))

    assert counts == [1, 1, 2]


def test_a_refused_expression_is_refused_again(catalyst: Catalyst, analysed: list[str]) -> None:
    """A plan that is refused proves none of its expressions."""
    wrong = plan(Call("+", (ColumnRef(0, INT), Literal("1", INT)), BIGINT), INT)
    for _ in range(2):
        with pytest.raises(Refusal):
            check_round_trip(catalyst, [wrong])
        catalyst.drop_relations()

    assert len(analysed) == 2


def test_the_oldest_is_forgotten_first() -> None:
    """The least recently used value is forgotten first."""
    seen = LruSet(2)
    seen.add(["a", "b"])
    assert seen.has("a")
    seen.add(["c"])

    assert [seen.has(x) for x in "abc"] == [True, False, True]
