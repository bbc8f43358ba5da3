"""What a thread sees of objects, handed over to the loop that acts on it.

    watches' thread ─► the newest of each object that waits ─► the loop, a hundred at a time

Of an object that changes again before the loop has come to it only the newest is kept, as in the cache that it is for.
So what waits is no more than there are objects, and those that came and went meanwhile, however long the loop is held
up; and the thread never waits for it.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from itertools import islice

from tidemark_operator.kube.client import Body, Resource

LOG = logging.getLogger(__name__)
AT_ONCE = 100
"""Then it is others' turn on the loop."""
Observed = Callable[[Resource, Body, bool], None]
"""The object, and whether it was deleted."""


class Handover:
    """To the loop that it is made on."""

    def __init__(self, observed: Observed) -> None:
        self._observed, self._loop = observed, asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._waiting: dict[tuple[Resource, str], tuple[Body, bool]] = {}
        self._called = False

    def give(self, resource: Resource, body: Body, deleted: bool) -> None:
        """From any thread. By uid: the end of an object and the beginning of another of its name are both told."""
        with self._lock:
            self._waiting[resource, body["metadata"]["uid"]] = (body, deleted)
            if self._called:
                return
            self._called = True
        self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        with self._lock:
            taken = list(islice(self._waiting.items(), AT_ONCE))
            for key, _ in taken:
                del self._waiting[key]
            self._called = more = bool(self._waiting)
        if more:
            self._loop.call_soon(self._take)
        for (resource, uid), (body, deleted) in taken:
            try:
                self._observed(resource, body, deleted)
            except Exception:
                # the others were taken with it, and nobody gives them again
                LOG.exception("what was seen of %s with uid %s was lost", resource.kind, uid)
