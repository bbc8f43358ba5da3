"""Plans of manifests that are not applied: in which order, over what, by which row counts, and what is refused."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.gateway.admission.test_planner_admission import context_of
from tests.gateway.auth.test_rights import Caller
from tests.gateway.registries import ROW, add_dataflow
from tests.protocol.samples import A
from tidemark_operator.catalogue.dataflow_state import RevisionSet
from tidemark_operator.errors import DefinitionRefused, QueryRefused, StatementRefused
from tidemark_operator.gateway.admission.limits import planner_queue
from tidemark_operator.gateway.admission.planner_admission import PlannerAdmission
from tidemark_operator.gateway.auth.access import Access, FullAccess
from tidemark_operator.gateway.explanations.draft_plan import PlanAsker
from tidemark_operator.gateway.explanations.unapplied import explain_manifests
from tidemark_operator.handlers.reconcile_context import ReconcileContext
from tidemark_operator.planning.revision import RowCount
from tidemark_protocol.explained_plan import ExplainedPlan
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Diagnostic, Planned, PlannedExport, PlanRequest, Refused
from tidemark_protocol.messages.responses import IngestionStatus, TableReport
from tidemark_protocol.plan.dataflow import BuildDesc, IndexImport, SourceImport
from tidemark_protocol.plan.expr import ColumnRef
from tidemark_protocol.plan.lir import Get

SA = GlobalId("s.a")
ANYBODY = FullAccess()


class Planner:
    """Plans `PARENT.NAME`: a view of that relation, as the catalogue has it."""

    def __init__(self) -> None:
        self.asked: list[PlanRequest] = []

    async def plan(self, request: PlanRequest, patient: bool = False) -> Planned | Refused:
        self.asked.append(request)
        (view,) = request.views
        parent, _, name = view.sql.partition(".")
        found = next((r for r in request.catalogue.relations if (r.parent, r.name) == (parent, name)), None)
        if found is None:
            return Refused((Diagnostic("UNRESOLVED_RELATION", "it is not there", 1, 1, relation=(parent, name)),))
        sources = (SourceImport(found.id, found.shard, (0,)),) if found.shard else ()
        key = (ColumnRef(0, A.type),)
        indexes = () if found.shard else (IndexImport(found.id, GlobalId(f"on {found.id}"), key, ROW),)
        built = BuildDesc(GlobalId(f"{request.id_prefix}{view.name}"), Get(found.id, ROW))
        (export,) = request.exports
        exported = PlannedExport(export.name, export.kind, built.id, (A,), (0,))
        return Planned(sources, (built,), (exported,), (found.id,), "", index_imports=indexes)


def made() -> tuple[ReconcileContext, Planner]:
    planner = Planner()
    context = cast(Any, context_of(cast(Any, planner)))
    context.running = lambda *_: None
    return cast(ReconcileContext, context), planner


def manifest(name: str, sql: str, kind: str = "index", **more: Any) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"instance": "default", "sql": sql, kind: {}, **more}}


def explained(context: ReconcileContext, *manifests: Any, access: Access = ANYBODY) -> dict[str, ExplainedPlan]:
    admission = PlannerAdmission(planner_queue())
    texts = [json.dumps(each) for each in manifests]
    return dict(asyncio.run(explain_manifests(PlanAsker(context, admission, access, "ns"), texts)))


@pytest.mark.parametrize("kind", ["index", "materializedView"])
def test_dataflows_of_manifests_read_each_other(kind: str) -> None:
    """In whichever order they stand; the answer has theirs."""
    context, planner = made()
    plans = explained(context, manifest("c", "b.b"), manifest("b", "a.a", kind), manifest("a", "s.a", kind))
    assert list(plans) == ["c", "b", "a"]
    assert "Get b" in plans["c"].text()
    assert plans["c"].notes[0] == "reads b as its manifest has it"
    assert plans["a"].notes == ("Dataflow a would wait: ComputeInstance default does not run",)
    assert [request.dataflow for request in planner.asked] == ["c", "b", "a", "b", "c"]
    assert context.registry.dataflows("ns") == []


def test_a_manifest_of_a_dataflow_that_there_is_stands_in_its_place() -> None:
    """Also before another one that reads it, and by the row counts that the revision has."""
    context, _ = made()
    add_dataflow(context.registry, "d", shards=("s.a",))
    (state,) = context.registry.dataflows("ns")
    assert state.active is not None
    revision = replace(state.active.revision, row_counts=(RowCount(SA, 4096),))
    state.revisions = RevisionSet(replace(state.active, revision=revision))
    report = IngestionStatus(SA, "running", tables=(TableReport("a", 1 << 20), TableReport("b", 1 << 20)))
    context.registry.sources("ns")[0].report = report

    plans = explained(context, manifest("reader", "d.d"), manifest("d", "s.a"), manifest("other", "s.b"))
    assert "Get s.a (about 4,096 rows)" in plans["d"].text()
    assert "Get s.b (about 1,048,576 rows)" in plans["other"].text()
    assert "another plan: this one would hydrate beside it" in plans["d"].notes[0]
    assert plans["reader"].notes[0] == "reads d as its manifest has it"
    assert context.registry.dataflows("ns")[0].active is state.active
    with pytest.raises(QueryRefused, match=r"spec\.instance is immutable, and is default"):
        explained(context, manifest("d", "s.a", instance="other"))


def test_the_policy_counts() -> None:
    context, _ = made()
    plan = explained(context, manifest("v", "s.a", "materializedView", refreshPolicy="auto"))["v"]
    assert plan.exports == (
        "materialized view of v/v, computed anew where the changes of a time, or a refresh, are estimated to cost more",
    )


@pytest.mark.parametrize(
    ("manifests", "said"),
    [
        ([manifest("a", "gone.t")], "Dataflow a would wait for its inputs: DataSource or Dataflow gone with t"),
        ([manifest("a", "b.b"), manifest("b", "a.a")], "Dataflow a would wait for its inputs"),
        ([manifest("a", "a.a")], r"Dataflow a would be refused \(Cycle\)"),
        ([manifest("a", "s.a"), manifest("a", "s.b")], "two manifests have the name a"),
        ([manifest("A_1", "s.a")], "cannot be the name of a Dataflow"),
        ([{"metadata": {"name": "a", "namespace": "x"}, "spec": {}}], "Dataflow a is of namespace x, not of ns"),
        ([{"metadata": {"name": "a"}}], "Dataflow a would be refused: spec.sql: is required"),
        ([{"metadata": {"name": "a"}, "spec": 3}], "Dataflow a would be refused: spec: must be an object"),
        (
            [{"metadata": {"name": "a"}, "spec": {"instance": "i", "sql": "s.a"}}],
            "spec.one of index, materializedView, continualTask: is required",
        ),
        ([{"metadata": {}}], "metadata.name: is required"),
        ([manifest("a", "\ud800")], "a manifest is not JSON"),
        (
            [
                {
                    "metadata": {"name": "a"},
                    "spec": {"instance": "i", "views": [{"name": "v", "sql": "s.a"}] * 33, "exports": []},
                }
            ],
            "more than 32 views or exports",
        ),
        ([[]], "a manifest is no object with metadata"),
        ([manifest(f"a{at}", "s.a") for at in range(65)], "more than the limit of 64"),
        ([manifest("a", "s.a" + " " * (1 << 17))], "more than the limit of 131072"),
    ],
)
def test_what_cannot_be_is_refused_by_name(manifests: list[Any], said: str) -> None:
    context, _ = made()
    with pytest.raises((QueryRefused, DefinitionRefused), match=said):
        explained(context, *manifests)


def test_a_circle_through_dataflows_that_there_are_is_refused() -> None:
    context, _ = made()
    for name in ("a", "b"):
        add_dataflow(context.registry, name, shards=("s.a",))
    with pytest.raises(QueryRefused, match=r"a, b would be refused \(Cycle\): they read each other"):
        explained(context, manifest("a", "b.e"), manifest("b", "a.e"))
    with pytest.raises(StatementRefused) as refused:
        explained(context, manifest("a", "gone.t"))
    assert (refused.value.code, refused.value.line) == ("UNRESOLVED_RELATION", 1)


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_an_edit_that_ends_a_circle_may_stand_behind_what_it_allows(order: str) -> None:
    context, _ = made()
    add_dataflow(context.registry, "b", shards=("s.a",))
    add_dataflow(context.registry, "a", shards=("s.a",), reads=("b",))
    exports = [{"name": "e", "index": {"from": "a"}}]
    a = {"instance": "default", "views": [{"name": "a", "sql": "s.a"}], "exports": exports}
    given = {"a": {"metadata": {"name": "a"}, "spec": a}, "b": manifest("b", "a.e")}
    assert list(explained(context, *(given[name] for name in order))) == list(order)


def test_the_fields_of_an_instance_are_shown_to_those_who_may_get_it() -> None:
    """The caller may list Dataflows, which shows no ComputeInstance."""
    context, _ = made()
    instance = SimpleNamespace(publish_locations=("/lake/secret",))
    running = SimpleNamespace(config=SimpleNamespace(storage_location="/data"))
    cast(Any, context).instance, cast(Any, context).running = lambda *_: instance, lambda *_: running
    view = manifest("v", "s.a")
    view["spec"] |= {"materializedView": {"publish": {"location": "/elsewhere/v"}}}
    del view["spec"]["index"]
    refusal = (
        "Dataflow v would wait (LocationNotAllowed): location /elsewhere/v is not allowed: ComputeInstance default"
    )
    may_get = Caller("get computeinstances default in namespace ns")
    for access, told in (
        (Caller(), "does not list a place for it"),
        (may_get, "allows those below /lake/secret"),
        (ANYBODY, "allows those below /lake/secret"),
    ):
        (note,) = explained(context, view, access=access)["v"].notes
        assert note == f"{refusal} {told} (publish.locations)"


def test_a_chain_is_planned_twice_at_most() -> None:
    context, planner = made()
    explained(context, *(manifest(f"v{at}", f"v{at + 1}.v{at + 1}") for at in range(63)), manifest("v63", "s.a"))
    assert len(planner.asked) < 128
