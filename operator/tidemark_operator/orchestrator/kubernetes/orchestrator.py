"""Keeps the replicas that are wanted, by looking and mending, again and again.

    each look      every other second, and sooner while pods are on their way:
                   StatefulSets and pods of ours ─► decide ─► apply, delete ─► observations
    what is asked  ensure, drop, retain, take_over: remembered, and done at once

Nothing depends on having seen an event, and every write may come twice. What the API server refuses for one replica is
tried again ever more rarely, and is told in its Observation; the others go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Set
from dataclasses import replace

from tidemark_operator.kube.client import ApiError, Body, Conflict, Invalid, Kube
from tidemark_operator.kube.objects import DISRUPTION_BUDGETS, STATEFUL_SETS, Objects
from tidemark_operator.orchestrator.interface import Observation, Owner, ReplicaSpec, Trouble
from tidemark_operator.orchestrator.kubernetes import pod_observation, templates
from tidemark_operator.orchestrator.kubernetes.backoff import Backoff
from tidemark_operator.orchestrator.kubernetes.executor_losses import Losses
from tidemark_operator.orchestrator.kubernetes.names import Member, member
from tidemark_operator.orchestrator.kubernetes.ownership import instance_of_budget
from tidemark_operator.orchestrator.kubernetes.pod_watch import OURS, Looking
from tidemark_operator.orchestrator.kubernetes.reconcile_plan import Found, Shape, decide, server, strategy
from tidemark_operator.orchestrator.kubernetes.settings import Settings
from tidemark_operator.resources.manifest.replica import UpdateStrategy

LOG = logging.getLogger(__name__)
LOOK_SECONDS = 2.0
SOON_SECONDS = 0.5
"""Between two looks while pods are on their way; more where a look takes long: no more than a fifth of the time."""
ON_ITS_WAY_SECONDS = 60.0
"""What takes longer is seen as soon as everything else."""
MAX_DOUBLINGS = 4
APPLY_AGAIN_SECONDS = 300.0
"""What somebody removed or changed of a replica's belongings is mended within this."""

BUDGETS: Shape = ("", "")
"""In the place of a shape, for what is of no replica."""


class KubernetesOrchestrator:
    def __init__(self, kube: Kube, settings: Settings, clock: Callable[[], float] = time.monotonic) -> None:
        """`clock`: seconds, of any beginning."""
        self._kube, self._objects, self._settings = kube, Objects(kube), settings
        self._losses, self._clock = Losses(self._objects, clock), clock
        self._looking = Looking(self._objects, self._losses, self._concerns, clock)
        self._wanted: dict[str, Member] = {}
        self._kept: frozenset[str] | None = None
        self._asked, self.news = asyncio.Event(), asyncio.Event()
        self._coming: dict[Shape, float] = {}
        """Shapes of which not all is up, and since when."""
        self._taken_over: set[Shape] = set()
        self._refused: dict[Shape, Trouble] = {}
        self._applied: dict[Shape, float] = {}
        self._budgets: tuple[frozenset[str], frozenset[str]] | None = None
        self._budgeted = 0.0
        self._backoff: Backoff[Shape] = Backoff()
        self._deletions: Backoff[str] = Backoff()
        self._undeleted: dict[str, Trouble] = {}
        """Both of StatefulSets, by uid."""

    def _concerns(self, found: Found) -> bool:
        """Not what says that it is of a replica of another namespace: nothing is owned across namespaces."""
        wanted = self._wanted.get(found.key)
        return wanted is None or wanted.spec.namespace == found.namespace

    async def adopt(self) -> None:
        await self._looking.look()

    def refusal(self, replica: ReplicaSpec) -> str | None:
        return None

    def ensure(self, replica: ReplicaSpec) -> None:
        wanted = member(replica, self._settings)
        if self._wanted.get(replica.key) != wanted:
            self._wanted[replica.key] = wanted
            self._applied.pop((replica.key, wanted.shape), None)
            self._asked.set()

    def drop(self, key: str) -> None:
        self._wanted.pop(key, None)
        if self._kept is not None:
            self._kept -= {key}
        self._asked.set()

    def retain(self, keys: Collection[str]) -> None:
        kept = frozenset(keys)
        if kept != self._kept:
            self._wanted = {key: wanted for key, wanted in self._wanted.items() if key in kept}
            self._kept = kept
            self._asked.set()

    def take_over(self, key: str) -> None:
        if wanted := self._wanted.get(key):
            # the shapes before it have nothing any more, should one of them be wanted again
            self._taken_over = {shape for shape in self._taken_over if shape[0] != key} | {(key, wanted.shape)}
            self._asked.set()

    def observe(self, key: str) -> tuple[Observation, ...]:
        wanted = self._wanted.get(key)
        found = [each for each in self._looking.found if each.key == key]
        if wanted is None:
            return tuple(self._looking.observe(key, f.shape, f.name, f.namespace, None) for f in found)
        others = [each for each in found if each.shape != wanted.shape]
        serving = server(wanted, found, self._taken_over)
        executors = wanted.spec.pod.executors.instances
        newest = self._looking.observe(key, wanted.shape, wanted.name, wanted.spec.namespace, executors)
        if refused := self._refused.get((key, wanted.shape)):
            newest = replace(newest, trouble=refused)
        if serving is None:
            recreates = strategy(wanted) is UpdateStrategy.RECREATE
            return (replace(newest, trouble=newest.trouble or self._kept_by(newest, others, recreates=recreates)),)
        return (self._looking.observe(key, serving.shape, serving.name, serving.namespace, None), newest)

    def _kept_by(self, newest: Observation, others: Iterable[Found], *, recreates: bool) -> Trouble | None:
        """What ends before this one is made, and does not end."""
        if newest.incarnation is not None:
            return None
        for each in others:
            before = self._looking.observe(each.key, each.shape, each.name, each.namespace, None).trouble
            if before is not None and before.reason == pod_observation.NODE_LOST:
                return before
            if recreates and each.uid in self._undeleted:
                return self._undeleted[each.uid]
        return None

    async def run(self) -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._losses.watch(self._kube.namespaces))
            await self._keep()

    async def _keep(self) -> None:
        failures = 0
        while True:
            self._asked.clear()
            began = self._clock()
            try:
                await self.step()
                failures = 0
                self.news.set()
            except ApiError as error:
                failures = min(failures + 1, MAX_DOUBLINGS)
                LOG.warning("pods of replicas cannot be looked at: %s", error)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._pause(failures, self._clock() - began)):
                    await self._asked.wait()

    def _pause(self, failures: int, took: float) -> float:
        """Seconds until the next look; `took`: the last one."""
        now = self._clock()
        if failures or not any(now - since < ON_ITS_WAY_SECONDS for since in self._coming.values()):
            return LOOK_SECONDS * float(2**failures)
        return min(max(SOON_SECONDS, 4 * took), LOOK_SECONDS)

    async def step(self) -> None:
        """One look, and what is to be done about what it saw; raises ApiError if it saw nothing."""
        await self._looking.look()
        if self._kept is None:
            return  # nobody has said yet what is not to run
        self._note_coming()
        decision = decide(self._wanted, self._looking.found, self._taken_over, self._kept)
        for found in decision.delete:
            await self._delete(found)
        for wanted in decision.apply:
            shape = (wanted.spec.key, wanted.shape)
            if self._is_due(shape) and await self._attempt(shape, self._apply(wanted)):
                self._applied[shape] = self._clock()
        await self._bound_disruptions()
        self._forget()

    def _note_coming(self) -> None:
        now = self._clock()
        wanted = {(key, each.shape): each.spec.pod.executors.instances for key, each in self._wanted.items()}
        coming = [shape for shape, executors in wanted.items() if not self._looking.is_complete(shape, executors)]
        self._coming = {shape: self._coming.get(shape, now) for shape in coming}

    def _is_due(self, shape: Shape) -> bool:
        """Made in full by this process, and there still: it is only looked after now and then."""
        now = self._clock()
        there = any((each.key, each.shape) == shape for each in self._looking.found)
        fresh = there and now - self._applied.get(shape, -APPLY_AGAIN_SECONDS) < APPLY_AGAIN_SECONDS
        return not fresh and self._backoff.is_due(shape, now)

    async def _apply(self, wanted: Member) -> None:
        made = await self._objects.apply(templates.stateful_set(wanted, self._settings))
        uid = made["metadata"]["uid"]
        if secret := templates.spark_secret(wanted, uid, secrets.token_hex(32)):
            await self._make_once(secret, uid)
        for body in templates.belongings(wanted, self._settings, uid):
            await self._objects.apply(body)

    async def _delete(self, found: Found) -> None:
        now = self._clock()
        if not self._deletions.is_due(found.uid, now):
            return
        try:
            await self._objects.delete(STATEFUL_SETS, found.body)
        except ApiError as error:
            self._deletions.failed(found.uid, now)
            said = f"StatefulSet {found.namespace}/{found.name} is not deleted yet: {error}"
            self._undeleted[found.uid] = pod_observation.trouble("Refused", said)
            LOG.warning("%s", said)
        else:
            self._deletions.done(found.uid)
            self._undeleted.pop(found.uid, None)

    async def _make_once(self, secret: Body, set_uid: str) -> None:
        """Raises Conflict where one is left of a StatefulSet that was deleted: it goes soon, whoever relies on it."""
        namespace, name = secret["metadata"]["namespace"], secret["metadata"]["name"]
        there = await self._kube.get_secret(namespace, name)
        if there is None:
            await self._kube.create_secret(namespace, secret)
        elif set_uid not in [owner["uid"] for owner in there["metadata"].get("ownerReferences") or ()]:
            raise Conflict(409, f"Secret {namespace}/{name} is not of this StatefulSet: one is made when it is gone")

    async def _attempt(self, shape: Shape, work: Awaitable[None]) -> bool:
        """Whether it is done. What is refused for good is told; the rest is tried again."""
        try:
            await work
        except ApiError as error:
            self._backoff.failed(shape, self._clock())
            if isinstance(error, Invalid) or error.status == 403:
                self._refused[shape] = pod_observation.trouble("Refused", str(error))
            LOG.warning("shape %s of replica %s: %s", shape[1], shape[0], error)
            return False
        self._backoff.done(shape)
        self._refused.pop(shape, None)
        return True

    async def _bound_disruptions(self) -> None:
        """One budget per instance that has replicas, and none for others. What is there has its budget before anybody
        has said that it is wanted: a drain does not wait for an operator that begins."""
        now = self._clock()
        instances: dict[str, tuple[str, Owner]] = {}
        for each in self._wanted.values():
            instances[each.spec.instance.uid] = (each.spec.namespace, each.spec.instance)
        running = frozenset(each.instance for each in self._looking.found)
        asked = (frozenset(instances), running)
        fresh = asked == self._budgets and now - self._budgeted < APPLY_AGAIN_SECONDS
        if fresh or not self._backoff.is_due(BUDGETS, now):
            return
        try:
            budgets = {u: templates.disruption_budget(*where) for u, where in instances.items()}
            for budget in budgets.values():
                await self._objects.apply(budget)
            for there in await self._objects.list(DISRUPTION_BUDGETS, OURS):
                instance = instance_of_budget(there)
                if instance is not None and not _bounds(there, instance, budgets, running):
                    await self._objects.delete(DISRUPTION_BUDGETS, there)
        except ApiError as error:
            LOG.warning("disruption budgets: %s", error)
            self._backoff.failed(BUDGETS, now)
            return
        self._backoff.done(BUDGETS)
        self._budgets, self._budgeted = asked, now

    def _forget(self) -> None:
        """What is neither wanted nor there any more."""
        known = {(each.key, each.shape) for each in self._looking.found}
        known |= {(each.spec.key, each.shape) for each in self._wanted.values()}
        self._taken_over &= known
        self._refused = {shape: why for shape, why in self._refused.items() if shape in known}
        self._applied = {shape: at for shape, at in self._applied.items() if shape in known}
        self._backoff.keep({*known, BUDGETS})
        there = {each.uid for each in self._looking.found}
        self._deletions.keep(there)
        self._undeleted = {uid: why for uid, why in self._undeleted.items() if uid in there}


def _bounds(there: Body, instance: str, wanted: Mapping[str, Body], running: Set[str]) -> bool:
    """Whether a budget is needed. Of an instance there is one alone: the API server evicts no pod that two are over."""
    if instance in wanted:
        return bool(there["metadata"]["name"] == wanted[instance]["metadata"]["name"])
    return instance in running
