"""Which Dataflow is at the planner: one at a time, which is as many as it plans of those that may take long.

    nobody is there          ► plan
    somebody, for a moment   ► wait: most plans take milliseconds, and so the next one follows at once
    somebody, for longer     ► give way, and be looked at again when it is one's turn, or after a while

Who waits has a worker of the queue, which others need for what has nothing to do with plans. Who gave way is in a line,
and the first of it comes before all others in the queue when the planner is free.
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
    """`again`: looks at a Dataflow again, before all others."""

    def __init__(self, again: Callable[[Key], None]) -> None:
        self._again = again
        self._lock = asyncio.Lock()
        self._changed_at = 0.0
        self._line: dict[Key, None] = {}

    def is_in_line(self, key: Key) -> bool:
        """Whether it gave way, and has not been looked at since."""
        return key in self._line

    def leave(self, key: Key) -> None:
        """It is looked at, or gone."""
        self._line.pop(key, None)

    @asynccontextmanager
    async def taken(self, key: Key) -> AsyncIterator[None]:
        """Raises GaveWay."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(self._changed_at + PATIENCE_SECONDS):
                await self._lock.acquire()  # at once where nobody is there, whenever that was
        except TimeoutError:
            self._line[key] = None
            raise GaveWay("another plan takes long") from None
        self._changed_at = loop.time()
        try:
            yield
        finally:
            self._changed_at = loop.time()
            self._lock.release()
            self.pass_on()

    def pass_on(self) -> None:
        """Whoever was told may have needed no turn any more: then it is the next one's."""
        if self._line and not self._lock.locked():
            key = next(iter(self._line))
            self.leave(key)
            self._again(key)
