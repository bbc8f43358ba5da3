"""Batches that wait for the clients of subscribes, in bounded memory however slowly they read.

put(batch) ──► waiting ──next()──► the client       beyond MOST_BYTES in sum, the subscribe furthest behind ends
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from dataclasses import replace

from tidemark_operator.controller.answers.subscribes import SubscribeAdvanced
from tidemark_operator.errors import SubscribeBehind, SubscribeEnded, SubscribeVoid

MOST_BYTES = 64 * 1024 * 1024


class Backlog:
    """The batches that wait for all clients of an operator."""

    def __init__(self, most_bytes: int = MOST_BYTES) -> None:
        self._most_bytes = most_bytes
        self._behind: set[Subscription] = set()

    def changed(self, subscription: Subscription) -> None:
        """The number of bytes that wait for this subscription has changed."""
        (self._behind.add if subscription.waiting_bytes else self._behind.discard)(subscription)
        while (waiting := sum(each.waiting_bytes for each in self._behind)) > self._most_bytes:
            max(self._behind, key=lambda each: each.waiting_bytes).give_up(waiting, self._most_bytes)


class Subscription:
    """One subscribe. `ended`: called when it needs no more batches; `failure`: why nothing follows the waiting
    batches."""

    def __init__(self, ended: Callable[[], None], backlog: Backlog) -> None:
        self._ended, self._backlog = ended, backlog
        self._waiting: deque[SubscribeAdvanced] = deque()
        self.waiting_bytes = 0
        self._news = asyncio.Event()
        self.failure: SubscribeEnded | None = None
        self.given_up = asyncio.Event()

    def put(self, news: SubscribeAdvanced) -> None:
        """Queue a batch; two batches without updates become one."""
        if self.failure is not None:
            return
        if news.batch.error is not None:
            self.fail((SubscribeVoid if news.batch.is_void else SubscribeEnded)(news.batch.error))
        elif self._waiting and not news.batch.updates and not self._waiting[-1].batch.updates:
            self._waiting[-1] = _joined(self._waiting[-1], news)
        else:
            self._waiting.append(news)
            self._count(len(news.batch.updates))
            self._news.set()

    def give_up(self, waiting: int, most: int) -> None:
        """End this subscribe: it is the furthest behind, and more bytes wait than may."""
        wait = f"{self.waiting_bytes} bytes wait for it, and {waiting} for all clients, of at most {most}"
        why = f"the client reads too slowly: {wait}"
        self.end(SubscribeBehind(why))

    def end(self, why: SubscribeEnded) -> None:
        """End it at once; waiting batches are discarded."""
        self.close()
        self.fail(why)
        self.given_up.set()

    def close(self) -> None:
        """Discard waiting batches."""
        self._waiting.clear()
        self._count(-self.waiting_bytes)

    def fail(self, why: SubscribeEnded) -> None:
        """Let it end after the waiting batches; the first reason counts."""
        if self.failure is None:
            self.failure = why
            self._news.set()
            self._ended()

    async def next(self) -> SubscribeAdvanced:
        """The next batch. Raises: SubscribeEnded after the last one."""
        while not self._waiting:
            if self.failure is not None:
                raise self.failure
            self._news.clear()
            await self._news.wait()
        news = self._waiting.popleft()
        self._count(-len(news.batch.updates))
        return news

    def _count(self, more: int) -> None:
        self.waiting_bytes += more
        self._backlog.changed(self)


def _joined(first: SubscribeAdvanced, second: SubscribeAdvanced) -> SubscribeAdvanced:
    """Two batches without updates as one."""
    return replace(first, batch=replace(second.batch, lower=first.batch.lower, lower_part=first.batch.lower_part))
