"""Executors that failed, whenever that was: Spark deletes their pods within a second or two, and a look misses many.

the API server ─► pods of executors that become Failed ─► the last one of each replica and shape, for ten minutes
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from tidemark_operator.kube.client import ApiError, Body
from tidemark_operator.kube.objects import PODS, Objects
from tidemark_operator.orchestrator.interface import Trouble
from tidemark_operator.orchestrator.kubernetes import observing
from tidemark_operator.orchestrator.kubernetes.names import EXECUTOR, MANAGED, ROLE
from tidemark_operator.orchestrator.kubernetes.ownership import controller

LOG = logging.getLogger(__name__)
EXECUTORS = ",".join(f"{name}={value}" for name, value in {**MANAGED, ROLE: EXECUTOR}.items())
FAILED = "status.phase=Failed"
WATCH_SECONDS = 8
"""Less than a request may take; a loss is told so much later at most."""
LEAST_SECONDS = 1.0
"""Between two askings at least: an API server that ends each watch at once, in order, is not asked without a pause."""
AGAIN_SECONDS = 5.0
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
        owner, trouble = controller(pod, PODS), observing.trouble_of_executor(pod)
        if owner and trouble:
            self._last[owner["uid"]] = (self._clock(), trouble)

    def forget(self) -> None:
        """What is told no more."""
        self._last = {driver: told for driver, told in self._last.items() if self.last(driver)}

    async def watch(self, namespace: str) -> None:
        """Until cancelled; `namespace` empty: of all of them."""
        since = ""
        while True:
            began = self._clock()
            try:
                asked = (PODS, namespace, EXECUTORS, FAILED)
                failed, since = await self._objects.changes(*asked, since, WATCH_SECONDS)
            except ApiError as error:
                LOG.warning("executors that failed are not seen: %s", error)
                since = ""
                await asyncio.sleep(AGAIN_SECONDS)
                continue
            for pod in failed:
                self.note(pod)
            self.forget()
            await asyncio.sleep(max(0.0, began + LEAST_SECONDS - self._clock()))
