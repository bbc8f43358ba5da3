"""A statement that fails in the planner is planned ever more rarely, through every command."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.gateway.admission.test_fair_queue import settled
from tests.gateway.registries import registry
from tests.gateway.server.test_metrics import fleet
from tidemark_operator.errors import PlannerUnavailable, QueryRefused
from tidemark_operator.gateway.admission import planner_admission
from tidemark_operator.gateway.admission.fair_queue import FairQueue
from tidemark_operator.gateway.admission.limits import GatewayLimits, planner_queue
from tidemark_operator.gateway.admission.planner_admission import PlannerAdmission
from tidemark_operator.gateway.auth.access import Access
from tidemark_operator.gateway.explanations.draft_plan import PlanAsker
from tidemark_operator.gateway.explanations.explain import explain
from tidemark_operator.gateway.query.query import QueryRequest, prepare
from tidemark_operator.gateway.query.statement_cache import StatementCache
from tidemark_operator.gateway.streams.stream_dataflow import plan_subject
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.introspection.retained_tables import RetainedTables
from tidemark_operator.planning.planner_fault import FIRST_PAUSE_MS
from tidemark_protocol.messages.planning import MAX_SQL_CHARACTERS, Diagnostic, Refused
from tidemark_protocol.pb.gateway_pb2 import SubscribeRequest

SLOW, TIMEOUT = "SELECT slow", Refused((Diagnostic("TIMEOUT", "planning took longer than 5 s"),))
SYNTAX = Refused((Diagnostic("SYNTAX", "what?"),))
PAUSE = FIRST_PAUSE_MS / 1000


class Planner:
    """Takes too long, and counts."""

    def __init__(self) -> None:
        self.asked = 0

    async def plan(self, request: object, patient: bool = False) -> Refused:
        self.asked += 1
        return TIMEOUT

    plan_query = plan


class Anybody(Access):
    caller = "anne"

    async def check(self, *actions: Any) -> None: ...


def context_of(planner: Planner) -> ReconcileContext:
    instances = fleet()
    cache = SimpleNamespace(all=lambda *_: ())
    made = SimpleNamespace(planner=planner, registry=registry(), fleet=instances, running=instances.get, cache=cache)
    return cast(ReconcileContext, made)


def ways(
    context: ReconcileContext, shared: PlannerAdmission, text: str = SLOW
) -> dict[str, Callable[[], Awaitable[object]]]:
    """Every way in which a user's text comes to the planner."""
    statements, limits = StatementCache(context.registry, context.planner, shared), GatewayLimits()
    limits.planner = shared
    subject = SubscribeRequest(namespace="ns", subject=text)
    return {
        "query": lambda: prepare(context, statements, cast(RetainedTables, None), Anybody(), QueryRequest("ns", text)),
        "subscribe": lambda: plan_subject(context, limits, Anybody(), subject, "subscribe"),
        "copy": lambda: plan_subject(context, limits, Anybody(), subject, "copy"),
        "explain": lambda: explain(PlanAsker(context, shared, Anybody(), "ns"), text),
    }


@pytest.mark.parametrize("first", ["query", "subscribe", "copy", "explain"])
def test_must_a_text_costs_one_process_whichever_way_it_is_asked_for(first: str) -> None:
    """Each is told what was said of it; after the pause it is tried again."""
    planner, now = Planner(), [0.0]
    asks = ways(context_of(planner), PlannerAdmission(planner_queue(), lambda: now[0]))
    for way in (first, *asks):
        with pytest.raises(QueryRefused, match="longer than 5 s"):
            asyncio.run(cast(Any, asks[way]()))
    assert planner.asked == 1
    now[0] = PAUSE
    with pytest.raises(QueryRefused):
        asyncio.run(cast(Any, asks[first]()))
    assert planner.asked == 2


class Searched(str):
    """A text that counts how often it is searched."""

    searches = 0

    def lower(self) -> Searched:
        return self

    def __contains__(self, part: object) -> bool:
        self.searches += 1
        return super().__contains__(cast(str, part))


@pytest.mark.parametrize("way", ["query", "subscribe", "copy", "explain"])
def test_must_a_text_that_is_too_long_is_not_even_searched(way: str) -> None:
    """For each name that there is, on the event loop, before anybody knows whether its caller may ask."""
    planner, text = Planner(), Searched("SELECT " + "1" * MAX_SQL_CHARACTERS)
    asks = ways(context_of(planner), PlannerAdmission(planner_queue()), text)
    with pytest.raises(QueryRefused, match="more than the limit of 131072"):
        asyncio.run(cast(Any, asks[way]()))
    assert (planner.asked, text.searches) == (0, 0)


def test_must_a_text_is_searched_once_for_each_that_has_relations() -> None:
    """Not for each relation: the source has two."""
    planner, text = Planner(), Searched(SLOW)
    query = ways(context_of(planner), PlannerAdmission(planner_queue()), text)["query"]
    with pytest.raises(QueryRefused, match="longer than 5 s"):
        asyncio.run(cast(Any, query()))
    assert (planner.asked, text.searches) == (1, 2)  # the other: tidemark_introspection


def asks_planner(shared: PlannerAdmission, text: str, answer: object, namespace: str = "ns") -> bool:
    """Whether the planner was asked."""
    calls: list[str] = []

    async def planned() -> object:
        calls.append(text)
        return answer

    asyncio.run(cast(Any, shared.plan("anne", namespace, text, planned)))
    return bool(calls)


def test_only_failures_of_the_planner_are_kept_and_an_answer_ends_them() -> None:
    """A refusal may be mended in a way that nothing shows; other namespaces' names mean something else."""
    now = [0.0]
    shared = PlannerAdmission(planner_queue(), lambda: now[0])
    assert [asks_planner(shared, "SELECT", SYNTAX) for _ in range(2)] == [True, True]
    assert [asks_planner(shared, SLOW, TIMEOUT, namespace) for namespace in ("a", "b", "a")] == [True, True, False]
    for answer in (TIMEOUT, "planned", TIMEOUT):
        now[0] += 10 * PAUSE
        assert asks_planner(shared, SLOW, answer, "a")
    now[0] += PAUSE  # the first in a row: no pause has doubled
    assert asks_planner(shared, SLOW, TIMEOUT, "a")


def test_the_memory_of_failures_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was failed at longest ago is tried again."""
    monkeypatch.setattr(planner_admission, "MAX_FAILURES", 2)
    shared = PlannerAdmission(planner_queue(), lambda: 0.0)
    assert [asks_planner(shared, text, TIMEOUT) for text in "abc"] == [True, True, True]
    assert [asks_planner(shared, text, TIMEOUT) for text in "bca"] == [False, False, True]


def test_a_caller_that_leaves_has_one_turn_at_a_time() -> None:
    """The planner is at it still: what comes of it is noted, and only then its caller's next statement is planned."""

    async def story() -> None:
        began: list[str] = []
        done = asyncio.Event()

        def planned(text: str) -> Callable[[], Awaitable[Refused]]:
            async def plan() -> Refused:
                began.append(text)
                await done.wait()
                return TIMEOUT

            return plan

        shared = PlannerAdmission(planner_queue(), lambda: 0.0)
        asks = [asyncio.create_task(shared.plan("anne", "ns", text, planned(text))) for text in ("a1", "a2", "a3")]
        await settled()
        for task in asks[:2]:
            task.cancel()
        await asyncio.gather(*asks[:2], return_exceptions=True)
        await settled()
        assert began == ["a1"]
        other = asyncio.create_task(shared.plan("bob", "ns", "b1", planned("b1")))
        await settled()
        assert began == ["a1", "b1"]
        done.set()
        assert [await asks[2], await other] == [TIMEOUT, TIMEOUT]
        assert began == ["a1", "b1", "a3"]
        assert await shared.plan("bob", "ns", "a1", planned("a1")) == TIMEOUT
        assert began == ["a1", "b1", "a3"]
        assert not shared._running

    asyncio.run(story())


def test_crash_a_planner_that_fails_at_an_abandoned_request_fails_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """No turn stays with it, and no warning of a task that nobody looked at."""

    async def story() -> None:
        gone = asyncio.Event()

        async def planned() -> Refused:
            await gone.wait()
            raise PlannerUnavailable("away")

        shared = PlannerAdmission(FairQueue("statements", 1, "wait", waiting=8))
        asked = asyncio.create_task(shared.plan("anne", "ns", "a1", planned))
        await settled()
        asked.cancel()
        gone.set()
        await settled()
        assert not shared._running
        with pytest.raises(PlannerUnavailable):
            await shared.plan("anne", "ns", "a2", planned)

    asyncio.run(story())
    gc.collect()
    assert not caplog.records
