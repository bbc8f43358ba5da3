"""What may happen to a replacement, one thing at a time; `test_edits.py` has them in any order."""

from __future__ import annotations

from tests.model.edits import EditedWorld
from tests.model.operator import Spec
from tests.model.world import REPLICAS, TABLES
from tidemark_operator.handlers.revisions.takeover import obstacle_of
from tidemark_operator.planning.revision import view_shards
from tidemark_protocol.ids import ShardId
from tidemark_protocol.messages.responses import Status

R1, R2 = REPLICAS[:2]


def running(*specs: Spec) -> EditedWorld:
    """On two replicas, everything done."""
    world = EditedWorld()
    for name in (R1, R2):
        world.connect(name)
    for spec in specs:
        world.add(spec)
    for _ in range(8):
        world.exchange((R1, R2))
    return world


def test_crash_between_storing_a_revision_and_sending_it() -> None:
    """The next operator finds it pending, sends it, and stores no second one."""
    world = running(Spec("index", TABLES[0]), Spec("view", "d1"))
    world.edit("d1", True, edit=1)
    stored = world.durable["d1"].pending
    assert stored is not None
    world.settle()

    assert world.durable["d1"].active == stored.mark
    assert world.durable["d1"].numbers == 2


def test_two_revisions_alive_when_the_operator_restarts_are_both_kept_by_replicas() -> None:
    """Neither is computed anew: the dataflows that replicas have are the same objects."""
    world = running(Spec("view", TABLES[0]))
    world.edit("d1", False, edit=1)
    world.operator.mark(world.operator.states[0])
    world.operator.install(world.operator.states[0])
    world.deliver(R1, 1_000)
    before = list(world.replicas[R1].dataflows)
    world.new_operator()
    world.connect(R1)
    world.deliver(R1, 1_000)

    assert len(before) == 2
    assert list(world.replicas[R1].dataflows) == before


def test_a_removed_replica_that_still_tries_to_write_is_fenced_by_the_next_revision() -> None:
    """It was told of the old one alone, and goes on with it for as long as it likes."""
    world = running(Spec("view", TABLES[0]))
    table = world.shards[ShardId("d1/v/v1")]
    world.cut(R2)
    world.edit("d1", False, edit=1)
    for _ in range(4):
        world.advance(TABLES[0], 10)
        world.exchange((R1,))
    assert table.term == 2
    world.advance(TABLES[0], 10)
    reached = table.upper
    world.work(R2, 1_000)

    assert (table.upper, table.term) == (reached, 2)
    world.exchange((R1,))
    assert table.upper > reached


def test_a_dependant_that_fails_to_hydrate_keeps_all_from_taking_over() -> None:
    """Every replica says so: the replacement is held back and names it, the old revisions serve; reverted, all is as
    before."""
    world = running(Spec("index", TABLES[0]), Spec("view", "d1"))
    before = {name: stored.active for name, stored in world.durable.items()}
    world.edit("d1", False, edit=1)
    while world.durable["d2"].pending is None:
        for name in (R1, R2):
            world.deliver(name, 1_000)
            world.work(name, 1_000)
            world.hear(name, 1_000)
        for state in world.operator.states:
            world.operator.mark(state)
            world.operator.install(state)
        world.instance.maintain(world.now)
    failing = world.durable["d2"].pending.mark.revision.description.export_ids[0]
    for name in (R1, R2):
        world.said(name, Status(failing, "step_failed", {"message": "boom"}))
    d1 = world.operator.states[0]
    _, held = obstacle_of(d1, world.operator.registry, lambda _: world.operator.running, world.now)  # type: ignore[arg-type, return-value]

    assert held is not None
    assert held.failed
    assert "Dataflow d2 fails: step failed: boom" in held.message
    assert not world.operator.take_over(d1, world.now)
    world.revert("d1")
    world.settle()
    assert {name: stored.active for name, stored in world.durable.items()} == before


def test_crash_an_edit_that_follows_one_with_other_columns_begins_a_table_of_its_own() -> None:
    """The first one has begun a table, and does not serve when another edit takes its place; then the operator and all
    replicas die. What serves in the end never leaves out a time that its table does not have yet."""
    world = running(Spec("index", TABLES[0]), Spec("view", "d1"))
    world.edit("d2", False, edit=1, version=2)
    world.operator.work(world.now)
    for name in (R1, R2):
        world.deliver(name, 1_000)
        world.work(name, 1)
    begun = world.shards[ShardId("d2/v/v2")]
    assert begun.upper > 0, "the first edit writes"
    assert world.durable["d2"].pending is not None
    world.edit("d2", False, edit=2)
    world.edit("d1", True, edit=3)
    for name in (R1, R2):
        world.kill(name)
    world.advance(TABLES[0], 100)
    left = begun.upper
    world.settle()

    active = world.durable["d2"].active
    assert active is not None
    assert [s.shard_id for s in view_shards(active.revision.description)] != ["d2/v/v2"]
    assert begun.upper == left, "nobody goes on with it"
