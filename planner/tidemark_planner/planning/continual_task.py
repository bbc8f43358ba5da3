"""Continual tasks: the names that their views may read, and the rows that they add to their output.

    continualTask: {watch: shop.orders, from: added, delete: gone}          Dataflow `log`

    table_changes('shop.orders')   the object log/changes      Changes over the whole import
    log, log.log                   the name log/own            the output, as it was just before
    the export                     the object log/rows         added + negated (gone intersected with the output)

The output has the columns of `from`. Where `from` reads the output, they must be declared, since neither is known
without the other. All columns of the output are nullable, so that an edit such as TRY_CAST instead of CAST keeps the
table. Rows of `delete` that the output does not hold are left out, so no multiplicity becomes negative.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tidemark_planner.errors import refuse
from tidemark_planner.hir.nodes import Hir, Intersection, Negate, Scan, Union, scan, scans_of
from tidemark_planner.planning.assemble import DataflowExtras
from tidemark_planner.planning.exports import PlannedView, check_stored_names
from tidemark_planner.rules import optimise
from tidemark_planner.sql.names import NamedRelation, NameScope, scope_of
from tidemark_planner.sql.syntax import RelationName, TextSpan
from tidemark_planner.sql.table_changes import columns_of_changes
from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.messages.planning import (
    Catalogue,
    ExportRequest,
    PlannedExport,
    PlannedTask,
    PlanRequest,
    Relation,
    TaskRequest,
)
from tidemark_protocol.plan.dataflow import BuildDesc
from tidemark_protocol.plan.lir import Changes, Get, Schema
from tidemark_protocol.types import Column, ColumnType

CONTINUAL_TASK = "continualTask"
Objects = list[tuple[GlobalId, Hir]]
_NOWHERE = TextSpan(0, 0, 0, 0)


@dataclass
class ContinualTask:
    """The continual task of a request. `columns`: those of its output; None until they are known."""

    request: PlanRequest
    export: ExportRequest
    task: TaskRequest
    watched: Relation
    columns: tuple[Column, ...] | None
    _names: frozenset[tuple[str, ...]] = field(init=False)

    def __post_init__(self) -> None:
        dataflow, name = self.request.dataflow.lower(), self.export.name.lower()
        self._names = frozenset({(dataflow,), (dataflow, name)})

    @property
    def _changes_id(self) -> GlobalId:
        return self._id("changes")

    @property
    def _own_id(self) -> GlobalId:
        return self._id("own")

    def scope(self, views: Mapping[str, PlannedView]) -> NameScope:
        """The names that the next view may read: the catalogue's, those of earlier views, and the task's own."""
        self._set_columns(views)
        scope = scope_of(self.request.catalogue, (v.relation for v in views.values()))
        changes = NamedRelation(
            f"/changes/{self._watched_name}",
            self._changes_id,
            columns_of_changes(self.watched),
            tuple((*key, len(self.watched.columns)) for key in self.watched.keys),
        )
        both = {self.task.watch.lower(), self._watched_name.lower()}
        return self._with_own(replace(scope, changes=dict.fromkeys(sorted(both), changes)))

    def _with_own(self, scope: NameScope) -> NameScope:
        if self.columns is None:
            why = (
                f"{self.export.name} is the output of this continualTask, and its "
                f"columns are those of {self.export.view}, which "
                "is not planned yet: declare them in continualTask.columns"
            )
            return replace(scope, unusable=dict.fromkeys(sorted(self._names), why))
        own = (NamedRelation(f"/own/{self.export.name}", self._own_id, self.columns),)
        one = {name[0]: own for name in self._names if len(name) == 1}
        two = {(name[0], name[1]): own for name in self._names if len(name) == 2}
        return replace(scope, one_part={**scope.one_part, **one}, two_parts={**scope.two_parts, **two})

    def finish(self, views: Mapping[str, PlannedView], objects: Objects) -> tuple[PlannedExport, DataflowExtras]:
        """The export, and what the dataflow needs beside its views. Appends the exported object to `objects`."""
        source = _view(self.export, self.export.view, views)
        self._set_columns(views)
        self._check_columns(source.relation.columns)
        on = source.relation.id
        if self.task.delete is not None:
            on = self._id("rows")
            objects.append((on, optimise(self._rows(source, _view(self.export, self.task.delete, views)))))
        read = {s.id for _, hir in objects for s in scans_of(hir)}
        self._check_inputs(read)
        known: dict[GlobalId | LocalId, Schema] = {}
        if self._own_id in read:
            known = {self._own_id: _schema(self.columns or ())}
        task = PlannedTask(self.watched.id, self._own_id if known else None)
        columns = _nullable(source.relation.columns)
        check_stored_names(columns, self.export.name)
        export = PlannedExport(
            self.export.name,
            CONTINUAL_TASK,
            on,
            columns,
            tuple(range(len(columns))),
            monotonic=self.task.delete is None,
            task=task,
        )
        return export, DataflowExtras(frozenset({self.watched.id}), self._changes_object(read), known)

    def _changes_object(self, read: set[GlobalId]) -> tuple[BuildDesc, ...]:
        if self._changes_id not in read:
            return ()
        return (BuildDesc(self._changes_id, Changes(Get(self.watched.id, _schema(self.watched.columns)))),)

    def _rows(self, added: PlannedView, gone: PlannedView) -> Hir:
        """The rows that the task adds to its output, and, negated, those of `delete` that the output holds."""
        has, should = ([c.type for c in v.relation.columns] for v in (gone, added))
        if has != should:
            found, wanted = (", ".join(map(str, types)) for types in (has, should))
            message = (
                f"{self.task.delete} gives rows of ({found}), but the output "
                f"has columns of ({wanted}): cast the columns"
            )
            refuse("TYPE", f"export {self.export.name}: {message}", word=gone.relation.leaf.rpartition("/")[2])
        own = scan(self._own_id, _schema(self.columns or ()))
        there = Intersection(_scan(gone), own)
        return Union((_scan(added), Negate(there)))

    def _set_columns(self, views: Mapping[str, PlannedView]) -> None:
        """Take the output's columns from its view, once that has been planned."""
        view = views.get(self.export.view.lower())
        if self.columns is None and view is not None:
            self.columns = _nullable(view.relation.columns)

    def _check_columns(self, found: tuple[Column, ...]) -> None:
        declared = self.columns or ()
        if [(c.name.lower(), c.type) for c in declared] != [(c.name.lower(), c.type) for c in found]:
            has, should = (", ".join(f"{c.name} {c.type}" for c in of) for of in (found, declared))
            message = (
                f"{self.export.view} gives ({has}), but continualTask.columns declares ({should}): change one of them"
            )
            refuse("TYPE", f"export {self.export.name}: {message}", word=self.export.view)

    def _check_inputs(self, read: set[GlobalId]) -> None:
        for relation in self.request.catalogue.relations:
            if relation.id in read and relation.shard is None:
                name = f"{relation.parent}.{relation.name}"
                why = "a continualTask resumes exactly where it stopped, and an index does not keep the past"
                message = f"{name} is an index: {why}; export it as a materializedView to read it here"
                refuse("UNSUPPORTED", message, word=name)

    def _id(self, name: str) -> GlobalId:
        return GlobalId(f"{self.request.id_prefix}{self.export.name}/{name}")

    @property
    def _watched_name(self) -> str:
        return f"{self.watched.parent}.{self.watched.name}"


def continual_task_of(request: PlanRequest) -> ContinualTask | None:
    """The request's continual task; None where it has none. Raises Refusal."""
    export = next((e for e in request.exports if e.kind == CONTINUAL_TASK), None)
    if export is None:
        return None
    if export.task is None:
        refuse(
            "UNSUPPORTED",
            f"export {export.name}: a continualTask needs the input that it watches: set continualTask.watch",
            word=export.name,
        )
    if len(request.exports) > 1:
        message = (
            f"the continualTask {export.name} must be the only export of its "
            "Dataflow: move the others into another Dataflow"
        )
        refuse("UNSUPPORTED", message, word=export.name)
    clash = next((v.name for v in request.views if v.name.lower() == request.dataflow.lower()), None)
    if clash is not None and len(request.views) > 1:
        message = f"view {clash} has the name by which views read the output of the continualTask: rename it"
        refuse("DUPLICATE_NAME", message, word=clash)
    catalogue = Catalogue(tuple(replace(r, indexes=()) for r in request.catalogue.relations))
    alone = replace(request, catalogue=catalogue)
    return ContinualTask(alone, export, export.task, _watched(export.task.watch, catalogue), export.task.columns)


def _watched(name: str, catalogue: Catalogue) -> Relation:
    """The watched relation; raises Refusal where it is not a shard, since only a shard keeps its changes."""
    parts = tuple(name.split("."))
    known = scope_of(catalogue, ()).resolve(RelationName(parts, False, _NOWHERE, frozenset()))
    relation = next(r for r in catalogue.relations if r.id == known.id)
    if relation.shard is None:
        message = f"{name} is an index, and cannot be watched: export it as a materializedView and watch that"
        refuse("UNSUPPORTED", message, word=name)
    return relation


def _view(export: ExportRequest, name: str, views: Mapping[str, PlannedView]) -> PlannedView:
    view = views.get(name.lower())
    if view is None:
        refuse(
            "UNRESOLVED_RELATION",
            f"export {export.name}: there is no view {name}: name a view of spec.views",
            word=name,
        )
    return view


def _nullable(columns: tuple[Column, ...]) -> tuple[Column, ...]:
    return tuple(Column(c.name, c.type) for c in columns)


def _schema(columns: tuple[Column, ...]) -> Schema:
    return tuple(ColumnType(c.type, c.nullable) for c in columns)


def _scan(view: PlannedView) -> Scan:
    return scan(view.relation.id, _schema(view.relation.columns))
