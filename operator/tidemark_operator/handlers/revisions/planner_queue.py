"""The Dataflow at the planner: one at a time, which is as many as the planner takes of plans that may be long.

    the planner is free               ► plan
    a plan that began just now runs   ► wait: most plans take milliseconds, and the next one follows at once
    a plan runs for a second          ► give way: the Dataflow stands in line, and is reconciled when it is first

A Dataflow that waits occupies a worker of the work queue, which others need for work without plans. The first in line
goes before all others in the work queue once the planner is free.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tidemark_operator.errors import PlannerBusy
from tidemark_operator.kube.cache import Key

SHORT_PLAN_SECONDS = 1.0
"""A plan that has run for less is expected to end soon."""


class PlannerQueue:
    """`again`: puts a Dataflow first in the work queue."""

    def __init__(self, again: Callable[[Key], None]) -> None:
        self._again = again
        self._lock = asyncio.Lock()
        self._changed_at = 0.0
        self._line: dict[Key, None] = {}

    def is_in_line(self, key: Key) -> bool:
        """Whether it gave way, and has not been reconciled since."""
        return key in self._line

    def leave(self, key: Key) -> None:
        """It is being reconciled, or is gone."""
        self._line.pop(key, None)

    @asynccontextmanager
    async def turn(self, key: Key) -> AsyncIterator[None]:
        """The planner is this Dataflow's. Raises PlannerBusy where another plan runs for long."""
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(self._changed_at + SHORT_PLAN_SECONDS):
                await self._lock.acquire()  # a free lock is taken at once, also after the deadline
        except TimeoutError:
            self._line[key] = None
            raise PlannerBusy("the planner works on a plan that takes long; this one waits for its turn") from None
        self._changed_at = loop.time()
        try:
            yield
        finally:
            self._changed_at = loop.time()
            self._lock.release()
            self.pass_on()

    def pass_on(self) -> None:
        """Reconciles the first in line, if the planner is free. It may need no plan any more: then the next one
        follows."""
        if self._line and not self._lock.locked():
            key = next(iter(self._line))
            self.leave(key)
            self._again(key)
