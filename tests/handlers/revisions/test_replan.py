"""`kubectl tidemark replan`: an annotation of a Dataflow has it planned anew, with the row counts of now."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from tests.handlers.revisions.test_pinned_row_counts import A, Planner, counted, report
from tests.handlers.revisions.test_superseded_revision_replan import Edited
from tidemark_operator.handlers.revisions.revision_marks import document
from tidemark_operator.kube.cache import Cache, key_of
from tidemark_operator.kube.client import DATAFLOWS, Body
from tidemark_operator.planning.revision import RowCount
from tidemark_operator.resources.manifest.dataflow import Dataflow
from tidemark_operator.resources.manifest.digest import spec_digest
from tidemark_operator.resources.manifest.meta import REPLAN

SQL = "SELECT a FROM s.a"
SMALL, LARGE = (RowCount(A, 4096),), (RowCount(A, 1 << 20),)


class Events:
    def __init__(self) -> None:
        self.noted: list[str] = []

    async def note(self, key: object, uid: str, reason: str, text: str) -> None:
        self.noted.append(reason)


async def small() -> tuple[Edited, Planner]:
    """A view that was planned when its table was small, which is large now."""
    edited, planner = counted()
    report(edited, 4096)
    await edited.revise(SQL)
    assert active(edited) == SMALL
    report(edited, 1 << 20)
    return edited, planner


def active(edited: Edited) -> tuple[RowCount, ...]:
    assert edited.state.active is not None
    return edited.state.active.revision.row_counts


def pending(edited: Edited) -> tuple[RowCount, ...]:
    assert edited.state.pending is not None
    return edited.state.pending.mark.revision.row_counts


def replan(edited: Edited, value: str) -> None:
    edited.annotations[REPLAN] = value


def versioned(edited: Edited, version: int) -> Body:
    body = edited.body(SQL)
    body["metadata"]["resourceVersion"] = str(version)
    return body


async def take_over(edited: Edited) -> None:
    await edited.marks.commit(edited.state, [edited.state])


def test_must_a_replan_is_planned_with_the_row_counts_of_now() -> None:
    """Once for a value of the annotation; the revision keeps the counts, as any does."""

    async def scenario() -> None:
        edited, planner = await small()
        replan(edited, "1")
        await edited.revise(SQL)
        assert (active(edited), pending(edited)) == (SMALL, LARGE)
        await edited.revise(SQL)
        assert len(planner.asked) == 2
        await take_over(edited)
        report(edited, 1 << 30)
        await edited.revise(SQL)
        await edited.revise("SELECT a FROM s.a -- again")
        assert (active(edited), edited.state.pending) == (LARGE, None)
        assert [rows[A] for rows in planner.asked] == [4096, 1 << 20, 1 << 20]

    asyncio.run(scenario())


def test_a_replan_that_gives_the_same_plan_computes_nothing() -> None:
    """An Event says so. The value counts as planned, so the next edit is planned with the counts of the revision; the
    status has the value, and the next operator reads it there."""

    async def scenario() -> None:
        edited, planner = counted()
        planner.blind = True
        events = Events()
        edited.harness.context.events = cast(Any, events)
        report(edited, 4096)
        await edited.revise(SQL)
        first = edited.state.active
        report(edited, 1 << 20)
        replan(edited, "1")
        await edited.revise(SQL)
        assert edited.state.pending is None
        assert edited.state.active is not None
        assert first is not None
        assert edited.state.active.name == first.name
        assert edited.state.active.spec_digest != first.spec_digest
        assert list(edited.stored.bodies) == [1]
        assert events.noted == ["PlanUnchanged"]
        assert document(edited.state.active)["replan"] == "1"
        planner.blind = False
        await edited.revise("SELECT a, 1 FROM s.a")
        assert pending(edited) == SMALL

    asyncio.run(scenario())


@pytest.mark.parametrize("grows", [False, True])
def test_crash_a_replan_whose_plan_is_stored_is_found_again(grows: bool) -> None:
    """The operator dies before it marks the revision; the table may grow before the next one plans."""

    async def scenario() -> None:
        edited, _ = await small()
        replan(edited, "1")
        edited.written.dies = True
        with pytest.raises(ConnectionError):
            await edited.revise(SQL)
        edited.state.planning.answer = None  # the next operator has none
        if grows:
            report(edited, 1 << 30)
        await edited.revise(SQL)
        assert pending(edited) == LARGE
        assert list(edited.stored.bodies) == [1, 2]

    asyncio.run(scenario())


def test_a_second_replan_follows_no_plan_of_the_first() -> None:
    """While that one is pending: with other counts it is replaced; with equal ones it goes on."""

    async def scenario() -> None:
        edited, _ = await small()
        replan(edited, "1")
        await edited.revise(SQL)
        assert edited.state.pending is not None
        first = edited.state.pending.mark
        replan(edited, "2")
        await edited.revise(SQL)
        assert edited.state.pending.mark.name == first.name
        report(edited, 1 << 30)
        replan(edited, "3")
        await edited.revise(SQL)
        assert edited.state.pending.mark.name != first.name
        assert pending(edited) == (RowCount(A, 1 << 30),)

    asyncio.run(scenario())


def test_a_replan_that_is_taken_back_is_given_up() -> None:
    """The annotation is removed while the new revision hydrates; removed later, it plans with no newer counts."""

    async def scenario() -> None:
        edited, _ = await small()
        replan(edited, "1")
        await edited.revise(SQL)
        edited.annotations.clear()
        await edited.revise(SQL)
        assert (active(edited), edited.state.pending) == (SMALL, None)
        replan(edited, "2")
        await edited.revise(SQL)
        await take_over(edited)
        report(edited, 1 << 30)
        edited.annotations.clear()
        await edited.revise(SQL)
        assert (active(edited), edited.state.pending) == (LARGE, None)

    asyncio.run(scenario())


def test_a_value_that_comes_back_plans_nothing_anew() -> None:
    """A tool strips the annotation, and puts it back, after an equal plan or another one: nobody has asked."""

    async def scenario() -> None:
        edited, planner = await small()
        replan(edited, "1")
        await edited.revise(SQL)
        await take_over(edited)
        report(edited, 1 << 30)
        for value in ({}, {REPLAN: "1"}):
            edited.annotations.clear()
            edited.annotations.update(value)
            await edited.revise(SQL)
            await edited.revise("SELECT a FROM s.a -- again")
        assert (active(edited), edited.state.pending) == (LARGE, None)
        assert {rows[A] for rows in planner.asked[1:]} == {1 << 20}

    asyncio.run(scenario())


def test_a_replan_before_the_first_reports_keeps_the_counts_that_are_not_known_now() -> None:
    """The operator has just begun: no ingester has reported."""

    async def scenario() -> None:
        edited, planner = await small()
        edited.harness.context.events = cast(Any, Events())
        (source,) = edited.harness.context.registry.sources("ns")
        source.report = None
        replan(edited, "1")
        await edited.revise(SQL)
        assert (active(edited), edited.state.pending) == (SMALL, None)
        assert [rows[A] for rows in planner.asked] == [4096, 4096]

    asyncio.run(scenario())


def test_only_the_annotation_changes_the_digest_of_a_spec() -> None:
    """A Dataflow without it has the digest that it always had, and the watch tells of a new value."""
    edited = Edited()
    before = spec_digest(Dataflow.parse(edited.body(SQL)))
    cache, key = Cache(), key_of(DATAFLOWS, edited.body(SQL))
    cache.put(key, versioned(edited, 1))
    edited.annotations = {"team": "a"}
    assert spec_digest(Dataflow.parse(edited.body(SQL))) == before
    assert not cache.put(key, versioned(edited, 2))
    edited.annotations = {REPLAN: "1"}
    assert spec_digest(Dataflow.parse(edited.body(SQL))) != before
    assert cache.put(key, versioned(edited, 3))
