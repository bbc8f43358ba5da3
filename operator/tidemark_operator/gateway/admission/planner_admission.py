"""The way to the planner of all that users ask: queries, subscribes, copies and explanations.

    text ──► too long?              refused before anything looks at it, or at who asks (`must_be_short`)
         ──► failed at, just now?   what was said of it then: each try may cost a process that others wait for
         ──► the caller's turn ──► failed at meanwhile? ──► the planner ──► what it fails at is noted

Who goes while its text is planned leaves its turn to it until the planner is done: nothing stops a plan but its time,
and who asked and went, again and again, would have all of the planner.

By namespace and text alone: whatever it is asked for, and whatever else changes meanwhile, a text that takes too long
takes too long again.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tidemark_operator.errors import QueryRefused
from tidemark_operator.gateway.admission.fair_planner_queue import Turns
from tidemark_operator.planning.planner_fault import is_planners_fault, pause_ms
from tidemark_protocol.messages.planning import MAX_SQL_CHARACTERS, Refused

FAILURES = 4096
P = TypeVar("P")
Key = tuple[str, bytes]


def must_be_short(text: str) -> None:
    """Raises QueryRefused for what the planner would refuse. Before that it would be searched for each name that there
    is, on the event loop."""
    if len(text) > MAX_SQL_CHARACTERS:
        raise QueryRefused(f"the SQL text has {len(text)} characters, more than the limit of {MAX_SQL_CHARACTERS}")


@dataclass(frozen=True)
class Failed:
    """The planner failed at it `tried` times in a row; it is asked again from `again` (monotonic seconds) on."""

    refused: Refused
    tried: int
    again: float


class Asking:
    """One per gateway; bounded. `clock`: seconds, of any beginning."""

    def __init__(self, turns: Turns, clock: Callable[[], float] = time.monotonic) -> None:
        self._turns, self._clock = turns, clock
        self._failed: OrderedDict[Key, Failed] = OrderedDict()
        self._left: set[asyncio.Task[Any]] = set()

    async def plan(
        self, caller: str, namespace: str, text: str, planned: Callable[[], Awaitable[P | Refused]]
    ) -> P | Refused:
        """`planned`: asks the planner for `text`. Raises what that does, and TooMany."""
        key = (namespace, hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
        if refused := self._failed_at(key):
            return refused
        begun = asyncio.Event()
        asked = asyncio.create_task(self._in_turn(caller, key, planned, begun))
        try:
            return await asyncio.shield(asked)
        except asyncio.CancelledError:
            if begun.is_set():
                self._left.add(asked)
                asked.add_done_callback(self._over)
            else:
                asked.cancel()
            raise

    async def _in_turn(
        self, caller: str, key: Key, planned: Callable[[], Awaitable[P | Refused]], begun: asyncio.Event
    ) -> P | Refused:
        async with self._turns.turn(caller):
            if refused := self._failed_at(key):  # while this one waited
                return refused
            begun.set()
            answer = await planned()
            self._note(key, answer)
            return answer

    def _over(self, left: asyncio.Task[Any]) -> None:
        """Nobody is there to be told how it ended."""
        self._left.discard(left)
        if not left.cancelled():
            left.exception()

    def _failed_at(self, key: Key) -> Refused | None:
        """What the planner said of it, if it is not to be asked again yet."""
        failed = self._failed.get(key)
        return failed.refused if failed is not None and self._clock() < failed.again else None

    def _note(self, key: Key, answer: object) -> None:
        before = self._failed.pop(key, None)
        if isinstance(answer, Refused) and is_planners_fault(answer):
            tried = before.tried + 1 if before else 1
            self._failed[key] = Failed(answer, tried, self._clock() + pause_ms(tried) / 1000)
            if len(self._failed) > FAILURES:
                self._failed.popitem(last=False)
