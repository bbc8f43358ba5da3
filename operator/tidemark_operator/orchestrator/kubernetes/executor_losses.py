"""Executors that failed, whenever that was: Spark deletes their pods within a second or two, and a look misses many.

the API server ─► pods of executors that become Failed ─► the last one of each replica and shape, for ten minutes

One watch of all namespaces, or one of each that the operator looks after. These take turns: a watch holds one of the
connections that everything else is asked by. What came to be between two turns of a namespace comes with the next.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence

from tidemark_operator.kube.client import ApiError, Body
from tidemark_operator.kube.objects import PODS, Objects
from tidemark_operator.orchestrator.interface import Trouble
from tidemark_operator.orchestrator.kubernetes import pod_observation
from tidemark_operator.orchestrator.kubernetes.names import EXECUTOR, MANAGED, ROLE
from tidemark_operator.orchestrator.kubernetes.ownership import controller
from tidemark_operator.orchestrator.local.supervised_process import backoff_ms

LOG = logging.getLogger(__name__)
EXECUTORS = ",".join(f"{name}={value}" for name, value in {**MANAGED, ROLE: EXECUTOR}.items())
FAILED = "status.phase=Failed"
AT_ONCE = 16
"""Watches, of the 100 connections that the client has."""
WATCH_SECONDS = 8
"""Less than a request may take; a loss is told so much later, and as long after as its namespace waits for its turn."""
SHORTEST_SECONDS = 3
"""With many namespaces. Where to go on, the API server says of a watch without events two seconds before its end."""
LEAST_SECONDS = 1.0
"""Between two askings at least: an API server that ends each watch at once, in order, is not asked without a pause."""
GONE = 410
"""What it is to go on from is forgotten: one begins anew with what there is."""
TOLD_SECONDS = 600.0


class Losses:
    """`clock`: seconds, of any beginning."""

    def __init__(self, objects: Objects, clock: Callable[[], float] = time.monotonic) -> None:
        self._objects, self._clock = objects, clock
        self._last: dict[str, tuple[float, Trouble]] = {}

    def last(self, driver: str) -> Trouble | None:
        """Of the last ten minutes, by the uid of the driver's pod."""
        when, trouble = self._last.get(driver, (0.0, None))
        return trouble if trouble and self._clock() - when < TOLD_SECONDS else None

    def note(self, pod: Body) -> None:
        owner, trouble = controller(pod, PODS), pod_observation.trouble_of_executor(pod)
        if owner and trouble:
            self._last[owner["uid"]] = (self._clock(), trouble)

    def forget(self) -> None:
        """What is told no more."""
        self._last = {driver: told for driver, told in self._last.items() if self.last(driver)}

    async def watch(self, namespaces: Sequence[str]) -> None:
        """Until cancelled; none of them: of all."""
        turns = asyncio.Semaphore(AT_ONCE)
        seconds = min(WATCH_SECONDS, max(SHORTEST_SECONDS, WATCH_SECONDS * AT_ONCE // max(1, len(namespaces))))
        async with asyncio.TaskGroup() as tasks:
            for namespace in namespaces or ("",):
                tasks.create_task(self._follow(namespace, turns, seconds))

    async def _follow(self, namespace: str, turns: asyncio.Semaphore, seconds: int) -> None:
        """Until cancelled; `namespace` empty: all of them."""
        asked, since, failures = (PODS, namespace, EXECUTORS, FAILED), "", 0
        while True:
            async with turns:
                began = self._clock()
                try:
                    failed, now = await self._objects.changes(*asked, since, seconds)
                except ApiError as error:
                    failures, pause = failures + 1, backoff_ms(failures + 1) / 1000
                    if failures == 1 and error.status != GONE:
                        LOG.warning("executors that failed are not seen%s: %s", namespace and f" in {namespace}", error)
                    since = ""
                else:
                    for pod in failed:
                        self.note(pod)
                    self.forget()
                    failures = 0 if since else failures  # that they can be listed says nothing of watching them
                    since, pause = now, max(0.0, began + LEAST_SECONDS - self._clock())
            await asyncio.sleep(pause)
