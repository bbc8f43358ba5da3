"""The release of what a deleted DataSource keeps upstream: the replication slot of a `postgres` source, which keeps
WAL.

    ingestion stopped ─► ReleaseSource to its ingester (or to any replica), every 5 s ─► done
                     └► 60 s without success: an Event names the slot and the statement that drops it

`deletionPolicy` is of tables, and has no say here: a slot without a reader has no use, and fills the upstream's disk.
Every attempt may be repeated, so an operator that begins after a crash begins anew.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.errors import OperatorError
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_protocol.ids import GlobalId, ReplicaId
from tidemark_protocol.plan.ingestion import PostgresSource, SourceSpec, replication_slot

LOG = logging.getLogger(__name__)
TIMEOUT_MS = 60_000
REPEAT_MS = 5_000
SLOT_KEPT = "ReplicationSlotKept"


def keeps_upstream(source: SourceSpec) -> bool:
    """Whether a source of this kind keeps something upstream that is to be ended with it."""
    return isinstance(source, PostgresSource)


@dataclass
class _Release:
    """The attempts for one DataSource. `error`: of the last one; empty once it is done."""

    began_ms: int
    asked_ms: int = -REPEAT_MS
    error: str = "no replica answered"
    attempt: asyncio.Task[None] | None = None


class UpstreamRelease:
    def __init__(self, context: ReconcileContext, clock: Callable[[], int] = now_ms) -> None:
        self._context, self._clock = context, clock
        self._releases: dict[str, _Release] = {}

    async def release(self, state: SourceState) -> bool:
        """Whether the object may go: nothing is kept upstream, or an Event says what is."""
        pinned = state.pinned
        if pinned is None or state.ingester is None or not isinstance(pinned.source, PostgresSource):
            return True
        now = self._clock()
        known = self._releases.setdefault(state.uid, _Release(now))
        if not known.error:
            return True
        if state.refused is not None:
            known.error = state.refused.message
        elif now - known.began_ms < TIMEOUT_MS:
            if (known.attempt is None or known.attempt.done()) and now - known.asked_ms >= REPEAT_MS:
                known.asked_ms = now
                known.attempt = asyncio.create_task(self._attempt(state, known))
            return False
        await self._give_up(state, pinned.source, known)
        return True

    def forget(self, uid: str) -> None:
        """The object is gone."""
        known = self._releases.pop(uid, None)
        if known is not None and known.attempt is not None:
            known.attempt.cancel()

    async def _attempt(self, state: SourceState, known: _Release) -> None:
        running = self._context.running(state.key.namespace, state.instance)
        if running is None or state.pinned is None or state.ingester is None:
            known.error = f"ComputeInstance {state.instance} does not run"
            return
        try:
            known.error = await running.release(ReplicaId(state.ingester.replica), state.pinned)
        except OperatorError as error:
            known.error = str(error)

    async def _give_up(self, state: SourceState, source: PostgresSource, known: _Release) -> None:
        slot = replication_slot(GlobalId(state.uid))
        note = (
            f"DataSource {state.key.name} was deleted, and its replication slot could not be dropped ({known.error})."
            f" It keeps WAL until you run SELECT pg_drop_replication_slot('{slot}') in database {source.database} of"
            f" {source.host}:{source.port}"
        )
        if known.attempt is not None:
            known.attempt.cancel()  # its answer would begin the release again
        LOG.warning("%s: %s", state.key, note)
        await self._context.events.warn(state.key, state.uid, SLOT_KEPT, note)
        known.error = ""
