"""Continual tasks: changes of the watched import as a collection, and a view's contents at each of them.

    Source orders ──> Kernel changes ──> Kernel temporal ──> ... the view ──┐
    Source orders ──────────────────────────────────────────────────────────┴─> AtChanges ──> the sink's delta
    Source own (delayed) ─────────────────────────────────> ... the view

The collection of changes at time t is what the import gained or lost at t; the export's delta at t is the whole view at
t, if the import changed then. Both find the changes by themselves, from the delta: nothing is shared or kept for it.

State: the changes that must go again, and the view (`kernels/changes.py`, `kernels/continual_task.py`). The task's own
output is a shard that is read a millisecond late; the driver cuts steps so that what is read has been written.
"""

from __future__ import annotations

from tidemark_protocol.plan.dataflow import ContinualTaskSink
from tidemark_protocol.plan.lir import Changes
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.kernels.changes import ChangesSpec
from tidemark_replica.kernels.continual_task import AtChangesSpec
from tidemark_replica.kernels.temporal import TemporalSpec, temporal_layout
from tidemark_replica.render.plan.fragments import Scope, imported_flow
from tidemark_replica.render.plan.lowering_stream import Flow, arrow_types
from tidemark_replica.render.plan.pipeline import AtChanges, Kernel, Pipeline, Types


def lower_changes(scope: Scope, plan: Changes, flow: Flow) -> Flow:
    """The import's changes, each there at its own time alone."""
    spec = _changes_of(scope, arrow_types(flow.schema))
    state = scope.new_arrangement("temporal", temporal_layout(spec.shown))
    goes = TemporalSpec(state, spec.shown, (), (len(spec.shown),))
    return Flow(Kernel(goes, Kernel(spec, flow.tree)), plan.schema)


def at_each_change(scope: Scope, sink: ContinualTaskSink, view: Pipeline, types: Types) -> Pipeline:
    """What a continual task adds to its output."""
    watched = imported_flow(scope, sink.watches)
    state = scope.new_arrangement("view", Layout.of_rows(types, range(len(types))))
    spec = AtChangesSpec(_changes_of(scope, arrow_types(watched.schema)), state, types)
    return AtChanges(spec, (watched.tree, view))


def _changes_of(scope: Scope, types: Types) -> ChangesSpec:
    every = range(len(types))
    return ChangesSpec(scope.new_arrangement("changes", Layout.of_rows(types, every)), types)
