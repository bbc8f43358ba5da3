"""Peeks: the relation, the MapFilterProject, the literals and the finishing."""

from __future__ import annotations

import pytest

from tests.planner.catalogue import CATALOGUE
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.planning.one_shot import plan_query
from tidemark_protocol.functions.sql_text import to_sql
from tidemark_protocol.messages.planning import Finishing, PlannedOneShot, PlannedPeek, PlanQueryRequest, Refused
from tidemark_protocol.plan.lir import OrderKey

pytestmark = pytest.mark.spark


def peek(catalyst: Catalyst, sql: str) -> PlannedPeek:
    planned = plan_query(catalyst, PlanQueryRequest(sql, CATALOGUE, "q1/"))
    assert isinstance(planned, PlannedPeek), planned
    return planned


def test_an_index_is_read_by_its_short_name_with_a_literal_key(catalyst: Catalyst) -> None:
    """All of the index key bound to literals: a lookup; what else is asked stays a filter."""
    planned = peek(catalyst, "SELECT k, n + 1 AS m FROM live WHERE 7 = k AND n > 3")

    assert planned.relation == "live.live"
    assert planned.literals is not None
    assert [[v.value for v in key] for key in planned.literals] == [["7"]]
    assert [to_sql(p) for p in planned.mfp.predicates] == ["(c1 > 3L)"]
    assert [to_sql(e) for e in planned.mfp.expressions] == ["(c1 + 1L)"]
    assert [(c.name, str(c.type), c.nullable) for c in planned.columns] == [
        ("k", "bigint", False),
        ("m", "bigint", False),
    ]
    assert planned.finishing == Finishing()


def test_several_literal_keys_are_looked_up_each_once(catalyst: Catalyst) -> None:
    """IN over the key; a NULL in the list matches nothing."""
    planned = peek(catalyst, "SELECT n FROM live WHERE k IN (3, 1, 3, NULL)")

    assert planned.literals is not None
    assert [[v.value for v in key] for key in planned.literals] == [["3"], ["1"]]
    assert planned.mfp.predicates == ()


def test_a_second_filter_of_the_key_stays(catalyst: Catalyst) -> None:
    planned = peek(catalyst, "SELECT n FROM live WHERE k IN (3, 1) AND k IN (1, 2)")

    assert [[v.value for v in key] for key in planned.literals or ()] == [["3"], ["1"]]
    assert [to_sql(p) for p in planned.mfp.predicates] == ["(c0 IN (1L, 2L))"]


def test_order_by_a_column_that_is_not_shown_adds_it_at_the_end(catalyst: Catalyst) -> None:
    """ORDER BY, LIMIT and OFFSET are the finishing; hidden columns come after those shown."""
    planned = peek(catalyst, "SELECT k FROM live ORDER BY n * 2 DESC, k LIMIT 5 OFFSET 2")

    order = (OrderKey(1, descending=True, nulls_last=True), OrderKey(0))
    assert planned.finishing == Finishing(order, 5, 2, shown=1)
    assert len(planned.columns) == 2
    assert planned.literals is None


def test_order_by_a_shown_column_hides_nothing(catalyst: Catalyst) -> None:
    """NULLS LAST is kept."""
    planned = peek(catalyst, "SELECT n AS z, k FROM live ORDER BY z NULLS LAST")

    assert planned.finishing == Finishing((OrderKey(0, nulls_last=True),))


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT count(*) AS n FROM live",
        "SELECT DISTINCT k FROM live",
        "SELECT a.k FROM live a JOIN live b ON a.k = b.k",
        "SELECT k FROM live UNION ALL SELECT k FROM live",
        "SELECT 1 AS one",
        "WITH c AS (SELECT k FROM live) SELECT k FROM c",
        "SELECT k FROM (SELECT k FROM live LIMIT 3) q",
    ],
)
def test_a_query_that_needs_operators_is_no_peek(catalyst: Catalyst, sql: str) -> None:
    """A peek only reads rows that are there."""
    assert isinstance(plan_query(catalyst, PlanQueryRequest(sql, CATALOGUE, "q1/")), PlannedOneShot)


@pytest.mark.parametrize(
    ("sql", "code", "message"),
    [
        ("SELECT k FROM nope", "UNRESOLVED_RELATION", "does not exist"),
        ("DELETE FROM live", "UNSUPPORTED", "is not a query"),
        ("SELECT count(*) FROM far", "UNSUPPORTED", "index of another ComputeInstance"),
    ],
)
def test_an_unanswerable_query_is_refused_by_name(catalyst: Catalyst, sql: str, code: str, message: str) -> None:
    """The query is refused as a peek and as a dataflow."""
    refused = plan_query(catalyst, PlanQueryRequest(sql, CATALOGUE, "q1/"))

    assert isinstance(refused, Refused)
    assert refused.diagnostics[0].code == code
    assert message in refused.diagnostics[0].message


@pytest.mark.parametrize(
    ("sql", "kind"),
    [
        ("SELECT k FROM live WHERE n > 1", PlannedPeek),
        ("SELECT x, count(*) FROM s.t GROUP BY x", PlannedOneShot),
        ("SELECT 1", PlannedOneShot),
    ],
)
def test_a_query_is_answered_the_cheapest_way(catalyst: Catalyst, sql: str, kind: type) -> None:
    """A query that needs operators is planned as a dataflow."""
    assert isinstance(plan_query(catalyst, PlanQueryRequest(sql, CATALOGUE, "q1/")), kind)


@pytest.mark.parametrize("query", ["SELECT n{} FROM live", "SELECT n{}, count(*) FROM live GROUP BY ALL"])
def test_an_expression_too_deep_to_send_is_refused(catalyst: Catalyst, query: str) -> None:
    """The refusal blames the text, as in a view."""
    too_deep = plan_query(catalyst, PlanQueryRequest(query.format(" * n" * 130), CATALOGUE, "q1/"))

    assert isinstance(too_deep, Refused)
    assert [(d.code, "nested deeper than" in d.message) for d in too_deep.diagnostics] == [("TOO_LARGE", True)]
    allowed = plan_query(catalyst, PlanQueryRequest(query.format(" * n" * 100), CATALOGUE, "q1/"))
    assert not isinstance(allowed, Refused), allowed
