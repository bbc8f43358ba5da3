"""A watch for failed executors. Spark deletes their pods within two seconds, so a periodic list would miss many.

the API server ─► pods of executors that become Failed ─► the last one of each driver, kept for ten minutes

There is one watch over all namespaces, or one for each namespace of the operator. The watches of namespaces take turns,
because each holds a connection of the shared client. A watch resumes at its resource version, so failures between two
turns of a namespace are reported in the next turn.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from tidemark_operator.kube.client import ApiError, Body
from tidemark_operator.kube.objects import PODS, Objects
from tidemark_operator.orchestrator.interface import Problem
from tidemark_operator.orchestrator.kubernetes import pod_observation
from tidemark_operator.orchestrator.kubernetes.names import EXECUTOR, MANAGED, ROLE
from tidemark_operator.orchestrator.kubernetes.ownership import controller
from tidemark_operator.orchestrator.local.supervised_process import backoff_ms

LOG = logging.getLogger(__name__)
EXECUTORS = ",".join(f"{name}={value}" for name, value in {**MANAGED, ROLE: EXECUTOR}.items())
FAILED = "status.phase=Failed"
AT_ONCE = 16
"""Concurrent watches, of the 100 connections of the client."""
WATCH_SECONDS = 8
"""Length of a watch, less than the timeout of a request. A loss is reported at most this late, plus the wait for a
turn."""
SHORTEST_SECONDS = 3
"""Length of a watch with many namespaces. The API server sends a bookmark two seconds before the end of a quiet
watch."""
LEAST_SECONDS = 1.0
"""Least time between two watches, for an API server that ends each watch at once."""
GONE = 410
"""HTTP status: the resource version has expired, and the watch must begin with a new list."""
REPORTED_SECONDS = 600.0


class ExecutorLosses:
    """The last failure of an executor, by driver. `clock`: monotonic, in seconds."""

    def __init__(self, objects: Objects, clock: Callable[[], float] = time.monotonic) -> None:
        self._objects, self._clock = objects, clock
        self._last: dict[str, tuple[float, Problem]] = {}

    def last(self, driver: str) -> Problem | None:
        """The last failure within ten minutes; `driver`: the uid of the driver's pod."""
        when, problem = self._last.get(driver, (0.0, None))
        return problem if problem and self._clock() - when < REPORTED_SECONDS else None

    def note(self, pod: Body) -> None:
        """Record the failure of an executor's pod."""
        owner, problem = controller(pod, PODS), pod_observation.problem_of_executor(pod)
        if owner and problem:
            self._last[owner["uid"]] = (self._clock(), problem)

    def forget(self) -> None:
        """Drop failures older than ten minutes."""
        self._last = {driver: loss for driver, loss in self._last.items() if self.last(driver)}

    async def watch(self, namespaces: Sequence[str]) -> None:
        """Watch until cancelled. `namespaces` empty: one watch over all namespaces."""
        turns = asyncio.Semaphore(AT_ONCE)
        seconds = min(WATCH_SECONDS, max(SHORTEST_SECONDS, WATCH_SECONDS * AT_ONCE // max(1, len(namespaces))))
        async with asyncio.TaskGroup() as tasks:
            for namespace in namespaces or ("",):
                tasks.create_task(self._follow(namespace, turns, seconds))

    async def _follow(self, namespace: str, turns: asyncio.Semaphore, seconds: int) -> None:
        """Watch one namespace until cancelled; empty: all of them."""
        asked, since, failures = (PODS, namespace, EXECUTORS, FAILED), "", 0
        while True:
            async with turns:
                began = self._clock()
                try:
                    failed, now = await self._objects.changes(*asked, since, seconds)
                except ApiError as error:
                    failures, pause = failures + 1, backoff_ms(failures + 1) / 1000
                    if failures == 1 and error.status != GONE:
                        LOG.warning(
                            "failed executors cannot be watched%s: %s",
                            namespace and f" in namespace {namespace}",
                            error,
                        )
                    since = ""
                else:
                    for pod in failed:
                        self.note(pod)
                    self.forget()
                    failures = 0 if since else failures  # a successful list does not prove that a watch succeeds
                    since, pause = now, max(0.0, began + LEAST_SECONDS - self._clock())
            await asyncio.sleep(pause)
