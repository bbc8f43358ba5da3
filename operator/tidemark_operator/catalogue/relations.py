"""The names that SQL may use in a namespace, as the planner wants them.

DataSource a, pinned         a.<table>      a shard
Dataflow d, active           d.<export>     a shard (materialized view), or an index
either                       a              a.a, or the only one that a has (`named_alone`)

Queries read any of them. A plan imports shards of every instance, and indexes of its own instance.

A unique key, and that a collection is monotonic, are derived from SQL. They hold for an index as long as it exists.
They do not hold for a shard: an edit that keeps the columns keeps the shard and its readers, even if the new SQL lacks
the key; and readers of the new SQL may begin at times before the shard was corrected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from types import MappingProxyType

from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.catalogue.row_counts import RowCounts
from tidemark_operator.kube.client import DATA_SOURCES, DATAFLOWS
from tidemark_operator.planning.revision import DataflowRevision, Parent
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Catalogue, PlannedExport, Relation, SharedIndex
from tidemark_protocol.plan.ingestion import DEAD_LETTER
from tidemark_protocol.plan.successors import spec_name

NOT_COUNTED: RowCounts = MappingProxyType({})


def catalogue(
    sources: Iterable[SourceState],
    dataflows: Iterable[DataflowState],
    without: str | None = None,
    instance: str | None = None,
    named_in: str | None = None,
    rows: RowCounts = NOT_COUNTED,
) -> Catalogue:
    """The planner's catalogue. `without`: the Dataflow that is planned; a plan never reads its own exports. `instance`:
    where the plan will run; it may import that instance's indexes. `named_in`: SQL; relations whose parent's name does
    not occur in it are left out, so that the cost of a plan does not grow with the namespace. `rows`: row counts."""
    text = None if named_in is None else named_in.lower()
    tables = [relation for s in sources if text is None or s.key.name in text for relation in _tables(s, rows)]
    others = [d for d in dataflows if d.key.name != without and (text is None or d.key.name in text)]
    exports = [relation for d in others for relation in _exports(d, rows, shares=d.instance == instance)]
    return Catalogue(tuple(sorted(tables + exports, key=lambda r: (r.parent, r.name, r.id))))


def named_in(sql: str, known: Catalogue) -> Catalogue:
    """The relations whose parent's name occurs in the SQL, as in `catalogue`."""
    text = sql.lower()
    named = {parent for parent in {relation.parent for relation in known.relations} if parent in text}
    return Catalogue(tuple(relation for relation in known.relations if relation.parent in named))


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
    """The object that each relation belongs to, by the relation's id."""
    tables = ((s, table) for s in sources if s.pinned for table in s.pinned.tables)
    found = {table.id: Parent(DATA_SOURCES.kind, s.key.name) for s, table in tables}
    active = ((Parent(DATAFLOWS.kind, d.key.name), d.active.revision) for d in dataflows if d.active)
    return found | {id: parent for parent, revision in active for id in revision.relations}


def names(
    sources: Iterable[SourceState], dataflows: Iterable[DataflowState], ids: Iterable[GlobalId] | None = None
) -> dict[GlobalId, str]:
    """Names of relations for users, `parent.relation`, by id: of these ids, or of all. Relations of pending revisions
    are among them."""
    wanted = None if ids is None else frozenset(ids)
    tables = ((s.key.name, name, table.id) for s in sources for name, table in s.tables())
    found = {id: f"{source}.{name}" for source, name, id in tables if wanted is None or id in wanted}
    if found.keys() == wanted:
        return found  # no Dataflow needs to be looked at, of which there may be many
    for dataflow in dataflows:
        for mark in reversed(dataflow.marks):  # the active revision's names win over the pending one's
            known = mark.revision.relations
            met = known.keys() if wanted is None else known.keys() & wanted
            found |= {id: f"{dataflow.key.name}.{known[id]}" for id in met}
    return found


def named_alone(parent: str, names: Sequence[str]) -> str | None:
    """The relation that the name of the object alone means: the one of its name, or the only one. Dead letters are
    beside a table."""
    if parent in names:
        return parent
    main = [
        name for name in names if name.removesuffix(DEAD_LETTER) == name or name.removesuffix(DEAD_LETTER) not in names
    ]
    return main[0] if len(main) == 1 else None


def _tables(source: SourceState, rows: RowCounts) -> Iterator[Relation]:
    """The relations that SQL names: of tables whose columns became others, the last one."""
    found = [(name, ingested) for name, ingested in source.tables() if name == spec_name(name)]
    parent, alone = source.key.name, named_alone(source.key.name, [name for name, _ in found])
    for name, ingested in found:
        table, short = ingested.table, name == alone
        yield Relation(
            parent,
            name,
            ingested.id,
            table.columns,
            ingested.shard,
            table.keys,
            table.monotonic,
            short,
            rows=rows.get(ingested.id),
        )


def _exports(dataflow: DataflowState, rows: RowCounts, shares: bool = False) -> Iterator[Relation]:
    if dataflow.active is None:
        return
    revision = dataflow.active.revision
    alone = named_alone(dataflow.key.name, [export.name for export in revision.exports])
    for export in revision.exports:
        shard = revision.view_shard(export.name)
        id = revision.relation(export.name)
        if id is None:
            continue
        yield Relation(
            parent=dataflow.key.name,
            name=export.name,
            id=id,
            columns=export.columns if shard is None else shard.columns,
            shard=shard,
            keys=(export.key,) if export.unique and shard is None else (),
            monotonic=export.monotonic and shard is None,
            short=export.name == alone,
            index_key=export.key if export.kind == "index" else None,
            indexes=_indexes(revision, export) if shares else (),
            rows=rows.get(id),
        )


def _indexes(revision: DataflowRevision, of: PlannedExport) -> tuple[SharedIndex, ...]:
    """The Dataflow's indexes on the exported collection, the export itself first."""
    same = [e for e in revision.exports if e.kind == "index" and e.on == of.on]
    ordered = sorted(same, key=lambda e: e.name != of.name)
    return tuple(SharedIndex(id, e.on, e.key) for e in ordered if (id := revision.export_id(e.name)) is not None)
