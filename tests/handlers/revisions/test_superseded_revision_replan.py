"""A revision whose table another one finished is planned once more, with the next version of the table: the real
planner of revisions and marks, over a scripted planner, API server and replica."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, cast

import pytest

from tests.controller.harness import EMPTY, NOW, at
from tests.handlers.deletion.tombstones import deleter
from tests.handlers.harness import READABLE, OperatorHarness
from tests.handlers.revised_dataflows import ask, mark
from tests.protocol.samples import ROW, A
from tests.resources.manifests import body
from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.errors import Waiting
from tidemark_operator.handlers.holds.revision_holds import hold_inputs
from tidemark_operator.handlers.revisions.plan_revision import RevisionPlanner
from tidemark_operator.handlers.revisions.planner_queue import PlannerQueue
from tidemark_operator.handlers.revisions.revision_ends import note_ends
from tidemark_operator.handlers.revisions.revision_marks import RevisionMarks
from tidemark_operator.kube.cache import key_of
from tidemark_operator.kube.client import DATAFLOWS, Body
from tidemark_operator.kube.revisions import RevisionOwner, build_revision
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_operator.resources.manifest.digest import spec_digest
from tidemark_operator.resources.manifest.meta import Meta
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId, WriterTerm
from tidemark_protocol.messages.planning import Planned, PlannedExport, PlanRequest
from tidemark_protocol.messages.responses import DescribedShard, Description
from tidemark_protocol.plan.dataflow import BuildDesc
from tidemark_protocol.plan.lir import Get

VIEW = PlannedExport("v", "materializedView", GlobalId("o"), (A,), ())


class Stored:
    """Revisions at the API server, all that there ever were."""

    def __init__(self) -> None:
        self.bodies: dict[int, Body] = {}

    async def of(self, owner: Meta) -> list[Body]:
        return list(self.bodies.values())

    async def store(self, owner: RevisionOwner, number: int, value: Any) -> str:
        written = build_revision(owner, number, value)
        assert self.bodies.setdefault(number, written) == written
        return str(written["metadata"]["name"])

    async def prune(self, owner: Meta, keep: set[str]) -> None:
        for number in [n for n, b in self.bodies.items() if b["metadata"]["name"] not in keep and n < max(self.bodies)]:
            del self.bodies[number]


class Written:
    """Statuses. `dies`: the operator does, before the next one is written."""

    def __init__(self) -> None:
        self.dies = False

    async def store(self, key: object, status: dict[str, Any], uid: str) -> None:
        if self.dies:
            self.dies = False
            raise ConnectionError("the operator is gone")


class Planner:
    """Another plan for another text."""

    async def plan(self, request: PlanRequest) -> Planned:
        built = BuildDesc(VIEW.on, Get(GlobalId(request.views[0].sql), ROW))
        return Planned((), (built,), (VIEW,), (), "")


class Edited:
    """A view that serves, and an edit of it. `tables`: those that there are, how far, and under which term.
    `annotations`: the object's."""

    def __init__(self) -> None:
        self.annotations = dict[str, str]()
        self.harness = OperatorHarness()
        self.harness.put(READABLE, None)
        self.stored, self.written = Stored(), Written()
        context = self.harness.context
        context.revisions, context.planner = cast(Any, self.stored), cast(Any, Planner())
        self.marks = RevisionMarks(context, cast(Any, self.written))
        self.reviser = RevisionPlanner(context, self.marks, deleter(self.harness), PlannerQueue(lambda key: None))
        running = context.running("ns", "default")
        assert running is not None
        self.running, self.tables = running, dict[ShardId, tuple[Frontier, int]]()
        self.running.describe = self.describe  # type: ignore[method-assign]
        key = key_of(DATAFLOWS, self.body("SELECT 1 AS a"))
        self.state = context.registry.put_dataflow(DataflowState(key, "u-d", "default"))

    def body(self, sql: str) -> Body:
        made = body("Dataflow", {"instance": "default", "materializedView": {}, "sql": sql}, "d", uid="u-d")
        made["metadata"]["annotations"] = self.annotations
        return made

    async def describe(self, shards: Iterable[tuple[ShardId, str]]) -> tuple[ReplicaId, Description]:
        found = (self.described(id) for id, _ in shards)
        return ReplicaId("r1"), Description("incarnation", None, 0, (), (), tuple(found))

    def described(self, id: ShardId) -> DescribedShard:
        upper, term = self.tables.get(id, (at(0), 0))
        return DescribedShard(id, id in self.tables, upper, at(0), WriterTerm(term))

    def tell(self, *tables: DescribedShard) -> None:
        """A replica does."""
        self.running.core.shard_reports.described(tables, NOW)

    def another_operator(self) -> Edited:
        """It begins with what is stored, in statuses too."""
        other = Edited()
        other.stored, other.tables = self.stored, self.tables
        other.harness.context.revisions = cast(Any, self.stored)
        mark(other.state, active=self.state.active, pending=self.state.pending)
        hold_inputs(other.harness.context.fleet.book("ns"), other.state)
        return other

    async def revise(self, sql: str, *, reported: bool = True) -> None:
        """Revise as a reconcile does, after a replica has reported its tables, or before any has."""
        dataflow = Dataflow.parse(self.body(sql))
        ask(self.state, digest=spec_digest(dataflow))
        if reported:
            self.tell(*map(self.described, self.tables))
        note_ends(self.running, self.state)
        await self.reviser.revise(self.state, dataflow, self.running)

    async def begin(self, *, takes_over: bool) -> ShardId:
        """The edit is pending, on the table that is written; or it serves, and has not written yet."""
        await self.revise("SELECT 1 AS a")
        table = self.table(pending=False)
        self.tables[table] = at(400), 1
        await self.revise("SELECT 2 AS a")
        assert self.table() == table
        if takes_over:
            await self.marks.commit(self.state, [self.state])
            await self.marks.catch_up(self.state, Dataflow.parse(self.body("")).meta)
        return table

    def table(self, *, pending: bool = True) -> ShardId:
        mark = self.state.marks[-1 if pending else 0]
        shard = mark.revision.view_shard("v")
        assert shard is not None
        return shard.shard_id


@pytest.mark.parametrize("takes_over", [False, True], ids=["while it hydrates", "as it takes over"])
def test_crash_an_edit_of_a_finished_table_has_its_next_version(takes_over: bool) -> None:
    """With nothing to be done by anybody, and once: also where the operator dies after the plan is stored."""

    async def scenario() -> None:
        edited = Edited()
        table = await edited.begin(takes_over=takes_over)
        edited.tables[table] = EMPTY, 1
        edited.written.dies = True
        with pytest.raises(ConnectionError):
            await edited.revise("SELECT 2 AS a")
        await edited.revise("SELECT 2 AS a")
        state = edited.state
        assert state.pending is not None
        coming = state.pending.mark
        await edited.revise("SELECT 2 AS a")

        assert edited.table() == table.replace("/v1", "/v2")
        assert (state.pending.mark, coming.number, max(edited.stored.bodies)) == (coming, 3, 3)
        assert coming.revision.writer_term > 2
        assert state.active is not None
        assert edited.table(pending=False) == table
        assert state.active.number == (2 if takes_over else 1)

    asyncio.run(scenario())


def test_a_revision_that_finished_its_own_table_stays() -> None:
    """Under the term of the edit: it is what the edit gives."""

    async def scenario() -> None:
        edited = Edited()
        table = await edited.begin(takes_over=True)
        edited.tables[table] = EMPTY, 2
        await edited.revise("SELECT 2 AS a")

        assert edited.state.pending is None
        assert edited.table() == table

    asyncio.run(scenario())


def test_nothing_is_marked_again_while_replicas_disagree() -> None:
    """The one that is asked does not see the end that another has told of."""

    async def scenario() -> None:
        edited = Edited()
        table = await edited.begin(takes_over=False)
        before = edited.state.pending
        reported = replace(edited.described(table), upper=EMPTY)
        edited.tell(reported)
        with pytest.raises(Waiting, match="confirms that its table is finished"):
            await edited.revise("SELECT 2 AS a")

        assert edited.state.pending == before

    asyncio.run(scenario())


def test_crash_an_operator_that_has_been_told_nothing_yet_keeps_the_revision_that_follows_an_outrun_one() -> None:
    """Else each that begins would begin with another table; and so would one that hears from who does not see it."""

    async def scenario() -> None:
        edited = Edited()
        table = await edited.begin(takes_over=True)
        edited.tables[table] = EMPTY, 1
        await edited.revise("SELECT 2 AS a")
        following, pending = edited.table(), edited.state.pending
        edited.tables[following] = at(300), 3
        for _ in range(2):
            edited = edited.another_operator()
            await edited.revise("SELECT 2 AS a", reported=False)
            await edited.revise("SELECT 2 AS a")
            edited.tell(replace(edited.described(table), exists=False, upper=at(0)))
            await edited.revise("SELECT 2 AS a", reported=False)

            assert (edited.table(), edited.state.pending) == (following, pending)

    asyncio.run(scenario())
