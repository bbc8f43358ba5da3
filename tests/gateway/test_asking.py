"""What the planner fails at is asked for ever more rarely, whichever way it is asked for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.gateway.registries import registry
from tests.gateway.test_metrics import fleet
from tidemark_operator.errors import QueryRefused
from tidemark_operator.gateway import asking
from tidemark_operator.gateway.access import Access
from tidemark_operator.gateway.asking import Asking
from tidemark_operator.gateway.explain import explain
from tidemark_operator.gateway.queries import Asked, prepare
from tidemark_operator.gateway.statements import Statements
from tidemark_operator.gateway.transient import Subject, plan
from tidemark_operator.gateway.turns import Turns
from tidemark_operator.handlers.world import World
from tidemark_operator.planning.blame import FIRST_PAUSE_MS
from tidemark_protocol.planning import Diagnostic, Refused

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


def world_of(planner: Planner) -> World:
    instances = fleet()
    cache = SimpleNamespace(all=lambda *_: ())
    made = SimpleNamespace(planner=planner, registry=registry(), fleet=instances, running=instances.get, cache=cache)
    return cast(World, made)


def ways(world: World, shared: Asking) -> dict[str, Callable[[], Awaitable[object]]]:
    """Every way in which a user's text comes to the planner."""
    statements = Statements(world.registry, world.planner, shared)
    return {
        "query": lambda: prepare(world, statements, Anybody(), Asked("ns", SLOW)),
        "subscribe": lambda: plan(world, shared, Anybody(), Subject("ns", SLOW), "subscribe"),
        "copy": lambda: plan(world, shared, Anybody(), Subject("ns", SLOW), "copy"),
        "explain": lambda: explain(world, shared, "anne", "ns", SLOW),
    }


@pytest.mark.parametrize("first", ["query", "subscribe", "copy", "explain"])
def test_must_a_text_costs_one_process_whichever_way_it_is_asked_for(first: str) -> None:
    """Each is told what was said of it; after the pause it is tried again."""
    planner, now = Planner(), [0.0]
    asks = ways(world_of(planner), Asking(Turns(), lambda: now[0]))
    for way in (first, *asks):
        with pytest.raises(QueryRefused, match="longer than 5 s"):
            asyncio.run(cast(Any, asks[way]()))
    assert planner.asked == 1
    now[0] = PAUSE
    with pytest.raises(QueryRefused):
        asyncio.run(cast(Any, asks[first]()))
    assert planner.asked == 2


def asked(shared: Asking, text: str, answer: object, namespace: str = "ns") -> bool:
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
    shared = Asking(Turns(), lambda: now[0])
    assert [asked(shared, "SELECT", SYNTAX) for _ in range(2)] == [True, True]
    assert [asked(shared, SLOW, TIMEOUT, namespace) for namespace in ("a", "b", "a")] == [True, True, False]
    for answer in (TIMEOUT, "planned", TIMEOUT):
        now[0] += 10 * PAUSE
        assert asked(shared, SLOW, answer, "a")
    now[0] += PAUSE  # the first in a row: no pause has doubled
    assert asked(shared, SLOW, TIMEOUT, "a")


def test_what_is_kept_of_failures_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was failed at longest ago is tried again."""
    monkeypatch.setattr(asking, "FAILURES", 2)
    shared = Asking(Turns(), lambda: 0.0)
    assert [asked(shared, text, TIMEOUT) for text in "abc"] == [True, True, True]
    assert [asked(shared, text, TIMEOUT) for text in "bca"] == [False, False, True]
