"""The relations that may be read with --skip-errors: rows that stay right without those in error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.gateway.registries import ROW, add_dataflow, registry
from tests.protocol.samples import A
from tidemark_operator.catalogue.relations import owners
from tidemark_operator.errors import QueryRefused
from tidemark_operator.gateway.query.row_wise import check_row_wise
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Finishing, Planned, PlannedOneShot, PlannedPeek
from tidemark_protocol.plan.lir import (
    Join,
    JoinStage,
    LinearJoin,
    MapFilterProject,
    Mfp,
    Negate,
    OrderKey,
    Plan,
    Reduce,
    Threshold,
    TopK,
    TopKPlan,
    Union,
    Window,
    refs,
)
from tidemark_protocol.plan.reductions import DistinctReduce

WHOLE = MapFilterProject(ROW)


def distinct(plan: Plan) -> Plan:
    return Reduce(plan, refs(ROW), (), DistinctReduce(), WHOLE)


def joined(plan: Plan) -> Plan:
    stage = JoinStage(1, refs(ROW), refs(ROW), (0,), (), WHOLE)
    return Join((plan, plan), LinearJoin(0, (stage,)))


def peek(relation: str, finishing: Finishing = Finishing()) -> PlannedPeek:  # noqa: B008
    return PlannedPeek(GlobalId(relation), WHOLE, finishing, (A,))


@pytest.mark.parametrize(
    ("through", "word"),
    [
        (lambda plan: plan, ""),
        (lambda plan: Mfp(plan, WHOLE), ""),
        (lambda plan: Union((plan, Mfp(plan, WHOLE))), ""),
        (distinct, "an aggregate or DISTINCT"),
        (lambda plan: Mfp(distinct(plan), WHOLE), "an aggregate or DISTINCT"),
        (joined, "a join"),
        (lambda plan: Union((plan, Negate(plan)), True), "EXCEPT, an outer join or NOT IN"),
        (lambda plan: Threshold(plan), "EXCEPT or INTERSECT"),
        (lambda plan: TopK(plan, (), (OrderKey(0),), None, 1, TopKPlan()), "a LIMIT"),
        (lambda plan: Window(plan, (), (OrderKey(0),), ()), "a window function"),
    ],
)
@pytest.mark.parametrize("deep", [0, 1, 2])
@pytest.mark.parametrize("kind", ["index", "view"])
def test_a_view_is_read_without_its_errors_if_its_rows_are_computed_one_by_one(
    through: Callable[[Plan], Plan], word: str, deep: int, kind: str
) -> None:
    """Also through other Dataflows: an aggregate below is missing what the errors should have given it."""
    known = registry()
    name = "view-0" if kind == "view" else "d-0"
    relation = add_dataflow(known, name, shards=("s.a",), through=through)
    for number in range(1, deep + 1):
        before, name = name, name.replace(str(number - 1), str(number))
        reads = {"shards": (relation,)} if kind == "view" else {"indexes": (relation,)}
        relation = add_dataflow(known, name, reads=(before,), **reads)  # type: ignore[arg-type]
    found = owners(known.sources("ns"), known.dataflows("ns"))

    if not word:
        check_row_wise(known, "ns", peek(relation), found)
        return
    with pytest.raises(QueryRefused, match=f"has {word}: its rows may lack"):
        check_row_wise(known, "ns", peek(relation), found)


def test_queries_that_cannot_be_followed_are_refused() -> None:
    """The one that it reads was replaced by another, which has not the export any more."""
    known = registry()
    old = add_dataflow(known, "d", shards=("s.a",))
    reader = add_dataflow(known, "view-r", indexes=(old,), reads=("d",))
    known.forget(Key(DATAFLOWS, "ns", "d"))

    with pytest.raises(QueryRefused, match="was replaced meanwhile"):
        check_row_wise(known, "ns", peek(reader), owners(known.sources("ns"), known.dataflows("ns")))


def test_a_table_is_read_and_a_statement_with_operators_is_not() -> None:
    """Nor the first rows of an order: nobody knows whether an error was among them."""
    known = registry()
    found = owners(known.sources("ns"), known.dataflows("ns"))
    order = (OrderKey(0),)
    check_row_wise(known, "ns", peek("s.a"), found)
    for fine in (Finishing(order), Finishing(limit=3), Finishing(limit=3, offset=1)):
        check_row_wise(known, "ns", peek("s.a", fine), found)
    for first in (Finishing(order, limit=3), Finishing(order, offset=2)):
        with pytest.raises(QueryRefused, match="cannot tell which rows are the first ones"):
            check_row_wise(known, "ns", peek("s.a", first), found)
    with pytest.raises(QueryRefused, match="computes rows from several others"):
        check_row_wise(known, "ns", PlannedOneShot(Planned((), (), (), (), ""), Finishing(), ()), found)
