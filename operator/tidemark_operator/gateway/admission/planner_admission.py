"""The way of every user's SQL text to the planner: queries, subscribes, copies and explanations.

    text ──► too long?                   QueryRefused, before any search of the text (`check_length`)
         ──► failed a moment ago?        the planner's last answer: each try may cost a planner process
         ──► the caller's turn (queue)
         ──► failed in the meantime?     as above
         ──► the planner ──► a failure is remembered

Nothing stops a plan once it has begun. A caller that goes away therefore keeps its turn until the planner is done; a
caller that asked and went again and again would otherwise have the whole planner.

The key of a failure is namespace and text alone: a text that took too long takes too long again, whatever it is asked
for.
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from tidemark_operator.errors import QueryRefused
from tidemark_operator.gateway.admission.fair_queue import FairQueue, QueueHold
from tidemark_operator.lru_dict import LruDict
from tidemark_operator.planning.planner_fault import is_planners_fault, pause_ms
from tidemark_protocol.messages.planning import MAX_SQL_CHARACTERS, Refused

MAX_FAILURES = 4096
P = TypeVar("P")
Key = tuple[str, bytes]


def check_length(text: str) -> None:
    """Refuse a text that the planner would refuse, before it is searched on the event loop for every known name.

    Raises:
        QueryRefused: the text has more than MAX_SQL_CHARACTERS characters.
    """
    if len(text) > MAX_SQL_CHARACTERS:
        raise QueryRefused(f"the SQL text has {len(text)} characters, more than the limit of {MAX_SQL_CHARACTERS}")


@dataclass(frozen=True)
class PlannerFailure:
    """The planner failed `count` times in a row; it is asked again from `retry_at` (monotonic seconds) on."""

    answer: Refused
    count: int
    retry_at: float


class PlannerAdmission:
    """One per gateway; remembers at most MAX_FAILURES failures. `clock`: monotonic seconds."""

    def __init__(self, queue: FairQueue, clock: Callable[[], float] = time.monotonic) -> None:
        self._queue, self._clock = queue, clock
        self._failures: LruDict[Key, PlannerFailure] = LruDict(MAX_FAILURES)
        self._running: set[asyncio.Task[Any]] = set()

    async def plan(
        self, caller: str, namespace: str, text: str, ask: Callable[[], Awaitable[P | Refused]]
    ) -> P | Refused:
        """The answer of `ask`, which asks the planner for `text`, or a remembered failure.

        Raises:
            TooMany: too many statements wait for the planner.
            PlannerUnavailable: and whatever else `ask` raises.
        """
        key = (namespace, hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest())
        if refused := self._failure_of(key):
            return refused
        hold = await self._queue.acquire(caller)
        if refused := self._failure_of(key):  # another call asked for this text while this one waited
            hold.shrink(0)
            return refused
        task = asyncio.create_task(self._ask(key, ask, hold))
        self._running.add(task)
        task.add_done_callback(self._on_end)
        return await asyncio.shield(task)

    async def _ask(self, key: Key, ask: Callable[[], Awaitable[P | Refused]], hold: QueueHold) -> P | Refused:
        try:
            answer = await ask()
            self._remember(key, answer)
            return answer
        finally:
            hold.shrink(0)

    def _on_end(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled():
            task.exception()  # retrieved, so that asyncio does not log it where the caller has gone

    def _failure_of(self, key: Key) -> Refused | None:
        failure = self._failures.get(key)
        return failure.answer if failure is not None and self._clock() < failure.retry_at else None

    def _remember(self, key: Key, answer: object) -> None:
        before = self._failures.pop(key, None)
        if isinstance(answer, Refused) and is_planners_fault(answer):
            count = before.count + 1 if before else 1
            self._failures[key] = PlannerFailure(answer, count, self._clock() + pause_ms(count) / 1000)
