"""Watches the processes of replicas: connections follow them, and a new shape takes over once it is level with the old.

    r1 in shape A  ── serves ──────────────────────────► ends
    r1 in shape B  ── hydrates ── all that A has, level ─┴► serves

None of this is stored: the orchestrator reports the shapes, and the processes report how far they are. So a new
operator goes on where the last one ended."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from tidemark_operator.controller.frontiers.collection import Collection
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.reconcile.instance import align_replicas
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import REPLICAS
from tidemark_operator.orchestrator.interface import replica_id
from tidemark_operator.resources.manifest.errors import ResourceError
from tidemark_operator.resources.manifest.replica import ComputeReplica
from tidemark_protocol.ids import ReplicaId

LOG = logging.getLogger(__name__)
CHECK_SECONDS = 1.0
"""The longest pause between two checks: a change that the orchestrator reports is handled at once."""
MAX_BEHIND_MS = 10_000
"""The milliseconds that a new shape may be behind the old one when it takes over. Both move with every tick, so they
are rarely equal."""
SILENCE_MS = 60_000
"""The time after which a silent old shape counts as gone; its node, or the operator, may have been restarted. Also the
time that it has to report to a new connection what it runs."""
Shapes = tuple[tuple[str, str], ...]


class ReplicaProcesses:
    """`changed`: called with a ComputeReplica whose processes, or their numbers of executors, changed. `clock`: in
    milliseconds."""

    def __init__(
        self, context: ReconcileContext, changed: Callable[[Key], None], clock: Callable[[], int] = now_ms
    ) -> None:
        self._context, self._changed, self._clock = context, changed, clock
        self._shapes: dict[Key, Shapes] = {}
        self._executors: dict[Key, tuple[int, ...]] = {}

    async def run(self) -> None:
        """Run until cancelled."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(CHECK_SECONDS):
                    await self._context.orchestrator.news.wait()
            self._context.orchestrator.news.clear()
            self.check()

    def check(self) -> None:
        """Aligns connections with the processes, and lets new shapes take over."""
        shapes: dict[Key, Shapes] = {}
        executors: dict[Key, tuple[int, ...]] = {}
        for key, body in self._context.cache.all(REPLICAS):
            observed = self._context.orchestrator.observe(body["metadata"]["uid"])
            shapes[key] = tuple((each.shape, each.address) for each in observed)
            executors[key] = tuple(each.executors.running for each in observed if each.executors)
            if len(observed) > 1:
                self._take_over(key, body["metadata"]["uid"], observed[0].shape, observed[1].shape)
        changed = [key for key in shapes.keys() | self._shapes.keys() if shapes.get(key) != self._shapes.get(key)]
        more_or_fewer = [key for key, running in executors.items() if self._executors.get(key) != running]
        self._shapes, self._executors = shapes, executors
        if changed:
            align_replicas(self._context)
        for key in dict.fromkeys([*changed, *more_or_fewer]):
            self._changed(key)

    def _take_over(self, key: Key, uid: str, old: str, new: str) -> None:
        try:
            replica = ComputeReplica.parse(self._context.cache.get(key) or {})
        except ResourceError:
            return
        running = self._context.running(key.namespace, replica.instance)
        before, after = replica_id(key.name, old), replica_id(key.name, new)
        if running is not None and is_level(running, before, after, self._clock()):
            LOG.info("replica %s: shape %s takes the place of %s", key.path, new, old)
            self._context.orchestrator.take_over(uid)


def is_level(running: RunningInstance, old: ReplicaId, new: ReplicaId, now_ms: int) -> bool:
    """Whether `new` answers and is level with `old` in every collection. The dataflows that `old` runs are known once
    it has reported them on this connection; one that it has not reported within SILENCE_MS it does not run, even if it
    reconnects repeatedly."""
    before = running.replicas.get(old)
    if new not in running.online or before is None:
        return False
    if not before.online:
        return now_ms - before.unheard_since_ms > SILENCE_MS
    settled = now_ms - before.first_greeted_ms > SILENCE_MS
    return all(_is_as_far(collection, old, new, settled) for collection in running.collections())


def _is_as_far(collection: Collection, old: ReplicaId, new: ReplicaId, settled: bool) -> bool:
    """`settled`: the old shape has had its time to report."""
    before, after = collection.replicas.get(old), collection.replicas.get(new)
    if collection.dropped:
        return True
    if before is not None and before.missing_features:
        return True
    if before is None or before.input is None:  # its first report tells whether it is hydrated
        return settled
    if not before.hydrated or before.write is None:
        return True
    if after is None or not after.hydrated or after.write is None:
        return False
    if before.write.is_empty:
        return after.write.is_empty
    return after.write.encode() >= before.write.encode() - MAX_BEHIND_MS
