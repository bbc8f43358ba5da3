"""A bounded, fair queue with a deadline: how the gateway shares whatever it has little of.

    hold(caller, units) ──► fits now?                    held at once
                        ──► the queue is full?           TooMany: says which bound, and what to do
                        ──► waits, callers in turn ──►   held, or TooMany after `deadline_seconds`

Units are calls, statements at the planner, or bytes of answers. Each caller holds at most `share` units. A caller whose
share is used up waits and delays nobody else. Among the others the first in line waits for enough free units, and no
later request overtakes it, so a large request is not starved by small ones.

A call that waits can tell its client its place in the queue: it sets PLACE_LISTENER.
"""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict, deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar

from tidemark_operator.errors import TooMany

DEADLINE_SECONDS = 300.0
PLACE_SECONDS = 1.0
"""The seconds between two messages of a request that waits about its place."""
PLACE_LISTENER: ContextVar[Callable[[str], Awaitable[None]] | None] = ContextVar("PLACE_LISTENER", default=None)
"""Receives a sentence with the place of a request of this call in a queue, each time that it has changed."""
_Request = tuple[int, asyncio.Future[None]]


class FairQueue:
    """`capacity` units for all callers, `share` of them (default: half) for each; not thread-safe.

    `waiting`: how many requests may wait, `waiting_share` of them (default: half) per caller; 0: a request that does
    not fit is refused at once. `units_name`: the plural that errors use; `advice`: what a refused caller can do.
    """

    def __init__(
        self,
        units_name: str,
        capacity: int,
        advice: str,
        *,
        share: int | None = None,
        waiting: int = 0,
        waiting_share: int | None = None,
        deadline_seconds: float = DEADLINE_SECONDS,
    ) -> None:
        self.free = self._capacity = capacity
        self._share = max(capacity // 2, 1) if share is None else share
        self._waiting_limit = waiting
        self._waiting_share = waiting // 2 if waiting_share is None else waiting_share
        self._name, self._advice, self._deadline_seconds = units_name, advice, deadline_seconds
        self._held: Counter[str] = Counter()
        self._waiting: OrderedDict[str, deque[_Request]] = OrderedDict()

    def check(self, caller: str, units: int = 1) -> None:
        """Raise TooMany if `hold` could not be granted now."""
        if self._held[caller] + units > self._share:
            raise TooMany(
                f"{self._share} {self._name} of {caller} run already, the most for one caller: {self._advice}"
            )
        if self.free < units:
            raise TooMany(f"{self._capacity} {self._name} run already, the most at a time: {self._advice}")

    @asynccontextmanager
    async def hold(self, caller: str, units: int = 1) -> AsyncIterator[QueueHold]:
        """Hold `units`, or the caller's whole share where that is less, until the block ends.

        Raises:
            TooMany: the queue is full, or the deadline passed while the request waited.
        """
        hold = await self.acquire(caller, units)
        try:
            yield hold
        finally:
            hold.shrink(0)

    async def acquire(self, caller: str, units: int = 1) -> QueueHold:
        """Hold units like `hold`, until the caller releases them by `shrink(0)`. Raises TooMany."""
        units = min(units, self._share)
        if not self._waiting and units <= self.free and self._held[caller] + units <= self._share:
            self._take(caller, units)
            return QueueHold(self, caller, units)
        granted: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        request = (units, granted)
        self._waiting.setdefault(caller, deque()).append(request)
        self._grant()
        try:
            if not granted.done():
                self._check_waiting(caller, units)
            async with asyncio.timeout(self._deadline_seconds):
                await self._await_grant(caller, request)
        except BaseException as error:
            place = self._describe_place(caller, request)
            if granted.done() and not granted.cancelled():  # granted in the moment in which the request was given up
                self.release(caller, units)
            else:
                self._withdraw(caller, request)
                self._grant()
            if isinstance(error, TimeoutError):
                raise TooMany(
                    f"no room among {self._name} for {self._deadline_seconds:g} s, others hold it, and this one is at "
                    f"{place}: {self._advice}"
                ) from None
            raise
        return QueueHold(self, caller, units)

    def release(self, caller: str, units: int) -> None:
        """Give units back, and grant the requests that fit now."""
        self._take(caller, -units)
        self._grant()

    def is_wanted(self, holder: str) -> bool:
        """Whether a request waits for units that `holder` has: its own, or one of a caller with share left."""
        return holder in self._waiting or any(map(self._has_share, self._waiting))

    async def _await_grant(self, caller: str, request: _Request) -> None:
        """Wait for the grant, and tell the call's listener, if there is one, the place until then."""
        _, granted = request
        listener, told = PLACE_LISTENER.get(), ""
        while listener is not None and not (await asyncio.wait({granted}, timeout=PLACE_SECONDS))[0]:
            if (place := self._describe_place(caller, request)) != told:
                told = place
                await listener(f"waiting at {place} among {self._name}")
        await granted

    def _describe_place(self, caller: str, request: _Request) -> str:
        """The place of a request that waits, as text: how many are granted up to it, if each caller has share left."""
        callers = list(self._waiting)
        if caller not in self._waiting or request not in self._waiting[caller]:
            return "the head of the queue"
        before, turn = self._waiting[caller].index(request), callers.index(caller)
        others = sum(
            min(len(self._waiting[other]), before + (at < turn)) for at, other in enumerate(callers) if at != turn
        )
        return f"place {before + others + 1} of {sum(map(len, self._waiting.values()))}"

    def _check_waiting(self, caller: str, units: int) -> None:
        """Raise TooMany where the request, which is in line already, is one too many to wait."""
        if not self._waiting_limit:
            self.check(caller, units)
        if len(self._waiting[caller]) > self._waiting_share:
            raise TooMany(
                f"{self._waiting_share} {self._name} of {caller} wait already, the most for one caller: {self._advice}"
            )
        if sum(map(len, self._waiting.values())) > self._waiting_limit:
            raise TooMany(f"{self._waiting_limit} {self._name} wait already, the most at a time: {self._advice}")

    def _grant(self) -> None:
        """The oldest request of each caller in turn; a caller that was granted one is the last in line then."""
        while (caller := next(filter(self._has_share, self._waiting), None)) is not None:
            units, granted = request = self._waiting[caller][0]
            if self.free < units:
                return
            self._withdraw(caller, request)
            if caller in self._waiting:
                self._waiting.move_to_end(caller)
            if not granted.cancelled():
                self._take(caller, units)
                granted.set_result(None)

    def _has_share(self, caller: str) -> bool:
        return self._held[caller] + self._waiting[caller][0][0] <= self._share

    def _take(self, caller: str, units: int) -> None:
        self.free -= units
        self._held[caller] += units
        if not self._held[caller]:
            del self._held[caller]

    def _withdraw(self, caller: str, request: _Request) -> None:
        requests = self._waiting.get(caller, deque())
        if request in requests:
            requests.remove(request)
            if not requests:
                del self._waiting[caller]


class QueueHold:
    """Units of a FairQueue that one call holds."""

    def __init__(self, queue: FairQueue, caller: str, units: int) -> None:
        self._queue, self._caller, self._units = queue, caller, units

    @property
    def is_wanted(self) -> bool:
        """Whether another request waits for these units."""
        return self._queue.is_wanted(self._caller)

    def shrink(self, units: int) -> None:
        """Hold so many from now on; a hold never grows."""
        if units < self._units:
            released, self._units = self._units - units, units
            self._queue.release(self._caller, released)
