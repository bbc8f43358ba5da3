"""A query that needs operators: a dataflow of its own, as of one time, for one peek.

    plan ──► create(as_of, until = as_of + 1) ──► peek its index ──► drop        the same when the asker goes away

Nothing of it is stored: an operator that ends takes its queries with it, and replicas drop what no operator names.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import replace

from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.errors import Changed, QueryRefused
from tidemark_operator.fleet.quarantined_readers import why_in_vain
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.gateway.query.read_time import Span, When, choose_time
from tidemark_operator.handlers.revisions.import_frontiers import import_names
from tidemark_operator.planning.assemble import Named, at, describe
from tidemark_protocol.errors import MalformedPlan
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.commands import IndexTarget, Peek
from tidemark_protocol.messages.planning import PlannedOneShot
from tidemark_protocol.plan.codec import MAX_PLAN_BYTES
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_protocol.plan.map_filter_project import MapFilterProject
from tidemark_protocol.types import ColumnType


def named() -> Named:
    """A name that no other query has."""
    name = f"query-{uuid.uuid4()}"
    return Named(name, name)


def prepare(
    registry: Registry, running: RunningInstance, name: Named, planned: PlannedOneShot, when: When
) -> tuple[Dataflow, Peek]:
    """What to create, and what to ask of it; raises QueryRefused where its inputs cannot be read at such a time."""
    try:
        described, _ = describe(name, planned.planned, {})
    except MalformedPlan as error:  # a peek lies deeper where it is a dataflow (introspection/inline_rows.py)
        raise QueryRefused(f"this cannot be computed: {error}") from None
    spans = spans_of(registry, running, described)
    time = choose_time(spans, when)
    description = replace(at(described, time), until=Time(time + 1))
    return Dataflow(name.name, description, lag_ms=0), _peek(description, planned, time)


def must_fit(description: DataflowDescription) -> None:
    """Raises QueryRefused where a replica would not take it in, but end its connection. The planner sees to that, but
    for rows that are put into the plan after it (introspection/inline_rows.py)."""
    if (size := len(description.encoded)) > MAX_PLAN_BYTES:
        raise QueryRefused(
            f"this reads more of tidemark_introspection than a query may: its plan has {size} bytes, and at most "
            f"{MAX_PLAN_BYTES} may be sent. Ask for fewer rows"
        )


def _peek(description: DataflowDescription, planned: PlannedOneShot, time: Time) -> Peek:
    (index,) = description.index_exports
    every = MapFilterProject.identity(tuple(ColumnType(c.type, c.nullable) for c in index.columns))
    columns = (*planned.columns, *index.columns[len(planned.columns) :])
    return Peek(str(uuid.uuid4()), IndexTarget(index.id), time, every, planned.finishing, columns)


def spans_of(registry: Registry, running: RunningInstance, description: DataflowDescription) -> list[Span]:
    """How far each input is; raises QueryRefused for one that nobody knows."""
    return list(_spans(running, import_names(registry, running.namespace, description), description))


def _spans(running: RunningInstance, names: dict[GlobalId, str], description: DataflowDescription) -> Iterator[Span]:
    """How far each input is; raises QueryRefused for one that nobody knows."""
    for source in description.source_imports:
        name = names.get(source.id, source.shard.location)
        known = running.shards.register(source.shard.shard_id, source.shard.location)
        if known.readable is None:
            raise QueryRefused(f"{name} cannot be read yet: no replica has reported how far it is")
        yield Span(name, known.readable.since, known.readable.upper)
    for imported in description.index_imports:
        name = names.get(imported.id, imported.id)
        index = running.index(imported.id)
        if index is None:
            raise Changed()
        if why := why_in_vain(running, imported.id):
            raise QueryRefused(f"{name} cannot be read: {why}")
        yield Span(name, index.since, index.write or Frontier.minimum())
