"""Pins the tables of a DataSource: a replica inspects each once, and a ControllerRevision stores what it found.

inspect ─► columns known? ─► a free shard version, or an adopted one ─► stored ─► state.pinned

An edit of the spec that adds or removes tables stores the next revision (`table_edits`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.errors import Rejected, Waiting
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.deletion.table_deletion import TableDeleter
from tidemark_operator.handlers.holds.adopted_history_hold import hold_history
from tidemark_operator.handlers.reconcile.publication_looks import LEFT_OUT, PublicationLooks, publication_of
from tidemark_operator.handlers.reconcile.source_inspection import inspected
from tidemark_operator.handlers.reconcile.source_inspection_queue import SourceInspectionQueue
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.handlers.revisions.shard_placement import shard_locations, shard_lookup
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.revisions import RevisionOwner
from tidemark_operator.planning.adoption import SourceTables, all_nullable, last_tables, newest_source
from tidemark_operator.planning.shards import REMAP, ShardLocations, free_version, maker, named
from tidemark_operator.planning.table_edit import with_tables
from tidemark_operator.resources.conditions.data_source import IngestionFailure
from tidemark_operator.resources.manifest.data_source import DataSource
from tidemark_protocol.errors import MalformedPlan
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.messages.responses import DescribedShard
from tidemark_protocol.pb import compute_pb2
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.ingestion import (
    DeltaSource,
    FilesSource,
    GeneratedSource,
    IngestedTable,
    IngestionDescription,
    IntrospectionSource,
    IntrospectionTable,
    PostgresSource,
    SourceSpec,
    SourceTable,
    WrittenSource,
)
from tidemark_protocol.plan.kafka import KafkaSource, KafkaTable, pinned_as
from tidemark_protocol.plan.successors import spec_name

FIRST = 1
"""The number of the first revision of a DataSource."""


class SourcePinning:
    """`again`: puts a DataSource into the work queue."""

    def __init__(self, context: ReconcileContext, deleter: TableDeleter, again: Callable[[Key], None]) -> None:
        self._context, self._deleter = context, deleter
        self.inspections = SourceInspectionQueue(again)
        self.looks = PublicationLooks(self.inspections, again)

    async def load(self, state: SourceState, source: DataSource) -> None:
        """Reads the pinned tables, if they are stored and not known yet. Raises RevisionUnreadable."""
        if state.pinned is None:
            take_stored(state, await self._context.revisions.all(source.meta, IngestionDescription))

    async def pin(self, state: SourceState, source: DataSource, running: RunningInstance) -> bool:
        """Asks a replica for the tables of the source, and stores them. Returns whether they are stored; if not, the
        state says why. After a failure it is done again once the pause is over. Raises ApiError."""
        if self.inspections.pause(state.key, source.source):
            return False
        pinned = await self._pin(state, source, running)
        if pinned is not None:
            self.inspections.record_end(state.key, source.source, failed=not pinned)
        return bool(pinned)

    async def _pin(self, state: SourceState, source: DataSource, running: RunningInstance) -> bool | None:
        """Whether the tables are stored; None where no replica was asked."""
        partly = publication_of(source) is not None
        published = await self._published(state, source, running)
        if isinstance(published, bool | None):
            return published
        source = replace(source, source=published)
        try:
            with self.inspections.turn(state.key) as admitted:
                if not admitted:
                    return None
                answer = await inspected(self._context.kube, state.key.namespace, running, source.source)
        except Waiting:
            return None
        tables = tables_of(answer)
        missing = without_columns(source.source, tables)
        state.schema_unknown_of = missing
        state.failure = IngestionFailure("SourceUnreadable", answer.error) if answer.error else None
        if answer.error or missing:
            return False
        instance = self._context.instance(state.key.namespace, state.instance)
        if instance is None:
            return False
        try:
            locations, version, found = await self._locations(state, source, running, instance.location, tables, partly)
            last = {spec_name(stored.name): stored.name for stored in found}
            if isinstance(source.source, PostgresSource):
                there = (table for table in source.source.tables if table.name in last)
                source = replace(source, source=with_tables(source.source, there))
            tables = found
            if locations.adopted and not isinstance(source.source, GeneratedSource):
                tables = tuple(map(_adopted, tables))
            pinned = pinned_ingestion(_named(source, last), locations, version, tables)
            owner = RevisionOwner(state.key.resource.api_version, state.key.resource.kind, source.meta)
            await self._context.revisions.store(owner, FIRST, pinned)
        except (Waiting, Rejected) as error:
            state.failure = IngestionFailure(error.reason, str(error), passes=isinstance(error, Waiting))
            return False
        state.pinned, state.pinned_number = pinned, FIRST
        return True

    async def _published(
        self, state: SourceState, source: DataSource, running: RunningInstance
    ) -> SourceSpec | bool | None:
        """The source with all of its tables by name. False where a publication has none that can be followed, or cannot
        be read; None where no replica was asked."""
        if publication_of(source) is None:
            return source.source
        self.looks.expire(state.key)
        await self.looks.look(state, source, running)
        if not self.looks.has_looked(state.key):
            return None
        published = self.looks.published(source, state.key, None)
        failure = self.looks.failure(source, state.key, published)
        if published is not None and published.source.tables and (failure is None or failure.reason == LEFT_OUT):
            return published.source
        state.failure = failure or IngestionFailure(
            "NothingPublished",
            "the publication has no table; run ALTER PUBLICATION ... ADD TABLE upstream",
            passes=True,
        )
        return False

    async def _locations(
        self,
        state: SourceState,
        source: DataSource,
        running: RunningInstance,
        location: str,
        tables: Sequence[SourceTable],
        partly: bool = False,
    ) -> tuple[ShardLocations, int, tuple[SourceTable, ...]]:
        """Where its tables are to be, in which version, and the tables: adopted ones with their stored names, and with
        their stored columns where the spec does not say which. `partly`: tables that are not there are left to the next
        edit. Raises Waiting, or Rejected if tables cannot be adopted."""
        names, look_up = [table.name for table in tables], shard_lookup(running)
        locations = await shard_locations(self._context.registry, self._deleter, state, location, source.adopt)
        if source.adopt:
            found = await newest_source(locations, names, look_up)
            if found.version:
                if isinstance(source.source, WrittenSource | IntrospectionSource | PostgresSource):
                    found, last = await last_tables(locations, found, names, look_up)
                    tables = [replace(table, name=last[table.name]) for table in tables]
                if partly:
                    tables = [table for table in tables if table.name in found.shards]
                    if not tables:
                        raise Rejected("CannotAdopt", _cannot_adopt(locations, f"none is there in v{found.version}"))
                tables = [_with_stored_columns(source.source, t, found.shards.get(t.name)) for t in tables]
                if misfit := found.misfit(locations, {table.name: table.columns for table in tables}):
                    raise Rejected("CannotAdopt", _cannot_adopt(locations, misfit))
                locations = found.adopting(locations)
                self._adopt(state, locations, found)
                return locations, found.version, tuple(tables)
        return locations, await free_version(locations, [REMAP, *names], 1, look_up), tuple(tables)

    def _adopt(self, state: SourceState, locations: ShardLocations, found: SourceTables) -> None:
        """Records the adopted tables before a replica ingests: the ingester's term must be above theirs."""
        book = self._context.fleet.book(state.key.namespace)
        lag = self._context.lag_ms(state.key.namespace, state.instance)
        for part, shard in found.shards.items():
            book.adopt(*locations.address(part, found.version), shard, lag)
        hold_history(
            self._context, state.key, state.uid, [locations.address(part, found.version) for part in found.shards]
        )


def _adopted(table: SourceTable) -> SourceTable:
    """An adopted table. Nobody has checked its earlier rows: their DataSource may have had another key, or none, or may
    have retracted rows."""
    return replace(table, keys=(), monotonic=False, columns=all_nullable(table.columns))


def _with_stored_columns(source: SourceSpec, table: SourceTable, stored: DescribedShard | None) -> SourceTable:
    """An adopted table whose columns the spec does not name: a relation of the operator, or a table of PostgreSQL, of
    which later columns are not taken, or by a successor."""
    if stored is None:
        return table
    if isinstance(source, PostgresSource):
        chosen = any(each.names for each in source.tables if each.name == spec_name(table.name))
        if chosen or not set(named(stored.columns)) <= set(named(table.columns)):
            return table
    elif not isinstance(source, IntrospectionSource):
        return table
    return replace(table, columns=stored.columns)


def _named(source: DataSource, names: Mapping[str, str]) -> DataSource:
    """The source with the stored names of its tables."""
    if not isinstance(source.source, WrittenSource | PostgresSource):
        return source
    tables: Iterable[Any] = source.source.tables
    stored = [replace(table, name=names.get(table.name, table.name)) for table in tables]
    return replace(source, source=with_tables(source.source, stored))


def take_stored(state: SourceState, stored: Mapping[int, IngestionDescription]) -> None:
    """Take the stored revisions, by their numbers, into the state: the newest one is pinned, the others are retired."""
    if stored:
        *retired, newest = sorted(stored)
        state.pinned_number, state.pinned = newest, stored[newest]
        state.retired = tuple(stored[number] for number in retired)


def _cannot_adopt(locations: ShardLocations, misfit: str) -> str:
    return (
        f"the tables below {locations.root} cannot be adopted by this DataSource: {misfit}. Set spec.adopt to false to "
        "begin with new tables beside them, or make spec.source fit them"
    )


def pinned_ingestion(
    source: DataSource, locations: ShardLocations, version: int, tables: tuple[SourceTable, ...]
) -> IngestionDescription:
    """The ingestion as it is stored, for good."""
    remap_id, remap_location = locations.address(REMAP, version)
    return IngestionDescription(
        id=GlobalId(source.meta.uid),
        name=source.meta.name,
        source=with_columns(source.source, tables),
        tick_ms=source.tick_ms,
        remap_id=remap_id,
        remap_location=remap_location,
        tables=tuple(ingested_table(source.meta.uid, locations, version, table, remap_id) for table in tables),
    )


def ingested_table(
    uid: str, locations: ShardLocations, version: int, table: SourceTable, remap_id: ShardId
) -> IngestedTable:
    """A table of the DataSource with this uid, in this version of its location. `remap_id`: of its bindings. Where
    another DataSource made these, they may have an earlier table of the name; within one DataSource none comes again.
    """
    shard = locations.shard(table.name, version, table.columns)
    bound_as = "" if maker(shard.shard_id) == maker(remap_id) else f"{table.name}@{uid}"
    return IngestedTable(GlobalId(f"{uid}/{table.name}"), table, shard, bound_as)


def with_columns(source: SourceSpec, tables: tuple[SourceTable, ...]) -> SourceSpec:
    """The source with inferred columns and found schemas as given ones: they are looked for once."""
    known = {table.name: table.columns for table in tables}
    if isinstance(source, KafkaSource):
        found = {table.name: table for table in tables}
        return replace(source, tables=tuple(_with_schemas(t, found.get(t.name)) for t in source.tables))
    if isinstance(source, DeltaSource | PostgresSource):
        return with_tables(source, (replace(t, columns=known.get(t.name)) for t in source.tables))
    if isinstance(source, IntrospectionSource):
        return replace(source, tables=tuple(IntrospectionTable(table.name, table.columns) for table in tables))
    if not isinstance(source, FilesSource):
        return source
    return replace(source, tables=tuple(replace(t, columns=t.columns or known.get(t.name)) for t in source.tables))


def _with_schemas(table: KafkaTable, found: SourceTable | None) -> KafkaTable:
    if found is None:
        return table
    schema, key_schema = pinned_as(table.schema, found.schema), pinned_as(table.key_schema, found.key_schema)
    return replace(table, schema=schema, key_schema=key_schema)


def without_columns(source: SourceSpec, tables: tuple[SourceTable, ...]) -> tuple[str, ...]:
    """Tables whose columns are neither declared nor found."""
    if not isinstance(source, FilesSource):
        return ()
    known = {table.name for table in tables}
    return tuple(t.name for t in source.tables if t.columns is None and t.name not in known)


def tables_of(answer: compute_pb2.InspectSourceResponse) -> tuple[SourceTable, ...]:
    """The tables of a replica's answer. Raises Waiting."""
    try:
        return tuple(codec.decode(table, SourceTable) for table in answer.tables)
    except MalformedPlan as error:
        raise Waiting("SourceUnreadable", f"the replica's answer cannot be read: {error}") from None
