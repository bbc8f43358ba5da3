"""The operator answers selections of tidemark_introspection itself, also where no replica answers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from tests.gateway.admission.test_planner_admission import Anybody
from tests.gateway.admission.test_wait_policy import lost_replica, told_of_the_table
from tests.gateway.registries import registry
from tests.gateway.server.test_metrics import fleet
from tidemark_operator.errors import NoReplicaAnswers, QueryRefused
from tidemark_operator.gateway.admission import wait_policy
from tidemark_operator.gateway.admission.limits import planner_queue
from tidemark_operator.gateway.admission.planner_admission import PlannerAdmission
from tidemark_operator.gateway.query.operator_query import OperatorQuery
from tidemark_operator.gateway.query.query import PreparedQuery, QueryRequest, prepare
from tidemark_operator.gateway.query.statement_cache import StatementCache
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.introspection import relations
from tidemark_operator.introspection.retained_tables import RetainedTables

DATAFLOWS = "SELECT name, scheduled FROM tidemark_introspection.dataflows"


def prepared(sql: str, **request: Any) -> PreparedQuery:
    """The namespace `ns` has a dataflow, and an instance whose only replica does not answer."""
    instances = fleet()
    lost_replica(instances)
    told_of_the_table(instances)
    state = SimpleNamespace(registry=registry(), fleet=instances, running=instances.get)
    planner: Any = None  # plain SELECTs need none
    statements = StatementCache(state.registry, planner, PlannerAdmission(planner_queue()))
    context, tables = cast(ReconcileContext, state), cast(RetainedTables, None)
    asked = QueryRequest("ns", sql, instance="default", **request)
    return asyncio.run(prepare(context, statements, tables, Anybody(), asked))


def answer(sql: str) -> list[dict[str, Any]]:
    query = prepared(sql).now()
    assert isinstance(query, OperatorQuery)
    rows = asyncio.run(query.answer())
    table = pa.ipc.open_stream(rows.data).read_all()
    assert (rows.row_count, table.column_names) == (table.num_rows, [column.name for column in query.answer_columns])
    return table.to_pylist()


def test_a_selection_is_answered_while_no_replica_answers() -> None:
    assert answer(DATAFLOWS) == [{"name": "d", "scheduled": True}]
    assert answer(f"{DATAFLOWS} WHERE name = 'd' AND exports = 2 LIMIT 5") == [{"name": "d", "scheduled": True}]
    assert answer(f"{DATAFLOWS} WHERE name = 'other'") == []
    assert answer("SELECT * FROM tidemark_introspection.errors") == []


def test_a_transaction_reads_selections_at_its_time() -> None:
    """psycopg opens one by itself: each statement has the as_of of the first."""
    query = prepared(DATAFLOWS, as_of=5).now()
    assert isinstance(query, OperatorQuery)
    assert query.as_of == 5


def test_a_replica_answers_where_the_client_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """The refusal says which queries need none."""
    monkeypatch.setattr(wait_policy, "REPLICA_SECONDS", 0.0)
    with pytest.raises(NoReplicaAnswers, match="the operator itself answers selections of one relation"):
        prepared(DATAFLOWS, replica="r1")


def test_rows_are_those_of_the_moment_of_the_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Too many rows are refused, also of a query that was prepared before."""
    query = prepared(DATAFLOWS)
    monkeypatch.setattr(relations, "MAX_BYTES", 10)
    with pytest.raises(QueryRefused, match="more rows than one query may read"):
        query.now()
