"""The relations that a query with --skip-errors may read: those whose rows are computed one by one.

    DataSource table      each row is a record of a file
    filter, expression    each row comes from one row of what is read
    anything else         an aggregate, a join, a LIMIT or a window function lacks what the errors should have given it:
                          its rows would be wrong answers, so it is refused

The check follows the exports of Dataflows down to the tables of DataSources.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.errors import QueryRefused
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATAFLOWS
from tidemark_operator.planning.revision import ActiveRevision, Parent
from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.messages.planning import Finishing, PlannedOneShot, PlannedPeek
from tidemark_protocol.plan.dataflow import MaterializedViewSink
from tidemark_protocol.plan.lir import (
    Changes,
    Constant,
    FlatMap,
    Get,
    Join,
    Let,
    LetRec,
    Mfp,
    Negate,
    Plan,
    Reduce,
    Threshold,
    TopK,
    Union,
    Window,
    inputs_of,
)

_ROW_WISE = (Constant, FlatMap, Get, Let, Mfp, Union)
_WORDS: Mapping[type, str] = {
    Changes: "the changes of a table",
    Join: "a join",
    LetRec: "a recursion",
    Negate: "EXCEPT, an outer join or NOT IN",
    Reduce: "an aggregate or DISTINCT",
    Threshold: "EXCEPT or INTERSECT",
    TopK: "a LIMIT",
    Window: "a window function",
}


def check_row_wise(
    registry: Registry, namespace: str, planned: PlannedPeek | PlannedOneShot, owners: Mapping[GlobalId, Parent]
) -> None:
    """Raises QueryRefused unless the rows that are right stay right without those in error."""
    if isinstance(planned, PlannedOneShot):
        raise QueryRefused(
            "--skip-errors reads the rows of one table or export, and this statement computes rows from several "
            "others: its answer would lack what the errors should have given it"
        )
    _check_finishing(planned.finishing)
    owner = owners.get(planned.relation)
    if owner is not None and (why := _why_not(registry, namespace, owner, planned.relation, owners)):
        raise QueryRefused(
            f"--skip-errors reads rows that are computed one by one, and {why}: its rows may lack what the errors "
            "should have given them. Read what it is computed from, or correct the errors"
        )


def _check_finishing(finishing: Finishing) -> None:
    if finishing.order and (finishing.limit is not None or finishing.offset):
        raise QueryRefused(
            "--skip-errors cannot tell which rows are the first ones, since an error has no place in the order: leave "
            "LIMIT and OFFSET, or ORDER BY, out"
        )


def _why_not(
    registry: Registry, namespace: str, owner: Parent, relation: GlobalId, owners: Mapping[GlobalId, Parent]
) -> str:
    """The first export on the way down that is not computed row by row, and by what; empty: there is none."""
    pending, seen = [(owner, relation)], set[GlobalId]()
    while pending:
        at, id = pending.pop()
        if at.kind != DATAFLOWS.kind or id in seen:
            continue
        seen.add(id)
        state = registry.dataflow(Key(DATAFLOWS, namespace, at.name))
        if state is None or state.active is None or (on := _object_of(state.active, id)) is None:
            return f"{at.name} is the output of a continual task, or was replaced meanwhile"
        for plan in _plans(state.active, on):
            if not isinstance(plan, _ROW_WISE):
                return f"Dataflow {at.name} has {_WORDS.get(type(plan), type(plan).__name__)}"
            if isinstance(plan, Get) and plan.id in state.active.revision.description.import_ids:
                if (below := owners.get(GlobalId(plan.id))) is None:
                    return f"what Dataflow {at.name} reads was replaced meanwhile"
                pending.append((below, GlobalId(plan.id)))
    return ""


def _object_of(mark: ActiveRevision, relation: GlobalId) -> GlobalId | None:
    """The object of an export; None for an unknown one, and for the output of a continual task."""
    description = mark.revision.description
    for index in description.index_exports:
        if relation in (index.id, index.on):
            return index.on
    for export in description.sink_exports:
        sink = export.sink
        if isinstance(sink, MaterializedViewSink) and str(sink.shard.shard_id) == relation:
            return export.on
    return None


def _plans(mark: ActiveRevision, on: GlobalId) -> Iterator[Plan]:
    """Every node that the object is computed by, through the other objects of its dataflow."""
    objects = {built.id: built.plan for built in mark.revision.description.objects}
    todo: list[Plan] = [objects[on]] if on in objects else []
    seen: set[GlobalId | LocalId] = {on}
    while todo:
        plan = todo.pop()
        yield plan
        todo += inputs_of(plan)
        if isinstance(plan, Get) and plan.id in objects and plan.id not in seen:
            seen.add(plan.id)
            todo.append(objects[GlobalId(plan.id)])
