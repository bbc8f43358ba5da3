"""One Dataflow at a time is at the planner; another one gives way and returns later."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.handlers.harness import READABLE, OperatorHarness
from tests.handlers.status.test_planning_conditions import MISSING
from tests.resources.manifests import dataflow
from tests.waiting import BOUND
from tidemark_operator.errors import PlannerBusy
from tidemark_operator.handlers.reconcile.dataflow import IN_LINE_SECONDS
from tidemark_operator.handlers.reconcile.reconcile_loop import ReconcileLoop
from tidemark_operator.handlers.revisions import planner_queue
from tidemark_operator.handlers.revisions.planner_queue import PlannerQueue
from tidemark_operator.kube.cache import Key, key_of
from tidemark_operator.kube.client import DATAFLOWS, Body, Resource
from tidemark_operator.resources.conditions.dataflow import Planning
from tidemark_protocol.messages.planning import PlanRequest, Refused

GONE = Key(DATAFLOWS, "ns", "gone")


def run(scenario: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), BOUND))


class Thinks:
    """A planner that takes as long as it is let; it says of everything that something is missing."""

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.may_answer = asyncio.Event()
        self.at_once = self.most_at_once = 0

    async def plan(self, request: PlanRequest) -> Refused:
        self.asked.append(request.dataflow)
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.may_answer.wait()
        self.at_once -= 1
        return MISSING


def test_must_a_plan_that_takes_long_keeps_nothing_waiting_that_is_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many wait to be planned: what is deleted meanwhile is seen to. Each of them is planned afterwards."""
    monkeypatch.setattr(planner_queue, "SHORT_PLAN_SECONDS", 0.0)

    async def scenario() -> None:
        harness, planner, seen = OperatorHarness(), Thinks(), asyncio.Event()
        harness.put(READABLE, None)

        async def get(resource: Resource, namespace: str, name: str) -> Body | None:
            assert name == GONE.name
            seen.set()
            return None

        async def publish(key: Key) -> None:
            pass

        harness.context.planner = cast(Any, planner)
        harness.context.kube = cast(Any, SimpleNamespace(get=get))
        operator = ReconcileLoop(harness.context, asyncio.Event())
        cast(Any, operator.publisher).publish = publish
        wanted = [dataflow({"sql": "SELECT 1 AS a", "index": {}}, f"d{n:02}", uid=f"u-{n}") for n in range(20)]
        for body in wanted:
            harness.cache.put(key_of(DATAFLOWS, body), body)
            operator.queue.add(key_of(DATAFLOWS, body))
        operator.queue.add(GONE)
        working = asyncio.create_task(operator.queue.run())
        await seen.wait()
        assert planner.asked == ["d00"]
        waiting = harness.context.registry.dataflow(key_of(DATAFLOWS, wanted[1]))
        assert waiting is not None
        assert waiting.plan == Planning("waiting for the planner")

        planner.may_answer.set()
        while len(planner.asked) < len(wanted):  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0.01)
        working.cancel()
        await asyncio.gather(working, return_exceptions=True)
        assert planner.asked == [body["metadata"]["name"] for body in wanted]
        assert planner.most_at_once == 1
        await harness.fleet.close()

    run(scenario)


def test_a_dataflow_that_gave_way_learns_when_the_planner_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, in the order in which they came; who needs no turn any more passes it on, and nobody takes it from
    one who has it."""
    monkeypatch.setattr(planner_queue, "SHORT_PLAN_SECONDS", 0.0)

    async def scenario() -> None:
        reported: list[Key] = []
        turn = PlannerQueue(reported.append)
        first, gone, second, third, fourth = (Key(DATAFLOWS, "ns", name) for name in "abcde")

        async def fails() -> None:
            async with turn.turn(first):
                for key in (gone, second, third, fourth) * 2:
                    with pytest.raises(PlannerBusy):
                        async with turn.turn(key):
                            pass
                turn.leave(gone)
                turn.pass_on()
                assert reported == []
                raise RuntimeError("no plan")

        with pytest.raises(RuntimeError):
            await fails()
        assert reported == [second]
        assert [turn.is_in_line(key) for key in (gone, second, third, fourth)] == [False, False, True, True]
        turn.pass_on()
        assert reported == [second, third]
        async with turn.turn(third):
            pass
        assert reported == [second, third, fourth]
        turn.pass_on()
        assert reported == [second, third, fourth]

    run(scenario)


def test_must_a_dataflow_that_waits_to_be_planned_is_not_reconciled_with_each_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of a thousand that wait would be looked at a thousand times. One is looked at when it itself changes."""
    monkeypatch.setattr(planner_queue, "SHORT_PLAN_SECONDS", 0.0)

    async def scenario() -> None:
        harness, planner = OperatorHarness(), Thinks()
        harness.put(READABLE, None)
        harness.context.planner = cast(Any, planner)
        operator = ReconcileLoop(harness.context, asyncio.Event())
        queued: list[Key] = []
        cast(Any, operator.queue).add_all = queued.extend
        bodies = [dataflow({"sql": "SELECT 1 AS a", "index": {}}, name, uid=f"u-{name}") for name in "ab"]
        first, second = keys = [key_of(DATAFLOWS, body) for body in bodies]
        for key, body in zip(keys, bodies, strict=True):
            harness.cache.put(key, body)
        planned = asyncio.create_task(operator._dataflows.reconcile(first, bodies[0]))
        while not planner.asked:  # noqa: ASYNC110 (nobody tells)
            await asyncio.sleep(0)
        assert await operator._dataflows.reconcile(second, bodies[1]) == IN_LINE_SECONDS
        operator._enqueue_now("ns")
        assert first in queued
        assert second not in queued

        bodies[1]["spec"]["instance"] = "another"
        await operator._dataflows.reconcile(second, bodies[1])
        operator._enqueue_now("ns")
        assert second in queued
        planner.may_answer.set()
        await planned
        await harness.fleet.close()

    run(scenario)


def test_while_plans_are_short_the_next_ones_wait_and_follow_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is looked at twice. One that goes while it waits keeps the turn from nobody."""
    monkeypatch.setattr(planner_queue, "SHORT_PLAN_SECONDS", math.inf)

    async def scenario() -> None:
        reported: list[Key] = []
        turn, had, free = PlannerQueue(reported.append), list[str](), asyncio.Event()

        async def plan(name: str) -> None:
            async with turn.turn(Key(DATAFLOWS, "ns", name)):
                had.append(name)
                await free.wait()

        tasks = [asyncio.create_task(plan(name)) for name in "abcd"]
        await asyncio.sleep(0)
        tasks[1].cancel()
        await asyncio.sleep(0)
        free.set()
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (had, reported) == (["a", "c", "d"], [])

    run(scenario)
