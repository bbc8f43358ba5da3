"""A Dataflow past its end, with finished tables, holds none of its inputs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.harness import EMPTY, INDEX, INPUT, LAG, NOW, R1, R2, InstanceHarness, at
from tests.handlers.revised_dataflows import dataflow as state
from tests.model.operator import Running
from tests.protocol.samples import ROW, dataflow
from tidemark_operator.catalogue.dataflow_state import DataflowState
from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.errors import Rejected, Waiting
from tidemark_operator.handlers.holds.revision_holds import hold_inputs
from tidemark_operator.handlers.revisions.as_of_selection import first_as_of, installation_as_of
from tidemark_operator.handlers.revisions.installer import install
from tidemark_operator.handlers.revisions.revision_ends import has_come_to_its_end, has_ended, note_ends
from tidemark_operator.planning.revision import ActiveRevision, DataflowRevision
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import Digest, GlobalId, ReplicaId, ShardId, Time, WriterTerm
from tidemark_protocol.messages.commands import AllowCompaction, CreateDataflow
from tidemark_protocol.messages.responses import DescribedShard, Description
from tidemark_protocol.plan.dataflow import DataflowDescription, IndexImport

VIEW, TABLE = GlobalId("report/v"), ShardId("report/v")


def report(until: int | None = 400) -> DataflowDescription:
    """A table alone, computed from an index of another Dataflow."""
    imported = IndexImport(INDEX, INDEX, (), ROW)
    end = None if until is None else Time(until)
    whole = dataflow("report", 300)
    return replace(whole, source_imports=(), index_imports=(imported,), index_exports=(), until=end)


def serving(description: DataflowDescription) -> DataflowState:
    revision = DataflowRevision(description, (), (), Digest("1"), 1, "spec 1")
    return state("report", ActiveRevision("report-r1", 1, 1, "spec 1", revision))


class Reports(InstanceHarness):
    """An instance with the index, and where the table of the report has come to."""

    def __init__(self, table: Frontier = EMPTY) -> None:
        super().__init__()
        self.install()
        self.shards.register(TABLE, "file:///data/report", LAG)
        self.shards.observe(TABLE, table, at(0))
        self.running = Running(self.instance, lambda _: None)

    def reconcile(self, report: DataflowState) -> str:
        """The obstacle that keeps the report from being installed."""
        obstacle = install(self.running, Registry(), report)  # type: ignore[arg-type]
        return obstacle.message if obstacle else ""

    def connects(self, replica: ReplicaId, table: Frontier) -> None:
        """It has nothing, and finds the table so far."""
        self.connections += 1
        found = DescribedShard(TABLE, True, table, at(0), WriterTerm(0))
        has = Description("incarnation", None, 0, (), (), (found,))
        self.instance.connect(replica, self.connections, self.now, has=has)

    def is_told(self, replica: ReplicaId) -> bool:
        """Whether the replica has just been told of the report."""
        commands = self.sent(replica)
        return any(isinstance(c, CreateDataflow) and c.dataflow.export_ids == (VIEW,) for c in commands)


@pytest.mark.parametrize(
    ("until", "table", "over"),
    [(400, EMPTY, True), (400, at(350), False), (2**62, EMPTY, False), (None, EMPTY, False)],
    ids=["its end has passed", "not all is written", "its end is to come", "it has none"],
)
def test_when_it_is_over(until: int | None, table: Frontier, over: bool) -> None:
    """By an end of its own, and by what its table holds."""
    harness, one = Reports(table), serving(report(until))
    note_ends(harness.running, one)  # type: ignore[arg-type]

    assert has_ended(harness.running, report(until)) is over  # type: ignore[arg-type]
    assert one.has_ended is over


def test_a_dataflow_finished_by_its_inputs_has_not_ended() -> None:
    """An edit of what it reads gives it other rows."""
    harness = Reports()
    harness.connect(R1)
    harness.shards.observe(INPUT, EMPTY, at(0))
    harness.report(R1, EMPTY)

    assert harness.instance.dataflows.may_end(report(None), NOW)
    assert not has_ended(harness.running, report(None))  # type: ignore[arg-type]


def test_it_is_installed_without_the_index_that_it_was_computed_from() -> None:
    """The index has another id, or is suspended, so no replica could compute the dataflow. The operator sends it to
    none, whatever a replica reports of the table. A dataflow that is not over waits."""
    harness, unfinished, one = Reports(), Reports(at(350)), serving(report())
    for each in (harness, unfinished):
        each.instance.drop("ns/d")
    harness.reconcile(one)
    harness.connects(R1, EMPTY)
    harness.connects(R2, at(350))

    assert not harness.is_told(R1)
    assert not harness.is_told(R2)
    (there,) = harness.instance.dataflows.collections_of(one.owner)
    assert (there.write, there.hydrated) == (EMPTY, True)
    assert unfinished.reconcile(one).startswith("waits for the index")


def test_a_replica_that_still_computes_it_is_told_to_stop_when_the_index_goes() -> None:
    """Another one has finished the table meanwhile. Where all are done with it, it stays as it is."""
    harness, one = Reports(at(350)), serving(report())
    harness.connects(R1, at(350))
    harness.reconcile(one)
    assert harness.is_told(R1)
    harness.shards.observe(TABLE, EMPTY, at(0))
    harness.instance.drop("ns/d")
    assert "until all replicas are done" in harness.reconcile(one)
    assert AllowCompaction(VIEW, EMPTY) in harness.sent(R1)

    harness.report(R1, EMPTY, VIEW)
    harness.maintain()
    harness.reconcile(one)
    harness.reconcile(one)
    assert not harness.is_told(R1)
    assert harness.instance.dataflows.get(one.owner) is not None


def test_an_adopted_table_is_all_that_is_left_of_a_finished_dataflow() -> None:
    """A restored Dataflow: its end is long past, and its inputs can be read from a later time on."""
    harness, restored = Reports(), state("report", None)
    harness.shards.observe(INPUT, at(900), at(800))
    ended = replace(dataflow("report", 0), index_exports=(), until=Time(400))

    assert has_come_to_its_end(harness.running, Registry(), restored, ended)  # type: ignore[arg-type]
    assert not has_come_to_its_end(harness.running, Registry(), restored, replace(ended, until=None))  # type: ignore[arg-type]
    as_of = first_as_of(harness.running, Registry(), restored, ended)  # type: ignore[arg-type]
    assert as_of == 0
    harness.shards.forget(TABLE)
    with pytest.raises(Rejected, match=r"spec\.until is 400"):
        first_as_of(harness.running, Registry(), restored, ended)  # type: ignore[arg-type]


def test_inputs_of_a_finished_dataflow_may_be_deleted() -> None:
    """Another Dataflow wrote that, and goes on with the next version of its table. Nobody holds anything of it."""
    harness = Reports()
    harness.reconcile(serving(replace(dataflow("report", 300), index_exports=(), until=Time(400))))
    harness.instance.drop("ns/d")
    harness.shards.forget(INPUT)

    harness.instance.disconnected.expect(R1, harness.now)
    harness.maintain()
    harness.connects(R1, EMPTY)
    harness.connects(R2, EMPTY)
    harness.maintain()
    assert not harness.is_told(R1)
    assert not harness.is_told(R2)

    harness.instance.drop("ns/report/1")
    harness.maintain()
    assert harness.shards.get(INPUT) is None, "nobody reads it any more"


@pytest.mark.parametrize(("table", "held"), [(EMPTY, False), (at(350), True)], ids=["it is over", "it may go on"])
def test_a_finished_dataflow_holds_nothing_while_it_is_suspended(table: Frontier, held: bool) -> None:
    """Nor while an operator that has just begun has it loaded, and learns that it is."""
    harness = Reports(table)
    one = serving(replace(dataflow("report", 300), index_exports=(), until=Time(400)))
    source = harness.shards.get(INPUT)
    assert source is not None
    source.holds.clear()

    hold_inputs(harness.shards, one)
    assert source.holds
    note_ends(harness.running, one)  # type: ignore[arg-type]
    assert bool(source.holds) is held
    hold_inputs(harness.shards, one)
    assert bool(source.holds) is held


def test_while_its_table_is_not_known_it_is_not_refused() -> None:
    """No replica has said how far it is, since the operator has begun; it may be finished. One that is not is
    refused."""
    ended = replace(dataflow("report", 0), index_exports=(), until=Time(400))
    unknown, behind = Reports(), Reports(at(350))
    unknown.shards.forget(TABLE)
    for harness, refusal in ((unknown, Waiting), (behind, Rejected)):
        harness.shards.observe(INPUT, at(900), at(800))
        with pytest.raises(refusal):
            installation_as_of(harness.running, Registry(), serving(ended), ended, sealed=False)  # type: ignore[arg-type]
