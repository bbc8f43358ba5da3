"""Rows of the operator's own are made for a query that can be answered, and once."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.gateway.admission.test_planner_admission import Anybody
from tests.gateway.admission.test_wait_policy import READS, lost_replica, told_of_the_table
from tests.gateway.registries import registry, shard_of
from tests.gateway.server.test_metrics import fleet
from tests.waiting import BOUND
from tidemark_operator.errors import NoCompleteTime
from tidemark_operator.gateway.admission import wait_policy
from tidemark_operator.gateway.admission.limits import planner_queue
from tidemark_operator.gateway.admission.planner_admission import PlannerAdmission
from tidemark_operator.gateway.query import one_shot
from tidemark_operator.gateway.query import query as queries
from tidemark_operator.gateway.query.read_time import ReadableTimes, TimeRequest, choose_time
from tidemark_operator.gateway.query.statement_cache import StatementCache
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.introspection.inline_rows import RESULT
from tidemark_operator.introspection.relations import NO_FILTER, ColumnFilter, relations, rows
from tidemark_operator.introspection.retained_tables import RetainedTables
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.planning import Finishing, Planned, PlannedExport, PlannedOneShot, PlanQueryRequest
from tidemark_protocol.plan.dataflow import BuildDesc, SourceImport
from tidemark_protocol.plan.lir import Constant, Get
from tidemark_protocol.types import Column, ColumnType

(STATUSES,) = (relation for relation in relations() if relation.name == "statuses")
LOOKS_IN_VAIN = 5


class Planner:
    """Whatever is asked joins statuses with a table."""

    async def plan_query(self, request: PlanQueryRequest) -> PlannedOneShot:
        assert STATUSES.shard is not None
        sources = (SourceImport(STATUSES.id, STATUSES.shard, (0,)), SourceImport(READS, shard_of("s.a"), (0,)))
        name = STATUSES.columns[0]
        get = BuildDesc(RESULT, Get(STATUSES.id, (ColumnType(name.type, name.nullable),)))
        export = PlannedExport("result", "index", RESULT, (Column("c0", name.type),), (0,))
        return PlannedOneShot(Planned(sources, (get,), (export,), (STATUSES.id, READS), ""), Finishing(), ())


def test_must_rows_are_not_made_while_a_query_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """They may take the event loop a second, and it is looked at ten times in each: it stood still for all of that."""
    instances, planner, looks, made = fleet(), cast(Any, Planner()), list[TimeRequest](), list[GlobalId]()
    lost_replica(instances).online = True
    told_of_the_table(instances)
    context = SimpleNamespace(registry=registry(), fleet=instances, running=instances.get, planner=planner)
    monkeypatch.setattr(wait_policy, "LOOK_AGAIN_SECONDS", 0.001)
    monkeypatch.setattr(wait_policy, "COMMON_TIME_SECONDS", BOUND)

    def chosen(spans: Sequence[ReadableTimes], when: TimeRequest) -> Time:
        looks.append(when)
        if len(looks) <= LOOKS_IN_VAIN:
            raise NoCompleteTime("yet")
        return choose_time(spans, when)

    def counted(
        context: ReconcileContext, namespace: str, id: GlobalId, wanted: ColumnFilter = NO_FILTER, **stored: Any
    ) -> Constant | None:
        made.append(id)
        return rows(context, namespace, id, wanted)

    monkeypatch.setattr(one_shot, "choose_time", chosen)
    monkeypatch.setattr(queries, "rows", counted)
    statements = StatementCache(context.registry, planner, PlannerAdmission(planner_queue()))
    asked = queries.QueryRequest("ns", "SELECT ...", instance="default")
    at, tables = cast(ReconcileContext, context), cast(RetainedTables, None)
    prepared = asyncio.run(queries.prepare(at, statements, tables, Anybody(), asked))
    assert len(looks) > LOOKS_IN_VAIN
    assert made == []
    query = prepared.now()
    assert made.count(STATUSES.id) == 1
    assert query.dataflow is not None
    assert [source.id for source in query.dataflow.description.source_imports] == [READS]

    looks.clear()
    with pytest.raises(NoCompleteTime):
        prepared.now()
    assert made.count(STATUSES.id) == 1
