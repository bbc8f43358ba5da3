"""Row counts of tables and exports that plans are chosen by, and where they come from.

    reports of ingesters and of replicas (their exports)
                        └──► rounded down to a power of two ──► request ──► plan ──► stored with the revision
                                                               ▲                        │
                                                               └── an edit, for what ───┘
                                                                   the revision reads

A revision keeps the counts that it was planned with, and an edit is planned with them: new counts alone never change a
plan. The annotation `replan` asks for a plan by current ones. A table that is empty or not read to its end has no
count, nor has a topic of which less than half is there. A small table counts as 1,024 rows, since it may grow.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.controller.frontiers.collection import Collection
from tidemark_operator.planning.revision import DataflowRevision, RowCount
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Catalogue
from tidemark_protocol.messages.responses import TableReport
from tidemark_protocol.plan.lir import Join, Plan, Reduce, inputs_of
from tidemark_protocol.plan.row_estimates import exponent

_FEWEST = 1024
"""PostgreSQL takes a table without statistics for ten pages at least, for the same reason."""
_OUTDATED = 16
"""A plan is called outdated where a count differs from the one it was made with by this factor."""
RowCounts = Mapping[GlobalId, int | None]
FindCollection = Callable[[DataflowState, GlobalId], Collection | None]


def row_counts(sources: Iterable[SourceState]) -> dict[GlobalId, int | None]:
    """The row counts of the sources' tables, as their ingesters reported last."""
    counts: dict[GlobalId, int | None] = {}
    for source in sources:
        reports = {report.table: report for report in source.report.tables} if source.report else {}
        for _, ingested in source.tables():
            report = reports.get(ingested.table.name)
            counts[ingested.id] = None if report is None else _count(report)
    return counts


def _count(report: TableReport) -> int | None:
    """A topic that is written all the time always lacks some rows: it is counted if it has most of them, which is not
    known until its ends are. PostgreSQL's slot keeps bytes of the log behind even if the table lacks no row."""
    if report.unit == "offsets" and report.behind is None:
        return None
    missing = report.behind or 0
    lacks_rows = missing > report.rows if report.unit in ("offsets", "events") else missing and report.unit != "bytes"
    if lacks_rows or report.snapshot_percent is not None or report.rows <= 0:
        return None
    return _coarse(report.rows)


def _coarse(rows: int) -> int:
    return max(_FEWEST, 1 << exponent(rows))


def export_counts(dataflows: Iterable[DataflowState], find: FindCollection) -> dict[GlobalId, int | None]:
    """The row counts of the Dataflows' exports, by the ids under which others read them, as replicas reported last.
    `find`: the collection of an export. An export that hydrates beside one of its name has the count of that one."""
    counts: dict[GlobalId, int | None] = {}
    for state in dataflows:
        of_names: dict[str, int | None] = {}
        for mark in state.marks:
            for id, name in mark.revision.relations.items():
                computed = mark.revision.export_id(name)
                rows = None if computed is None else _reported(find(state, computed))
                of_names[name] = counts[id] = of_names.get(name) if rows is None else rows
    return counts


def _reported(collection: Collection | None) -> int | None:
    """The largest count of any replica; an export that is empty has none."""
    replicas = collection.replicas.values() if collection else ()
    rows = max((on.rows or 0 for on in replicas if not on.excluded), default=0)
    return _coarse(rows) if rows else None


def counts_with(revisions: Iterable[DataflowRevision], current: RowCounts) -> RowCounts:
    """The row counts for a plan that is to follow the revisions: for what they read those of the last of them, else
    current ones."""
    counts = dict(current)
    for revision in revisions:
        counts |= dict.fromkeys(revision.description.import_ids)
        counts |= {count.id: count.rows for count in revision.row_counts}
    return counts


def counts_of_now(revision: DataflowRevision, current: RowCounts) -> dict[GlobalId, int | None]:
    """The current row counts; where one is not known now, as just after a start of the operator, the revision's."""
    known = {id: rows for id, rows in current.items() if rows is not None}
    return {**current, **{count.id: count.rows for count in revision.row_counts}, **known}


def counts_of(known: Catalogue, references: Iterable[GlobalId]) -> tuple[RowCount, ...]:
    """The row counts of the relations that a plan reads, as it was planned with them; of one that it reads in an index,
    under the index's id as well."""
    read, counted = frozenset(references), dict[GlobalId, int]()
    for relation in known.relations:
        met = read & {relation.id, *(index.id for index in relation.indexes)}
        if relation.rows is not None and met:
            counted |= dict.fromkeys((relation.id, *met), relation.rows)
    return tuple(RowCount(id, rows) for id, rows in sorted(counted.items()))


@dataclass(frozen=True)
class OutdatedCount:
    """A relation that a plan reads: its rows when the plan was chosen (None: they were unknown), and now."""

    id: GlobalId
    then: int | None
    now: int


def outdated(revision: DataflowRevision, current: RowCounts) -> tuple[OutdatedCount, ...]:
    """The relations by whose row counts of now the revision might have another plan: those that have grown or shrunk
    much, if the plan has a join whose order was chosen, or an aggregate of a join."""
    description = revision.description
    if not any(_depends_on_rows(built.plan) for built in description.objects):
        return ()
    then = {count.id: count.rows for count in revision.row_counts}
    pairs = ((id, then.get(id), current.get(id)) for id in sorted(description.import_ids))
    return tuple(OutdatedCount(id, old, now) for id, old, now in pairs if now is not None and _differs(old, now))


def _differs(then: int | None, now: int) -> bool:
    return then is None or max(then, now) >= _OUTDATED * min(then, now)


def _depends_on_rows(plan: Plan) -> bool:
    ordered = isinstance(plan, Join) and len(plan.inputs) > 2
    reduced = isinstance(plan, Reduce) and isinstance(plan.input, Join)
    return ordered or reduced or any(map(_depends_on_rows, inputs_of(plan)))
