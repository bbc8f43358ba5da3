"""The Kubernetes orchestrator: a loop that lists objects and corrects the differences.

    each step     every two seconds, or twice a second while pods start:
                  StatefulSets and pods ─► decide ─► apply, delete ─► observations
    requests      ensure, drop, retain, take_over: recorded, and carried out in the next step, which they trigger

The loop depends on no event, and every write is idempotent. If the API server refuses an object of one replica, the
orchestrator retries with a back-off and reports the refusal in that replica's Observation; other replicas are not
affected.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Set
from dataclasses import replace

from tidemark_operator.kube.client import SECRETS, ApiError, Body, Conflict, Invalid, Kube
from tidemark_operator.kube.objects import DISRUPTION_BUDGETS, STATEFUL_SETS, resource_of
from tidemark_operator.orchestrator.interface import Observation, Owner, ProcessProblem, ReplicaSpec
from tidemark_operator.orchestrator.kubernetes import pod_observation, templates
from tidemark_operator.orchestrator.kubernetes.backoff import KeyedBackoff
from tidemark_operator.orchestrator.kubernetes.names import ReplicaShape, member
from tidemark_operator.orchestrator.kubernetes.ownership import instance_of_budget
from tidemark_operator.orchestrator.kubernetes.pod_watch import OURS, PodWatch
from tidemark_operator.orchestrator.kubernetes.reconcile_plan import OwnedStatefulSet, Shape, decide, server, strategy
from tidemark_operator.orchestrator.kubernetes.settings import KubernetesSettings
from tidemark_operator.resources.manifest.replica import UpdateStrategy

LOG = logging.getLogger(__name__)
LOOK_SECONDS = 2.0
SOON_SECONDS = 0.5
"""Pause between two steps while pods start. It grows with the duration of a step: steps take at most a fifth of the
time."""
STARTING_SECONDS = 60.0
"""A pod that takes longer to start no longer shortens the pause."""
MAX_DOUBLINGS = 4
APPLY_AGAIN_SECONDS = 300.0
"""An object that somebody removed or changed is restored within this time."""

BUDGETS: Shape = ("", "")
"""Key of the back-off for disruption budgets, which belong to no replica."""


class KubernetesOrchestrator:
    """An Orchestrator (interface.py) that makes StatefulSets."""

    def __init__(self, kube: Kube, settings: KubernetesSettings, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: monotonic, in seconds."""
        self._kube, self._settings, self._clock = kube, settings, clock
        self._pods = PodWatch(kube, self._concerns, clock)
        self._wanted: dict[str, ReplicaShape] = {}
        self._kept: frozenset[str] | None = None
        self._requested, self.news = asyncio.Event(), asyncio.Event()
        self._starting: dict[Shape, float] = {}
        """Shapes with pods that are not ready yet, and since when."""
        self._taken_over: set[Shape] = set()
        self._refused: dict[Shape, ProcessProblem] = {}
        self._applied: dict[Shape, float] = {}
        self._budgets: tuple[frozenset[str], frozenset[str]] | None = None
        self._budgeted = 0.0
        self._backoff: KeyedBackoff[Shape] = KeyedBackoff()
        self._deletions: KeyedBackoff[str] = KeyedBackoff()
        self._undeleted: dict[str, ProcessProblem] = {}
        """Refused deletions, by uid of the StatefulSet, as is `_deletions`."""

    def _concerns(self, found: OwnedStatefulSet) -> bool:
        """False for a StatefulSet in another namespace than its replica: owner references do not cross namespaces."""
        wanted = self._wanted.get(found.key)
        return wanted is None or wanted.spec.namespace == found.namespace

    async def adopt(self) -> None:
        await self._pods.look()

    def refusal(self, replica: ReplicaSpec) -> str | None:
        return None

    def ensure(self, replica: ReplicaSpec) -> None:
        wanted = member(replica, self._settings)
        if self._wanted.get(replica.key) != wanted:
            self._wanted[replica.key] = wanted
            self._applied.pop((replica.key, wanted.shape), None)
            self._requested.set()

    def drop(self, key: str) -> None:
        self._wanted.pop(key, None)
        if self._kept is not None:
            self._kept -= {key}
        self._requested.set()

    def retain(self, keys: Collection[str]) -> None:
        kept = frozenset(keys)
        if kept != self._kept:
            self._wanted = {key: wanted for key, wanted in self._wanted.items() if key in kept}
            self._kept = kept
            self._requested.set()

    def take_over(self, key: str) -> None:
        if wanted := self._wanted.get(key):
            # earlier shapes lose their takeover: if an edit makes one of them wanted again, it hydrates anew
            self._taken_over = {shape for shape in self._taken_over if shape[0] != key} | {(key, wanted.shape)}
            self._requested.set()

    def observe(self, key: str) -> tuple[Observation, ...]:
        wanted = self._wanted.get(key)
        found = [each for each in self._pods.found if each.key == key]
        if wanted is None:
            return tuple(self._pods.observe(key, f.shape, f.name, f.namespace, None) for f in found)
        others = [each for each in found if each.shape != wanted.shape]
        serving = server(wanted, found, self._taken_over)
        executors = wanted.spec.pod.executors.instances
        newest = self._pods.observe(key, wanted.shape, wanted.name, wanted.spec.namespace, executors)
        if refused := self._refused.get((key, wanted.shape)):
            newest = replace(newest, problem=refused)
        if serving is None:
            recreates = strategy(wanted) is UpdateStrategy.RECREATE
            return (
                replace(newest, problem=newest.problem or self._blocking_problem(newest, others, recreates=recreates)),
            )
        return (self._pods.observe(key, serving.shape, serving.name, serving.namespace, None), newest)

    def _blocking_problem(
        self, newest: Observation, others: Iterable[OwnedStatefulSet], *, recreates: bool
    ) -> ProcessProblem | None:
        """The reason why a process that must end before `newest` is made does not end; None: nothing blocks it."""
        if newest.incarnation is not None:
            return None
        for each in others:
            before = self._pods.observe(each.key, each.shape, each.name, each.namespace, None).problem
            if before is not None and before.reason == pod_observation.NODE_LOST:
                return before
            if recreates and each.uid in self._undeleted:
                return self._undeleted[each.uid]
        return None

    async def run(self) -> None:
        failures = 0
        while True:
            self._requested.clear()
            began = self._clock()
            try:
                await self.step()
                failures = 0
                self.news.set()
            except ApiError as error:
                failures = min(failures + 1, MAX_DOUBLINGS)
                LOG.warning("cannot list the StatefulSets and pods of replicas: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause(failures, self._clock() - began)):
                    await self._requested.wait()

    def _pause(self, failures: int, took: float) -> float:
        """Seconds until the next step; `took`: the duration of the last one, in seconds."""
        now = self._clock()
        if failures or not any(now - since < STARTING_SECONDS for since in self._starting.values()):
            return LOOK_SECONDS * float(2**failures)
        return min(max(SOON_SECONDS, 4 * took), LOOK_SECONDS)

    async def step(self) -> None:
        """List once, and correct the differences. Raises ApiError if the list fails."""
        await self._pods.look()
        if self._kept is None:
            return  # the operator has not called `retain` yet: nothing may be deleted
        self._note_starting()
        decision = decide(self._wanted, self._pods.found, self._taken_over, self._kept)
        for found in decision.delete:
            await self._delete(found)
        for wanted in decision.apply:
            shape = (wanted.spec.key, wanted.shape)
            if self._is_due(shape) and await self._attempt(shape, self._apply(wanted)):
                self._applied[shape] = self._clock()
        await self._bound_disruptions()
        self._forget()

    def _note_starting(self) -> None:
        now = self._clock()
        wanted = {(key, each.shape): each.spec.pod.executors.instances for key, each in self._wanted.items()}
        starting = [shape for shape, executors in wanted.items() if not self._pods.is_complete(shape, executors)]
        self._starting = {shape: self._starting.get(shape, now) for shape in starting}

    def _is_due(self, shape: Shape) -> bool:
        """Whether to apply a shape now. A shape that this process applied and that still exists is due every 5
        minutes."""
        now = self._clock()
        there = any((each.key, each.shape) == shape for each in self._pods.found)
        fresh = there and now - self._applied.get(shape, -APPLY_AGAIN_SECONDS) < APPLY_AGAIN_SECONDS
        return not fresh and self._backoff.is_due(shape, now)

    async def _apply(self, wanted: ReplicaShape) -> None:
        made = await self._kube.apply(STATEFUL_SETS, templates.stateful_set(wanted, self._settings))
        uid = made["metadata"]["uid"]
        if secret := templates.spark_secret(wanted, uid, secrets.token_hex(32)):
            await self._create_secret(secret, uid)
        for body in templates.belongings(wanted, self._settings, uid):
            await self._kube.apply(resource_of(body), body)

    async def _delete(self, found: OwnedStatefulSet) -> None:
        now = self._clock()
        if not self._deletions.is_due(found.uid, now):
            return
        try:
            await self._kube.delete(STATEFUL_SETS, found.namespace, found.name, found.uid, "Foreground")
        except ApiError as error:
            self._deletions.failed(found.uid, now)
            message = f"StatefulSet {found.namespace}/{found.name} cannot be deleted: {error}"
            self._undeleted[found.uid] = pod_observation.problem("Refused", message)
            LOG.warning("%s", message)
        else:
            self._deletions.forget(found.uid)
            self._undeleted.pop(found.uid, None)

    async def _create_secret(self, secret: Body, set_uid: str) -> None:
        """Create the Secret unless it exists. Raises Conflict if a deleted StatefulSet of that name still owns it: the
        garbage collector removes it soon."""
        namespace, name = secret["metadata"]["namespace"], secret["metadata"]["name"]
        there = await self._kube.get(SECRETS, namespace, name)
        if there is None:
            await self._kube.create(SECRETS, namespace, secret)
        elif set_uid not in [owner["uid"] for owner in there["metadata"].get("ownerReferences") or ()]:
            raise Conflict(
                409, f"Secret {namespace}/{name} still belongs to a deleted StatefulSet: waiting for its removal"
            )

    async def _attempt(self, shape: Shape, work: Awaitable[None]) -> bool:
        """Run `work` and return whether it succeeded. A failure is retried; a refusal also goes into the
        Observation."""
        try:
            await work
        except ApiError as error:
            self._backoff.failed(shape, self._clock())
            if isinstance(error, Invalid) or error.status == 403:
                self._refused[shape] = pod_observation.problem("Refused", str(error))
            LOG.warning("cannot apply shape %s of the replica with uid %s: %s", shape[1], shape[0], error)
            return False
        self._backoff.forget(shape)
        self._refused.pop(shape, None)
        return True

    async def _bound_disruptions(self) -> None:
        """Keep one budget for each instance with replicas, and delete the others. An instance whose StatefulSets exist
        keeps its budget before the operator has called `ensure`: a node may be drained while the operator starts."""
        now = self._clock()
        instances: dict[str, tuple[str, Owner]] = {}
        for each in self._wanted.values():
            instances[each.spec.instance.uid] = (each.spec.namespace, each.spec.instance)
        running = frozenset(each.instance for each in self._pods.found)
        asked = (frozenset(instances), running)
        fresh = asked == self._budgets and now - self._budgeted < APPLY_AGAIN_SECONDS
        if fresh or not self._backoff.is_due(BUDGETS, now):
            return
        try:
            budgets = {u: templates.disruption_budget(*where) for u, where in instances.items()}
            for budget in budgets.values():
                await self._kube.apply(DISRUPTION_BUDGETS, budget)
            for there in await self._kube.list(DISRUPTION_BUDGETS, OURS):
                instance = instance_of_budget(there)
                if instance is not None and not _bounds(there, instance, budgets, running):
                    metadata = there["metadata"]
                    place = metadata["namespace"], metadata["name"], metadata["uid"]
                    await self._kube.delete(DISRUPTION_BUDGETS, *place, "Foreground")
        except ApiError as error:
            LOG.warning("cannot update PodDisruptionBudgets: %s", error)
            self._backoff.failed(BUDGETS, now)
            return
        self._backoff.forget(BUDGETS)
        self._budgets, self._budgeted = asked, now

    def _forget(self) -> None:
        """Drop the state of shapes that are neither wanted nor existing."""
        known = {(each.key, each.shape) for each in self._pods.found}
        known |= {(each.spec.key, each.shape) for each in self._wanted.values()}
        self._taken_over &= known
        self._refused = {shape: why for shape, why in self._refused.items() if shape in known}
        self._applied = {shape: at for shape, at in self._applied.items() if shape in known}
        self._backoff.keep({*known, BUDGETS})
        there = {each.uid for each in self._pods.found}
        self._deletions.keep(there)
        self._undeleted = {uid: why for uid, why in self._undeleted.items() if uid in there}


def _bounds(there: Body, instance: str, wanted: Mapping[str, Body], running: Set[str]) -> bool:
    """Whether to keep a budget. An instance has exactly one: the API server evicts no pod that two budgets select."""
    if instance in wanted:
        return bool(there["metadata"]["name"] == wanted[instance]["metadata"]["name"])
    return instance in running
