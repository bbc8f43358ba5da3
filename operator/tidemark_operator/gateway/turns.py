"""Whose statement is planned next: callers in turn, each with a few statements, so that nobody occupies the planner.

    anne   s1 s2 s3 s4 ──┐
    bob    s5 ───────────┼──► AT_ONCE at the planner: s1, s5, s2, s3, s4       one more than EACH, or than ALL: refused
    carl   (nothing)   ──┘

The planner takes one statement after the other; what Dataflows need of it comes beside these, and waits for AT_ONCE of
them at most.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidemark_operator.errors import TooMany

AT_ONCE, EACH, ALL = 2, 8, 64


class Turns:
    """Of one gateway."""

    def __init__(self, at_once: int = AT_ONCE, each: int = EACH, all: int = ALL) -> None:
        self._free, self._each, self._all = at_once, each, all
        self._asked: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def turn(self, caller: str) -> AsyncIterator[None]:
        """Waits until it is the caller's turn; raises TooMany."""
        if self._asked[caller] >= self._each:
            raise TooMany(f"{self._each} statements of {caller} are being planned, or wait to be: wait for one of them")
        if self._asked.total() >= self._all:
            raise TooMany(f"{self._all} statements wait to be planned: try again")
        self._asked[caller] += 1
        try:
            await self._take(caller)
            try:
                yield
            finally:
                self._give_back()
        finally:
            self._asked[caller] -= 1
            if not self._asked[caller]:
                del self._asked[caller]

    async def _take(self, caller: str) -> None:
        if self._free:
            self._free -= 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn had come in the same moment
                self._give_back()
            raise

    def _give_back(self) -> None:
        """The next caller's oldest statement; that caller is the last then."""
        while self._waiting:
            caller, turns = self._waiting.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._waiting[caller] = turns
            if not turn.cancelled():
                turn.set_result(None)
                return
        self._free += 1
