"""The processes of replicas, watched: connections follow them, and a new shape takes over once it is as far as the old.

    r1 in shape A  ── serves ──────────────────────────► ends
    r1 in shape B  ── hydrates ── all that A has, level ─┴► serves

Nothing of this is stored: which shapes there are the orchestrator sees, how far they are they say themselves. So an
operator that ends in between is followed by one that goes on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from tidemark_operator.controller.frontiers.collection import Collection
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.reconcile.instance import align_replicas
from tidemark_operator.handlers.reconcile_context import World
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import REPLICAS
from tidemark_operator.orchestrator.interface import replica_id
from tidemark_operator.resources.manifest.errors import ResourceError
from tidemark_operator.resources.manifest.replica import ComputeReplica
from tidemark_protocol.ids import ReplicaId

LOG = logging.getLogger(__name__)
LOOK_SECONDS = 1.0
"""At most: what the orchestrator has seen is looked at when it says so."""
BEHIND_MS = 10_000
"""So far a new shape may be behind the old one when it takes over: both move with every tick, and are never level."""
PATIENCE_MS = 60_000
"""So long an old shape may be silent, as when its node restarts or the operator does, before it counts as out; and so
long it may take to tell a new connection what it has."""
Shapes = tuple[tuple[str, str], ...]


class Processes:
    """`changed` is called with the ComputeReplica whose processes are others than before, or have more or fewer
    executors. `clock`: milliseconds."""

    def __init__(self, world: World, changed: Callable[[Key], None], clock: Callable[[], int] = now_ms) -> None:
        self._world, self._changed, self._clock = world, changed, clock
        self._seen: dict[Key, Shapes] = {}
        self._executors: dict[Key, tuple[int, ...]] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(LOOK_SECONDS):
                    await self._world.orchestrator.news.wait()
            self._world.orchestrator.news.clear()
            self.look()

    def look(self) -> None:
        seen: dict[Key, Shapes] = {}
        executors: dict[Key, tuple[int, ...]] = {}
        for key, body in self._world.cache.all(REPLICAS):
            observed = self._world.orchestrator.observe(body["metadata"]["uid"])
            seen[key] = tuple((each.shape, each.address) for each in observed)
            executors[key] = tuple(each.executors.running for each in observed if each.executors)
            if len(observed) > 1:
                self._take_over(key, body["metadata"]["uid"], observed[0].shape, observed[1].shape)
        others = [key for key in seen.keys() | self._seen.keys() if seen.get(key) != self._seen.get(key)]
        more_or_fewer = [key for key, running in executors.items() if self._executors.get(key) != running]
        self._seen, self._executors = seen, executors
        if others:
            align_replicas(self._world)
        for key in dict.fromkeys([*others, *more_or_fewer]):
            self._changed(key)

    def _take_over(self, key: Key, uid: str, old: str, new: str) -> None:
        try:
            replica = ComputeReplica.parse(self._world.cache.get(key) or {})
        except ResourceError:
            return
        running = self._world.running(key.namespace, replica.instance)
        before, after = replica_id(key.name, old), replica_id(key.name, new)
        if running is not None and is_level(running, before, after, self._clock()):
            LOG.info("replica %s: shape %s takes the place of %s", key.path, new, old)
            self._world.orchestrator.take_over(uid)


def is_level(running: RunningInstance, old: ReplicaId, new: ReplicaId, now_ms: int) -> bool:
    """Whether `new` answers and has all that `old` has. What an old one has is not known before it has said so, to this
    operator and on this connection; what it has not said for long, it does not have, be it cut off again and again."""
    before = running.replicas.get(old)
    if new not in running.online or before is None:
        return False
    if not before.online:
        return now_ms - before.unheard_since_ms > PATIENCE_MS
    settled = now_ms - before.first_greeted_ms > PATIENCE_MS
    return all(_is_as_far(collection, old, new, settled) for collection in running.collections())


def _is_as_far(collection: Collection, old: ReplicaId, new: ReplicaId, settled: bool) -> bool:
    """`settled`: the old one has had its time to tell."""
    before, after = collection.replicas.get(old), collection.replicas.get(new)
    if collection.dropped:
        return True
    if before is not None and before.missing_features:
        return True
    if before is None or before.input is None:  # the first report says where it is, hydrated or not
        return settled
    if not before.hydrated or before.write is None:
        return True
    if after is None or not after.hydrated or after.write is None:
        return False
    if before.write.is_empty:
        return after.write.is_empty
    return after.write.encode() >= before.write.encode() - BEHIND_MS
