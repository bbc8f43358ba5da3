"""The lines of `explain` for a Dataflow whose row counts are no longer true, and the plan that `replan` would give
it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast

import pytest

from tests.gateway.admission.test_planner_admission import context_of
from tests.gateway.registries import add_dataflow, shard_of
from tests.resources.manifests import body
from tidemark_operator.catalogue.dataflow_state import RevisionSet
from tidemark_operator.controller.reports.recomputation import Recomputation, given_up
from tidemark_operator.errors import QueryRefused
from tidemark_operator.gateway.admission.limits import planner_queue
from tidemark_operator.gateway.admission.planner_admission import PlannerAdmission
from tidemark_operator.gateway.auth.access import FullAccess
from tidemark_operator.gateway.explanations.draft_plan import PlanAsker
from tidemark_operator.gateway.explanations.explain import explain, explain_replan
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.planning.assemble import Named, describe
from tidemark_operator.planning.revision import DataflowRevision, RowCount
from tidemark_protocol.explained_plan import ExplainedPlan
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Planned, PlannedExport, PlanRequest
from tidemark_protocol.messages.responses import IngestionStatus, TableReport
from tidemark_protocol.plan.dataflow import BuildDesc
from tidemark_protocol.plan.lir import (
    DistinctReduce,
    Join,
    JoinStage,
    LinearJoin,
    MapFilterProject,
    Plan,
    Reduce,
    preorder,
    refs,
)

SA = GlobalId("s.a")


class Planner:
    """Answers with this plan."""

    def __init__(self) -> None:
        self.answer: Planned | None = None
        self.asked: list[PlanRequest] = []

    async def plan(self, request: PlanRequest, patient: bool = False) -> Planned | None:
        self.asked.append(request)
        return self.answer


def joined(inputs: int) -> Any:
    """The plan over itself, so many times, without conditions."""

    def join(plan: Plan) -> Plan:
        row = plan.schema
        stages = tuple(
            JoinStage(at, (), (), (0,), (), MapFilterProject((*row,), (), (), (0,))) for at in range(1, inputs)
        )
        return Join((plan,) * inputs, LinearJoin(0, stages))

    return join


def grouped(plan: Plan) -> Plan:
    """The distinct rows of the plan joined to itself."""
    join = joined(2)(plan)
    return Reduce(join, refs(join.schema), (), DistinctReduce(), MapFilterProject.identity(join.schema))


def with_counts(
    context: ReconcileContext, then: int | None, now: int, inputs: int = 3, through: Any = None, name: str = "d"
) -> DataflowRevision:
    """Dataflow d was planned with a count, and its table has another one now. Returns its revision."""
    known = context.registry
    add_dataflow(known, name, shards=("s.a",), through=through or joined(inputs))
    (state,) = known.dataflows("ns")
    assert state.active is not None
    counts = () if then is None else (RowCount(SA, then),)
    revision = replace(state.active.revision, row_counts=counts)
    state.revisions = RevisionSet(replace(state.active, revision=revision))
    known.sources("ns")[0].report = IngestionStatus(GlobalId("s"), "running", tables=(TableReport("a", now),))
    return revision


def made(
    planner: Planner | None = None, export: Mapping[str, Any] = MappingProxyType({"index": {"key": ["a"]}})
) -> tuple[ReconcileContext, PlannerAdmission]:
    context = cast(Any, context_of(cast(Any, planner or Planner())))
    manifest = body("Dataflow", {"instance": "default", "sql": "SELECT a FROM s.a", **export}, "view-d")
    context.cache = SimpleNamespace(all=lambda *_: (), get=lambda key: manifest)
    return cast(ReconcileContext, context), PlannerAdmission(planner_queue())


@pytest.mark.parametrize(
    ("then", "now", "inputs", "note"),
    [
        (1024, 1 << 23, 3, "planned when s.a had about 1,024 rows; it has about 8,388,608 now"),
        (None, 1 << 20, 3, "planned when s.a was not known to have rows; it has about 1,048,576 now"),
        (1 << 20, 7, 3, "planned when s.a had about 1,048,576 rows; it has about 1,024 now"),
        (1024, 8192, 3, None),  # other plans are possible, and not worth a word
        (1024, 0, 3, None),
        (1024, 1 << 23, 2, None),  # two inputs have one order
    ],
)
def test_explain_notes_row_counts_that_are_no_longer_true(
    then: int | None, now: int, inputs: int, note: str | None
) -> None:
    context, admission = made()
    with_counts(context, then, now, inputs)
    plan = asyncio.run(explain(PlanAsker(context, admission, FullAccess(), "ns"), "d"))

    if note is None:
        assert plan.notes == ()
        return
    assert plan.notes[0] == note
    assert "`kubectl tidemark replan d -n ns --dry-run`" in plan.notes[1]
    assert plan.text().endswith("\n\n" + "\n".join(plan.notes) + "\n")
    assert note in plan.json()


def test_explain_notes_row_counts_where_an_aggregate_might_go_before_a_join() -> None:
    context, admission = made()
    with_counts(context, 1024, 1 << 23, through=grouped)
    plan = asyncio.run(explain(PlanAsker(context, admission, FullAccess(), "ns"), "d"))

    assert plan.notes[0] == "planned when s.a had about 1,024 rows; it has about 8,388,608 now"


def test_explain_notes_the_last_recomputation_of_each_replica() -> None:
    context, admission = made()
    with_counts(context, 1024, 1024)
    done = Recomputation(1_000, 90_000, 1_000_000, 40_000, 12_000, 11_500, 3)
    why = given_up({"time": "2000"})
    computing = [
        ("r1", SimpleNamespace(recomputed=done, recomputations_given_up="")),
        ("r2", SimpleNamespace(recomputed=None, recomputations_given_up=why)),
    ]
    collections = [SimpleNamespace(computing=computing)]
    cast(Any, context).running = lambda *_: SimpleNamespace(collections_of=lambda _: collections)
    plan = asyncio.run(explain(PlanAsker(context, admission, FullAccess(), "ns"), "d"))
    assert plan.notes == (f"on replica r1 3 times, last {done}", f"on replica r2 {why}")


def on_replica(**statuses: Mapping[str, str]) -> Any:
    return SimpleNamespace(
        statuses=statuses, hydrating=None, recomputed=None, recomputations_given_up="", hydrated=True
    )


def test_an_analyzed_plan_has_what_each_replica_reports() -> None:
    """Beside the operators of the plan; what is of none, and what the whole has cost, is below it."""
    context, admission = made()
    revision = with_counts(context, 1024, 1024, through=grouped)
    number = [type(node) for node in preorder(revision.description.objects[0].plan)].index(Join)
    told = on_replica(
        steps={"steps": "2", "elapsed_ms": "1500", "max_ms": "900", "hydration_ms": "900"},
        operators={
            "operators": '[["read a", "Get", 0, 0, 0, 7], ["join", "Join", 4096, 3, 65536, 1200], '
            '["index d", "ArrangeBy", 1, 1, 80, 4]]',
            "nodes": f"[[0, {number + 2}], [0, {number}], null]",  # the sample's inputs are one value
        },
    )
    hydrating = on_replica(operators={"operators": '[["join", "Join", 1, 1, 1, 1]]'})
    hydrating.hydrating = SimpleNamespace(percent=40)
    earlier = on_replica(operators={"operators": '[["join", "Join", 1, 1, 1, 1]]'})
    computing = [("r1", told), ("r2", hydrating), ("r3", earlier)]
    ids = [revision.export_id(export.name) for export in revision.exports]
    collections = [
        SimpleNamespace(id=ids[0], computing=computing),
        SimpleNamespace(id="other", computing=[("r9", told)]),
    ]
    cast(Any, context).running = lambda *_: SimpleNamespace(collections_of=lambda _: collections)
    plan = asyncio.run(explain(PlanAsker(context, admission, FullAccess(), "ns"), "d", analyze=True))

    lines = plan.text().splitlines()
    at = next(at for at, line in enumerate(lines) if line.strip().startswith("Join"))
    assert lines[at + 1].strip().startswith("incremental, about 1,024 rows a change")
    assert lines[at + 2].strip() == "on r1 join holds 4,096 rows in 3 batches of 65,536 bytes, has worked for 1,200 ms"
    assert lines[at + 4].strip() == "on r1 read a has worked for 7 ms"
    assert plan.notes == (
        "on r1 2 steps took 1,500 ms: the hydration 900 ms, the longest 900 ms",
        "on r1 index d holds 1 row in 1 batch of 80 bytes, has worked for 4 ms",
        "on r2 it hydrates: 40 %",
        "on r3 nothing is reported yet: replicas report every ten seconds",
        "on r3 join holds 1 row in 1 batch of 1 bytes, has worked for 1 ms",
    )
    measured = {"replica": "r1", "name": "join", "records": 4096, "batches": 3, "bytes": 65536, "elapsed_ms": 1200}
    (joined,) = json.loads(plan.json())["objects"][0]["plan"]["inputs"]
    assert joined["measured"] == [measured]
    assert "<br/>on r1 join holds 4,096 rows" in plan.mermaid()
    assert "on r1" not in asyncio.run(explain(PlanAsker(context, admission, FullAccess(), "ns"), "d")).text()


def test_nothing_is_analyzed_where_no_replica_computes() -> None:
    context, admission = made()
    with_counts(context, 1024, 1024)
    plan = asyncio.run(explain(PlanAsker(context, admission, FullAccess(), "ns"), "d", analyze=True))
    assert plan.notes == ("no replica computes this plan now",)
    with pytest.raises(QueryRefused, match="no replica runs it"):
        asyncio.run(explain(PlanAsker(context, admission, FullAccess(), "ns"), "SELECT a FROM s.a", analyze=True))


def ask(context: ReconcileContext, admission: PlannerAdmission, name: str = "d") -> tuple[ExplainedPlan, bool]:
    return asyncio.run(explain_replan(PlanAsker(context, admission, FullAccess(), "ns"), name))


def test_must_a_dry_replan_is_planned_with_the_row_counts_of_now() -> None:
    """And says whether the Dataflow has this plan."""
    planner = Planner()
    context, admission = made(planner)
    revision = with_counts(context, 1024, 1 << 20)
    of = revision.description
    planner.answer = Planned(of.source_imports, of.objects, revision.exports, (SA,), "")
    plan, same = ask(context, admission)
    assert same
    assert "Get s.a (about 1,048,576 rows)" in plan.text()
    assert {r.id: r.rows for r in planner.asked[0].catalogue.relations}[SA] == 1 << 20

    (built,) = of.objects
    other = BuildDesc(built.id, joined(4)(of.objects[0].plan))
    planner.answer = replace(planner.answer, objects=(other,))
    plan, same = ask(context, admission)
    assert not same


def of_view(view: Mapping[str, Any], allowed: tuple[str, ...] = ()) -> tuple[ExplainedPlan, bool]:
    """The dry replan, with the plan that it has, of a Dataflow whose view is written to its own table alone."""
    planner = Planner()
    context, admission = made(planner, {"materializedView": view})
    cast(Any, context).instance = lambda *_: SimpleNamespace(publish_locations=allowed, location="/data")
    revision = with_counts(context, 1024, 1024, name="view-d")
    (export,) = revision.exports
    named = replace(export, name="view-d")
    known = context.registry
    (state,) = known.dataflows("ns")
    assert state.active is not None
    described, identity = describe(Named("view-d", "view-d"), planned_of(revision, named), {"view-d": shard_of("v")})
    state.revisions = RevisionSet(
        replace(
            state.active,
            revision=replace(revision, description=described, exports=(named,), identity=identity),
        )
    )
    planner.answer = planned_of(revision, named)
    return ask(context, admission, "view-d")


def planned_of(revision: DataflowRevision, export: PlannedExport) -> Planned:
    of = revision.description
    return Planned(of.source_imports, of.objects, (export,), (SA,), "")


def test_a_dry_replan_says_what_would_become_of_a_views_destinations() -> None:
    """The plan is the same; a table or a topic that only the manifest names makes another revision of it."""
    plan, same = of_view({})
    assert same
    assert plan.exports[0].startswith("materialized view of ")
    plan, same = of_view({"publish": {"location": "/lake/v"}}, ("/lake",))
    assert not same
    assert plan.exports[0].endswith(", published at /lake/v")
    kafka = {"brokers": ["kafka:9092"], "topic": "out", "key": ["a"]}
    plan, same = of_view({"kafkaSink": kafka})
    assert not same
    assert plan.exports[0].endswith(", written to topic out of kafka:9092")


def test_a_dry_replan_says_that_the_manifest_would_be_refused_or_wait() -> None:
    with pytest.raises(QueryRefused, match=r"would be refused \(PartitionsNotPossible\): materialized view"):
        of_view({"publish": {"partitionBy": ["b"]}})
    plan, same = of_view({"publish": {"location": "/elsewhere/v"}}, ("/lake",))
    assert not same
    assert plan.notes[0].startswith("replan would wait (LocationNotAllowed): location /elsewhere/v is not allowed")
    with pytest.raises(QueryRefused, match=r"would be refused: .*publish.location: must be an absolute path"):
        of_view({"publish": {"location": "nonsense"}})


def test_a_dry_replan_of_an_instance_that_does_not_run_would_wait() -> None:
    context, admission = made(Planner())
    with_counts(context, 1024, 1024, name="view-d")
    cast(Any, context).running = lambda *_: None
    with pytest.raises(QueryRefused, match="replan would wait: ComputeInstance default does not run"):
        ask(context, admission, "view-d")
