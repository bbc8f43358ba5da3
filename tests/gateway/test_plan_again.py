"""A relation that changes while a statement is planned: the gateway plans the statement again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.gateway.registries import add_dataflow, registry
from tests.gateway.test_planner_admission import Anybody
from tests.protocol.samples import A
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.errors import RelationChanged, StatementRefused
from tidemark_operator.gateway.admission import wait_policy
from tidemark_operator.gateway.admission.limits import Limits, planner_queue
from tidemark_operator.gateway.admission.planner_admission import PlannerAdmission
from tidemark_operator.gateway.query.query import QueryRequest
from tidemark_operator.gateway.query.statement_cache import StatementCache
from tidemark_operator.gateway.streams.query_answer import Queries
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Diagnostic, Finishing, PlannedPeek, PlanQueryRequest, Refused
from tidemark_protocol.plan.map_filter_project import MapFilterProject
from tidemark_protocol.types import ColumnType

ASKED = QueryRequest("ns", "SELECT a + 1 FROM v", instance="default")


class Planner:
    """Plans a read of the relation that the catalogue has. `meanwhile`: what happens while it plans."""

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self.read, self._meanwhile = list[GlobalId](), meanwhile

    async def plan_query(self, request: PlanQueryRequest) -> PlannedPeek | Refused:
        relations = [relation for relation in request.catalogue.relations if relation.parent == "v"]
        self._meanwhile()
        if not relations:
            return Refused((Diagnostic("UNKNOWN_RELATION", "no relation v"),))
        self.read.append(relations[0].id)
        return PlannedPeek(relations[0].id, MapFilterProject((ColumnType(A.type),)), Finishing(), (A,))


def described(known: Registry, planner: Planner) -> object:
    context = cast(Any, SimpleNamespace(registry=known))
    statements = StatementCache(known, cast(Any, planner), PlannerAdmission(planner_queue()))
    queries = Queries(context, statements, cast(Any, None), Limits())
    return asyncio.run(queries.describe(Anybody(), ASKED))


def test_a_statement_reads_the_revision_that_became_active_while_it_was_planned() -> None:
    """Its first plan is for rows that are not there any more."""
    known, shards = registry(), ["s.b"]
    active = [add_dataflow(known, "v", shards=("s.a",))]

    def edit() -> None:
        if shards:
            active.append(add_dataflow(known, "v", shards=(shards.pop(),)))

    planner = Planner(edit)
    assert described(known, planner) == (A,)
    assert planner.read == active
    assert active[0] != active[1]


def test_a_statement_over_a_view_that_goes_while_it_is_planned_is_refused_as_if_the_view_had_not_been_there() -> None:
    """Not by an error that says to run the statement again."""
    known = registry()
    add_dataflow(known, "v", shards=("s.a",))
    planner = Planner(lambda: known.forget(Key(DATAFLOWS, "ns", "v")))
    with pytest.raises(StatementRefused, match=r"^no relation v$"):
        described(known, planner)


def test_a_relation_that_changes_at_each_attempt_is_told_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """After as many plans as there are pauses, and one."""
    monkeypatch.setattr(wait_policy, "PLAN_AGAIN_SECONDS", (0.0, 0.0))
    plans = 0

    async def attempt() -> None:
        nonlocal plans
        plans += 1
        raise RelationChanged

    with pytest.raises(RelationChanged):
        asyncio.run(wait_policy.plan_again(attempt))
    assert plans == 3
