"""Hands events over from the watches' thread to the operator's loop.

    watches' thread ─► the newest event of each object ─► the loop, a hundred at a time

If an object changes again before the loop takes its event, only the newest event is kept. So at most one event waits
for each object that exists, or existed meanwhile, however long the loop is busy; and the thread never waits for the
loop."""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from itertools import islice

from tidemark_operator.kube.client import Body, Resource

LOG = logging.getLogger(__name__)
BATCH = 100
"""Events per turn on the loop."""
Observed = Callable[[Resource, Body, bool], None]
"""The object, and whether it was deleted."""


class EventHandoff:
    """Calls `observed` on the event loop that the handoff was made on."""

    def __init__(self, observed: Observed) -> None:
        self._observed, self._loop = observed, asyncio.get_running_loop()
        self._lock = threading.Lock()
        self._waiting: dict[tuple[Resource, str], tuple[Body, bool]] = {}
        self._called = False

    def give(self, resource: Resource, body: Body, deleted: bool) -> None:
        """Hand an event over, from any thread. Events are kept by uid, so that the deletion of an object is not
        replaced by the creation of another one of its name."""
        with self._lock:
            self._waiting[resource, body["metadata"]["uid"]] = (body, deleted)
            if self._called:
                return
            self._called = True
        self._loop.call_soon_threadsafe(self._take)

    def _take(self) -> None:
        with self._lock:
            taken = list(islice(self._waiting.items(), BATCH))
            for key, _ in taken:
                del self._waiting[key]
            self._called = more = bool(self._waiting)
        if more:
            self._loop.call_soon(self._take)
        for (resource, uid), (body, deleted) in taken:
            try:
                self._observed(resource, body, deleted)
            except Exception:
                # goes on: the other events of the batch do not come again
                LOG.exception("the event of %s with uid %s was dropped: handling it failed", resource.kind, uid)
