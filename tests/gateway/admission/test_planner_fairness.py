"""Statements to be planned: callers in turn, and none of them with more than a few."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.gateway.admission.test_fair_queue import settled
from tidemark_operator.errors import TooMany
from tidemark_operator.gateway.admission.fair_queue import FairQueue


class Planner:
    """Ends a statement when the test says so."""

    def __init__(self, turns: FairQueue) -> None:
        self._turns = turns
        self.began: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def ask(self, *statements: str) -> None:
        """Each is of the caller that its name begins with."""
        for statement in statements:
            self._ends[statement] = asyncio.Event()
            self._tasks[statement] = asyncio.create_task(self._plan(statement))
        await settled()

    async def end(self, *statements: str) -> None:
        for statement in statements:
            self._ends[statement].set()
            await self._tasks[statement]
            await settled()

    async def give_up(self, *statements: str) -> None:
        for statement in statements:
            self._tasks[statement].cancel()
        await settled()

    async def _plan(self, statement: str) -> None:
        async with self._turns.hold(statement[0]):
            self.began.append(statement)
            await self._ends[statement].wait()


def turns_of(at_once: int, waiting: int = 100, each: int = 50) -> FairQueue:
    """The turns of the planner's queue: one statement of each caller at a time."""
    return FairQueue("statements", at_once, "wait", share=1, waiting=waiting, waiting_share=each)


def play(story: Callable[[Planner], Awaitable[None]], turns: FairQueue) -> None:
    async def told() -> None:
        await story(Planner(turns))

    asyncio.run(told())


def test_callers_take_turns_whatever_they_asked() -> None:
    """The one statement of another is next, and so is that of a third."""

    async def story(planner: Planner) -> None:
        await planner.ask("a1", "a2", "a3", "a4", "b1", "c1")
        assert planner.began == ["a1", "b1"]
        await planner.end("a1", "a2", "c1", "b1", "a3", "a4")
        assert planner.began == ["a1", "b1", "a2", "c1", "a3", "a4"]

    play(story, turns_of(2))


def test_a_caller_with_a_long_statement_leaves_the_rest_of_the_planner_to_others() -> None:
    """However many it has: they wait for its own, and begin one after the other."""

    async def story(planner: Planner) -> None:
        await planner.ask("a1", "a2", "b1")
        await planner.end("b1")
        await planner.ask("c1", "b2")
        await planner.end("c1", "b2")
        assert planner.began == ["a1", "b1", "c1", "b2"]
        await planner.end("a1", "a2")
        assert planner.began == ["a1", "b1", "c1", "b2", "a2"]

    play(story, turns_of(2))


def test_no_caller_has_more_than_a_few_and_others_are_none_the_worse() -> None:
    """The reason names the caller; as soon as one has ended, another may come."""

    async def story(planner: Planner) -> None:
        turns = planner._turns
        await planner.ask("a1", "a2")
        with pytest.raises(TooMany, match="1 statements of a wait already"):
            async with turns.hold("a"):
                pass
        await planner.ask("b1")
        with pytest.raises(TooMany, match="2 statements wait already"):
            async with turns.hold("c"):
                pass
        await planner.end("a1")
        await planner.ask("c1")
        await planner.end("a2", "b1", "c1")
        assert planner.began == ["a1", "a2", "b1", "c1"]

    play(story, turns_of(1, waiting=2, each=1))


def test_crash_a_caller_that_goes_leaves_its_place() -> None:
    """While it waits, while it is planned, and in the moment in which its turn comes."""

    async def story(planner: Planner) -> None:
        turns = planner._turns
        async with turns.hold("x"):
            await planner.ask("a1", "a2", "b1", "c1")
            await planner.give_up("a1")
        planner._tasks["a2"].cancel()
        await settled()
        assert planner.began == ["b1"]
        await planner.give_up("b1")
        assert planner.began == ["b1", "c1"]
        await planner.end("c1")
        assert (dict(turns._held), dict(turns._waiting), turns.free) == ({}, {}, 1)

    play(story, turns_of(1))


def test_callers_that_leave_leave_no_state() -> None:
    """While its first statement takes long: its turn does not come meanwhile."""

    async def story(planner: Planner) -> None:
        await planner.ask("a1", "a2")
        for number in range(100):
            await planner.ask(f"a-{number}")
            await planner.give_up(f"a-{number}")
        assert [len(waiting) for waiting in planner._turns._waiting.values()] == [1]
        await planner.give_up("a2")
        assert not planner._turns._waiting
        await planner.end("a1")
        await planner.ask("a3")
        assert planner.began == ["a1", "a3"]

    play(story, turns_of(2))
