"""A query that needs operators: a dataflow of its own, as of one time, for one peek.

    plan ──► create(as_of, until = as_of + 1) ──► peek its index ──► drop        dropped too when the client goes away

The dataflow is not stored: it ends with the operator, and replicas drop dataflows that no operator names.
"""

from __future__ import annotations

import uuid
from dataclasses import replace

from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.errors import QueryNotReady, QueryRefused, RelationChanged
from tidemark_operator.fleet.clients.quarantined_readers import why_in_vain
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.gateway.query.read_time import ReadableTimes, TimeRequest, choose_time
from tidemark_operator.handlers.revisions.import_frontiers import import_names
from tidemark_operator.planning.assemble import Named, describe, with_as_of
from tidemark_protocol.errors import MalformedPlan
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Time
from tidemark_protocol.messages.commands import IndexTarget, Peek
from tidemark_protocol.messages.planning import PlannedOneShot
from tidemark_protocol.plan.codec import MAX_PLAN_BYTES
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_protocol.plan.map_filter_project import MapFilterProject
from tidemark_protocol.types import ColumnType


def new_name() -> Named:
    """A unique name for the query's dataflow."""
    name = f"query-{uuid.uuid4()}"
    return Named(name, name)


def prepare(
    registry: Registry, running: RunningInstance, name: Named, planned: PlannedOneShot, when: TimeRequest
) -> tuple[Dataflow, Peek]:
    """The dataflow to create, and the peek of its index.

    Raises:
        QueryRefused: the plan is malformed, or its inputs cannot be read at the requested time.
        NoCompleteTime: its inputs have no common time yet.
    """
    try:
        described, _ = describe(name, planned.planned, {})
    except MalformedPlan as error:  # inlined rows deepen the plan (introspection/inline_rows.py)
        raise QueryRefused(f"the query cannot be computed: {error}") from None
    spans = input_spans(registry, running, described)
    time = choose_time(spans, when)
    description = replace(with_as_of(described, time), until=Time(time + 1))
    return Dataflow(name.name, description, lag_ms=0), _peek(description, planned, time)


def check_plan_size(description: DataflowDescription) -> None:
    """Raise QueryRefused for a plan that exceeds MAX_PLAN_BYTES, for which a replica would end its connection.

    The planner checks this bound, but rows are put into the plan after it (introspection/inline_rows.py).
    """
    if (size := len(description.encoded)) > MAX_PLAN_BYTES:
        raise QueryRefused(
            f"the query reads more of tidemark_introspection than one query may: its plan has {size} bytes, "
            "the limit is "
            f"{MAX_PLAN_BYTES}. Filter by name, or read fewer relations"
        )


def _peek(description: DataflowDescription, planned: PlannedOneShot, time: Time) -> Peek:
    (index,) = description.index_exports
    every = MapFilterProject.identity(tuple(ColumnType(c.type, c.nullable) for c in index.columns))
    columns = (*planned.columns, *index.columns[len(planned.columns) :])
    return Peek(str(uuid.uuid4()), IndexTarget(index.id), time, every, planned.finishing, columns)


def input_spans(registry: Registry, running: RunningInstance, description: DataflowDescription) -> list[ReadableTimes]:
    """The readable times of each input.

    Raises:
        QueryNotReady: no replica has reported an input's frontiers yet.
        QueryRefused: an index is quarantined.
        RelationChanged: an imported index is not installed any more.
    """
    names, spans = import_names(registry, running.namespace, description), list[ReadableTimes]()
    for source in description.source_imports:
        name = names.get(source.id, source.shard.location)
        known = running.shards.register(source.shard.shard_id, source.shard.location)
        if known.readable is None:
            raise QueryNotReady(f"{name} cannot be read yet: no replica has reported its frontiers")
        spans.append(ReadableTimes(name, known.readable.since, known.readable.upper))
    for imported in description.index_imports:
        name = names.get(imported.id, imported.id)
        index = running.index(imported.id)
        if index is None:
            raise RelationChanged()
        if why := why_in_vain(running, imported.id):
            raise QueryRefused(f"{name} cannot be read: {why}")
        spans.append(ReadableTimes(name, index.since, index.write or Frontier.minimum()))
    return spans
