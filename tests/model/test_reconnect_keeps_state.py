"""What a replica has is not thrown away with a connection or an operator: it goes on, however far behind it is."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

import pytest

from tests.model.world import LAG, MAINTENANCE_MS, REPLICAS, TABLES, World
from tidemark_operator.controller.replicas.disconnected_replicas import GRACE_MS
from tidemark_protocol.ids import ReplicaId, ShardId
from tidemark_replica.dataflow.installed_dataflow import InstalledDataflow

R1, R2, R3 = REPLICAS


def installed(world: World, name: ReplicaId) -> set[InstalledDataflow]:
    """The very objects: a dataflow that begins anew is another one."""
    return set(world.replicas[name].dataflows)


def behind(world: World, *, hydrated: bool) -> None:
    """A view, an index, and a view over that; r1 has gone on far beyond what is kept by policy, r2 has been slower, or
    has not hydrated yet."""
    for name in (R1, R2):
        world.connect(name)
    world.create("index", TABLES[0], None)
    world.create("view", TABLES[1], None)
    world.create("view", TABLES[0], "d1")
    for _ in range(3):
        world.exchange((R1, R2) if hydrated else (R1,))
        world.deliver(R2, 1_000)
    go_on(world, 4)


def go_on(world: World, rounds: int, names: Iterable[ReplicaId] = (R1,)) -> None:
    """These work; r2 hears what there is to do, and does not come to it."""
    for _ in range(rounds):
        for table in TABLES:
            world.advance(table, LAG)
        world.exchange(tuple(names))
        world.deliver(R2, 1_000)


def everything(world: World, names: tuple[ReplicaId, ...] = (R1, R2)) -> None:
    for _ in range(4):
        world.exchange(names)
    for name in names:
        assert {d.processed.encode() for d in installed(world, name)} == {world.shards[TABLES[0]].upper}
    for table in TABLES:
        assert since(world, table) > world.shards[table].upper - 3 * LAG, "what it no longer reads is let go"


def since(world: World, table: ShardId) -> int:
    return world.shards[table].since


@pytest.mark.parametrize("hydrated", [True, False], ids=["slow", "hydrating"])
@pytest.mark.parametrize("first", [R1, R2])
def test_what_is_behind_goes_on_under_the_next_operator(first: ReplicaId, hydrated: bool) -> None:
    """Whoever connects first, and however long after the other, up to a limit."""
    world = World()
    behind(world, hydrated=hydrated)
    there = {name: installed(world, name) for name in (R1, R2)}
    assert len({d.processed for d in there[R1] | there[R2]}) > 1

    world.new_operator()
    world.connect(first)
    for _ in range(3):
        for table in TABLES:
            world.advance(table, LAG)
        world.exchange((first,))
    world.connect(R2 if first == R1 else R1)
    everything(world)
    assert {name: installed(world, name) for name in (R1, R2)} == there


@pytest.mark.parametrize("rounds", [0, 1])
@pytest.mark.parametrize("names", list(permutations(REPLICAS)), ids="-".join)
def test_whoever_has_not_heard_what_was_compacted_takes_nothing_from_those_who_have(
    names: tuple[ReplicaId, ...], rounds: int
) -> None:
    """One stands still for a while, one is slow, one has gone on, when the operator is replaced."""
    world = World()
    for name in REPLICAS:
        world.connect(name)
    world.create("index", TABLES[0], None)
    world.create("view", TABLES[1], None)
    world.create("index and view", TABLES[0], "d1")
    world.create("view", TABLES[0], "d3")
    for _ in range(3):
        world.exchange(REPLICAS)
    go_on(world, 4, (R1, R3))
    go_on(world, 4)
    there = {name: installed(world, name) for name in REPLICAS}
    compacted = {name: {since for d in there[name] for since in d.sinces.values()} for name in REPLICAS}
    assert compacted[R3].isdisjoint(compacted[R1]), "nothing of it has been compacted so far"

    world.new_operator()
    for name in names:
        world.connect(name)
        for _ in range(rounds):
            world.exchange((name,))
    everything(world, REPLICAS)
    assert {name: installed(world, name) for name in REPLICAS} == there


@pytest.mark.parametrize("hydrated", [True, False], ids=["slow", "hydrating"])
def test_what_is_behind_goes_on_after_its_connection_was_lost(hydrated: bool) -> None:
    world = World()
    behind(world, hydrated=hydrated)
    there = installed(world, R2)

    world.cut(R2)
    go_on(world, GRACE_MS // MAINTENANCE_MS - 1)
    world.connect(R2)
    everything(world)
    assert installed(world, R2) == there


def test_what_stays_away_is_waited_for_for_a_while_only() -> None:
    """Then what it reads goes; when it comes back, it begins anew where all others do."""
    world = World()
    behind(world, hydrated=True)
    there, read = installed(world, R2), {table: since(world, table) for table in TABLES}

    world.cut(R2)
    go_on(world, 2)
    assert {table: since(world, table) for table in TABLES} == read
    go_on(world, GRACE_MS // MAINTENANCE_MS)
    assert all(since(world, table) > world.shards[table].upper - 3 * LAG for table in TABLES)

    world.connect(R2)
    everything(world)
    assert not installed(world, R2) & there


def test_what_was_compacted_all_the_same_ends_the_connection_and_it_begins_anew() -> None:
    """An earlier operator had asked for it, and it was done only after the next one had looked."""
    world = World()
    behind(world, hydrated=True)
    there = installed(world, R2)
    world.new_operator()
    for name in (R1, R2):
        world.connect(name)
    for table in TABLES:
        world.shards[table].since = world.shards[table].upper - 1
    world.deliver(R2, 1_000)
    world.work(R2, 0)
    world.hear(R2, 1_000)
    world.instance.maintain(world.now)
    link = world.instance.link(R2, world.connections[R2].number)
    assert link is not None
    assert "was compacted to" in str(link.refused)

    for name in (R1, R2):
        world.connect(name)
    assert not world.instance.disconnected.out_of_reach(R2)
    world.deliver(R2, 1_000)
    assert not installed(world, R2) & there
