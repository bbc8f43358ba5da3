"""The names that SQL may use in a namespace, as the planner wants them.

DataSource a, pinned         a.<table>      a shard
Dataflow d, active           d.<export>     a shard (materialized view), or an index
                             d              where d has one export

Queries read any of them. A plan imports shards of all instances, and indexes of its own.

What is derived from SQL, a unique key or that rows are only ever added, is true of an index for as long as there is
one. It is not of a shard: an edit whose columns stay keeps the shard and leaves its readers alone, whatever the new SQL
has of that; and readers of the new SQL may still begin at times before the shard was corrected.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidemark_operator.catalogue.registry import DataflowState, SourceState
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS
from tidemark_operator.planning.revision import DataflowRevision, Parent
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Catalogue, PlannedExport, Relation, SharedIndex


def catalogue(
    sources: Iterable[SourceState],
    dataflows: Iterable[DataflowState],
    without: str | None = None,
    instance: str | None = None,
    named_in: str | None = None,
) -> Catalogue:
    """`without`: the Dataflow that is being planned; a plan never reads its own exports. `instance`: the one that the
    plan is to run on, whose indexes it may import. `named_in`: SQL; what it cannot mean, since it does not even hold
    the parent's name, is left out, so that a plan costs no more where there are many others."""
    text = None if named_in is None else named_in.lower()
    tables = [relation for s in sources if text is None or s.key.name in text for relation in _tables(s)]
    others = [d for d in dataflows if d.key.name != without and (text is None or d.key.name in text)]
    exports = [relation for d in others for relation in _exports(d, shares=d.instance == instance)]
    return Catalogue(tuple(sorted(tables + exports, key=lambda r: (r.parent, r.name, r.id))))


def named_in(sql: str, known: Catalogue) -> Catalogue:
    """What of it the text can mean, as in `catalogue`. A parent is looked for once, however much it has."""
    text = sql.lower()
    there = {parent for parent in {relation.parent for relation in known.relations} if parent in text}
    return Catalogue(tuple(relation for relation in known.relations if relation.parent in there))


def parents(
    sources: Iterable[SourceState], dataflows: Iterable[DataflowState], references: Iterable[GlobalId]
) -> tuple[Parent, ...]:
    """The resources whose relations a plan reads."""
    wanted = frozenset(references)
    read = [s for s in sources if s.pinned and any(table.id in wanted for table in s.pinned.tables)]
    found = {Parent(DATA_SOURCES.kind, s.key.name) for s in read}
    active = ((d.key.name, d.active.revision) for d in dataflows if d.active)
    found |= {Parent(DATAFLOWS.kind, name) for name, revision in active if not wanted.isdisjoint(revision.relations)}
    return tuple(sorted(found, key=str))


def owners(sources: Iterable[SourceState], dataflows: Iterable[DataflowState]) -> dict[GlobalId, Parent]:
    """Whose each relation is."""
    tables = ((s, table) for s in sources if s.pinned for table in s.pinned.tables)
    found = {table.id: Parent(DATA_SOURCES.kind, s.key.name) for s, table in tables}
    active = ((Parent(DATAFLOWS.kind, d.key.name), d.active.revision) for d in dataflows if d.active)
    return found | {id: parent for parent, revision in active for id in revision.relations}


def names(
    sources: Iterable[SourceState], dataflows: Iterable[DataflowState], ids: Iterable[GlobalId] | None = None
) -> dict[GlobalId, str]:
    """What people call relations, those with these ids or all: of a Dataflow that is being edited, also those to
    come."""
    wanted = None if ids is None else frozenset(ids)
    tables = ((s, table) for s in sources if s.pinned for table in s.pinned.tables)
    found = {t.id: f"{s.key.name}.{t.table.name}" for s, t in tables if wanted is None or t.id in wanted}
    if found.keys() == wanted:
        return found  # it reads no Dataflow, of which there may be many
    for dataflow in dataflows:
        for mark in reversed(dataflow.marks):  # what is active says more than what is to come
            known = mark.revision.relations
            met = known.keys() if wanted is None else known.keys() & wanted
            found |= {id: f"{dataflow.key.name}.{known[id]}" for id in met}
    return found


def _tables(source: SourceState) -> Iterator[Relation]:
    for ingested in source.pinned.tables if source.pinned else ():
        table = ingested.table
        yield Relation(
            source.key.name, table.name, ingested.id, table.columns, ingested.shard, table.keys, table.monotonic
        )


def _exports(dataflow: DataflowState, shares: bool = False) -> Iterator[Relation]:
    if dataflow.active is None:
        return
    revision = dataflow.active.revision
    for export in revision.exports:
        shard = revision.view_shard(export.name)
        id = revision.relation(export.name)
        if id is None:
            continue
        yield Relation(
            parent=dataflow.key.name,
            name=export.name,
            id=id,
            columns=export.columns,
            shard=shard,
            keys=(export.key,) if export.unique and shard is None else (),
            monotonic=export.monotonic and shard is None,
            short=len(revision.exports) == 1,
            index_key=export.key if export.kind == "index" else None,
            indexes=_indexes(revision, export) if shares else (),
        )


def _indexes(revision: DataflowRevision, of: PlannedExport) -> tuple[SharedIndex, ...]:
    """The Dataflow's indexes on the collection that is exported, the export itself first."""
    same = [e for e in revision.exports if e.kind == "index" and e.on == of.on]
    ordered = sorted(same, key=lambda e: e.name != of.name)
    return tuple(SharedIndex(id, e.on, e.key) for e in ordered if (id := revision.export_id(e.name)) is not None)
