"""How much of answers is held at a time, however slowly clients take them, and how many calls run.

    asked ──reserve the most that an answer may take──► answered ──keep what it takes──► taken by the client: free

A peek waits for room for the largest answer that a replica sends at once; what it does not need is free for the next
one as soon as the answer is there. A larger answer stays at the replica, and its reader holds the room that its pieces
take on their way. Queries with operators, which take long, have room of their own, so that they never keep
lookups waiting.

No caller has more than half of anything: what one asks, and however long that takes, leaves the others as much.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from tidemark_operator.errors import TooMany

PEEKS_BYTES = 128 * 1024 * 1024
ONE_SHOTS_BYTES = 16 * 1024 * 1024


class Places:
    """So many of a kind at a time, half of them for each caller. `what`: their name, in the plural; `advice`: for those
    who get none."""

    def __init__(self, most: int, what: str, advice: str) -> None:
        self._most, self._each, self._what, self._advice = most, most // 2, what, advice
        self._taken: Counter[str] = Counter()

    def check(self, caller: str) -> None:
        """Raises TooMany where there is none for this caller now."""
        if self._taken.total() >= self._most:
            raise TooMany(f"{self._most} {self._what} run already, and no more do at a time: {self._advice}")
        if self._taken[caller] >= self._each:
            raise TooMany(
                f"{self._each} {self._what} of {caller} run already, and no caller has more at a time: {self._advice}"
            )

    @contextmanager
    def taken(self, caller: str) -> Iterator[None]:
        """Raises TooMany."""
        self.check(caller)
        self._taken[caller] += 1
        try:
            yield
        finally:
            self._taken[caller] -= 1
            if not self._taken[caller]:
                del self._taken[caller]


class Room:
    """Bytes that may be held: `limit` by all, half of it by each caller. Callers come in in turn, each with what it
    asked first; one who has its half waits, and keeps nobody waiting."""

    def __init__(self, limit: int) -> None:
        self.free = limit
        self._each = max(limit // 2, 1)
        self._held: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[tuple[int, asyncio.Future[None]]]] = OrderedDict()

    def is_wanted(self, by_others_than: str) -> bool:
        """Whether somebody waits for what this caller holds."""
        return by_others_than in self._waiting or any(map(self._may_have_more, self._waiting))

    @asynccontextmanager
    async def reserved(self, most: int, caller: str) -> AsyncIterator[Reservation]:
        """Waits until there is room for `most` bytes, or for all that the caller may have if that is less."""
        most = min(most, self._each)
        await self._take(most, caller)
        reservation = Reservation(self, most, caller)
        try:
            yield reservation
        finally:
            reservation.shrink(0)

    async def _take(self, size: int, caller: str) -> None:
        if not self._waiting and self.free >= size and self._held[caller] + size <= self._each:
            self._hold(caller, size)
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(caller, deque()).append((size, turn))
        self._let_in()
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn had come in the same moment
                self.give_back(size, caller)
            else:
                self._leave(caller, size, turn)
                self._let_in()
            raise

    def give_back(self, size: int, caller: str) -> None:
        """Those who wait come in, in their order, as far as there is room."""
        self._hold(caller, -size)
        self._let_in()

    def _hold(self, caller: str, more: int) -> None:
        self.free -= more
        self._held[caller] += more
        if not self._held[caller]:
            del self._held[caller]

    def _let_in(self) -> None:
        while (caller := next(filter(self._may_have_more, self._waiting), None)) is not None:
            size, turn = self._waiting[caller][0]
            if not turn.cancelled() and self.free < size:
                return  # nobody overtakes it: it would wait for ever
            self._leave(caller, size, turn)
            if caller in self._waiting:
                self._waiting.move_to_end(caller)
            if not turn.cancelled():
                self._hold(caller, size)
                turn.set_result(None)

    def _may_have_more(self, caller: str) -> bool:
        """Of one who waits."""
        return self._held[caller] + self._waiting[caller][0][0] <= self._each

    def _leave(self, caller: str, size: int, turn: asyncio.Future[None]) -> None:
        waiting = self._waiting.get(caller, deque())
        if (size, turn) in waiting:
            waiting.remove((size, turn))
            if not waiting:
                del self._waiting[caller]


class Reservation:
    """Bytes that one call holds."""

    def __init__(self, room: Room, size: int, caller: str) -> None:
        self._room, self._size, self._caller = room, size, caller

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for it."""
        return self._room.is_wanted(self._caller)

    def shrink(self, to: int) -> None:
        """So much is held from now on; never more than before."""
        if to < self._size:
            given, self._size = self._size - to, to
            self._room.give_back(given, self._caller)
