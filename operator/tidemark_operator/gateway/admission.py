"""How much of answers is held at a time, however slowly clients take them.

    asked ──reserve the most that an answer may take──► answered ──keep what it takes──► taken by the client: free

A peek waits for room for the largest answer that a replica sends at once; what it does not need is free for the next
one as soon as the answer is there. A larger answer stays at the replica, and its reader holds the room that its pieces
take on their way. Queries with operators, which take long, have room of their own, so that they never keep
lookups waiting.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

PEEKS_BYTES = 128 * 1024 * 1024
ONE_SHOTS_BYTES = 16 * 1024 * 1024


class Room:
    """Bytes that may be held, given out in the order of asking."""

    def __init__(self, limit: int) -> None:
        self.free = limit
        self._limit = limit
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    @asynccontextmanager
    async def reserved(self, most: int) -> AsyncIterator[Reservation]:
        """Waits until there is room for `most` bytes, or for all there is if that is less."""
        most = min(most, self._limit)
        await self._take(most)
        reservation = Reservation(self, most)
        try:
            yield reservation
        finally:
            reservation.shrink(0)

    async def _take(self, size: int) -> None:
        if not self._waiting and self.free >= size:
            self.free -= size
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((size, turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # its turn had come in the same moment
                self.give_back(size)
            else:
                if (size, turn) in self._waiting:
                    self._waiting.remove((size, turn))
                self.give_back(0)
            raise

    def give_back(self, size: int) -> None:
        """Those who wait come in, in their order, as far as there is room."""
        self.free += size
        while self._waiting and self.free >= self._waiting[0][0]:
            wanted, turn = self._waiting.popleft()
            if not turn.cancelled():
                self.free -= wanted
                turn.set_result(None)


class Reservation:
    """Bytes that one call holds."""

    def __init__(self, room: Room, size: int) -> None:
        self._room, self._size = room, size

    def shrink(self, to: int) -> None:
        """So much is held from now on; never more than before."""
        if to < self._size:
            given, self._size = self._size - to, to
            self._room.give_back(given)
