"""Whose statement is planned next: callers in turn, each with a few statements, so that nobody occupies the planner.

    anne   s1 s2 s3 s4 ──┐
    bob    s5 ───────────┼──► AT_ONCE at the planner: s1, s5, s2, s3, s4       one more than EACH, or than ALL: refused
    carl   (nothing)   ──┘

A caller has one at the planner at a time: whoever asks what takes long, or costs the planner a process each time, waits
for that, while others have the rest of the planner. What Dataflows need of it comes beside these.
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
        self._at_once, self._each, self._all = at_once, each, all
        self._planning: set[str] = set()
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
                self._give_back(caller)
        finally:
            self._asked[caller] -= 1
            if not self._asked[caller]:
                del self._asked[caller]

    async def _take(self, caller: str) -> None:
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append(turn)
        self._next()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn had come in the same moment
                self._give_back(caller)
            else:
                self._leave(caller, turn)
            raise

    def _leave(self, caller: str, turn: asyncio.Future[None]) -> None:
        """Who asks and goes, again and again, leaves nothing behind while its first statement is planned."""
        turns = self._waiting.get(caller, deque())
        if turn in turns:
            turns.remove(turn)
            if not turns:
                del self._waiting[caller]

    def _give_back(self, caller: str) -> None:
        self._planning.remove(caller)
        self._next()

    def _next(self) -> None:
        """The oldest statement of each caller whose turn it is; that caller is the last then."""
        while len(self._planning) < self._at_once:
            caller = next((caller for caller in self._waiting if caller not in self._planning), None)
            if caller is None:
                return
            turns = self._waiting.pop(caller)
            turn = turns.popleft()
            if turns:
                self._waiting[caller] = turns
            if not turn.cancelled():
                self._planning.add(caller)
                turn.set_result(None)
