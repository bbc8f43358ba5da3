"""The documents of all sources of kind introspection, which share one twentieth of the event loop.

    source a, tick ─┐
    source b, tick ─┼─► one after the other: document, pause, document, pause, ...
    source c, tick ─┘   (of b seconds: a pause of 20 b)

With more sources than the share is enough for, each gets its documents later, and misses ticks.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from time import monotonic, thread_time
from typing import Any

from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.introspection.documents import document, encoded

PAUSE_FACTOR = 20
"""The pause after a document is so many times as long as the document took of the event loop."""
SENDING_SECONDS_PER_BYTE = 5e-9
"""The event loop's time that sending a document takes."""


@dataclass(frozen=True)
class SharedDocument:
    """`term`: the operator's. `moment`: in milliseconds. `obstacle`: why there are no rows, empty with rows."""

    term: int
    moment: int
    body: bytes
    obstacle: str = ""

    def refused(self, text: str) -> bytes:
        """The body that the operator sends where the replica refuses this document: its tables say why."""
        told = f"RowsRefused: the replica does not take the rows, so the tables stand still: {text}"
        return encoded({"term": self.term, "moment": self.moment, "obstacle": told})


class SharedDocuments:
    """Makes documents, for one source at a time."""

    def __init__(
        self,
        context: ReconcileContext,
        clock: Callable[[], float] = monotonic,
        sleep: Callable[[float], Awaitable[Any]] = asyncio.sleep,
    ) -> None:
        self._context, self._clock, self._sleep = context, clock, sleep
        self._turn = asyncio.Lock()  # waiting sources get it in the order in which they came
        self._free_at = clock()

    async def make(self, namespace: str, names: tuple[str, ...]) -> SharedDocument:
        """A document with the rows of these relations."""
        async with self._turn:
            await self._sleep(max(self._free_at - self._clock(), 0.0))
            made = await self._make(namespace, names)
            self._spend(len(made.body) * SENDING_SECONDS_PER_BYTE)
            return made

    async def _make(self, namespace: str, names: tuple[str, ...]) -> SharedDocument:
        began = self._clock()
        try:
            found = document(self._context, namespace, names)
        finally:
            self._spend(self._clock() - began)
        body, seconds = await asyncio.to_thread(_encoded, found)
        self._spend(seconds)
        return SharedDocument(found["term"], found["moment"], body, found.get("obstacle", ""))

    def _spend(self, seconds: float) -> None:
        self._free_at = max(self._free_at, self._clock()) + PAUSE_FACTOR * seconds


def _encoded(found: dict[str, Any]) -> tuple[bytes, float]:
    """The body, and the seconds that the other threads had to wait for it."""
    began = thread_time()
    return encoded(found), thread_time() - began
