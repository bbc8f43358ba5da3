"""A replica that was away: the commands that it gets when it returns, and the holds that were kept for it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.controller.frontiers.test_index_imports import reader
from tests.controller.harness import INDEX, INPUT, LAG, R2, TERM, VIEW, InstanceHarness, at
from tests.controller.scripted import R1, Listening, ScriptedReplica, complete, play
from tests.model.pending_peeks import peek
from tests.protocol.samples import dataflow
from tidemark_operator.controller.frontiers.dataflows import Dataflow
from tidemark_operator.controller.replicas.disconnected_replicas import GRACE_MS
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.responses import (
    DescribedCollection,
    DescribedDataflow,
    Description,
    Frontiers,
    ShardFrontiers,
)

__all__ = ["play"]


def test_must_let_a_replica_that_is_behind_go_on_from_where_it_is(play: Callable[..., None]) -> None:
    """It says from when on it reads: its dataflow is created as of then, its exports are compacted as everywhere."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        plan = dataflow("d", 300)
        instance.core.create(Dataflow("ns/d", plan, LAG), TERM)
        replica.say(Frontiers(INDEX, at(480), at(360), at(360)), Frontiers(VIEW, at(480), at(360), at(360)))
        await replica.until(lambda: all(c.write == at(480) for c in instance.core.dataflows.collections()))
        instance.maintain()
        assert {c.id: c.since for c in instance.core.dataflows.collections()} == {INDEX: at(380), VIEW: at(479)}

        replica.dataflows = (DescribedDataflow(plan.export_ids, plan.plan_digest, Time(300), at(359)),)
        replica.hang_up()
        await replica.until(lambda: len(replica.streams) == 2 and complete(replica.streams[1]))
        commands = [m for m in replica.streams[1] if isinstance(m, c.CreateDataflow | c.AllowCompaction)]
        compacted = [c.AllowCompaction(INDEX, at(380)), c.AllowCompaction(VIEW, at(479))]
        assert commands == [c.CreateDataflow(dataflow("d", 359)), *compacted]
        instance.maintain()
        shard = instance.core.shards.get(INPUT)
        assert shard is not None
        assert set(shard.holds.values()) == {at(359)}

    play(scenario)


def test_a_replica_that_comes_nowhere_is_not_waited_for_again_at_each_address(
    play: Callable[..., None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The replica dies before it listens, or was there and moves."""

    async def scenario(replica: ScriptedReplica, instance: RunningInstance, listening: Listening) -> None:
        clock = now_ms()
        monkeypatch.setattr("tidemark_operator.fleet.running_instance.now_ms", lambda: clock)
        await replica.until(lambda: bool(replica.streams) and complete(replica.streams[0]))
        instance.core.create(Dataflow("ns/d", dataflow("d", 300), LAG), TERM)
        instance.attach(R2, f"unix://{tmp_path}/0")
        shard = instance.core.shards.get(INPUT)
        assert shard is not None
        assert set(shard.holds.values()) == {at(0)}, "it may be there"

        replica.say(Frontiers(INDEX, at(480), at(400), at(400)), Frontiers(VIEW, at(480), at(400), at(400)))
        await replica.until(lambda: all(c.write == at(480) for c in instance.core.dataflows.collections()))
        for n in (1, 2, 3, 4):
            clock += GRACE_MS // 4
            for name in (R1, R2):
                instance.attach(name, f"unix://{tmp_path}/{n}")
            instance.maintain()
        instance.maintain()
        assert set(shard.holds.values()) == {at(380), at(399)}, "what the first read when it was there"
        clock += GRACE_MS
        instance.maintain()
        assert set(shard.holds.values()) == {at(380), at(479)}

    play(scenario)


def holds(harness: InstanceHarness) -> set[Frontier]:
    shard = harness.shards.get(INPUT)
    assert shard is not None
    return set(shard.holds.values())


def test_a_lost_replica_is_waited_for_and_a_removed_one_is_not() -> None:
    harness = InstanceHarness(upper=900)
    harness.connect(R1)
    harness.install(as_of=300)
    harness.report(R1, at(400))
    harness.instance.disconnect(R1, harness.now)
    harness.maintain()
    assert holds(harness) == {at(300), at(399)}, "the index goes back so far itself"
    harness.instance.dataflows.seed({INDEX: at(800), VIEW: at(800)})
    harness.now += GRACE_MS - 1
    harness.maintain()
    assert holds(harness) == {at(399)}
    harness.now += 1
    harness.maintain()
    assert holds(harness) == {at(700), at(799)}

    harness.connect(R1)
    harness.instance.disconnect(R1)
    harness.maintain()
    assert holds(harness) == {at(700), at(799)}


def test_an_importer_goes_on_on_a_slow_replica_that_was_lost() -> None:
    """The index is kept for it too, though all others have long let go of what it reads."""
    harness = InstanceHarness(upper=900)
    harness.connect(R1, R2)
    harness.install(as_of=300)
    plans, exports = (dataflow("d", 300), reader(as_of=300)), (INDEX, VIEW, GlobalId("b/i"))
    harness.instance.create(Dataflow("ns/b", plans[1], LAG), TERM)
    harness.report(R1, at(800), *exports)
    harness.report(R2, at(400), *exports)
    harness.instance.disconnect(R2, harness.now)
    for _ in range(2):  # what an importer lets go of, its index does next
        harness.maintain()
    has = tuple(DescribedDataflow(plan.export_ids, plan.plan_digest, Time(300), at(399)) for plan in plans)
    harness.instance.connect(R2, 9, harness.now, has=Description("", None, 0, has, (), ()))
    link = harness.instance.link(R2, 9)
    assert link is not None
    created = [m.dataflow for m in link.drain() if isinstance(m, c.CreateDataflow)]
    assert {(d.name, d.as_of) for d in created} == {("d", 399), ("b", 399)}


def test_attempts_to_connect_do_not_prolong_the_wait() -> None:
    """It was lost once; that it is not there when it is tried at another address is no news."""
    harness = InstanceHarness(upper=900)
    harness.connect(R1)
    harness.install(as_of=300)
    harness.report(R1, at(400))
    harness.instance.disconnect(R1, harness.now)
    harness.instance.dataflows.seed({INDEX: at(800), VIEW: at(800)})
    for _ in range(4):
        harness.maintain()
        assert holds(harness) <= {at(300), at(399)}
        harness.now += GRACE_MS // 4
        harness.instance.disconnect(R1, harness.now)
    for _ in range(2):
        harness.maintain()
    assert holds(harness) == {at(700), at(799)}


def test_must_times_that_one_replica_compacted_are_readable_nowhere() -> None:
    """An earlier operator had told it, and not the one that connects first. So both go on."""
    harness = InstanceHarness(upper=900)
    harness.connect(R2)
    harness.install(as_of=300)
    harness.sent(R2)
    reported = (DescribedCollection(INDEX, at(340), at(480)), DescribedCollection(VIEW, at(479), at(480)))
    harness.instance.connect(R1, 2, harness.now, has=Description("", None, 0, (), reported, ()))
    compacted = [c.AllowCompaction(VIEW, at(479)), c.AllowCompaction(INDEX, at(340))]
    assert harness.sent(R2) == compacted
    commands = harness.sent(R1)
    assert c.CreateDataflow(dataflow("d", 340)) in commands
    assert compacted[0] in commands


def test_must_not_believe_compaction_beyond_what_is_kept_or_asked_for() -> None:
    """One that lies takes from nobody what the policy keeps, or what a peek is to read."""
    harness = InstanceHarness(upper=900)
    harness.connect(R2)
    harness.install(as_of=300)
    harness.report(R2, at(480))
    harness.instance.peek(peek("p", INDEX, 350))
    lies = tuple(DescribedCollection(id, at(harness.now), at(480)) for id in (INDEX, VIEW))
    harness.instance.connect(R1, 2, harness.now, has=Description("", None, 0, (), lies, ()))
    assert {c.id: c.since for c in harness.instance.dataflows.collections()} == {INDEX: at(350), VIEW: at(479)}
    harness.instance.cancel_peek("p")
    harness.instance.connect(R1, 3, harness.now, has=Description("", None, 0, (), lies, ()))
    assert {c.id: c.since for c in harness.instance.dataflows.collections()} == {INDEX: at(380), VIEW: at(479)}


def test_nothing_is_compacted_that_an_unknown_replica_may_read() -> None:
    """An operator has just begun. Nobody waits for what is dropped meanwhile."""
    harness = InstanceHarness(upper=900)
    harness.instance.disconnected.expect(R1, harness.now)
    harness.install(as_of=300)
    harness.instance.dataflows.seed({INDEX: at(800), VIEW: at(800)})
    for _ in range(2):
        harness.maintain()
        assert holds(harness) == {at(0)}
    harness.now += GRACE_MS
    harness.maintain()
    assert holds(harness) == {at(700), at(799)}

    harness.instance.disconnected.expect(R1, harness.now)
    assert holds(harness) == {at(0)}
    harness.instance.drop("ns/d")
    assert harness.instance.dataflows.owners() == []


@pytest.mark.parametrize(
    ("digest", "began", "reads_from", "since"),
    [("", 300, at(359), 0), ("same", 360, at(359), 0), ("same", 300, None, 0), ("same", 300, at(359), 360)],
    ids=["another plan", "it began later", "it does not say", "it cannot be read"],
)
def test_a_dataflow_that_cannot_go_on_begins_at_the_common_as_of(
    digest: str, began: int, reads_from: Frontier | None, since: int
) -> None:
    harness = InstanceHarness(upper=900, since=since)
    harness.install(as_of=380)
    plan = dataflow("d", 380)
    has = DescribedDataflow(plan.export_ids, digest and plan.plan_digest, Time(began), reads_from)
    harness.instance.connect(R1, 1, harness.now, has=Description("", None, 0, (has,), (), ()))
    assert c.CreateDataflow(plan) in harness.sent(R1)


def test_must_end_the_connection_of_one_that_goes_on_with_what_was_compacted() -> None:
    """An earlier operator had asked for the compaction. The connection ends, so that the replica begins anew."""
    harness = InstanceHarness(upper=900)
    harness.install(as_of=380)
    plan = dataflow("d", 380)
    has = DescribedDataflow(plan.export_ids, plan.plan_digest, Time(300), at(359))
    harness.instance.connect(R1, 1, harness.now, has=Description("", None, 0, (has,), (), ()))
    link = harness.instance.link(R1, 1)
    assert link is not None
    for since, refused in ((359, False), (370, True)):
        harness.hear(R1, ShardFrontiers(INPUT, at(900), at(since)))
        harness.maintain()
        assert (link.refused is not None) == refused
    assert "was compacted to" in str(link.refused)
