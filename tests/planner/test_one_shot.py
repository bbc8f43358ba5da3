"""One-shot queries: a SELECT as a dataflow and a finishing."""

from __future__ import annotations

import pytest

from tests.planner.catalogue import CATALOGUE
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.planning.one_shot import plan_query
from tidemark_protocol.messages.planning import Finishing, PlannedOneShot, PlanQueryRequest, Refused
from tidemark_protocol.plan.lir import OrderKey, TopK, inputs_of

pytestmark = pytest.mark.spark


def one_shot(catalyst: Catalyst, sql: str) -> PlannedOneShot:
    planned = plan_query(catalyst, PlanQueryRequest(sql, CATALOGUE, "q1/"))
    assert isinstance(planned, PlannedOneShot), planned
    return planned


def test_a_query_with_operators_is_a_dataflow_of_one_index(catalyst: Catalyst) -> None:
    """Groups of a table: a Reduce, whose rows are the index's; the names are the query's."""
    planned = one_shot(catalyst, "SELECT x, count(*), count(*) FROM s.t GROUP BY x")
    export = planned.planned.exports[0]

    assert "Reduce key=[c0] accumulable [count(*)]" in planned.planned.explain
    assert (export.name, export.kind, export.on) == ("result", "index", "q1/result")
    assert [c.name for c in export.columns] == ["c0", "c1", "c2"]
    assert [(c.name, str(c.type)) for c in planned.columns] == [
        ("x", "int"),
        ("count(1)", "bigint"),
        ("count(1)", "bigint"),
    ]
    assert planned.finishing == Finishing()


def test_order_limit_and_offset_at_the_top_are_the_finishing(catalyst: Catalyst) -> None:
    """Columns of the order alone are held and not shown."""
    planned = one_shot(catalyst, "SELECT k FROM s.t GROUP BY k, x ORDER BY x + 1 DESC, k LIMIT 5 OFFSET 2")

    order = (OrderKey(1, descending=True, nulls_last=True), OrderKey(0))
    assert planned.finishing == Finishing(order, 5, 2, shown=1)
    assert len(planned.planned.exports[0].columns) == 2
    assert [c.name for c in planned.columns] == ["k"]


def test_a_query_with_an_order_and_a_limit_keeps_its_first_rows(catalyst: Catalyst) -> None:
    """Offset and limit together, by the order of the answer; all rows without an order, or with a huge limit."""

    def kept(end: str) -> TopK | None:
        plan = one_shot(catalyst, f"SELECT x, count(*) FROM s.t GROUP BY x {end}").planned.objects[-1].plan
        return next((node for node in (plan, *inputs_of(plan)) if isinstance(node, TopK)), None)

    found = kept("ORDER BY 2 DESC LIMIT 5 OFFSET 2")
    assert found is not None
    assert found.limit is not None
    assert (found.limit.value, found.offset, found.group_key) == ("7", 0, ())
    assert found.order == (OrderKey(1, descending=True, nulls_last=True),)
    assert kept("LIMIT 5") is None
    assert kept("ORDER BY 2") is None
    assert kept("ORDER BY 2 LIMIT 100001") is None


def test_the_order_of_a_query_over_common_table_expressions(catalyst: Catalyst) -> None:
    """WITH around an organised query: one that is read twice is an object of its own."""
    planned = one_shot(
        catalyst,
        "WITH c AS (SELECT x, count(*) AS n FROM s.t GROUP BY x) SELECT a.n FROM c a, c b ORDER BY b.n LIMIT 1",
    )

    assert [o.id for o in planned.planned.objects] == ["q1/result/cte0", "q1/result"]
    assert planned.finishing == Finishing((OrderKey(1),), 1, 0, shown=1)


def test_a_query_without_from_reads_nothing(catalyst: Catalyst) -> None:
    """A SELECT without FROM is one constant row."""
    planned = one_shot(catalyst, "SELECT 1, 'x'")

    assert planned.planned.source_imports == ()
    assert [c.name for c in planned.columns] == ["1", "x"]


@pytest.mark.parametrize(
    ("sql", "code", "message"),
    [
        ("SELECT k FROM nope", "UNRESOLVED_RELATION", "does not exist"),
        ("SELECT k FROM s.t TABLESAMPLE (5 PERCENT)", "UNSUPPORTED", "TABLESAMPLE"),
        ("SELECT k FROM s.t SORT BY k", "UNSUPPORTED", "SORT BY"),
        ("DELETE FROM s.t", "UNSUPPORTED", "is not a query"),
    ],
)
def test_an_unplannable_text_is_refused(catalyst: Catalyst, sql: str, code: str, message: str) -> None:
    """Refusals name the construct, as in views."""
    refused = plan_query(catalyst, PlanQueryRequest(sql, CATALOGUE, "q1/"))

    assert isinstance(refused, Refused)
    assert refused.diagnostics[0].code == code
    assert message in refused.diagnostics[0].message
