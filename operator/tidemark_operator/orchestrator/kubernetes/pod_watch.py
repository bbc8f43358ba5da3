"""The operator's StatefulSets and pods, as of the last list, and the Observation of each replica.

StatefulSets, their pods, and the pods that these own ─► OwnedStatefulSet, drivers and executors by replica and shape
a StatefulSet without a pod       ─► the reason, from its events
a driver's pod that disappeared   ─► its exit
a driver's pod that is being deleted ─► the time since this was first observed
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from tidemark_operator.kube.client import EVENTS, ApiError, Body, Kube, Resource
from tidemark_operator.kube.objects import PODS, STATEFUL_SETS
from tidemark_operator.orchestrator.interface import Exit, Observation, ProcessProblem
from tidemark_operator.orchestrator.kubernetes import pod_observation
from tidemark_operator.orchestrator.kubernetes.names import MANAGED, address
from tidemark_operator.orchestrator.kubernetes.ownership import controller
from tidemark_operator.orchestrator.kubernetes.reconcile_plan import OwnedStatefulSet, Shape, found_in

LOG = logging.getLogger(__name__)
EVENTS_SECONDS = 10.0
OURS = ",".join(f"{name}={value}" for name, value in MANAGED.items())


class PodWatch:
    """Lists StatefulSets and pods, and remembers what one list alone does not show."""

    def __init__(self, kube: Kube, concerns: Callable[[OwnedStatefulSet], bool], clock: Callable[[], float]) -> None:
        """StatefulSets for which `concerns` is False are ignored. `clock`: monotonic, in seconds."""
        self._kube, self._concerns, self._clock = kube, concerns, clock
        self.found: list[OwnedStatefulSet] = []
        self._drivers: dict[Shape, Body] = {}
        self._executors: dict[Shape, list[Body]] = {}
        self._exits: dict[Shape, Exit] = {}
        self._refusals: dict[Shape, ProcessProblem | None] = {}
        self._asked: dict[Shape, float] = {}
        self._ending: dict[str, float] = {}
        """The time when a driver's pod was first observed with a deletion timestamp, by its uid."""
        self._looked = 0.0

    async def look(self) -> None:
        """List everything anew. Raises ApiError, and then keeps the state of the list before."""
        found = [each for each in found_in(await self._kube.list(STATEFUL_SETS, OURS)) if self._concerns(each)]
        pods = await self._kube.list(PODS, OURS)
        drivers = dict(_controlled_pods(pods, STATEFUL_SETS, {each.uid: (each.key, each.shape) for each in found}))
        executors: dict[Shape, list[Body]] = {}
        for shape, pod in _controlled_pods(
            pods, PODS, {pod["metadata"]["uid"]: shape for shape, pod in drivers.items()}
        ):
            executors.setdefault(shape, []).append(pod)
        self._note_exits(drivers)
        self._note_endings(drivers)
        self.found, self._drivers, self._executors = found, drivers, executors
        await self._read_events()
        self._forget()

    def observe(self, key: str, shape: str, name: str, namespace: str, executors: int | None) -> Observation:
        """The Observation of one shape. `executors`: the wanted number; None: unknown."""
        at = (key, shape)
        driver, workers = self._drivers.get(at), None
        if executors:
            workers = pod_observation.observe_executors(executors, self._executors.get(at, []))
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
        """Whether the driver and all executors of a shape are ready."""
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
        deleted = [p["metadata"]["uid"] for p in drivers.values() if p["metadata"].get("deletionTimestamp")]
        self._ending = {uid: self._ending.get(uid, self._looked) for uid in deleted}

    async def _read_events(self) -> None:
        """Find out why StatefulSets have no pod: one list of events each, at most every `EVENTS_SECONDS`."""
        now = self._clock()
        for each in self.found:
            shape = (each.key, each.shape)
            if shape in self._drivers or each.deleting:
                self._refusals.pop(shape, None)
                self._asked.pop(shape, None)
            elif now - self._asked.get(shape, -EVENTS_SECONDS) >= EVENTS_SECONDS:
                self._asked[shape] = now
                try:
                    self._refusals[shape] = await self._refusal(each)
                except ApiError as error:  # the events only explain: nothing depends on them
                    LOG.warning(
                        "cannot list the events of StatefulSet %s/%s, which has no pod: %s",
                        each.namespace,
                        each.name,
                        error,
                    )

    async def _refusal(self, found: OwnedStatefulSet) -> ProcessProblem | None:
        fields = f"regarding.uid={found.uid},reason=FailedCreate"
        return pod_observation.refusal(await self._kube.list(EVENTS, fields=fields, namespace=found.namespace))

    def _forget(self) -> None:
        there = {(each.key, each.shape) for each in self.found} | self._drivers.keys()
        self._exits = {shape: exit for shape, exit in self._exits.items() if shape in there}
        self._refusals = {shape: why for shape, why in self._refusals.items() if shape in there}
        self._asked = {shape: at for shape, at in self._asked.items() if shape in there}


def _controlled_pods(pods: Iterable[Body], kind: Resource, owners: Mapping[str, Shape]) -> Iterator[tuple[Shape, Body]]:
    """The pods that one of `owners` controls, with its shape; `owners`: by uid, all of kind `kind`."""
    for pod in pods:
        owner = controller(pod, kind)
        if owner is not None and owner["uid"] in owners:
            yield owners[owner["uid"]], pod
