"""A relation that changes while a statement is planned: the gateway plans the statement again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.gateway.admission.test_planner_admission import Anybody
from tests.gateway.auth.test_rights import LISTS, Caller
from tests.gateway.registries import add_dataflow, registry
from tests.protocol.samples import A
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.errors import RelationChanged, StatementRefused
from tidemark_operator.gateway.admission.limits import GatewayLimits, planner_queue
from tidemark_operator.gateway.admission.planner_admission import PlannerAdmission
from tidemark_operator.gateway.auth.access import Forbidden
from tidemark_operator.gateway.query import plan_again as again
from tidemark_operator.gateway.query.query import QueryRequest
from tidemark_operator.gateway.query.statement_cache import StatementCache
from tidemark_operator.gateway.streams import query_answer
from tidemark_operator.gateway.streams.copy import Copies
from tidemark_operator.gateway.streams.query_answer import Queries
from tidemark_operator.gateway.streams.subscribe import Subscribes
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
    queries = Queries(context, statements, cast(Any, None), GatewayLimits())
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


class Changes(Exception):
    """The error of the second attempt."""


@pytest.mark.parametrize("way", ["query", "subscribe", "copy"])
def test_each_way_to_read_plans_again(way: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the relation changes after the plan was made, while the statement waits."""
    outcomes: list[Exception] = [RelationChanged(), Changes()]

    async def attempt(*_: object) -> object:
        raise outcomes.pop(0)

    context, limits, request = cast(Any, None), GatewayLimits(), SimpleNamespace(namespace="ns")
    monkeypatch.setattr(query_answer, "prepare", attempt)
    monkeypatch.setattr(Copies, "_begin", attempt)
    monkeypatch.setattr(Subscribes, "_begin", attempt)
    unused = cast(Any, None)
    ways: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
        "query": lambda: Queries(context, unused, unused, limits).serve(Anybody(), ASKED, unused),
        "subscribe": lambda: Subscribes(context, limits).serve(Anybody(), unused, request, unused),
        "copy": lambda: Copies(context, limits).serve(Anybody(), request),
    }
    with pytest.raises(Changes):
        asyncio.run(ways[way]())


@pytest.mark.parametrize("rights", [LISTS, ()])
def test_a_relation_that_changes_at_each_attempt_is_told_in_the_end(
    rights: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The query is refused after as many plans as there are pauses, and one. A caller who may not list objects learns
    of no name."""
    monkeypatch.setattr(again, "PAUSES_SECONDS", (0.0, 0.0))
    plans = 0

    async def attempt() -> None:
        nonlocal plans
        plans += 1
        raise RelationChanged

    with pytest.raises(RelationChanged if rights else Forbidden):
        asyncio.run(again.plan_again(Caller(*rights), "ns", attempt))
    assert plans == 3
