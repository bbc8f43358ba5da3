"""A revision whose table another revision finished: whose end it is, and what happens to the revision."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.harness import EMPTY, INPUT, NOW, R1, at
from tests.handlers.revised_dataflows import ask, mark
from tests.handlers.revised_dataflows import dataflow as state
from tests.handlers.revisions.test_finished_dataflow import TABLE, VIEW, Reports, report
from tests.protocol.samples import dataflow
from tidemark_operator.catalogue.dataflow_state import DataflowState, PendingRevision, ReplacementId
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.handlers.holds.revision_holds import hold_inputs
from tidemark_operator.handlers.revisions.replacement_decision import Replace, Serve, decide
from tidemark_operator.handlers.revisions.revision_ends import note_ends
from tidemark_operator.handlers.revisions.takeover import obstacle_of
from tidemark_operator.handlers.status.statuses import _replacement
from tidemark_operator.planning.revision import ActiveRevision, DataflowRevision
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Digest, ShardId, Time, WriterTerm
from tidemark_protocol.messages.responses import DescribedShard
from tidemark_protocol.plan.dataflow import ContinualTaskSink, DataflowDescription, MaterializedViewSink

SPEC = "spec 2"


def revision(description: DataflowDescription, number: int, kept: tuple[ShardId, ...] = ()) -> ActiveRevision:
    """Its term is its number."""
    plan = Digest(f"{number}")
    stored = DataflowRevision(description, (), (), plan, number, f"spec {number}", kept)
    return ActiveRevision(f"report-r{number}", number, 1, f"spec {number}", stored)


def view(until: int | None) -> DataflowDescription:
    """Computed from the table, not from its index."""
    whole = replace(dataflow("report", 300), index_exports=())
    return replace(whole, until=None if until is None else Time(until))


def task(until: int | None) -> DataflowDescription:
    whole = view(until)
    (export,) = whole.sink_exports
    assert isinstance(export.sink, MaterializedViewSink)
    sink = ContinualTaskSink(export.sink.shard, whole.source_imports[0].id)
    return replace(whole, sink_exports=(replace(export, sink=sink),))


def finished(term: int, upper: Frontier = EMPTY) -> Reports:
    """A table that was written last under this term, as a replica has told."""
    context = Reports(upper)
    tell(context, term, upper)
    return context


def tell(context: Reports, term: int, upper: Frontier = EMPTY) -> None:
    """A replica does."""
    context.instance.shard_reports.described([DescribedShard(TABLE, True, upper, at(0), WriterTerm(term))], NOW)


def reconciled_state(context: Reports, one: DataflowState) -> DataflowState:
    """The state that a reconcile knows."""
    note_ends(context.running, one)  # type: ignore[arg-type]
    return one


@pytest.mark.parametrize("until", [400, 2**62, None], ids=["the same end", "a later end", "none"])
@pytest.mark.parametrize(("term", "replaced"), [(1, True), (2, False)])
def test_an_active_revision_is_replaced_if_its_predecessor_finished_the_table(
    until: int | None, term: int, replaced: bool
) -> None:
    """The active revision took over: the rows there are of the old SQL. Where it has finished the table itself, that is
    all."""
    serves = state("report", revision(view(until), 2))
    one = reconciled_state(finished(term), serves)

    assert decide(one, [one]) == (Replace() if replaced else Serve())
    assert one.has_ended == (not replaced and until == 400)
    shown = _replacement(one)
    assert (shown is not None) is replaced
    assert shown is None or (shown.own and not shown.failed), "it is not Ready, with the rows of the old SQL"


@pytest.mark.parametrize(("upper", "replaced"), [(EMPTY, True), (at(399), False)])
def test_a_pending_revision_is_replaced_if_its_table_is_finished(upper: Frontier, replaced: bool) -> None:
    """While it hydrates. It has not written there: whoever has, it was another. It does not take over."""
    serves = state("report", revision(view(400), 1), revision(view(400), 2))
    context = finished(1, upper)
    one = reconciled_state(context, serves)
    context.running.replicas = {}
    _, held = obstacle_of(one, Registry(), lambda _: context.running, NOW)  # type: ignore[arg-type, return-value]

    assert (one.ends.superseded == {"report-r2"}) is replaced
    assert isinstance(decide(one, [one]), Replace) is replaced
    assert held is not None
    assert not held.failed
    assert ("is to be planned anew" in held.message) is replaced


def test_one_that_is_to_write_the_next_version_is_not_outrun() -> None:
    """The table of the revision that it replaces stays as it is."""
    coming = view(400)
    (export,) = coming.sink_exports
    assert isinstance(export.sink, MaterializedViewSink)
    shard = replace(export.sink.shard, shard_id=ShardId("report/v/v2"), location="/data/report/v2")
    coming = replace(coming, sink_exports=(replace(export, sink=replace(export.sink, shard=shard)),))
    serves = state("report", revision(view(400), 2), revision(coming, 3))
    one = reconciled_state(finished(1), serves)

    assert one.ends.superseded == {"report-r2"}


def test_an_adopted_table_that_is_finished_is_kept() -> None:
    """The revision, which found it finished, says so."""
    ended = state("report", revision(view(400), 1, kept=(TABLE,)))
    meanwhile = state("report", revision(view(400), 1))
    for adopts in (ended, meanwhile):
        adopts.uid = "another"
        reconciled_state(finished(0), adopts)

    assert (ended.has_ended, set(ended.ends.superseded)) == (True, set())
    assert (meanwhile.has_ended, set(meanwhile.ends.superseded)) == (False, {"report-r1"})


def test_a_first_revision_is_never_superseded() -> None:
    """Whatever a replica says of its table's term."""
    one = reconciled_state(finished(0), state("report", revision(view(400), 1)))

    assert (one.has_ended, set(one.ends.superseded)) == (True, set())


def test_crash_an_end_of_an_unknown_revision_does_not_finish_the_dataflow() -> None:
    """A table is seen finished, and nobody has told by whom: that is asked, and the inputs are kept."""
    context, one = Reports(EMPTY), state("report", revision(view(400), 2))
    source = context.shards.get(INPUT)
    assert source is not None
    context.reconcile(reconciled_state(context, one))
    (export,) = context.instance.dataflows.collections_of(one.owner)
    assert not one.has_ended
    assert context.shards.needs_end_term_now
    assert export.write != EMPTY
    assert export.holder in source.holds

    tell(context, 2)
    assert reconciled_state(context, one).has_ended
    assert not context.shards.needs_end_term_now


@pytest.mark.parametrize(("until", "outrun"), [(400, False), (None, True), (2**62, True)])
@pytest.mark.parametrize("term", [1, 2], ids=["of before", "its own, set without a write"])
def test_a_task_is_replaced_only_where_it_may_go_on(until: int | None, outrun: bool, term: int) -> None:
    """One that has ended too has nothing more to do."""
    one = reconciled_state(finished(term), state("report", revision(task(until), 2)))

    assert bool(one.ends.superseded) is outrun


def test_while_nothing_is_known_of_its_inputs_a_task_stays() -> None:
    """They may be finished."""
    context = finished(1)
    source = context.shards.get(view(None).source_imports[0].shard.shard_id)
    assert source is not None
    source.frontiers = None
    one = reconciled_state(context, state("report", revision(task(None), 2)))

    assert not one.ends.superseded


def test_crash_a_superseded_revision_holds_its_inputs_until_it_is_replaced() -> None:
    """An operator begins, and finds the table finished by the revision before: it is installed as one that is not, and
    nothing of its inputs is compacted."""
    one = state("report", revision(view(400), 2))
    context = finished(1)
    hold_inputs(context.shards, one)
    context.reconcile(reconciled_state(context, one))
    context.connects(R1, EMPTY)
    context.report(R1, EMPTY, VIEW)
    context.maintain()

    (export,) = context.instance.dataflows.collections_of(one.owner)
    source = context.shards.get(view(400).source_imports[0].shard.shard_id)
    assert source is not None
    assert export.write != EMPTY
    assert source.holds[export.holder] <= at(399)


def test_a_member_of_a_replacement_is_outrun_as_any() -> None:
    """Its table is finished while it waits for the others. Here they are gone, and it is replaced alone."""
    member = state("report", revision(report(), 1))
    mark(member, pending=PendingRevision(revision(report(), 2), ReplacementId("parent", "parent-r9")))
    ask(member, digest="spec 2")

    assert reconciled_state(finished(1), member).ends.superseded == {"report-r2"}
    assert decide(member, [member]) == Replace()
