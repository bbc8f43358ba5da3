"""Which Dataflow is at the planner: one at a time, which is as many as it plans of those that may take long.

    nobody is there          ► plan
    somebody, for a moment   ► wait: most plans take milliseconds, and so the next one follows at once
    somebody, for longer     ► give way, and be looked at again when that one is done

Who waits has a worker of the queue, which others need for what has nothing to do with plans.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tidemark_operator.errors import GaveWay
from tidemark_operator.kube.cache import Key

PATIENCE_SECONDS = 1.0
"""From when a plan was begun: as long as it has not taken longer, it is taken for one that is soon done."""


class PlannersTurn:
    """`again`: looks at a Dataflow again, soon."""

    def __init__(self, again: Callable[[Key], None]) -> None:
        self._again = again
        self._lock = asyncio.Lock()
        self._changed_at = 0.0
        self._gave_way: dict[Key, None] = {}

    @asynccontextmanager
    async def taken(self, key: Key) -> AsyncIterator[None]:
        """Raises GaveWay."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(self._changed_at + PATIENCE_SECONDS):
                await self._lock.acquire()  # at once where nobody is there, whenever that was
        except TimeoutError:
            self._gave_way[key] = None
            raise GaveWay("waiting for its turn at the planner, where another plan takes long") from None
        self._changed_at = loop.time()
        self._gave_way.pop(key, None)
        try:
            yield
        finally:
            self._changed_at = loop.time()
            self._lock.release()
            self._tell()

    def _tell(self) -> None:
        """All: who comes first has the next turn, and the others may find that they need none any more."""
        told, self._gave_way = self._gave_way, {}
        for key in told:
            self._again(key)
