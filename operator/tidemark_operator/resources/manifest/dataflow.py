"""Dataflow: SQL views that are kept up to date, and what is exported of them.

The short form (`sql` with `index`, `materializedView` or `continualTask`) is the long form with one view and one
export, both named after the Dataflow; everything behind this module sees the long form alone, in the words of the
planner's requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tidemark_operator.resources.manifest.columns import parse_columns
from tidemark_operator.resources.manifest.data_source import DeletionPolicy
from tidemark_operator.resources.manifest.errors import InvalidValue
from tidemark_operator.resources.manifest.fields import Fields
from tidemark_operator.resources.manifest.instance import ReadPolicy
from tidemark_operator.resources.manifest.meta import InstanceName, Meta, spec_of
from tidemark_operator.resources.manifest.refresh import parse_refresh
from tidemark_protocol.ids import MIN_TIME, Time
from tidemark_protocol.messages.planning import ExportRequest, TaskRequest, ViewRequest
from tidemark_protocol.plan.refresh import RefreshSchedule

KIND = "Dataflow"
PLURAL = "dataflows"


class Dialect(Enum):
    SPARK = "spark"


INDEX = "index"
MATERIALIZED_VIEW = "materializedView"
CONTINUAL_TASK = "continualTask"
"""The kinds of export, as the protocol names them."""


@dataclass(frozen=True, slots=True)
class Dataflow:
    meta: Meta
    instance: InstanceName
    views: tuple[ViewRequest, ...]
    """In order: a view may read an earlier one."""
    exports: tuple[ExportRequest, ...]
    dialect: Dialect
    as_of: Time | None
    """None: the controller chooses."""
    until: Time | None
    """Results are complete before it, and then finished; None: they go on."""
    refresh: RefreshSchedule | None
    """None: the views follow their inputs at every time."""
    read_policy: ReadPolicy | None
    """None: the instance's."""
    suspend: bool
    deletion_policy: DeletionPolicy
    adopt: bool
    """Whether tables of an earlier Dataflow of this name are gone on with."""

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Dataflow:
        meta, spec = Meta.parse(body), spec_of(body)
        views, exports = _long_form(spec) if spec.has("exports") else _short_form(spec, meta.name)
        _check_sources(spec, views, exports)
        as_of = Time(spec.integer("asOf")) if spec.has("asOf") else None
        return cls(
            meta=meta,
            instance=InstanceName(spec.text("instance")),
            views=views,
            exports=exports,
            dialect=spec.choice("dialect", Dialect, Dialect.SPARK),
            as_of=as_of,
            until=_until(spec, as_of),
            refresh=_refresh(spec, exports),
            read_policy=ReadPolicy.parse(spec.child("readPolicy")) if spec.has("readPolicy") else None,
            suspend=spec.flag("suspend", False),
            deletion_policy=spec.choice("deletionPolicy", DeletionPolicy, DeletionPolicy.RETAIN),
            adopt=spec.flag("adopt", False),
        )


def _short_form(spec: Fields, name: str) -> tuple[tuple[ViewRequest, ...], tuple[ExportRequest, ...]]:
    return (ViewRequest(name, spec.text("sql")),), (_export(spec, name, name),)


def _long_form(spec: Fields) -> tuple[tuple[ViewRequest, ...], tuple[ExportRequest, ...]]:
    if spec.has("sql"):
        raise InvalidValue(spec.at("sql"), "is of the short form; exports are of the long one")
    if not spec.values["exports"]:
        raise InvalidValue(spec.at("exports"), "must name at least one export")
    views = tuple(ViewRequest(view.text("name"), view.text("sql")) for view in spec.children("views"))
    return views, tuple(_export(export, export.text("name"), None) for export in spec.children("exports"))


def _export(fields: Fields, name: str, view: str | None) -> ExportRequest:
    """The export that stands in `fields`; where `view` is None, its `from` names the view."""
    given = [kind for kind in (INDEX, MATERIALIZED_VIEW, CONTINUAL_TASK) if fields.has(kind)]
    if len(given) != 1:
        raise InvalidValue(fields.path, "exactly one of index, materializedView and continualTask must be given")
    kind = given[0]
    child = fields.child(kind)
    source = view or child.text("from")
    if kind == INDEX:
        return ExportRequest(name, kind, source, child.texts("key") or None)
    if kind == MATERIALIZED_VIEW:
        return ExportRequest(name, kind, source)
    delete = child.text("delete") if child.has("delete") else None
    columns = parse_columns(child) if child.has("columns") else None
    return ExportRequest(name, kind, source, task=TaskRequest(child.text("watch"), delete, columns))


def _until(spec: Fields, as_of: Time | None) -> Time | None:
    if not spec.has("until"):
        return None
    until = Time(spec.integer("until"))
    if until <= (MIN_TIME if as_of is None else as_of):
        raise InvalidValue(spec.at("until"), f"must be after {'0' if as_of is None else 'asOf'}, not {until}")
    return until


def _refresh(spec: Fields, exports: tuple[ExportRequest, ...]) -> RefreshSchedule | None:
    if not spec.has("refresh"):
        return None
    if any(export.kind != MATERIALIZED_VIEW for export in exports):
        raise InvalidValue(spec.at("refresh"), "goes with materialized views alone")
    return parse_refresh(spec.child("refresh"))


def _check_sources(spec: Fields, views: tuple[ViewRequest, ...], exports: tuple[ExportRequest, ...]) -> None:
    known = {view.name for view in views}
    for i, export in enumerate(exports):
        if export.view not in known:
            raise InvalidValue(f"{spec.at('exports')}[{i}]", f"from must name one of views, not {export.view!r}")
        if export.task and export.task.delete is not None and export.task.delete not in known:
            raise InvalidValue(
                f"{spec.at('exports')}[{i}]", f"delete must name one of views, not {export.task.delete!r}"
            )
