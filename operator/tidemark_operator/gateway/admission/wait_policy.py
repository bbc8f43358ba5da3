"""The time for which a statement that cannot be answered yet is tried again.

    refusal            waits at most          why it passes
    QueryNotReady      COMMON_TIME_SECONDS    the operator has just begun, and no replica has reported yet
    NoCompleteTime     COMMON_TIME_SECONDS    the operator's knowledge of frontiers is a moment old
    NoReplicaAnswers   REPLICA_SECONDS        a lost replica is started again, or connects again
    RelationChanged    plan_again.py          the statement is planned again, with the relations that there are now
    (an answer)        QUERY_SECONDS          its computation; a copy: COPY_SECONDS; the client may set less (--timeout)

An instance without replicas is refused at once: none will come. A statement that waits holds no memory of answers. One
that waits for a replica holds a slot of `Limits.waits`, so that most calls stay free for other statements.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from typing import Any, TypeVar

from tidemark_operator.errors import AnswerTimedOut, NoReplicaAnswers, QueryNotReady, QueryRefused
from tidemark_operator.fleet.running_instance import SILENT_SECONDS, RunningInstance
from tidemark_operator.gateway.admission.fair_queue import FairQueue, QueueHold

T = TypeVar("T")
COMMON_TIME_SECONDS = 10.0
REPLICA_SECONDS = SILENT_SECONDS
LOOK_AGAIN_SECONDS = 0.1
QUERY_SECONDS, COPY_SECONDS = 3600.0, 12 * 3600.0
WaitSlot = Callable[[], AbstractAsyncContextManager[Any]]
"""Held while a statement waits for a replica; entering raises TooMany where none is free."""


class Wait:
    """The deadlines of one statement, one per kind of refusal; each begins with the first refusal of its kind.

    `seconds`: how long to wait for a complete time (default: COMMON_TIME_SECONDS).
    """

    def __init__(self, seconds: float | None = None, slot: WaitSlot = nullcontext) -> None:
        self._seconds = COMMON_TIME_SECONDS if seconds is None else seconds
        self._slot = slot
        self._deadlines: dict[type[QueryNotReady], float] = {}

    async def until(self, attempt: Callable[[], T]) -> T:
        """Repeat `attempt` while it raises QueryNotReady; return its result.

        Raises:
            QueryNotReady: the last refusal, when its deadline has passed.
            TooMany: too many statements wait for a replica.
        """
        while True:
            try:
                return attempt()
            except QueryNotReady as refusal:
                last = refusal
            await self.pause(last)

    async def pause(self, refusal: QueryNotReady) -> None:
        """Wait before the next attempt; raise `refusal` again when its deadline has passed."""
        now, kind = time.monotonic(), type(refusal)
        seconds = REPLICA_SECONDS if kind is NoReplicaAnswers else self._seconds
        if now > self._deadlines.setdefault(kind, now + seconds):
            raise refusal
        async with self._slot() if kind is NoReplicaAnswers else nullcontext():
            await asyncio.sleep(LOOK_AGAIN_SECONDS)


async def when_possible(attempt: Callable[[], T], seconds: float | None = None, slot: WaitSlot = nullcontext) -> T:
    """`Wait.until` with deadlines of its own."""
    return await Wait(seconds, slot).until(attempt)


@asynccontextmanager
async def hold_when_possible(
    memory: FairQueue, most: int, caller: str, attempt: Callable[[], T], slot: WaitSlot = nullcontext
) -> AsyncIterator[tuple[T, QueueHold]]:
    """Hold `most` bytes of memory, and yield what `attempt` makes at the moment in which they are held.

    The statement gives the memory back while it waits, so that a lost replica delays no statement on another one.

    Raises:
        QueryNotReady, TooMany: as `Wait.until`; TooMany also where no memory becomes free.
    """
    wait = Wait(slot=slot)
    while True:
        async with memory.hold(caller, most) as held:
            try:
                made = attempt()
            except QueryNotReady as refusal:
                last = refusal
            else:
                yield made, held
                return
        await wait.pause(last)
        await wait.until(attempt)


@asynccontextmanager
async def time_limit(seconds: float) -> AsyncIterator[None]:
    """Cancel the block after `seconds`, and raise AnswerTimedOut then."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise AnswerTimedOut(f"the answer took more than {seconds:g} s, the gateway's limit: ask for less") from None


def require_online(running: RunningInstance, operation: str) -> None:
    """Check that a replica of the instance is connected. `operation`: what cannot be done otherwise, for the message.

    Raises:
        NoReplicaAnswers: replicas are to run, and none is connected.
        QueryRefused: the instance has no replicas.
    """
    if running.online:
        return
    if not running.replicas:
        raise QueryRefused(
            f"{operation}: ComputeInstance {running.name} has no replica that is to run. Create a ComputeReplica, or "
            "scale it up"
        )
    raise NoReplicaAnswers(f"{operation}: {running.silence}")
