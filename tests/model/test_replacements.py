"""Events of a replacement, one at a time; `test_edits.py` has them in any order."""

from __future__ import annotations

from tests.model.edits import EditedSimulation
from tests.model.operator import Spec
from tests.model.simulation import REPLICAS, TABLES
from tidemark_operator.handlers.revisions.takeover import obstacle_of
from tidemark_operator.planning.revision import view_shards
from tidemark_protocol.ids import ShardId
from tidemark_protocol.messages.responses import Failure, FailureKind

R1, R2 = REPLICAS[:2]


def running(*specs: Spec) -> EditedSimulation:
    """On two replicas, everything done."""
    simulation = EditedSimulation()
    for name in (R1, R2):
        simulation.connect(name)
    for spec in specs:
        simulation.add(spec)
    for _ in range(8):
        simulation.exchange((R1, R2))
    return simulation


def test_crash_between_storing_a_revision_and_sending_it() -> None:
    """The next operator finds it pending, sends it, and stores no second one."""
    simulation = running(Spec("index", TABLES[0]), Spec("view", "d1"))
    simulation.edit("d1", True, edit=1)
    stored = simulation.durable["d1"].pending
    assert stored is not None
    simulation.settle()

    assert simulation.durable["d1"].active == stored.mark
    assert simulation.durable["d1"].numbers == 2


def test_two_revisions_alive_when_the_operator_restarts_are_both_kept_by_replicas() -> None:
    """Neither is computed anew: the dataflows that replicas have are the same objects."""
    simulation = running(Spec("view", TABLES[0]))
    simulation.edit("d1", False, edit=1)
    simulation.operator.mark(simulation.operator.states[0])
    simulation.operator.install(simulation.operator.states[0])
    simulation.deliver(R1, 1_000)
    before = list(simulation.replicas[R1].dataflows)
    simulation.new_operator()
    simulation.connect(R1)
    simulation.deliver(R1, 1_000)

    assert len(before) == 2
    assert list(simulation.replicas[R1].dataflows) == before


def test_a_removed_replica_that_still_tries_to_write_is_fenced_by_the_next_revision() -> None:
    """It was told of the old one alone, and goes on with it for as long as it likes."""
    simulation = running(Spec("view", TABLES[0]))
    table = simulation.shards[ShardId("d1/v/v1")]
    simulation.cut(R2)
    simulation.edit("d1", False, edit=1)
    for _ in range(4):
        simulation.advance(TABLES[0], 10)
        simulation.exchange((R1,))
    assert table.term == 2
    simulation.advance(TABLES[0], 10)
    reached = table.upper
    simulation.work(R2, 1_000)

    assert (table.upper, table.term) == (reached, 2)
    simulation.exchange((R1,))
    assert table.upper > reached


def test_a_dependant_that_fails_to_hydrate_keeps_all_from_taking_over() -> None:
    """Every replica says so: the replacement is held back and names it, the old revisions serve; reverted, all is as
    before."""
    simulation = running(Spec("index", TABLES[0]), Spec("view", "d1"))
    before = {name: stored.active for name, stored in simulation.durable.items()}
    simulation.edit("d1", False, edit=1)
    while simulation.durable["d2"].pending is None:
        for name in (R1, R2):
            simulation.deliver(name, 1_000)
            simulation.work(name, 1_000)
            simulation.hear(name, 1_000)
        for state in simulation.operator.states:
            simulation.operator.mark(state)
            simulation.operator.install(state)
        simulation.instance.maintain(simulation.now)
    failing = simulation.durable["d2"].pending.mark.revision.description.export_ids[0]
    for name in (R1, R2):
        simulation.said(name, Failure(failing, FailureKind.STEP, "boom"))
    d1 = simulation.operator.states[0]
    _, held = obstacle_of(d1, simulation.operator.registry, lambda _: simulation.operator.running, simulation.now)  # type: ignore[arg-type, return-value]

    assert held is not None
    assert held.failed
    assert "Dataflow d2 fails: step failed: boom" in held.message
    assert not simulation.operator.take_over(d1, simulation.now)
    simulation.revert("d1")
    simulation.settle()
    assert {name: stored.active for name, stored in simulation.durable.items()} == before


def test_crash_an_edit_that_follows_one_with_other_columns_begins_a_table_of_its_own() -> None:
    """The first one has begun a table, and does not serve when another edit takes its place; then the operator and all
    replicas die. The serving revision in the end never leaves out a time that its table does not have yet."""
    simulation = running(Spec("index", TABLES[0]), Spec("view", "d1"))
    simulation.edit("d2", False, edit=1, version=2)
    simulation.operator.work(simulation.now)
    for name in (R1, R2):
        simulation.deliver(name, 1_000)
        simulation.work(name, 1)
    begun = simulation.shards[ShardId("d2/v/v2")]
    assert begun.upper > 0, "the first edit writes"
    assert simulation.durable["d2"].pending is not None
    simulation.edit("d2", False, edit=2)
    simulation.edit("d1", True, edit=3)
    for name in (R1, R2):
        simulation.kill(name)
    simulation.advance(TABLES[0], 100)
    left = begun.upper
    simulation.settle()

    active = simulation.durable["d2"].active
    assert active is not None
    assert [s.shard_id for s in view_shards(active.revision.description)] != ["d2/v/v2"]
    assert begun.upper == left, "nobody goes on with it"
