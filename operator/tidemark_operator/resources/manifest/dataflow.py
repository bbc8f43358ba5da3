"""Dataflow: SQL views that are kept up to date, and their exports.

The short form (`sql` with `index`, `materializedView` or `continualTask`) is the long form with one view and one
export, both named after the Dataflow; all other modules get the long form, in the words of the planner's requests.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any

from tidemark_operator.resources.manifest.columns import parse_columns
from tidemark_operator.resources.manifest.data_source import DeletionPolicy
from tidemark_operator.resources.manifest.errors import MissingField
from tidemark_operator.resources.manifest.fields import Fields
from tidemark_operator.resources.manifest.instance import ReadPolicy
from tidemark_operator.resources.manifest.meta import REPLAN, InstanceName, Meta, annotation, spec_of
from tidemark_operator.resources.manifest.publish import PublishSpec
from tidemark_operator.resources.manifest.refresh import RefreshPolicy, parse_refresh
from tidemark_operator.resources.manifest.sinks.view_sinks import ViewSinks
from tidemark_protocol.ids import Time
from tidemark_protocol.messages.planning import ExportRequest, TaskRequest, ViewRequest
from tidemark_protocol.plan.refresh import RefreshSchedule

KIND = "Dataflow"
PLURAL = "dataflows"


class Dialect(Enum):
    """The dialects that the planner admits."""

    SPARK = "spark"
    POSTGRES = "postgres"
    DUCKDB = "duckdb"
    SNOWFLAKE = "snowflake"
    BIGQUERY = "bigquery"
    TSQL = "tsql"


INDEX = "index"
MATERIALIZED_VIEW = "materializedView"
CONTINUAL_TASK = "continualTask"
KINDS = INDEX, MATERIALIZED_VIEW, CONTINUAL_TASK
"""The kinds of export, as the protocol names them."""


@dataclass(frozen=True, slots=True)
class Dataflow:
    meta: Meta
    instance: InstanceName
    views: tuple[ViewRequest, ...]
    """The views in order: one may read an earlier one."""
    exports: tuple[ExportRequest, ...]
    dialect: Dialect
    as_of: Time | None
    """None: the controller chooses."""
    until: Time | None
    """Results are complete before it, and then finished; None: they go on."""
    publishes: Mapping[str, PublishSpec]
    """The materialized views that are published as ordinary tables, by export."""
    sinks: Mapping[str, ViewSinks]
    """The materialized views that have other destinations, by export."""
    refresh: RefreshSchedule | None
    """None: the views follow their inputs at every time."""
    refresh_policy: RefreshPolicy
    read_policy: ReadPolicy | None
    """None: the instance's."""
    suspend: bool
    deletion_policy: DeletionPolicy
    adopt: bool
    """Whether tables of an earlier Dataflow of this name are gone on with."""
    replan: str
    """The annotation that asks for a new plan; empty: none does."""

    @property
    def history_ms(self) -> int:
        """The milliseconds by which the since of its views trails their upper at least."""
        published = [each.history_ms for each in self.publishes.values()]
        return max([0, *published, *(each.history_ms for each in self.sinks.values())])

    @classmethod
    def parse(cls, body: Mapping[str, Any]) -> Dataflow:
        meta, spec = Meta.parse(body), spec_of(body)
        views, exports = _long_form(spec) if spec.has("exports") else _short_form(spec, meta.name)
        return cls(
            meta=meta,
            instance=InstanceName(spec.text("instance")),
            views=views,
            exports=exports,
            dialect=spec.choice("dialect", Dialect, Dialect.SPARK),
            as_of=Time(spec.integer("asOf")) if spec.has("asOf") else None,
            until=Time(spec.integer("until")) if spec.has("until") else None,
            publishes=_publishes(spec, meta.name),
            sinks=_sinks(spec, meta),
            refresh=parse_refresh(spec.child("refresh")) if spec.has("refresh") else None,
            refresh_policy=spec.choice("refreshPolicy", RefreshPolicy, RefreshPolicy.INCREMENTAL),
            read_policy=ReadPolicy.parse(spec.child("readPolicy")) if spec.has("readPolicy") else None,
            suspend=spec.flag("suspend", False),
            deletion_policy=spec.choice("deletionPolicy", DeletionPolicy, DeletionPolicy.RETAIN),
            adopt=spec.flag("adopt", False),
            replan=annotation(body, REPLAN),
        )


def _short_form(spec: Fields, name: str) -> tuple[tuple[ViewRequest, ...], tuple[ExportRequest, ...]]:
    return (ViewRequest(name, spec.text("sql")),), (_export(spec, name, name),)


def _long_form(spec: Fields) -> tuple[tuple[ViewRequest, ...], tuple[ExportRequest, ...]]:
    views = tuple(ViewRequest(view.text("name"), view.text("sql")) for view in spec.children("views"))
    return views, tuple(_export(export, export.text("name"), None) for export in spec.children("exports"))


def _materialized_views(spec: Fields, name: str) -> dict[str, Fields]:
    """The fields of each materialized view, by export. `name`: the Dataflow's."""
    exports = {e.text("name"): e for e in spec.children("exports")} if spec.has("exports") else {name: spec}
    return {name: export.child(MATERIALIZED_VIEW) for name, export in exports.items() if export.has(MATERIALIZED_VIEW)}


def _publishes(spec: Fields, name: str) -> dict[str, PublishSpec]:
    views = _materialized_views(spec, name)
    return {name: PublishSpec.parse(view.child("publish")) for name, view in views.items() if view.has("publish")}


def _sinks(spec: Fields, meta: Meta) -> dict[str, ViewSinks]:
    views = _materialized_views(spec, meta.name)
    named = {name: ViewSinks.parse(view, f"{meta.namespace}.{meta.name}.{name}") for name, view in views.items()}
    return {name: sinks for name, sinks in named.items() if sinks.all}


def _export(fields: Fields, name: str, view: str | None) -> ExportRequest:
    """The export that stands in `fields`; where `view` is None, its `from` names the view."""
    kind = next((kind for kind in KINDS if fields.has(kind)), None)
    if kind is None:
        raise MissingField(fields.at(f"one of {', '.join(KINDS)}"))
    child = fields.child(kind)
    source = view or child.text("from")
    if kind == INDEX:
        return ExportRequest(name, kind, source, child.texts("key") or None)
    if kind == MATERIALIZED_VIEW:
        return ExportRequest(name, kind, source)
    delete = child.text("delete") if child.has("delete") else None
    columns = parse_columns(child) if child.has("columns") else None
    return ExportRequest(name, kind, source, task=TaskRequest(child.text("watch"), delete, columns))
