"""A dry replan says what the real one does, wherever the Dataflow stands: both are asked, over the real planner of
revisions, and a scripted planner, API server and replica."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from tests.controller.harness import EMPTY, NOW, at
from tests.gateway.registries import ROW, shard_of
from tests.handlers.revised_dataflows import ask
from tests.handlers.revisions.test_pinned_row_counts import unprotected
from tests.handlers.revisions.test_superseded_revision_replan import VIEW, Edited
from tidemark_operator.errors import QueryRefused, Waiting
from tidemark_operator.gateway.admission.limits import planner_queue
from tidemark_operator.gateway.admission.planner_admission import PlannerAdmission
from tidemark_operator.gateway.auth.access import FullAccess
from tidemark_operator.gateway.explanations.draft_plan import PlanAsker
from tidemark_operator.gateway.explanations.explain import explain_replan
from tidemark_operator.handlers.revisions.revision_ends import note_ends
from tidemark_operator.kube.client import Body
from tidemark_operator.resources.conditions.dataflow import PlanRefused, WaitingForInputs
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_operator.resources.manifest.digest import spec_digest
from tidemark_operator.resources.manifest.meta import REPLAN
from tidemark_protocol.ids import GlobalId, ShardId, WriterTerm
from tidemark_protocol.messages.planning import Diagnostic, Planned, PlanRequest, Refused
from tidemark_protocol.messages.responses import DescribedShard
from tidemark_protocol.plan.dataflow import BuildDesc, SourceImport
from tidemark_protocol.plan.lir import Get

INPUT = ShardId("shard s.a")
SQL = "SELECT a FROM s.a"


class Planner:
    """The plan reads s.a. `version`: of the plan; `unknown`: a relation that it does not find."""

    def __init__(self) -> None:
        self.version, self.unknown = 1, ""

    async def plan(self, request: PlanRequest, patient: bool = False) -> Planned | Refused:
        if self.unknown:
            return Refused(
                (Diagnostic("UNRESOLVED_RELATION", "it is not there", relation=tuple(self.unknown.split("."))),)
            )
        read = SourceImport(GlobalId("s.a"), shard_of("s.a"), (0,))
        first = GlobalId(f"{VIEW.on} {self.version}")
        built = BuildDesc(first, Get(GlobalId("s.a"), ROW)), BuildDesc(VIEW.on, Get(first, ROW))
        return Planned((read,), built, (VIEW,), (GlobalId("s.a"),), "")


class Events:
    async def note(self, *_: object) -> None: ...

    async def warn(self, *_: object) -> None: ...


class Asked(Edited):
    """A view of s.a that serves. `until`: its end, from the next edit on."""

    def __init__(self) -> None:
        super().__init__()
        self.until: int | None = None
        self.read = 100, 200
        self.planner = Planner()
        self.harness.context.planner, self.harness.context.events = cast(Any, self.planner), cast(Any, Events())
        self.marks.protect = unprotected  # type: ignore[method-assign]

    def body(self, sql: str) -> Body:
        made = super().body(sql)
        made["spec"] |= {} if getattr(self, "until", None) is None else {"until": self.until}
        return made

    async def begin_to_serve(self) -> None:
        """The second revision serves, and writes the table of the first one."""
        self.until = 400
        for sql, version in (("SELECT 1 AS a FROM s.a", 0), (SQL, 1)):
            self.tell_input()
            self.planner.version = version
            await self.revise(sql)
            self.tables[self.table()] = at(200), version + 1
        await self.marks.commit(self.state, [self.state])
        await self.marks.catch_up(self.state, Dataflow.parse(self.body(SQL)).meta)

    def tell_input(self) -> None:
        """Report s.a, which its source holds, as a replica does."""
        since, upper = self.read
        told = DescribedShard(INPUT, True, at(upper), at(since), WriterTerm(1))
        self.running.shards.register(INPUT, "/data/s.a")
        self.running.core.shard_reports.described((told,), NOW)

    def finish(self, term: int) -> None:
        """The view's table is finished under a term."""
        self.tables[self.table()] = EMPTY, term
        self.tell(*map(self.described, self.tables))
        note_ends(self.running, self.state)

    async def dry(self) -> str:
        """The answer of the dry replan."""
        self.tell_input()
        self.harness.cache.put(self.state.key, self.body(SQL))
        admission = PlannerAdmission(planner_queue())
        try:
            plan, same = await explain_replan(PlanAsker(self.harness.context, admission, FullAccess(), "ns"), "d")
        except QueryRefused as refused:
            return str(refused)
        return next(iter(plan.notes), "the same" if same else "another")

    async def real(self) -> str:
        """The outcome of a reconcile with the annotation, in the words of the dry replan."""
        self.annotations[REPLAN] = "2026-01-01"
        dataflow = Dataflow.parse(self.body(SQL))
        ask(self.state, digest=spec_digest(dataflow))
        self.tell(*map(self.described, self.tables))
        note_ends(self.running, self.state)
        self.tell_input()
        try:
            refused = await self.reviser.revise(self.state, dataflow, self.running)
        except Waiting as waiting:
            return f"replan would wait ({waiting.reason}): {waiting}"
        if isinstance(refused, PlanRefused):
            return f"replan would be refused ({refused.reason}): {refused.message}"
        if isinstance(refused, WaitingForInputs):
            return f"replan would wait for its inputs: {', '.join(refused.inputs)}"
        return "the same" if self.state.pending is None else "another"


def unchanged(asked: Asked) -> None: ...


def another_plan(asked: Asked) -> None:
    asked.planner.version = 2


def history_gone(asked: Asked) -> None:
    another_plan(asked)
    asked.read = 500, 600


def end_table(asked: Asked) -> None:
    """By itself, under its own term: its inputs are released, and forget."""
    asked.finish(2)
    assert asked.state.has_ended
    history_gone(asked)


def outrun(asked: Asked) -> None:
    """An earlier revision finished the table."""
    asked.finish(1)
    assert asked.state.ends.superseded


def no_input(asked: Asked) -> None:
    asked.planner.unknown = "shop.orders"


GONE = (
    "spec.until is 400, but the inputs can be read from 500 on, so nothing before the end can be computed: set a later"
)
WHERE: list[tuple[Callable[[Asked], None], str]] = [
    (unchanged, "the same"),
    (another_plan, "another"),
    (history_gone, f"replan would be refused (UntilNotReadable): {GONE} time, or none"),
    (end_table, f"replan would be refused (UntilNotReadable): {GONE} time, or none"),
    (outrun, "another"),
    (no_input, "replan would wait for its inputs: DataSource or Dataflow shop with orders (it is not there)"),
]


@pytest.mark.parametrize(("where", "expected"), WHERE, ids=[where.__name__ for where, _ in WHERE])
def test_a_dry_replan_says_what_the_real_one_does(where: Callable[[Asked], None], expected: str) -> None:
    async def scenario() -> None:
        asked = Asked()
        await asked.begin_to_serve()
        where(asked)
        assert await asked.dry() == expected
        assert await asked.real() == expected

    asyncio.run(scenario())
