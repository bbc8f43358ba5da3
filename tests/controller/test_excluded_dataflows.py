"""What is finished is not computed again: a replica that says so of the table is not told of the Dataflow."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.worlds import EMPTY, INDEX, INPUT, LAG, R1, R2, TERM, VIEW, VIEW_SHARD, World, at
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


def installed(description: DataflowDescription, *, finished: bool = False, upper: int = 500) -> World:
    """A Dataflow that no replica has yet."""
    world = World(upper=upper)
    world.instance.create(Dataflow(OWNER, description, LAG, stays=True, finished=finished), TERM)
    return world


def connect(
    world: World, replica: ReplicaId, table: Frontier, *, exists: bool = True, error: str | None = None
) -> None:
    """A replica that has nothing, and finds the table so far."""
    found = DescribedShard(VIEW_SHARD, exists, table, at(0), WriterTerm(0), error)
    world.connections += 1
    has = Description("incarnation", None, 0, (), (), (found,))
    world.instance.connect(replica, world.connections, world.now, has=has)


def told(world: World, replica: ReplicaId) -> list[type[c.Command]]:
    """Kinds of commands about the view."""
    about = (c.CreateDataflow, c.Schedule, c.AllowWrites, c.AllowCompaction)
    return [type(command) for command in world.sent(replica) if isinstance(command, about)]


def collection(world: World) -> Collection:
    found = world.instance.dataflows.collection(VIEW)
    assert found is not None
    return found


def held(world: World) -> Frontier | None:
    shard = world.shards.get(INPUT)
    assert shard is not None
    return min(shard.holds.values(), default=None)


def test_must_not_tell_a_new_replica_of_a_table_that_is_finished() -> None:
    """It is hydrated there all the same, nothing of its inputs is held for it, and it can be dropped."""
    world = installed(view())
    connect(world, R1, EMPTY)

    assert told(world, R1) == []
    assert collection(world).hydrated
    assert held(world) is None
    assert world.instance.dataflows.get(OWNER).scheduled  # type: ignore[union-attr]
    assert not _is_installed(collection(world), R1)
    assert collection(world).computing == []

    world.instance.drop(OWNER)
    assert told(world, R1) == []
    assert world.instance.dataflows.get(OWNER) is None


def test_what_exports_an_index_too_is_computed() -> None:
    """There is an index of it nowhere else."""
    with_index = replace(dataflow("d", 300), until=Time(UNTIL))
    world = installed(with_index)
    connect(world, R1, EMPTY)

    assert c.CreateDataflow(with_index) in world.sent(R1)
    assert tables_of(with_index) == []


def test_a_replica_that_has_it_keeps_it_until_it_is_connected_anew() -> None:
    """It finished the table itself, and says so; installed again (it was suspended), it is not told of it."""
    world = installed(view())
    connect(world, R1, at(0), exists=False)
    assert told(world, R1) == [c.CreateDataflow, c.Schedule, c.AllowWrites]
    world.report(R1, EMPTY, VIEW)
    world.hear(R1, ShardFrontiers(VIEW_SHARD, EMPTY, at(0)))
    world.maintain()
    assert (told(world, R1), held(world), collection(world).write) == ([], None, EMPTY)

    world.instance.drop(OWNER)
    assert told(world, R1) == [c.AllowCompaction]
    world.instance.create(Dataflow(OWNER, view(), LAG, stays=True, finished=True), TERM)
    assert told(world, R1) == []
    assert collection(world).hydrated


def test_what_was_finished_when_it_was_installed_waits_for_no_input() -> None:
    """Its inputs may be unknown, or made anew."""
    world = installed(view(), finished=True, upper=0)
    connect(world, R1, EMPTY)

    assert world.instance.dataflows.get(OWNER).scheduled  # type: ignore[union-attr]
    assert told(world, R1) == []


def test_a_view_ends_with_its_last_refresh() -> None:
    """One that is refreshed every so often never ends by that."""
    assert end_of(view(None, RefreshSchedule(every_ms=1000, at=(Time(5),)))) is None
    assert end_of(view(7, RefreshSchedule(at=(Time(5), Time(9))))) == 7
    assert end_of(view(11, RefreshSchedule(at=(Time(5), Time(9))))) == 9


def test_a_dataflow_of_one_time_is_no_query() -> None:
    """Who created it stays: it is not dropped with the index that it reads, and it waits for its turn to hydrate."""
    world = World()
    world.install()
    reader = replace(dataflow("reader", 300), source_imports=(), until=Time(301))
    importing = replace(reader, index_imports=(IndexImport(INDEX, INDEX, (), ROW),))
    for owner, stays in (("query", False), ("ns/reader", True)):
        export = replace(importing.index_exports[0], id=GlobalId(owner))
        description = replace(importing, index_exports=(export,), sink_exports=())
        world.instance.create(Dataflow(owner, description, LAG, stays=stays), TERM)

    assert [d.owner for d in world.instance.dataflows.visitors("ns/d")] == ["query"]
    world.connect(R1)
    world.report(R1, at(400))
    world.maintain()
    assert world.instance.occupants(R1) == ("ns/reader",)


@pytest.mark.parametrize("table_first", [True, False], ids=["the table is heard of first", "the export is"])
def test_where_a_finished_table_begins_is_heard_before_anybody_reads_it(table_first: bool) -> None:
    """Who reads it begins there: what was never seen to move forward can be read from one time on alone."""
    world = installed(view())
    connect(world, R1, at(0), exists=False)
    said: list[Response] = [ShardFrontiers(VIEW_SHARD, EMPTY, at(350)), Frontiers(VIEW, EMPTY, EMPTY, EMPTY)]
    news, known = [], []
    for each in said if table_first else said[::-1]:
        news += world.hear(R1, each)
        known.append(world.shards.frontiers(VIEW_SHARD))

    assert ShardAppeared(VIEW_SHARD) in news
    assert known[-1] == FrontierPair(EMPTY, at(350))
    assert known[0] == (FrontierPair(EMPTY, at(350)) if table_first else FrontierPair(at(0), at(0)))


def test_a_revision_that_follows_a_finished_one_is_level_when_it_has_hydrated() -> None:
    """Its inputs may go on for ever, or end later: it would never be as far."""
    world = installed(view())
    connect(world, R1, EMPTY)
    other = replace(dataflow("e", 300), index_exports=())
    (export,) = other.sink_exports
    world.shards.register(ShardId("e/v"), "file:///data/e", LAG)
    beside = Succession({export.id: VIEW})
    world.instance.create(Dataflow("ns/d/2", other, LAG, beside, stays=True), TERM)
    coming = world.instance.dataflows.get("ns/d/2")
    assert coming is not None
    world.report(R1, at(300), export.id)
    assert coming.level_ms is None
    world.report(R1, at(350), export.id)
    assert coming.level_ms == world.now


@pytest.mark.parametrize(("stays", "answered"), [(False, True), (True, False)], ids=["a query", "a Dataflow"])
def test_who_waits_for_an_index_of_one_time_is_not_being_answered(stays: bool, answered: bool) -> None:
    """It hydrates like any other: what a replica dies of then is not who waits for it."""
    world = World()
    of_one_time = replace(dataflow("d", 399), until=Time(400))
    world.instance.create(Dataflow(OWNER, of_one_time, LAG, stays=stays), TERM)
    world.connect(R1)
    peek = c.Peek("u", c.IndexTarget(INDEX), Time(399), MapFilterProject(()), Finishing(), ())

    assert of_one_time.is_one_shot
    assert world.instance.dataflows.is_answered(peek, R1) is answered


def test_what_has_its_end_behind_its_table_can_be_begun_until_it_is_finished() -> None:
    """Its end was set to a time that has passed: the table is further, and the inputs are still needed before it."""
    begun = c.CreateDataflow(replace(view(), as_of=Time(399)))
    world = installed(begun.dataflow, upper=900)
    connect(world, R1, at(900))
    world.hear(R1, Frontiers(VIEW, at(900), None, None))
    world.maintain()

    assert (collection(world).since, held(world)) == (at(399), at(399))
    connect(world, R2, at(900))
    connect(world, R1, at(900))
    assert begun in world.sent(R1)
    assert begun in world.sent(R2)
    world.report(R1, EMPTY, VIEW)
    world.maintain()
    assert held(world) == at(399), "the other one has still to begin"


def test_what_a_replica_still_says_of_what_it_is_not_told_of_is_no_lie() -> None:
    """It has it from before this connection, and drops it with its reconcile."""
    world = installed(view(), finished=True)
    connect(world, R1, EMPTY)
    world.report(R1, at(350), VIEW)
    world.report(R1, EMPTY, VIEW)

    on = collection(world).replicas[R1]
    assert on.excluded
    assert on.refused_reports == 0
