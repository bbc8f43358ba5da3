"""Row counts are stored with the revision that was planned by them, and later ones plan nothing anew."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from tests.gateway.registries import registry
from tests.handlers.revisions.test_superseded_revision_replan import VIEW, Edited
from tidemark_operator.planning.revision import Parent, RowCount
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Planned, PlanRequest
from tidemark_protocol.messages.responses import IngestionStatus, TableReport
from tidemark_protocol.plan.dataflow import BuildDesc
from tidemark_protocol.plan.lir import Constant

A, B = GlobalId("s.a"), GlobalId("s.b")


class Planner:
    """Another plan for other row counts, unless it is `blind` to them, over what the text names."""

    def __init__(self) -> None:
        self.asked: list[dict[GlobalId, int | None]] = []
        self.blind = False

    async def plan(self, request: PlanRequest) -> Planned:
        rows = {r.id: r.rows for r in request.catalogue.relations}
        self.asked.append(rows)
        read = tuple(id for id in sorted(rows) if id in request.views[0].sql)
        text = GlobalId(f"{VIEW.on} by {[(id, None if self.blind else rows[id]) for id in read]}")
        return Planned((), (BuildDesc(text, Constant((), ())), BuildDesc(VIEW.on, Constant((), ()))), (VIEW,), read, "")


def counted() -> tuple[Edited, Planner]:
    """The source `s` has tables; nobody needs to protect it from deletion here."""
    edited, planner = Edited(), Planner()
    edited.harness.context.registry.put_source(registry().sources("ns")[0])
    edited.harness.context.planner = cast(Any, planner)
    edited.marks.protect = unprotected  # type: ignore[method-assign]
    return edited, planner


async def unprotected(namespace: str, parents: Sequence[Parent]) -> None:
    pass


def report(edited: Edited, rows: int) -> None:
    (source,) = edited.harness.context.registry.sources("ns")
    tables = (TableReport("a", rows), TableReport("b", rows))
    source.report = IngestionStatus(GlobalId("s"), "running", tables=tables)


def test_an_edit_keeps_the_row_counts_of_what_was_read() -> None:
    """A spec that differs elsewhere has the same plan, which serves on; a table that is new to it has a new count."""

    async def scenario() -> None:
        edited, planner = counted()
        report(edited, 4096)
        await edited.revise("SELECT a FROM s.a")
        first = edited.state.active
        assert first is not None
        assert first.revision.row_counts == (RowCount(A, 4096),)
        report(edited, 1 << 20)
        await edited.revise("SELECT a FROM s.a -- again")
        assert edited.state.pending is None
        assert edited.state.active is not None
        assert edited.state.active.name == first.name
        await edited.revise("SELECT a FROM s.a JOIN s.b")
        assert edited.state.pending is not None
        assert edited.state.pending.mark.revision.row_counts == (RowCount(A, 4096), RowCount(B, 1 << 20))
        assert [rows[A] for rows in planner.asked] == [4096] * 3

    asyncio.run(scenario())


def test_an_edit_that_was_given_up_keeps_no_row_counts() -> None:
    """Its inputs beside the active revision have a new count when it is read again."""

    async def scenario() -> None:
        edited, _ = counted()
        report(edited, 4096)
        await edited.revise("SELECT a FROM s.a")
        await edited.revise("SELECT a FROM s.a JOIN s.b")
        assert edited.state.pending is not None
        await edited.revise("SELECT a FROM s.a")
        assert edited.state.pending is None
        report(edited, 1 << 20)
        await edited.revise("SELECT a, 1 FROM s.a JOIN s.b")
        assert edited.state.pending is not None
        assert edited.state.pending.mark.revision.row_counts == (RowCount(A, 4096), RowCount(B, 1 << 20))

    asyncio.run(scenario())


def test_crash_a_stored_plan_is_found_again_by_its_row_counts() -> None:
    """The operator dies before the first revision is marked; meanwhile the table has grown."""

    async def scenario() -> None:
        edited, planner = counted()
        report(edited, 4096)
        edited.written.dies = True
        with pytest.raises(ConnectionError):
            await edited.revise("SELECT a FROM s.a")
        edited.state.planning.answer = None  # the next operator has none
        report(edited, 1 << 20)
        await edited.revise("SELECT a FROM s.a")

        assert [rows[A] for rows in planner.asked] == [4096, 4096]
        assert list(edited.stored.bodies) == [1]
        assert edited.state.active is not None
        assert edited.state.active.number == 1

    asyncio.run(scenario())
