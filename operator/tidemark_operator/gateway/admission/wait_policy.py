"""What cannot be answered yet is looked at again, for a while.

    nothing is complete    COMMON_TIME_SECONDS    what the operator knows of frontiers is a moment old
    nobody answers         REPLICA_SECONDS        a replica that was lost is started again, or found again
    a query is computed    QUERY_SECONDS          a copy: COPY_SECONDS; whoever asks may set less (--timeout)

An instance without replicas is refused at once: nobody is on the way. Who waits holds no room that others could use,
but a call: so of those who wait for a replica there may be so many at a time (`Place`), and calls are left for others.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, asynccontextmanager, nullcontext
from typing import TypeVar

from tidemark_operator.errors import NobodyAnswers, NotYet, QueryRefused, TookTooLong
from tidemark_operator.fleet.running_instance import SILENT_SECONDS, RunningInstance
from tidemark_operator.gateway.admission.answer_memory import Reservation, Room

T = TypeVar("T")
COMMON_TIME_SECONDS = 10.0
REPLICA_SECONDS = SILENT_SECONDS
LOOK_AGAIN_SECONDS = 0.1
QUERY_SECONDS, COPY_SECONDS = 3600.0, 12 * 3600.0
Place = Callable[[], AbstractContextManager[None]]
"""Of one who waits for a replica; raises TooMany where there is none."""


class Patience:
    """Of one query, however often it is looked at. `seconds`: for how long a complete time is waited for."""

    def __init__(self, seconds: float | None = None, place: Place = nullcontext) -> None:
        self._seconds = COMMON_TIME_SECONDS if seconds is None else seconds
        self._place = place
        self._ends: dict[type[NotYet], float] = {}

    async def until(self, query: Callable[[], T]) -> T:
        """What `query` makes, as soon as it raises NotYet no more; raises what it raises, at the latest after a
        while."""
        while True:
            try:
                return query()
            except NotYet as refused:
                early = refused
            await self.pause(early)

    async def pause(self, early: NotYet) -> None:
        """Until it is worth another look; raises it again when there was time enough for that."""
        now, kind = time.monotonic(), type(early)
        mine = REPLICA_SECONDS if kind is NobodyAnswers else self._seconds
        if now > self._ends.setdefault(kind, now + mine):
            raise early
        # given back for the look alone, in which nobody else has a turn
        with self._place() if kind is NobodyAnswers else nullcontext():
            await asyncio.sleep(LOOK_AGAIN_SECONDS)


async def when_possible(query: Callable[[], T], seconds: float | None = None, place: Place = nullcontext) -> T:
    """What `query` makes, waited for with the patience of its own."""
    return await Patience(seconds, place).until(query)


@asynccontextmanager
async def inside(
    room: Room, most: int, caller: str, query: Callable[[], T], place: Place = nullcontext
) -> AsyncIterator[tuple[T, Reservation]]:
    """What `query` makes of the moment in which there is room for `most` bytes. It waits for its own moment outside:
    a replica that is lost keeps nobody waiting who asks another one."""
    patience = Patience(place=place)
    while True:
        async with room.reserved(most, caller) as held:
            try:
                made = query()
            except NotYet as refused:
                early = refused
            else:
                yield made, held
                return
        await patience.pause(early)
        await patience.until(query)


@asynccontextmanager
async def at_most(seconds: float) -> AsyncIterator[None]:
    """What is awaited in it ends after so long; raises TookTooLong then."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError:
        raise TookTooLong(f"it was computed for {seconds:g} s, which is as long as any may be: ask for less") from None


def must_answer(running: RunningInstance, what: str) -> None:
    """Raises NobodyAnswers where none of the instance's replicas does, QueryRefused where it has none. `what` cannot be
    done then."""
    if running.online:
        return
    if not running.replicas:
        raise QueryRefused(f"{what}: ComputeInstance {running.name} has no replica that is to run")
    raise NobodyAnswers(f"{what}: {running.silence}")
