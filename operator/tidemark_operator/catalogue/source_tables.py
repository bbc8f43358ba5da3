"""The tables of DataSources: what their ingester reported last, and how far they are."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from tidemark_operator.catalogue.registry import Registry, SourceState
from tidemark_operator.fleet.fleet import Fleet
from tidemark_operator.kube.cache import Key
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import TableReport
from tidemark_protocol.plan.ingestion import IngestedTable


@dataclass(frozen=True)
class SourceTableState:
    """One table. `name`: for people. `upper` None: no replica has reported it. `report` None: no ingester has reported
    the table yet. `ingesting`: whether the source is ingested now; it is not while it, or its instance, is
    suspended."""

    source: SourceState
    name: str
    ingested: IngestedTable
    upper: Frontier | None
    report: TableReport | None
    ingesting: bool

    def lag_ms(self, now_ms: int) -> int | None:
        """The table's lag behind the clock, in milliseconds; None: unknown, or nothing more is to come."""
        return None if self.upper is None or self.upper.time is None else max(now_ms - self.upper.time, 0)


def readers_of(
    registry: Registry, source: Key, tables: Collection[IngestedTable]
) -> Iterator[tuple[Key, IngestedTable]]:
    """The Dataflows that read tables of the DataSource, each with such a table. One whose plan is being stored may read
    any of them."""
    for key in registry.users(source):
        if (user := registry.dataflow(key)) is None:
            continue
        imported = {id for mark in user.marks for id in mark.revision.imported}
        storing = any(p.kind == source.resource.kind and p.name == source.name for p in user.planning.reads)
        yield from ((key, table) for table in tables if storing or GlobalId(table.shard.shard_id) in imported)


def tables_of(source: SourceState, fleet: Fleet) -> Iterator[SourceTableState]:
    """The tables in the order of the source."""
    if source.pinned is None:
        return
    book, running = fleet.book(source.key.namespace), fleet.get(source.key.namespace, source.instance)
    ingesting = running is not None and running.is_ingesting(source.pinned.id)
    reports = {report.table: report for report in source.report.tables} if source.report else {}
    for name, ingested in source.tables():
        known = book.frontiers(ingested.shard.shard_id)
        upper = known.upper if known else None
        yield SourceTableState(source, name, ingested, upper, reports.get(ingested.table.name), ingesting)


def all_tables(registry: Registry, fleet: Fleet) -> Iterator[SourceTableState]:
    """The tables of all DataSources of all namespaces."""
    for source in registry.all_sources():
        yield from tables_of(source, fleet)
