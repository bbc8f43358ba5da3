"""Continual tasks: at each change of a watched import, the contents of a view are added to a table.

    Source orders ──> Kernel changes ──> Kernel temporal ──> ... the view ──┐
    Source orders ──────────────────────────────────────────────────────────┴─> ContinualTaskKernel ──> the sink's delta
    Source own (delayed) ─────────────────────────────────> ... the view

    changes[t] = the rows that the watched import gained or lost at t
    delta[t]   = view[t] if the watched import changed at t, else nothing

State: the changes that must be taken back, and the view. Cost of an update: the delta, and the view's contents per
change (`kernels/changes.py`, `kernels/continual_task.py`). The task reads its own output one millisecond late; the
dataflow's driver cuts steps so that this output has been written.
"""

from __future__ import annotations

from tidemark_protocol.plan.dataflow import ContinualTaskSink
from tidemark_protocol.plan.lir import Changes
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.kernels.changes import ChangesSpec
from tidemark_replica.kernels.continual_task import ContinualTaskSpec
from tidemark_replica.kernels.temporal import TemporalSpec, temporal_layout
from tidemark_replica.render.plan.fragments import Scope, imported_stream
from tidemark_replica.render.plan.lowering_stream import Stream, arrow_types
from tidemark_replica.render.plan.pipeline import ContinualTaskKernel, Kernel, Pipeline, Types


def lower_changes(scope: Scope, plan: Changes, stream: Stream) -> Stream:
    """Lower the changes of an import: each change is present at its own time only."""
    spec = _changes_of(scope, arrow_types(stream.schema))
    state = scope.new_arrangement("temporal", temporal_layout(spec.output_types))
    goes = TemporalSpec(state, spec.output_types, (), (len(spec.output_types),))
    return Stream(Kernel(goes, Kernel(spec, stream.tree)), plan.schema)


def lower_continual_task(scope: Scope, sink: ContinualTaskSink, view: Pipeline, types: Types) -> Pipeline:
    """The pipeline of the rows that a continual task adds to its output; `view` is its query."""
    watched = imported_stream(scope, sink.watches)
    state = scope.new_arrangement("view", Layout.of_rows(types, range(len(types))))
    spec = ContinualTaskSpec(_changes_of(scope, arrow_types(watched.schema)), state, types)
    return ContinualTaskKernel(spec, (watched.tree, view))


def _changes_of(scope: Scope, types: Types) -> ChangesSpec:
    every = range(len(types))
    return ChangesSpec(scope.new_arrangement("changes", Layout.of_rows(types, every)), types)
