"""Finished tables are not computed again: a replica that reports a table finished is not sent the Dataflow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.harness import EMPTY, INDEX, INPUT, LAG, R1, R2, TERM, VIEW, VIEW_SHARD, InstanceHarness, at
from tests.protocol.samples import ROW, dataflow
from tidemark_operator.controller.controller_events import ShardAppeared
from tidemark_operator.controller.frontiers.collection import Collection
from tidemark_operator.controller.frontiers.dataflow_end import end_of
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.frontiers.shards import FrontierPair
from tidemark_operator.controller.frontiers.succession import Succession
from tidemark_operator.controller.replicas.excluded_dataflows import tables_of
from tidemark_operator.handlers.status.replica_statuses import _is_installed
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId, Time, WriterTerm
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.messages.responses import DescribedShard, Description, Frontiers, Response, ShardFrontiers
from tidemark_protocol.plan.dataflow import DataflowDescription, IndexImport, MaterializedViewSink
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_protocol.plan.refresh import RefreshSchedule

UNTIL = 400
OWNER = "ns/d"


def view(until: int | None = UNTIL, refresh: RefreshSchedule | None = None) -> DataflowDescription:
    """The sample without its index: a table alone."""
    whole = dataflow("d", 300)
    (export,) = whole.sink_exports
    assert isinstance(export.sink, MaterializedViewSink)
    sink = replace(export, sink=replace(export.sink, refresh=refresh))
    return replace(whole, index_exports=(), sink_exports=(sink,), until=None if until is None else Time(until))


def installed(description: DataflowDescription, *, finished: bool = False, upper: int = 500) -> InstanceHarness:
    """A Dataflow that no replica has yet."""
    harness = InstanceHarness(upper=upper)
    harness.instance.create(Dataflow(OWNER, description, LAG, stays=True, finished=finished), TERM)
    return harness


def connect(
    harness: InstanceHarness, replica: ReplicaId, table: Frontier, *, exists: bool = True, error: str | None = None
) -> None:
    """A replica that has nothing, and finds the table so far."""
    found = DescribedShard(VIEW_SHARD, exists, table, at(0), WriterTerm(0), error)
    harness.connections += 1
    has = Description("incarnation", None, 0, (), (), (found,))
    harness.instance.connect(replica, harness.connections, harness.now, has=has)


def command_types(harness: InstanceHarness, replica: ReplicaId) -> list[type[c.Command]]:
    """Kinds of commands about the view."""
    about = (c.CreateDataflow, c.Schedule, c.AllowWrites, c.AllowCompaction)
    return [type(command) for command in harness.sent(replica) if isinstance(command, about)]


def collection(harness: InstanceHarness) -> Collection:
    found = harness.instance.dataflows.collection(VIEW)
    assert found is not None
    return found


def held(harness: InstanceHarness) -> Frontier | None:
    shard = harness.shards.get(INPUT)
    assert shard is not None
    return min(shard.holds.values(), default=None)


def test_must_not_tell_a_new_replica_of_a_table_that_is_finished() -> None:
    """It is hydrated there all the same, nothing of its inputs is held for it, and it can be dropped."""
    harness = installed(view())
    connect(harness, R1, EMPTY)

    assert command_types(harness, R1) == []
    assert collection(harness).hydrated
    assert held(harness) is None
    assert harness.instance.dataflows.get(OWNER).scheduled  # type: ignore[union-attr]
    assert not _is_installed(collection(harness), R1)
    assert collection(harness).computing == []

    harness.instance.drop(OWNER)
    assert command_types(harness, R1) == []
    assert harness.instance.dataflows.get(OWNER) is None


def test_a_finished_dataflow_with_an_index_is_computed() -> None:
    """There is an index of it nowhere else."""
    with_index = replace(dataflow("d", 300), until=Time(UNTIL))
    harness = installed(with_index)
    connect(harness, R1, EMPTY)

    assert c.CreateDataflow(with_index) in harness.sent(R1)
    assert tables_of(with_index) == []


def test_a_replica_that_has_it_keeps_it_until_it_is_connected_again() -> None:
    """It finished the table itself, and says so; installed again (it was suspended), it is not told of it."""
    harness = installed(view())
    connect(harness, R1, at(0), exists=False)
    assert command_types(harness, R1) == [c.CreateDataflow, c.Schedule, c.AllowWrites]
    harness.report(R1, EMPTY, VIEW)
    harness.hear(R1, ShardFrontiers(VIEW_SHARD, EMPTY, at(0)))
    harness.maintain()
    assert (command_types(harness, R1), held(harness), collection(harness).write) == ([], None, EMPTY)

    harness.instance.drop(OWNER)
    assert command_types(harness, R1) == [c.AllowCompaction]
    harness.instance.create(Dataflow(OWNER, view(), LAG, stays=True, finished=True), TERM)
    assert command_types(harness, R1) == []
    assert collection(harness).hydrated


def test_a_dataflow_installed_as_finished_waits_for_no_input() -> None:
    """Its inputs may be unknown, or made anew."""
    harness = installed(view(), finished=True, upper=0)
    connect(harness, R1, EMPTY)

    assert harness.instance.dataflows.get(OWNER).scheduled  # type: ignore[union-attr]
    assert command_types(harness, R1) == []


def test_a_view_ends_with_its_last_refresh() -> None:
    """One that is refreshed every so often never ends by that."""
    assert end_of(view(None, RefreshSchedule(every_ms=1000, at=(Time(5),)))) is None
    assert end_of(view(7, RefreshSchedule(at=(Time(5), Time(9))))) == 7
    assert end_of(view(11, RefreshSchedule(at=(Time(5), Time(9))))) == 9


def test_a_dataflow_of_one_time_is_no_query() -> None:
    """Its owner stays: it is not dropped with the index that it reads, and it waits for its turn to hydrate."""
    harness = InstanceHarness()
    harness.install()
    reader = replace(dataflow("reader", 300), source_imports=(), until=Time(301))
    importing = replace(reader, index_imports=(IndexImport(INDEX, INDEX, (), ROW),))
    for owner, stays in (("query", False), ("ns/reader", True)):
        export = replace(importing.index_exports[0], id=GlobalId(owner))
        description = replace(importing, index_exports=(export,), sink_exports=())
        harness.instance.create(Dataflow(owner, description, LAG, stays=stays), TERM)

    assert [d.owner for d in harness.instance.dataflows.visitors("ns/d")] == ["query"]
    harness.connect(R1)
    harness.report(R1, at(400))
    harness.maintain()
    assert harness.instance.occupants(R1) == ("ns/reader",)


@pytest.mark.parametrize("table_first", [True, False], ids=["the table is heard of first", "the export is"])
def test_where_a_finished_table_begins_is_heard_before_it_is_read(table_first: bool) -> None:
    """Its readers begin there: a table that was never seen to move forward can be read from one time on alone."""
    harness = installed(view())
    connect(harness, R1, at(0), exists=False)
    responses: list[Response] = [ShardFrontiers(VIEW_SHARD, EMPTY, at(350)), Frontiers(VIEW, EMPTY, EMPTY, EMPTY)]
    news, known = [], []
    for each in responses if table_first else responses[::-1]:
        news += harness.hear(R1, each)
        known.append(harness.shards.frontiers(VIEW_SHARD))

    assert ShardAppeared(VIEW_SHARD) in news
    assert known[-1] == FrontierPair(EMPTY, at(350))
    assert known[0] == (FrontierPair(EMPTY, at(350)) if table_first else FrontierPair(at(0), at(0)))


def test_a_revision_that_follows_a_finished_one_is_level_when_it_has_hydrated() -> None:
    """Its inputs may go on for ever, or end later: it would never be as far."""
    harness = installed(view())
    connect(harness, R1, EMPTY)
    other = replace(dataflow("e", 300), index_exports=())
    (export,) = other.sink_exports
    harness.shards.register(ShardId("e/v"), "file:///data/e", LAG)
    beside = Succession({export.id: VIEW})
    harness.instance.create(Dataflow("ns/d/2", other, LAG, beside, stays=True), TERM)
    coming = harness.instance.dataflows.get("ns/d/2")
    assert coming is not None
    harness.report(R1, at(300), export.id)
    assert coming.level_ms is None
    harness.report(R1, at(350), export.id)
    assert coming.level_ms == harness.now


@pytest.mark.parametrize(("stays", "answered"), [(False, True), (True, False)], ids=["a query", "a Dataflow"])
def test_a_peek_that_waits_for_an_index_of_one_time_is_not_being_answered(stays: bool, answered: bool) -> None:
    """It hydrates like any other: what a replica dies of then is not who waits for it."""
    harness = InstanceHarness()
    of_one_time = replace(dataflow("d", 399), until=Time(400))
    harness.instance.create(Dataflow(OWNER, of_one_time, LAG, stays=stays), TERM)
    harness.connect(R1)
    peek = c.Peek("u", c.IndexTarget(INDEX), Time(399), MapFilterProject(()), Finishing(), ())

    assert of_one_time.is_one_shot
    assert harness.instance.dataflows.is_answered(peek, R1) is answered


def test_a_dataflow_past_its_end_can_begin_until_its_table_is_finished() -> None:
    """Its end was set to a time that has passed: the table is further, and the inputs are still needed before it."""
    begun = c.CreateDataflow(replace(view(), as_of=Time(399)))
    harness = installed(begun.dataflow, upper=900)
    connect(harness, R1, at(900))
    harness.hear(R1, Frontiers(VIEW, at(900), None, None))
    harness.maintain()

    assert (collection(harness).since, held(harness)) == (at(399), at(399))
    connect(harness, R2, at(900))
    connect(harness, R1, at(900))
    assert begun in harness.sent(R1)
    assert begun in harness.sent(R2)
    harness.report(R1, EMPTY, VIEW)
    harness.maintain()
    assert held(harness) == at(399), "the other one has still to begin"


def test_late_reports_of_an_excluded_dataflow_are_accepted() -> None:
    """It has it from before this connection, and drops it with its reconcile."""
    harness = installed(view(), finished=True)
    connect(harness, R1, EMPTY)
    harness.report(R1, at(350), VIEW)
    harness.report(R1, EMPTY, VIEW)

    on = collection(harness).replicas[R1]
    assert on.excluded
    assert on.refused_reports == 0
