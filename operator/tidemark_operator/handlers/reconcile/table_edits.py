"""Adds tables to a pinned DataSource, removes them, and changes how they go on, while the others are ingested.

    spec edited ─► table_edit ─► new tables inspected ─► next revision stored ─► state.pinned, RunIngestion
                                                             └─► tables of earlier revisions deleted (deletionPolicy)
                                                                 └─► earlier revisions deleted

A table is ingested as long as a Dataflow reads it. An operator that dies goes on from the stored revisions: the
newest one is what is ingested, and tables that only an earlier one names are what is left to delete.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from time import monotonic

from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.catalogue.source_tables import readers_of
from tidemark_operator.controller.answers.client_end_messages import EndMessage
from tidemark_operator.errors import Rejected, Waiting
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.handlers.deletion.table_deletion import TableDeleter
from tidemark_operator.handlers.deletion.tombstones import TableAddress
from tidemark_operator.handlers.reconcile.publication_looks import PublicationLooks
from tidemark_operator.handlers.reconcile.readable_tables import MAX_NAMED, find_readable
from tidemark_operator.handlers.reconcile.source_inspection import inspected
from tidemark_operator.handlers.reconcile.source_inspection_queue import SourceInspectionQueue
from tidemark_operator.handlers.reconcile.source_loop_check import reads_own_tables
from tidemark_operator.handlers.reconcile.source_pinning import (
    ingested_table,
    tables_of,
    take_stored,
    with_columns,
    without_columns,
)
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.handlers.revisions.shard_placement import shard_locations, shard_lookup
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import Conflict
from tidemark_operator.kube.revisions import RevisionOwner
from tidemark_operator.planning.published_tables import abridged, unnamed_tables
from tidemark_operator.planning.schema_columns import columns_not_added, other_columns, with_schemas_elsewhere
from tidemark_operator.planning.shards import free_version, version_of
from tidemark_operator.planning.table_edit import (
    COLUMNS_NOT_ADDED,
    MAX_TABLES,
    EvolvingSource,
    TableEdit,
    edited,
    evolving_tables,
    named_in,
    removable,
    table_edit,
    with_more_columns,
    with_rows_of,
    with_tables,
    with_unknown_relations,
)
from tidemark_operator.resources.conditions.data_source import IngestionFailure
from tidemark_operator.resources.conditions.instance import IMAGE_TOO_OLD
from tidemark_operator.resources.manifest.data_source import DataSource, DeletionPolicy
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.plan.ingestion import (
    FilesSource,
    GeneratedSource,
    IngestedTable,
    IngestionDescription,
    PostgresSource,
    SourceSpec,
    SourceTable,
    WrittenSource,
)
from tidemark_protocol.plan.kafka import KafkaSource, KafkaTable
from tidemark_protocol.plan.successors import dead_letters, newest, number, spec_name, without_dead_letters

EVOLVE_SECONDS = 60.0
"""The pause between two looks for further columns."""


@dataclass(frozen=True)
class _Added:
    """New tables with their columns, and what keeps them out."""

    source: SourceSpec | None = None
    tables: tuple[IngestedTable, ...] = ()
    failure: IngestionFailure | None = None
    changed: tuple[KafkaTable, ...] = ()
    """Pinned tables that get none, as their schema is in another place alone."""

    def with_others(self, other: _Added) -> _Added:
        """These new tables, and others of the same source."""
        sources = [one.source for one in (self, other) if one.source is not None]
        new = [table for source in sources if not isinstance(source, GeneratedSource) for table in source.tables]
        source = with_tables(sources[0], new) if sources else None
        tables, changed = (*self.tables, *other.tables), (*self.changed, *other.changed)
        return _Added(source, tables, self.failure or other.failure, changed)


@dataclass(frozen=True)
class _Look:
    """The time of the last look for further columns (monotonic seconds), the reason why they are not taken, and the
    tables that could not be read."""

    at: float
    failure: IngestionFailure | None = None
    unreadable: frozenset[str] = frozenset()


class TableEdits:
    """`inspections`: the queue that all DataSources share; `looks`: for tables of publications."""

    def __init__(
        self,
        context: ReconcileContext,
        deleter: TableDeleter,
        inspections: SourceInspectionQueue,
        looks: PublicationLooks,
    ) -> None:
        self._context, self._deleter, self._inspections = context, deleter, inspections
        self._publications = looks
        self._looks: dict[Key, _Look] = {}

    async def apply(self, state: SourceState, source: DataSource, running: RunningInstance) -> bool:
        """Add and remove tables until the pinned source has those of the spec. Return whether something is left to do;
        `state.edit` says why. Raises ApiError."""
        assert state.pinned is not None
        await self._publications.look_for_a_moment(state, source, running)
        published = self._publications.published(source, state.key, state.pinned)
        left_out = self._publications.failure(source, state.key, published)
        wanted = with_unknown_relations(state.pinned, source.source) if source.all_relations else source.source
        if published is not None and isinstance(source.source, PostgresSource):
            unnamed = unnamed_tables(published, source.source) if source.all_evolve else frozenset()
            source = replace(source, source=published.source, evolving=source.evolving | unnamed)
            wanted = published.source
        state.columns_left_out = abridged(published.columns_left_out) if published is not None else ""
        edit = table_edit(state.pinned, wanted, published.repeated if published is not None else ())
        evolved = None
        if edit.added is None or self._is_put_off(state, edit.added, running):
            evolved = await self._evolved(state, source, running, without=edit.names)
        if edit.is_empty and evolved is None:
            state.edit = self._look_failure(state, source) or left_out
            return False
        added = _Added()
        if edit.added is not None:
            added = await self._add(state, edit.added, running, one_by_one=published is not None)
        if evolved is not None:
            added = await self._add_evolved(state, evolved, running, added)
        readers = self._readers(state, edit.removed)
        removed = removable(state.pinned, edit.removed, readers.keys(), partial(self._has_begun, state))
        try:
            changed = (*edit.changed, *added.changed)
            if removed or added.tables or changed:
                await self._store(state, source, removed, added, changed)
            obstacle = _obstacle(edit, readers, source.source)
            state.edit = added.failure or obstacle or self._look_failure(state, source) or left_out
        except Rejected as error:
            state.edit = IngestionFailure(error.reason, str(error))
        follows = any(number(each.table.name) > 1 for each in added.tables)  # a successor follows a table that is to go
        waits = any(each not in removed and named_in(state.pinned, each) not in readers for each in edit.removed)
        return state.edit not in (None, left_out) or follows or waits

    def _has_begun(self, state: SourceState, table: IngestedTable) -> bool:
        """Whether a replica has reported that the table has rows, or could have some."""
        known = self._context.fleet.book(state.key.namespace).frontiers(table.shard.shard_id)
        return known is not None and known.upper != Frontier.minimum()

    def _look_failure(self, state: SourceState, source: DataSource) -> IngestionFailure | None:
        looked = self._looks.get(state.key)
        return looked.failure if looked is not None and source.evolving else None

    async def _evolved(
        self, state: SourceState, source: DataSource, running: RunningInstance, without: Collection[str]
    ) -> SourceSpec | None:
        """Successors of the tables that take columns as they come, where there are some; None if not, or if it is not
        known now. `without`: tables that the spec changes, which `_add` inspects. Each EVOLVE_SECONDS at most."""
        assert state.pinned is not None
        now, looked = monotonic(), self._looks.get(state.key)
        if (looked is not None and now < looked.at + EVOLVE_SECONDS) or not isinstance(source.source, EvolvingSource):
            return None
        present = evolving_tables(state.pinned, source.source, source.evolving.difference(without))
        if not present.tables:
            return None
        before: Collection[str] = looked.unreadable if looked is not None else ()
        try:
            with self._inspections.turn(state.key) as admitted:
                if not admitted:
                    return None
                now_there = await find_readable(present, state.pinned, running, apart=before)
        except Waiting:
            return None
        failure = IngestionFailure("SourceUnreadable", now_there.error) if now_there.error else None
        if failure is None and (other := other_columns(state.pinned, now_there.found)):
            failure = IngestionFailure(COLUMNS_NOT_ADDED, other)
        self._looks[state.key] = _Look(now, failure, now_there.unreadable)
        more = with_more_columns(state.pinned, now_there.found, sorted(table.name for table in present.tables))
        return with_tables(source.source, more) if more else None

    def forget(self, key: Key) -> None:
        """The object is gone."""
        self._looks.pop(key, None)
        self._publications.forget(key)

    async def _add(self, state: SourceState, new: SourceSpec, running: RunningInstance, one_by_one: bool) -> _Added:
        """The new tables of the spec. After a failure the next inspection of the same ones comes after a pause."""
        if (refusal := self._refusal(state, new, running)) is not None:
            return _Added(failure=refusal)
        if self._inspections.pause(state.key, new):
            return _Added(failure=state.edit or _IN_LINE)
        added = await self._inspect(state, new, running, one_by_one)
        if added is None:
            return _Added(failure=state.edit or _IN_LINE)
        self._inspections.record_end(state.key, new, failed=added.failure is not None)
        return added

    async def _add_evolved(
        self, state: SourceState, new: SourceSpec, running: RunningInstance, edited: _Added
    ) -> _Added:
        """The new tables of the spec, `edited`, and `new` ones that a look has found: a failure of the former does not
        hold up the latter."""
        if (refusal := self._refusal(state, new, running)) is not None:
            added = _Added(failure=refusal)
        else:
            found = await self._inspect(state, new, running, one_by_one=True, beside=len(edited.tables))
            added = found or _Added(failure=_IN_LINE)
        if added.failure is not None:  # it stands until the next look
            self._looks[state.key] = replace(self._looks[state.key], failure=added.failure)
        return edited.with_others(added)

    def _is_put_off(self, state: SourceState, new: SourceSpec, running: RunningInstance) -> bool:
        """Whether the new tables of the spec cannot be added now, as they could not be before."""
        return self._refusal(state, new, running) is not None or self._inspections.pause(state.key, new) > 0

    def _refusal(self, state: SourceState, new: SourceSpec, running: RunningInstance) -> IngestionFailure | None:
        """The reason why no replica is asked for the new tables."""
        if own := reads_own_tables(new, running.config.storage_location, state.key.namespace):
            return own
        return IngestionFailure(IMAGE_TOO_OLD, running.too_old) if running.is_too_old_for(new) else None

    async def _inspect(
        self, state: SourceState, new: SourceSpec, running: RunningInstance, one_by_one: bool, beside: int = 0
    ) -> _Added | None:
        """The new tables; None where they stand in line. `one_by_one`: those that cannot be read hold up no other.
        `beside`: the number of other tables that are added with them."""
        added = await self._look_at(state, new, running, one_by_one, beside)
        if added is not None and added.failure is not None and added.failure.reason == "SourceUnreadable":
            self._publications.expire(state.key)  # a table that was found may be gone
        return added

    async def _look_at(
        self, state: SourceState, new: SourceSpec, running: RunningInstance, one_by_one: bool, beside: int
    ) -> _Added | None:
        assert state.pinned is not None
        instance = self._context.instance(state.key.namespace, state.instance)
        if instance is None:
            return _Added()
        try:
            with self._inspections.turn(state.key) as admitted:
                if not admitted:
                    return None
                answer = await inspected(self._context.kube, state.key.namespace, running, new, state.pinned)
                found, error = tables_of(answer), answer.error
                if error and one_by_one and isinstance(new, EvolvingSource) and len(new.tables) > 1:
                    there = await find_readable(new, state.pinned, running, refused=error)
                    each, error = there.found, there.error
                    readable = {table.name: table for table in each}
                    new = with_tables(new, (table for table in new.tables if table.name in readable))
                    names = [table.name for table in new.tables]
                    named = {name: place for place, name in enumerate(names)}
                    owners = {n: n if n in named else without_dead_letters(n) for n in readable}
                    found = tuple(sorted(each, key=lambda one: named[owners[one.name]]))  # each, then its dead letters
            failure = IngestionFailure("SourceUnreadable", error) if error else None
            moved: tuple[KafkaTable, ...] = ()
            if isinstance(new, KafkaSource):
                moved = with_schemas_elsewhere(state.pinned, new, found)
                new, found = _leave_out(new, found, {spec_name(table.name) for table in moved})
                if refused := columns_not_added(state.pinned, new, found):
                    failure = IngestionFailure(COLUMNS_NOT_ADDED, next(iter(refused.values())))
                    new, found = _leave_out(new, found, set(map(spec_name, refused)))
            if (failure is not None or moved) and not found:
                return _Added(failure=failure, changed=moved)
            if missing := without_columns(new, found):
                return _Added(failure=_no_columns(missing))
            if len(state.pinned.tables) + beside + len(found) > MAX_TABLES:
                return _Added(failure=_too_many(found))
            locations = await shard_locations(
                self._context.registry, self._deleter, state, instance.location, adopts=False
            )
            found, first = _after_earlier(found, state.pinned)
            version = await free_version(locations, [table.name for table in found], first, shard_lookup(running))
        except (Waiting, Rejected) as error:
            return _Added(failure=IngestionFailure(error.reason, str(error)))
        remap = state.pinned.remap_id
        tables = tuple(ingested_table(state.uid, locations, version, table, remap) for table in found)
        return _Added(with_columns(new, found), tables, failure, moved)

    async def _store(
        self,
        state: SourceState,
        source: DataSource,
        removed: Sequence[IngestedTable],
        added: _Added,
        changed: Sequence[KafkaTable],
    ) -> None:
        before = state.pinned
        assert before is not None
        now = edited(before, removed, added.source, added.tables, changed)
        owner = RevisionOwner(state.key.resource.api_version, state.key.resource.kind, source.meta)
        try:
            await self._context.revisions.store(owner, state.pinned_number + 1, now)
        except Conflict:  # an earlier edit has this number: it was stored, and the answer was lost
            take_stored(state, await self._context.revisions.all(source.meta, IngestionDescription))
            self._end_readers(state, before)
            raise
        state.pinned, state.pinned_number = now, state.pinned_number + 1
        state.retired = (*state.retired, before)
        self._end_readers(state, before)

    def _end_readers(self, state: SourceState, before: IngestionDescription) -> None:
        """Readers of tables that the pinned source had before, and has no more, get an end message."""
        assert state.pinned is not None
        kept = {table.shard.shard_id for table in state.pinned.tables}
        gone = [table.shard.shard_id for table in before.tables if table.shard.shard_id not in kept]
        ending = EndMessage(f"its table was removed from DataSource {state.key.name}")
        self._context.fleet.end_readers(state.key.namespace, gone, ending)

    async def delete_retired(self, state: SourceState, source: DataSource, running: RunningInstance) -> bool:
        """Delete the tables that only earlier revisions name, where the policy says so, then these revisions. Return
        whether all are gone. The caller has sent the newest revision to the replica. A table that a Dataflow began to
        read meanwhile is kept until no Dataflow reads it. Raises ApiError."""
        if not state.retired:
            return True
        assert state.pinned is not None
        kept = {table.shard.shard_id for table in state.pinned.tables}
        left = [table for one in state.retired for table in one.tables if table.shard.shard_id not in kept]
        if self._readers(state, left):
            return False
        tables = list(dict.fromkeys(TableAddress(table.shard.shard_id, table.shard.location) for table in left))
        book = self._context.fleet.book(state.key.namespace)
        for table in tables:
            book.forget(table.id)
        if source.deletion_policy is DeletionPolicy.DELETE and not await self._deleter.delete(
            state.key, state.uid, running, tables, waited_ms=0
        ):
            return False
        await self._context.revisions.prune(source.meta, keep=())
        state.retired = ()
        return True

    def _readers(self, state: SourceState, removed: Sequence[IngestedTable]) -> dict[str, list[str]]:
        """The Dataflows that read removed tables, by the table's name in the spec."""
        assert state.pinned is not None
        readers: dict[str, list[str]] = {}
        for key, table in readers_of(self._context.registry, state.key, removed):
            readers.setdefault(named_in(state.pinned, table), []).append(key.name)
        return readers


def _leave_out(
    source: KafkaSource, found: Sequence[SourceTable], names: Set[str]
) -> tuple[KafkaSource, tuple[SourceTable, ...]]:
    """The source and its tables without those that have these names in the spec, and without their dead letters."""
    left = [table.name for table in source.tables if spec_name(table.name) not in names]
    stay = {each for name in left for each in (name, dead_letters(name))}
    tables = (table for table in source.tables if table.name in left)
    return with_tables(source, tables), tuple(table for table in found if table.name in stay)


def _after_earlier(found: tuple[SourceTable, ...], pinned: IngestionDescription) -> tuple[tuple[SourceTable, ...], int]:
    """The new tables, those with what is known of the tables whose rows, or files, they begin with, and the first
    version that their shards may have: that of these tables, as adoption looks for the tables of one version."""
    if not isinstance(pinned.source, WrittenSource | FilesSource):
        return found, 1
    last = newest(table.table.name for table in pinned.tables)
    known = {table.table.name: table for table in pinned.tables}
    before = {table.name: known[last[spec_name(table.name)]] for table in found if spec_name(table.name) in last}
    now = tuple(with_rows_of(t, before[t.name].table) if t.name in before else t for t in found)
    return now, max((version_of(table.shard) for table in before.values()), default=1)


def _obstacle(edit: TableEdit, readers: dict[str, list[str]], wanted: SourceSpec) -> IngestionFailure | None:
    """The reason why tables are not those of the spec. A table whose successor is there is none of them: nobody has to
    edit its readers."""
    if edit.refused:
        return IngestionFailure(edit.reason, edit.refused)
    named = () if isinstance(wanted, GeneratedSource) else [table.name for table in wanted.tables]
    readers = {name: dataflows for name, dataflows in readers.items() if spec_name(name) not in named}
    if not readers:
        return None
    name, dataflows = next(iter(readers.items()))
    return IngestionFailure(
        "TableInUse",
        f"table {name} is not in the spec any more, but is read by Dataflow {', '.join(sorted(set(dataflows)))}: it is "
        "ingested until these are deleted, or no longer read it",
    )


def _too_many(added: Sequence[SourceTable]) -> IngestionFailure:
    names = ", ".join(table.name for table in added[:MAX_NAMED])
    return IngestionFailure(
        "TooManyTables",
        f"with table {names} the DataSource would have more than {MAX_TABLES} tables, those that Dataflows still read "
        "among them: delete or edit Dataflows that read earlier tables, or make another DataSource",
    )


_IN_LINE = IngestionFailure(
    "WaitingForInspection",
    "its new tables are looked at when the inspections of other DataSources that run now have ended",
)


def _no_columns(tables: Sequence[str]) -> IngestionFailure:
    return IngestionFailure(
        "WaitingForFiles",
        f"no complete file of {', '.join(tables)} to infer the columns from: add a file, or declare columns",
    )
