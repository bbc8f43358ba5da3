"""What the planner is asked for a Dataflow, and what its refusals mean."""

from __future__ import annotations

from collections.abc import Iterable

from tidemark_operator.catalogue.registry import DataflowState, SourceState
from tidemark_operator.catalogue.relations import catalogue
from tidemark_operator.planning.assemble import Named
from tidemark_operator.resources import diagnostics
from tidemark_operator.resources.dataflow import Dataflow
from tidemark_operator.resources.dataflow_conditions import PlanRefused, WaitingForInputs
from tidemark_protocol.planning import PlanRequest, Refused


def plan_request(dataflow: Dataflow, sources: Iterable[SourceState], dataflows: Iterable[DataflowState]) -> PlanRequest:
    meta = dataflow.meta
    return PlanRequest(
        dataflow=meta.name,
        views=dataflow.views,
        exports=dataflow.exports,
        catalogue=catalogue(sources, dataflows, without=meta.name),
        id_prefix=Named(meta.name, meta.uid).id_prefix,
        dialect=dataflow.dialect.value,
    )


def standing(dataflow: Dataflow, refused: Refused) -> WaitingForInputs | PlanRefused:
    """A Dataflow that reads itself would wait for itself: that is a mistake, and said so."""
    for diagnostic in refused.diagnostics:
        if diagnostic.relation[:1] == (dataflow.meta.name,):
            return PlanRefused("Cycle", f"{diagnostics.describe(diagnostic)}: a Dataflow cannot read itself")
    return diagnostics.standing(refused)


def is_final(refused: Refused) -> bool:
    """Whether the same question would get the same answer. A planner that was busy, or failed, is asked again."""
    return not any(d.code in ("TIMEOUT", "INTERNAL") for d in refused.diagnostics)
