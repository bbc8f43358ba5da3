"""The row counts of now, of all that a plan may read."""

from __future__ import annotations

from collections.abc import Container

from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.catalogue.row_counts import export_counts, row_counts
from tidemark_operator.controller.frontiers.collection import Collection
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_protocol.ids import GlobalId


def current_row_counts(context: ReconcileContext, namespace: str, named: Container[str]) -> dict[GlobalId, int | None]:
    """`named`: the Dataflows that count, a set of names or a text that has them in lower case."""

    def find(state: DataflowState, id: GlobalId) -> Collection | None:
        running = context.running(namespace, state.instance)
        return running.collection(id) if running is not None else None

    dataflows = (d for d in context.registry.dataflows(namespace) if d.key.name in named)
    return row_counts(context.registry.sources(namespace)) | export_counts(dataflows, find)
