"""The request that the planner gets for a Dataflow, and the meaning of its answer."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from tidemark_operator.catalogue.dataflow_state import DataflowState, PlannerAnswer
from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.catalogue.relations import NOT_COUNTED, catalogue
from tidemark_operator.catalogue.row_counts import RowCounts, counts_with
from tidemark_operator.planning.assemble import Named
from tidemark_operator.planning.planner_fault import is_planners_fault, pause_ms
from tidemark_operator.planning.revision import DataflowRevision
from tidemark_operator.resources.conditions import diagnostics
from tidemark_operator.resources.conditions.dataflow import PlanRefused, WaitingForInputs
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_protocol.ids import Digest
from tidemark_protocol.messages.planning import Catalogue, Planned, PlanRequest, Refused
from tidemark_protocol.plan.codec import digest


def plan_request(
    dataflow: Dataflow,
    sources: Sequence[SourceState],
    dataflows: Iterable[DataflowState],
    follows: Iterable[DataflowRevision] = (),
    rows: RowCounts = NOT_COUNTED,
) -> PlanRequest:
    """`follows`: the revisions that the plan is to follow, and by whose row counts it is chosen. `rows`: the row counts
    of now, for what these do not read."""
    meta = dataflow.meta
    return PlanRequest(
        dataflow=meta.name,
        views=dataflow.views,
        exports=dataflow.exports,
        catalogue=catalogue(
            sources,
            dataflows,
            without=meta.name,
            instance=dataflow.instance,
            named_in=named_in(dataflow),
            rows=counts_with(follows, rows),
        ),
        id_prefix=Named(meta.name, meta.uid).id_prefix,
        dialect=dataflow.dialect.value,
    )


def named_in(dataflow: Dataflow) -> str:
    """A text that has the names of all that its plan can read."""
    return " ".join([*(view.sql for view in dataflow.views), *(e.task.watch for e in dataflow.exports if e.task)])


def question_of(request: PlanRequest, replan: str = "") -> Digest:
    """The digest of a request without its row counts: these change with each report of an ingester, and a request that
    the planner refused, or failed at, does not become another one by them. `replan`: the annotation, by each value of
    which the question is another one."""
    relations = tuple(replace(relation, rows=None) for relation in request.catalogue.relations)
    asked = digest(replace(request, catalogue=Catalogue(relations)))
    return Digest(f"{asked} {replan}") if replan else asked


def outcome_of_refusal(dataflow: Dataflow, refused: Refused) -> WaitingForInputs | PlanRefused:
    """The outcome of planning that a refusal means. A Dataflow that reads itself would wait for itself for ever, so it
    is refused for good."""
    for diagnostic in refused.diagnostics:
        if diagnostic.relation[:1] == (dataflow.meta.name,):
            return PlanRefused("Cycle", f"{diagnostics.describe(diagnostic)}: a Dataflow cannot read itself")
    return diagnostics.classify_refusal(refused)


def must_send(answer: PlannerAnswer | None, question: Digest, now_ms: int) -> bool:
    """Whether the request must be sent: it differs from the answered one, or may be sent again by now."""
    if answer is None or answer.question != question:
        return True
    return answer.again_ms is not None and now_ms >= answer.again_ms


def remember(
    dataflow: Dataflow, response: Planned | Refused, question: Digest, earlier: PlannerAnswer | None, now_ms: int
) -> PlannerAnswer:
    """The answer as it is kept. Where the planner failed or took too long, the same request is sent again, with longer
    and longer pauses: each such plan costs a planner process."""
    if isinstance(response, Planned):
        return PlannerAnswer(question, response)
    outcome = outcome_of_refusal(dataflow, response)
    if not is_planners_fault(response):
        return PlannerAnswer(question, outcome)
    tried = earlier.tried + 1 if earlier is not None and earlier.question == question else 1
    return PlannerAnswer(question, outcome, tried, now_ms + pause_ms(tried))
