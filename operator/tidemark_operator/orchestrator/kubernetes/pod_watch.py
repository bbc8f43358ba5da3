"""What there is of ours at the API server, as of the last look, and what it says of each replica.

StatefulSets, their pods and those of these ─► Found, drivers and executors by replica and shape
a StatefulSet without a pod ─► its events say why
a driver's pod that was there before, and is not now ─► how it ended
one that was told to end, and is there still         ─► for how long it has been seen so
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from tidemark_operator.kube.client import EVENTS, ApiError, Body, Resource
from tidemark_operator.kube.objects import PODS, STATEFUL_SETS, Objects
from tidemark_operator.orchestrator.interface import Exit, Observation, Trouble
from tidemark_operator.orchestrator.kubernetes import pod_observation
from tidemark_operator.orchestrator.kubernetes.executor_losses import Losses
from tidemark_operator.orchestrator.kubernetes.names import MANAGED, address
from tidemark_operator.orchestrator.kubernetes.ownership import controller
from tidemark_operator.orchestrator.kubernetes.reconcile_plan import Found, Shape, found_in

LOG = logging.getLogger(__name__)
ASK_WHY_SECONDS = 10.0
OURS = ",".join(f"{name}={value}" for name, value in MANAGED.items())


class Looking:
    def __init__(
        self, objects: Objects, losses: Losses, concerns: Callable[[Found], bool], clock: Callable[[], float]
    ) -> None:
        """What does not `concern` us is as good as not there. `clock`: seconds, of any beginning."""
        self._objects, self._losses, self._concerns, self._clock = objects, losses, concerns, clock
        self.found: list[Found] = []
        self._drivers: dict[Shape, Body] = {}
        self._executors: dict[Shape, list[Body]] = {}
        self._exits: dict[Shape, Exit] = {}
        self._refusals: dict[Shape, Trouble | None] = {}
        self._asked: dict[Shape, float] = {}
        self._ending: dict[str, float] = {}
        """When a driver's pod was first seen to be told to end, by its uid."""
        self._looked = 0.0

    async def look(self) -> None:
        """Raises ApiError, and then knows what it knew."""
        found = [each for each in found_in(await self._objects.list(STATEFUL_SETS, OURS)) if self._concerns(each)]
        pods = await self._objects.list(PODS, OURS)
        drivers = dict(_of(pods, STATEFUL_SETS, {each.uid: (each.key, each.shape) for each in found}))
        executors: dict[Shape, list[Body]] = {}
        for shape, pod in _of(pods, PODS, {pod["metadata"]["uid"]: shape for shape, pod in drivers.items()}):
            executors.setdefault(shape, []).append(pod)
        self._note_exits(drivers)
        self._note_endings(drivers)
        self.found, self._drivers, self._executors = found, drivers, executors
        await self._ask_why()
        self._forget()

    def observe(self, key: str, shape: str, name: str, namespace: str, executors: int | None) -> Observation:
        """`executors`: how many there should be; None where nobody knows."""
        at = (key, shape)
        driver, workers = self._drivers.get(at), None
        if executors:
            lost = self._losses.last(driver["metadata"]["uid"]) if driver else None
            workers = pod_observation.observe_executors(executors, self._executors.get(at, []), lost)
        return pod_observation.observe(
            address(name, namespace),
            shape,
            driver,
            self._looked - self._ending.get(driver["metadata"]["uid"], self._looked) if driver else 0.0,
            self._refusals.get(at),
            workers,
            self._exits.get(at),
        )

    def is_complete(self, at: Shape, executors: int) -> bool:
        """Whether all of its pods are up."""
        driver, others = self._drivers.get(at), self._executors.get(at, [])
        if driver is None or not pod_observation.is_up(driver):
            return False
        return not executors or pod_observation.observe_executors(executors, others).running >= executors

    def _note_exits(self, drivers: dict[Shape, Body]) -> None:
        now_ms = int(time.time() * 1000)
        for shape, before in self._drivers.items():
            now = drivers.get(shape)
            if now is None or now["metadata"]["uid"] != before["metadata"]["uid"]:
                self._exits[shape] = pod_observation.vanished(before, now_ms)

    def _note_endings(self, drivers: dict[Shape, Body]) -> None:
        self._looked = self._clock()
        told = [p["metadata"]["uid"] for p in drivers.values() if p["metadata"].get("deletionTimestamp")]
        self._ending = {uid: self._ending.get(uid, self._looked) for uid in told}

    async def _ask_why(self) -> None:
        """Of those that have no pod, now and then."""
        now = self._clock()
        for each in self.found:
            shape = (each.key, each.shape)
            if shape in self._drivers or each.going:
                self._refusals.pop(shape, None)
                self._asked.pop(shape, None)
            elif now - self._asked.get(shape, -ASK_WHY_SECONDS) >= ASK_WHY_SECONDS:
                self._asked[shape] = now
                try:
                    self._refusals[shape] = await self._refusal(each)
                except ApiError as error:  # it only tells why: nothing else waits for it
                    LOG.warning("why there is no pod of %s/%s is not known: %s", each.namespace, each.name, error)

    async def _refusal(self, found: Found) -> Trouble | None:
        fields = f"regarding.uid={found.uid},reason=FailedCreate"
        return pod_observation.refusal(await self._objects.list(EVENTS, fields=fields, namespace=found.namespace))

    def _forget(self) -> None:
        there = {(each.key, each.shape) for each in self.found} | self._drivers.keys()
        self._exits = {shape: exit for shape, exit in self._exits.items() if shape in there}
        self._refusals = {shape: why for shape, why in self._refusals.items() if shape in there}
        self._asked = {shape: at for shape, at in self._asked.items() if shape in there}


def _of(pods: Iterable[Body], kind: Resource, owners: Mapping[str, Shape]) -> Iterator[tuple[Shape, Body]]:
    """The pods that one of `owners`, which are of that kind, controls."""
    for pod in pods:
        owner = controller(pod, kind)
        if owner is not None and owner["uid"] in owners:
            yield owners[owner["uid"]], pod
