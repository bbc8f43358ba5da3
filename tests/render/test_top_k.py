"""Top-k, min and max as whole dataflows, by every kind of plan: small histories, step by step."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.harness import SINK, DataflowHarness, delta, harness
from tests.oracle.histories import Change, History, Table
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.lir import (
    AggregateExpr,
    Get,
    HierarchicalReduce,
    MapFilterProject,
    OrderKey,
    Plan,
    Reduce,
    TopK,
    TopKPlan,
    refs,
)
from tidemark_protocol.types import BIGINT, ColumnType

pytestmark = pytest.mark.spark

K = Table((("g", "string"), ("v", "bigint")), (["a", "b"], [1, 2, 3]))
GET = Get(GlobalId("k"), K.schema)
G, V = refs(K.schema)


def top(limit: int | None, offset: int, kind: str = "heads") -> Plan:
    rows = None if limit is None else Literal(str(limit), BIGINT)
    return TopK(GET, (0,), (OrderKey(1, descending=True),), rows, offset, TopKPlan(kind))


def extremes(**more: Any) -> Plan:
    made = tuple(AggregateExpr(f, 0, ColumnType(BIGINT)) for f in ("min", "max"))
    output = (K.schema[0], *(a.type for a in made))
    return Reduce(GET, (G,), (V,), HierarchicalReduce(made, **more), MapFilterProject.identity(output))


@dataclass(frozen=True)
class Shown:
    """Changes of the table, and what plans over it show at times 1, 2 and 3."""

    changes: tuple[Change, ...]
    at: tuple[list[tuple[Any, ...]], ...]


GROWS = (
    (("a", 1), 1, 1),
    (("a", 3), 1, 2),
    (("b", None), 1, 1),
    (("a", 2), 2, 1),
    (("a", 5), 3, 1),
    (("b", 4), 3, 1),
)
SHRINKS = (*GROWS[:3], (("a", 3), 2, -1), (("b", None), 2, -1), (("a", 3), 3, -1), (("a", 9), 3, 1))
TOP_2 = [[("a", 3), ("a", 3), ("b", None)], [("a", 3), ("a", 3), ("b", None)], [("a", 5), ("a", 3)]]
HISTORIES = {
    "the two greatest of each group": (
        Shown(GROWS, (TOP_2[0], TOP_2[1], [*TOP_2[2], ("b", 4), ("b", None)])),
        [top(2, 0), top(2, 0, "monotonic_top_k")],
    ),
    "the greatest of each group": (
        Shown(GROWS, ([("a", 3), ("b", None)], [("a", 3), ("b", None)], [("a", 5), ("b", None)])),
        [top(1, 0), top(1, 0, "monotonic_top1")],
    ),
    "all but the first": (
        Shown(SHRINKS, ([("a", 3), ("a", 1)], [("a", 1)], [("a", 1)])),
        [top(None, 1)],
    ),
    "the second": (
        Shown(SHRINKS, ([("a", 3)], [("a", 1)], [("a", 1)])),
        [top(1, 1)],
    ),
    "min and max": (
        Shown(GROWS, ([("a", 1, 3), ("b", None, None)], [("a", 1, 3), ("b", None, None)], [("a", 1, 5), ("b", 4, 4)])),
        [extremes(), extremes(monotonic=True)],
    ),
    "min and max of what goes": (
        Shown(SHRINKS, ([("a", 1, 3), ("b", None, None)], [("a", 1, 3)], [("a", 1, 9)])),
        [extremes()],
    ),
}


def shown(made: DataflowHarness, plan: Plan) -> list[Counter[Any]]:
    """The rows at times 1, 2 and 3, by a step for each."""
    dataflow = made.build(made.describe(plan))
    rows: Counter[Any] = Counter()
    found = []
    try:
        for time in (1, 2, 3):
            outcome = made.step(dataflow, time + 1)
            for (row, error, at), diff in delta(outcome, SINK).items():
                assert error is None
                assert at == time
                rows[row] += diff
            outcome.release()
            found.append(+rows)
    finally:
        dataflow.drop()
    return found


@pytest.mark.parametrize("name", HISTORIES)
def test_agree_all_kinds_of_plan_show_the_first_rows(spark: Any, tmp_path: Path, name: str) -> None:
    """Each row as often as it stands at one of the places; ordered from the greatest, NULL before all."""
    history, plans = HISTORIES[name]
    with harness(spark, tmp_path, {"k": K}, History({"k": history.changes}, as_of=1, last=3)) as made:
        for plan in plans:
            assert shown(made, plan) == [Counter(rows) for rows in history.at]
