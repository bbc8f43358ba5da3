"""A replica's state survives the loss of a connection or of the operator, however far it lags."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import permutations

import pytest

from tests.model.simulation import LAG, MAINTENANCE_MS, REPLICAS, TABLES, Simulation
from tidemark_operator.controller.frontiers.lease_book import LEASE_MS
from tidemark_operator.controller.replicas.disconnected_replicas import GRACE_MS
from tidemark_protocol.ids import ReplicaId, ShardId
from tidemark_replica.dataflow.installed_dataflow import InstalledDataflow

R1, R2, R3 = REPLICAS


def installed(simulation: Simulation, name: ReplicaId) -> set[InstalledDataflow]:
    """The very objects: a dataflow that begins anew is another one."""
    return set(simulation.replicas[name].dataflows)


def bring_far_behind(simulation: Simulation, *, hydrated: bool) -> None:
    """A view, an index, and a view over that; r1 has gone on far beyond what is kept by policy, r2 has been slower, or
    has not hydrated yet."""
    for name in (R1, R2):
        simulation.connect(name)
    simulation.create("index", TABLES[0], None)
    simulation.create("view", TABLES[1], None)
    simulation.create("view", TABLES[0], "d1")
    for _ in range(3):
        simulation.exchange((R1, R2) if hydrated else (R1,))
        simulation.deliver(R2, 1_000)
    go_on(simulation, 4)


def go_on(simulation: Simulation, rounds: int, names: Iterable[ReplicaId] = (R1,)) -> None:
    """These work; r2 hears what there is to do, and does not come to it."""
    for _ in range(rounds):
        for table in TABLES:
            simulation.advance(table, LAG)
        simulation.exchange(tuple(names))
        simulation.deliver(R2, 1_000)


def everything(simulation: Simulation, names: tuple[ReplicaId, ...] = (R1, R2)) -> None:
    for _ in range(4 + LEASE_MS // MAINTENANCE_MS):  # the next operator waits for leases
        simulation.exchange(names)
    for name in names:
        assert {d.processed.encode() for d in installed(simulation, name)} == {simulation.shards[TABLES[0]].upper}
    for table in TABLES:
        assert since(simulation, table) > simulation.shards[table].upper - 3 * LAG, "what it no longer reads is let go"


def since(simulation: Simulation, table: ShardId) -> int:
    return simulation.shards[table].since


@pytest.mark.parametrize("hydrated", [True, False], ids=["slow", "hydrating"])
@pytest.mark.parametrize("first", [R1, R2])
def test_a_lagging_replica_goes_on_under_the_next_operator(first: ReplicaId, hydrated: bool) -> None:
    """Whoever connects first, and however long after the other, up to a limit."""
    simulation = Simulation()
    bring_far_behind(simulation, hydrated=hydrated)
    there = {name: installed(simulation, name) for name in (R1, R2)}
    assert len({d.processed for d in there[R1] | there[R2]}) > 1

    simulation.new_operator()
    simulation.connect(first)
    for _ in range(3):
        for table in TABLES:
            simulation.advance(table, LAG)
        simulation.exchange((first,))
    simulation.connect(R2 if first == R1 else R1)
    everything(simulation)
    assert {name: installed(simulation, name) for name in (R1, R2)} == there


@pytest.mark.parametrize("rounds", [0, 1])
@pytest.mark.parametrize("names", list(permutations(REPLICAS)), ids="-".join)
def test_a_replica_that_missed_a_compaction_takes_nothing_from_the_others(
    names: tuple[ReplicaId, ...], rounds: int
) -> None:
    """One stands still for a while, one is slow, one has gone on, when the operator is replaced."""
    simulation = Simulation()
    for name in REPLICAS:
        simulation.connect(name)
    simulation.create("index", TABLES[0], None)
    simulation.create("view", TABLES[1], None)
    simulation.create("index and view", TABLES[0], "d1")
    simulation.create("view", TABLES[0], "d3")
    for _ in range(3):
        simulation.exchange(REPLICAS)
    go_on(simulation, 4, (R1, R3))
    go_on(simulation, 4)
    there = {name: installed(simulation, name) for name in REPLICAS}
    compacted = {name: {since for d in there[name] for since in d.sinces.values()} for name in REPLICAS}
    assert compacted[R3].isdisjoint(compacted[R1]), "nothing of it has been compacted so far"

    simulation.new_operator()
    for name in names:
        simulation.connect(name)
        for _ in range(rounds):
            simulation.exchange((name,))
    everything(simulation, REPLICAS)
    assert {name: installed(simulation, name) for name in REPLICAS} == there


@pytest.mark.parametrize("hydrated", [True, False], ids=["slow", "hydrating"])
def test_a_lagging_replica_goes_on_after_a_lost_connection(hydrated: bool) -> None:
    simulation = Simulation()
    bring_far_behind(simulation, hydrated=hydrated)
    there = installed(simulation, R2)

    simulation.cut(R2)
    go_on(simulation, GRACE_MS // MAINTENANCE_MS - 1)
    simulation.connect(R2)
    everything(simulation)
    assert installed(simulation, R2) == there


def test_an_absent_replica_is_waited_for_for_a_while() -> None:
    """Then what it reads goes; when it comes back, it begins anew where all others do."""
    simulation = Simulation()
    bring_far_behind(simulation, hydrated=True)
    there, read = installed(simulation, R2), {table: since(simulation, table) for table in TABLES}

    simulation.cut(R2)
    go_on(simulation, 2)
    assert {table: since(simulation, table) for table in TABLES} == read
    go_on(simulation, GRACE_MS // MAINTENANCE_MS)
    assert all(since(simulation, table) > simulation.shards[table].upper - 3 * LAG for table in TABLES)

    simulation.connect(R2)
    everything(simulation)
    assert not installed(simulation, R2) & there


def test_a_forbidden_compaction_ends_the_connection() -> None:
    """An earlier operator had asked for it, and it was done only after the next one had looked."""
    simulation = Simulation()
    bring_far_behind(simulation, hydrated=True)
    there = installed(simulation, R2)
    simulation.new_operator()
    for name in (R1, R2):
        simulation.connect(name)
    for table in TABLES:
        simulation.shards[table].since = simulation.shards[table].upper - 1
    simulation.deliver(R2, 1_000)
    simulation.work(R2, 0)
    simulation.hear(R2, 1_000)
    simulation.instance.maintain(simulation.now)
    link = simulation.instance.link(R2, simulation.connections[R2].number)
    assert link is not None
    assert "was compacted to" in str(link.refused)

    for name in (R1, R2):
        simulation.connect(name)
    assert not simulation.instance.disconnected.out_of_reach(R2)
    simulation.deliver(R2, 1_000)
    assert not installed(simulation, R2) & there
