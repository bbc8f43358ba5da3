"""Deletion of a DataSource that no Dataflow reads.

1. its ingestion stops, and readers of its tables get an end message
2. replicas drop its replication slot (upstream_release.py), as long as its bindings are there to name the slot
3. with `deletionPolicy: Delete`: its tables and its bindings are deleted (table_deletion.py)
4. the finalizer goes; then the API server removes the object, and what is remembered of it goes too
"""

from __future__ import annotations

from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.controller.answers.client_end_messages import EndMessage
from tidemark_operator.controller.frontiers.shards import ingesting
from tidemark_operator.handlers.deletion.table_deletion import TableDeleter, waited_ms
from tidemark_operator.handlers.deletion.tombstones import TableAddress
from tidemark_operator.handlers.deletion.upstream_release import UpstreamRelease
from tidemark_operator.handlers.finalizers import set_finalizer
from tidemark_operator.handlers.holds.adopted_history_hold import release_history
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.kube.client import Body
from tidemark_operator.resources.manifest.data_source import DataSource, DeletionPolicy
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.plan.ingestion import IngestionDescription

POLL_SECONDS = 1.0


class DataSourceDeletion:
    def __init__(self, context: ReconcileContext, tables: TableDeleter) -> None:
        self._context, self._tables = context, tables
        self._upstream = UpstreamRelease(context)

    async def delete(self, state: SourceState, source: DataSource, body: Body) -> float | None:
        """Takes the deletion as far as it can go now. Returns the seconds until it must be tried again; None once the
        finalizer is gone."""
        self.stop(state)
        if not await self._upstream.release(state):
            return POLL_SECONDS
        if source.deletion_policy is DeletionPolicy.DELETE and state.pinned is not None:
            running = self._context.running(state.key.namespace, state.instance)
            pinned = [shard for one in (*state.retired, state.pinned) for shard in pinned_shards(one)]
            tables = [TableAddress(id, location) for id, location in dict(pinned).items()]
            if not await self._tables.delete(state.key, state.uid, running, tables, waited_ms(body)):
                return POLL_SECONDS
        await set_finalizer(self._context.kube, self._context.cache, state.key, wanted=False)
        return None

    def stop(self, state: SourceState) -> None:
        """No replica ingests it. Readers of its tables get an end message, also on other instances."""
        running = self._context.running(state.key.namespace, state.instance)
        if running is not None:
            running.drop_ingestion(GlobalId(state.uid))
        tables = [table.shard.shard_id for table in state.pinned.tables] if state.pinned else []
        ending = EndMessage(f"DataSource {state.key.name} was deleted")
        self._context.fleet.end_readers(state.key.namespace, tables, ending)

    def forget(self, state: SourceState) -> None:
        """The object is gone, and so is what is remembered of it. Tables that no tombstone lists stay."""
        self.stop(state)
        self._upstream.forget(state.uid)
        self._context.registry.forget(state.key)
        book = self._context.fleet.book(state.key.namespace)
        book.release(ingesting(GlobalId(state.uid)))  # another DataSource may adopt the same tables
        release_history(self._context, state.key)
        for id, _ in pinned_shards(state.pinned) if state.pinned else ():
            book.forget(id)
        self._context.revisions.forget(state.uid)


def pinned_shards(pinned: IngestionDescription) -> list[tuple[ShardId, str]]:
    """Ids and locations of a DataSource's tables, and of its bindings."""
    tables = [(table.shard.shard_id, table.shard.location) for table in pinned.tables]
    return [*tables, (pinned.remap_id, pinned.remap_location)]
