"""What a client of a subscribe has still to be sent, in bounded memory however slowly it reads.

put(batch) ──► waiting ──next()──► the client          past MOST_BYTES: SubscribeTooSlow, and nothing waits any more
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from tidemark_operator.controller.subscribes import SubscribeAdvanced
from tidemark_operator.errors import SubscribeEnded

MOST_BYTES = 64 * 1024 * 1024


class Subscription:
    """One subscribe. `ended` is called once no more of it is wanted."""

    def __init__(self, ended: Callable[[], None], most_bytes: int = MOST_BYTES) -> None:
        self._ended, self._most_bytes = ended, most_bytes
        self._waiting: deque[SubscribeAdvanced] = deque()
        self._bytes = 0
        self._news = asyncio.Event()
        self._failure: str | None = None

    def put(self, news: SubscribeAdvanced) -> None:
        if self._failure is not None:
            return
        if news.batch.error is not None:
            self.fail(news.batch.error)
        elif self._waiting and not news.batch.updates and not self._waiting[-1].batch.updates:
            self._waiting[-1] = _joined(self._waiting[-1], news)
        else:
            self._bytes += len(news.batch.updates)
            self._waiting.append(news)
            if self._bytes > self._most_bytes:
                self._waiting.clear()
                self.fail(
                    f"the client is too slow: {self._bytes} bytes wait for it, at most {self._most_bytes} may. "
                    "Subscribe to less (a filter, fewer columns), or without the snapshot"
                )
            self._news.set()

    def fail(self, why: str) -> None:
        """Nothing will come after what waits; the first reason counts."""
        if self._failure is None:
            self._failure = why
            self._news.set()
            self._ended()

    async def next(self) -> SubscribeAdvanced:
        """The next batch; raises SubscribeEnded after the last, if it has ended before its time."""
        while not self._waiting:
            if self._failure is not None:
                raise SubscribeEnded(self._failure)
            self._news.clear()
            await self._news.wait()
        news = self._waiting.popleft()
        self._bytes -= len(news.batch.updates)
        return news


def _joined(first: SubscribeAdvanced, second: SubscribeAdvanced) -> SubscribeAdvanced:
    """Two batches without updates as one."""
    return replace(first, batch=replace(second.batch, lower=first.batch.lower, lower_part=first.batch.lower_part))
