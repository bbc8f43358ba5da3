"""The plan of a Dataflow with what replicas report of it: beside each operator what it holds and has cost.

Join linear: 0 → 1 on [k = k] keep [s | y] (about 1,048,576 rows)
    incremental, about 256 rows a change: ...
    on default-1 join holds 1,052,672 rows in 9 batches of 16,842,752 bytes, has worked for 4,210 ms
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace

from tidemark_operator.controller.frontiers.collection import ExportOnReplica
from tidemark_operator.controller.reports.operator_costs import operator_costs, operator_nodes
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.introspection.top import reporting
from tidemark_operator.planning.revision import DataflowRevision
from tidemark_protocol.explained_plan import ExplainedPlan, MeasuredOperator, PlaceInPlan
from tidemark_protocol.ids import ReplicaId


def analyzed(
    plan: ExplainedPlan, running: RunningInstance | None, owner: str, revision: DataflowRevision
) -> ExplainedPlan:
    """The plan of `revision`; what is measured of no operator of the plan, as an export's index, is a note."""
    found: dict[PlaceInPlan, tuple[MeasuredOperator, ...]] = defaultdict(tuple)
    notes = list[str]()
    ids = {revision.export_id(export.name) for export in revision.exports}
    collections = running.collections_of(owner) if running is not None else ()
    on_replicas = reporting(collection for collection in collections if collection.id in ids)
    for replica, on in sorted(on_replicas.items()):
        notes += _step_notes(replica, on)
        for measured, place in _operators(replica, on):
            if place is None or not plan.has(place):
                notes.append(measured.text)
            else:
                found[place] += (measured,)
    if not on_replicas:
        notes.append("no replica computes this plan now")
    return replace(plan.with_measured(found), notes=(*plan.notes, *notes))


def _step_notes(replica: ReplicaId, on: ExportOnReplica) -> Iterator[str]:
    """Steps and the hydration."""
    if (hydrating := on.hydrating) is not None:
        yield f"on {replica} it hydrates: {hydrating.percent} %"
    elif steps := on.statuses.get("steps"):
        number, took, longest, first = (
            int(steps.get(field, "0")) for field in ("steps", "elapsed_ms", "max_ms", "hydration_ms")
        )
        what = "step" if number == 1 else "steps"
        each = f"the hydration {first:,} ms, the longest {longest:,} ms"
        yield f"on {replica} {number:,} {what} took {took:,} ms: {each}"
    else:
        yield f"on {replica} nothing is reported yet: replicas report every ten seconds"


def _operators(replica: ReplicaId, on: ExportOnReplica) -> Iterator[tuple[MeasuredOperator, PlaceInPlan | None]]:
    if on.hydrating is not None:
        return
    status = on.statuses.get("operators", {})
    costs, places = operator_costs(status), operator_nodes(status)
    for at, cost in enumerate(costs):
        sizes = (cost.records, cost.batches, cost.bytes, cost.elapsed_ms)
        yield MeasuredOperator(replica, cost.name, *sizes), places[at] if len(places) == len(costs) else None
