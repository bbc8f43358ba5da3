"""What the planner is asked for a Dataflow, and what its refusals mean."""

from __future__ import annotations

from collections.abc import Iterable

from tidemark_operator.catalogue.registry import Answer, DataflowState, SourceState
from tidemark_operator.catalogue.relations import catalogue
from tidemark_operator.planning.assemble import Named
from tidemark_operator.planning.planner_fault import is_planners_fault, pause_ms
from tidemark_operator.resources.conditions import diagnostics
from tidemark_operator.resources.conditions.dataflow import PlanRefused, WaitingForInputs
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_protocol.ids import Digest
from tidemark_protocol.messages.planning import Planned, PlanRequest, Refused


def plan_request(dataflow: Dataflow, sources: Iterable[SourceState], dataflows: Iterable[DataflowState]) -> PlanRequest:
    meta = dataflow.meta
    named_in = " ".join([*(view.sql for view in dataflow.views), *(e.task.watch for e in dataflow.exports if e.task)])
    return PlanRequest(
        dataflow=meta.name,
        views=dataflow.views,
        exports=dataflow.exports,
        catalogue=catalogue(sources, dataflows, without=meta.name, instance=dataflow.instance, named_in=named_in),
        id_prefix=Named(meta.name, meta.uid).id_prefix,
        dialect=dataflow.dialect.value,
    )


def standing(dataflow: Dataflow, refused: Refused) -> WaitingForInputs | PlanRefused:
    """A Dataflow that reads itself would wait for itself: that is a mistake, and said so."""
    for diagnostic in refused.diagnostics:
        if diagnostic.relation[:1] == (dataflow.meta.name,):
            return PlanRefused("Cycle", f"{diagnostics.describe(diagnostic)}: a Dataflow cannot read itself")
    return diagnostics.standing(refused)


def must_ask(answer: Answer | None, question: Digest, now_ms: int) -> bool:
    """Whether what is known of the question is not an answer to it (any more)."""
    if answer is None or answer.question != question:
        return True
    return answer.again_ms is not None and now_ms >= answer.again_ms


def remember(
    dataflow: Dataflow, said: Planned | Refused, question: Digest, before: Answer | None, now_ms: int
) -> Answer:
    """The planner's answer. One that took too long, or failed, may have been busy: it is asked again, ever more rarely,
    since each such plan costs a planner process."""
    if isinstance(said, Planned):
        return Answer(question, said)
    outcome = standing(dataflow, said)
    if not is_planners_fault(said):
        return Answer(question, outcome)
    tried = before.tried + 1 if before is not None and before.question == question else 1
    return Answer(question, outcome, tried, now_ms + pause_ms(tried))
