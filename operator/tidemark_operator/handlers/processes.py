"""The processes of replicas, watched: connections follow them, and a new shape takes over once it is as far as the old.

    r1 in shape A  ── serves ──────────────────────────► ends
    r1 in shape B  ── hydrates ── all that A has, level ─┴► serves

Nothing of this is stored: which shapes there are the orchestrator sees, how far they are they say themselves. So an
operator that ends in between is followed by one that goes on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from tidemark_operator.controller.collection import Collection
from tidemark_operator.fleet.running import RunningInstance
from tidemark_operator.handlers.reconcile_instance import align_replicas
from tidemark_operator.handlers.world import World
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import REPLICAS
from tidemark_operator.orchestrator.interface import replica_id
from tidemark_operator.resources.errors import ResourceError
from tidemark_operator.resources.replica import ComputeReplica
from tidemark_protocol.ids import ReplicaId

LOG = logging.getLogger(__name__)
LOOK_SECONDS = 1.0
BEHIND_MS = 10_000
"""So far a new shape may be behind the old one when it takes over: both move with every tick, and are never level."""
Shapes = tuple[tuple[str, str], ...]


class Processes:
    """`changed` is called with the ComputeReplica whose processes are others than before."""

    def __init__(self, world: World, changed: Callable[[Key], None]) -> None:
        self._world, self._changed = world, changed
        self._seen: dict[Key, Shapes] = {}

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.look()

    def look(self) -> None:
        seen: dict[Key, Shapes] = {}
        for key, body in self._world.cache.all(REPLICAS):
            observed = self._world.orchestrator.observe(body["metadata"]["uid"])
            seen[key] = tuple((each.shape, each.address) for each in observed)
            if len(observed) > 1:
                self._take_over(key, body["metadata"]["uid"], observed[0].shape, observed[1].shape)
        others = [key for key in seen.keys() | self._seen.keys() if seen.get(key) != self._seen.get(key)]
        self._seen = seen
        if others:
            align_replicas(self._world)
        for key in others:
            self._changed(key)

    def _take_over(self, key: Key, uid: str, old: str, new: str) -> None:
        try:
            replica = ComputeReplica.parse(self._world.cache.get(key) or {})
        except ResourceError:
            return
        running = self._world.running(key.namespace, replica.instance)
        if running is not None and is_level(running, replica_id(key.name, old), replica_id(key.name, new)):
            LOG.info("replica %s: shape %s takes the place of %s", key.path, new, old)
            self._world.orchestrator.take_over(uid)


def is_level(running: RunningInstance, old: ReplicaId, new: ReplicaId) -> bool:
    """Whether `new` answers and has all that `old` has; of an old one that does not answer nobody has anything."""
    if new not in running.online:
        return False
    if old not in running.online:
        return True
    return all(_is_as_far(collection, old, new) for collection in running.core.dataflows.collections())


def _is_as_far(collection: Collection, old: ReplicaId, new: ReplicaId) -> bool:
    before, after = collection.replicas.get(old), collection.replicas.get(new)
    if collection.dropped or before is None or not before.hydrated or before.write is None:
        return True
    if after is None or not after.hydrated or after.write is None:
        return False
    if before.write.is_empty:
        return after.write.is_empty
    return after.write.encode() >= before.write.encode() - BEHIND_MS
