"""Deletion of a Dataflow that no other Dataflow reads.

1. replicas drop its revisions, and readers of its tables get an end message
2. with `deletionPolicy: Delete`: once replicas dropped them, its tables and published tables are deleted
   (table_deletion.py)
3. the finalizer goes; then the API server removes the object, and what is remembered of it goes too
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidemark_operator.catalogue.dataflow_state import DataflowState, RevisionSet
from tidemark_operator.controller.answers.client_end_messages import EndMessage
from tidemark_operator.controller.frontiers.shards import ShardBook
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.deletion.table_deletion import TIMEOUT_MS, TableDeleter, waited_ms
from tidemark_operator.handlers.deletion.tombstones import TableAddress
from tidemark_operator.handlers.finalizers import set_finalizer
from tidemark_operator.handlers.holds.adopted_history_hold import release_history
from tidemark_operator.handlers.holds.revision_holds import holder_of
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.client import Body
from tidemark_operator.planning.revision import published_views, view_shards
from tidemark_operator.resources.manifest.data_source import DeletionPolicy
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_protocol.ids import ShardId
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.sinks.publish import removal_id

POLL_SECONDS = 1.0


class DataflowDeletion:
    def __init__(self, context: ReconcileContext, tables: TableDeleter) -> None:
        self._context, self._tables = context, tables

    async def delete(self, state: DataflowState, dataflow: Dataflow, body: Body) -> float | None:
        """Takes the deletion as far as it can go now. Returns the seconds until it must be tried again; None once the
        finalizer is gone."""
        self.stop(state)
        if dataflow.deletion_policy is DeletionPolicy.DELETE and not await self._delete_tables(state, body):
            return POLL_SECONDS
        await set_finalizer(self._context.kube, self._context.cache, state.key, wanted=False)
        return None

    async def _delete_tables(self, state: DataflowState, body: Body) -> bool:
        """Whether they are gone, or in a tombstone. Replicas have until the timeout to drop what writes them."""
        waited, running = waited_ms(body), self._running(state)
        installed = [m for m in state.marks if running and running.dataflow(state.installation(m))]
        if installed and waited < TIMEOUT_MS:
            return False
        tables = [TableAddress(table.shard_id, table.location) for table in _tables(state).values()]
        tables += _published(state)
        return await self._tables.delete(state.key, state.uid, running, tables, waited)

    def stop(self, state: DataflowState) -> None:
        """Replicas drop its revisions. Readers of its tables get an end message, on every instance, whether or not a
        revision was installed."""
        state.spec = replace(state.spec, deleting=True)
        running, cause = self._running(state), f"Dataflow {state.key.name} was deleted"
        if running is not None:
            drop_revisions(running, state, cause)
        self._context.fleet.end_readers(state.key.namespace, list(_tables(state)), EndMessage(cause))

    def forget(self, state: DataflowState) -> None:
        """The object is gone, and so is what is remembered of it. Tables that no tombstone lists stay."""
        self.stop(state)
        self._context.registry.forget(state.key)
        release_history(self._context, state.key)
        forget_revisions(self._context.fleet.book(state.key.namespace), state)
        self._context.revisions.forget(state.uid)

    def _running(self, state: DataflowState) -> RunningInstance | None:
        return self._context.running(state.key.namespace, state.instance)


def drop_revisions(running: RunningInstance, state: DataflowState, cause: str) -> None:
    """Drops what its instance has of the Dataflow, the pending revision first: no reader is sent there meanwhile."""
    for owner in reversed(running.owners()):
        installed = running.dataflow(owner) if owner.startswith(f"{state.key.path}/") else None
        if installed is not None:
            running.drop(owner, {s.shard_id for s in view_shards(installed.description)}, cause)


def forget_revisions(book: ShardBook, state: DataflowState) -> None:
    """Releases what its revisions hold, and forgets its tables."""
    for mark in state.marks:
        book.release(holder_of(state, mark))
    for table in _tables(state):
        book.forget(table)
    state.revisions = RevisionSet()


def _tables(state: DataflowState) -> Mapping[ShardId, ShardMetadata]:
    """Tables that its revisions write."""
    return {s.shard_id: s for mark in state.marks for s in view_shards(mark.revision.description)}


def _published(state: DataflowState) -> list[TableAddress]:
    """The ordinary tables that its revisions publish."""
    views = {v.location: v for mark in state.marks for v in published_views(mark.revision.description)}
    return [
        TableAddress(removal_id(state.uid, v.owner, v.location), v.location, state.instance if v.chosen else "")
        for v in views.values()
    ]
