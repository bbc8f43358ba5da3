"""Controller and replicas together, in any order of events: random programs, each promise checked after every one.

`TIDEMARK_MODEL_PROGRAMS=20000 pytest tests/model` runs more of them, `TIDEMARK_MODEL_SEED=100` others.
"""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.model.simulation import REPLICAS, TABLES, Simulation
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ReplicaId, ShardId, Time
from tidemark_protocol.messages.responses import (
    Description,
    Failure,
    FailureKind,
    Frontiers,
    PeekCanceled,
    PeekError,
    PeekResponse,
    ShardFrontiers,
)

PROGRAMS = int(os.environ.get("TIDEMARK_MODEL_PROGRAMS", "2000"))
SEED = int(os.environ.get("TIDEMARK_MODEL_SEED", "0"))
PARTS, QUICK_PARTS = 10, 4
targets = st.sampled_from([None, None, *REPLICAS])
replicas, tables = st.sampled_from(REPLICAS), st.sampled_from(TABLES)
few = st.sampled_from([1, 3, 1_000])
KINDS = ("index", "view", "index and view")


class Model(RuleBasedStateMachine):
    """At most six Dataflows at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.simulation = Simulation()
        for name in REPLICAS[:2]:
            self.simulation.connect(name)

    @precondition(lambda self: len(self.simulation.stored) < 6)
    @rule(kind=st.sampled_from(KINDS), table=tables)
    def create(self, kind: str, table: str) -> None:
        self.simulation.create(kind, table, None)

    @precondition(lambda self: any(_indexes(self.simulation)) and len(self.simulation.stored) < 6)
    @rule(data=st.data(), kind=st.sampled_from(KINDS))
    def create_over_an_index(self, data: st.DataObject, kind: str) -> None:
        self.simulation.create(kind, TABLES[0], data.draw(st.sampled_from(_indexes(self.simulation))))

    @precondition(lambda self: self.simulation.stored)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        self.simulation.drop(data.draw(st.sampled_from(list(self.simulation.stored))))

    @precondition(lambda self: len(self.simulation.clients.ids) < 4)
    @rule(
        data=st.data(),
        table=tables,
        back=st.sampled_from([0, 20, 1_000]),
        snapshot=st.booleans(),
        lasts=st.sampled_from([None, None, 1, 60]),
        to=targets,
    )
    def subscribe(
        self,
        data: st.DataObject,
        table: ShardId,
        back: int,
        snapshot: bool,
        lasts: int | None,
        to: ReplicaId | None,
    ) -> None:
        reads = data.draw(st.sampled_from([None, *_indexes(self.simulation)]))
        self.simulation.clients.subscribe(table, reads, back, snapshot, lasts, to)

    @precondition(lambda self: len(self.simulation.clients.ids) < 4)
    @rule(data=st.data(), table=tables, back=st.sampled_from([0, 20, 1_000]))
    def copy(self, data: st.DataObject, table: ShardId, back: int) -> None:
        reads = data.draw(st.sampled_from([None, *_indexes(self.simulation)]))
        self.simulation.clients.subscribe(table, reads, back, snapshot=True, lasts=1, copies=True)

    @precondition(lambda self: self.simulation.clients.ids)
    @rule(data=st.data())
    def unsubscribe(self, data: st.DataObject) -> None:
        self.simulation.clients.unsubscribe(data.draw(st.sampled_from(self.simulation.clients.ids)))

    @rule(table=tables, by=st.sampled_from([1, 20, 100]))
    def advance(self, table: str, by: int) -> None:
        self.simulation.advance(table, by)

    @rule(names=st.permutations(REPLICAS), cut=replicas)
    def reconnect(self, names: list[str], cut: str) -> None:
        """One loses its connection; then all have one again."""
        self.simulation.cut(cut)
        for name in names:
            if name not in self.simulation.connections:
                self.simulation.connect(name)

    @rule(name=replicas, from_=st.sampled_from([None, 0, 90, 150, 1 << 62]), began=st.sampled_from([None, 0]))
    def describe_falsely(self, name: str, from_: int | None, began: int | None) -> None:
        """From when on it reads is what an older replica does not tell, and what may be a lie."""

        def tell(true: Description) -> Description:
            reads_from = None if from_ is None else Frontier.at(from_)
            reported = (
                replace(d, reads_from=reads_from, as_of=d.as_of if began is None else began) for d in true.dataflows
            )
            return replace(true, dataflows=tuple(reported))

        self.simulation.connect(name, tell)

    @rule(what=st.sampled_from(["cut", "kill", "operator"]), names=st.permutations(REPLICAS), most=st.integers(0, 3))
    def disaster(self, what: str, names: list[str], most: int) -> None:
        """A connection, a replica, or the operator is lost; a new one finds the replicas one after the other."""
        if what == "operator":
            self.simulation.new_operator()
            for name in names[:most]:
                self.simulation.connect(name)
        else:
            {"cut": self.simulation.cut, "kill": self.simulation.kill}[what](names[0])

    @rule(name=replicas, most=few)
    def deliver(self, name: str, most: int) -> None:
        self.simulation.deliver(name, most)

    @rule(name=replicas, most=few, times=st.sampled_from([1, 1, 2]))
    def hear(self, name: str, most: int, times: int) -> None:
        self.simulation.hear(name, most, times)

    @rule(name=replicas)
    def arrive_late(self, name: str) -> None:
        self.simulation.arrive_late(name)

    @rule(name=replicas)
    def notice(self, name: str) -> None:
        self.simulation.notice(name)

    @rule(name=replicas, seed=st.integers(0, 100_000), to=st.sampled_from(["replica", "controller"]))
    def garbage(self, name: str, seed: int, to: str) -> None:
        """Frames that are none, to either side, and clients of epochs long gone."""
        {"replica": self.simulation.intrude, "controller": self.simulation.garble}[to](name, seed)

    @rule(name=replicas, fuel=st.sampled_from([0, 1, 30, 1_000]))
    def work(self, name: str, fuel: int) -> None:
        self.simulation.work(name, fuel)

    @rule(names=st.sampled_from([REPLICAS[:1], REPLICAS[1:2], REPLICAS[:2], REPLICAS]), by=st.sampled_from([0, 100]))
    def go_on(self, names: tuple[str, ...], by: int) -> None:
        """Some while in which these replicas do all that there is to do."""
        for table in TABLES:
            self.simulation.advance(table, by)
        for _ in range(2):
            self.simulation.exchange(names)

    @rule(behind=replicas, ahead=replicas, by=st.sampled_from([10, 100]))
    def fall_behind(self, behind: str, ahead: str, by: int) -> None:
        """One is cut off, another goes on, and all that it no longer needs is compacted."""
        self.simulation.cut(behind)
        for _ in range(3):
            self.go_on((ahead,), by)

    @rule(rounds=st.integers(1, 3))
    def maintain(self, rounds: int) -> None:
        for _ in range(rounds):
            self.simulation.maintain()

    @precondition(lambda self: any(_indexes(self.simulation)))
    @rule(data=st.data(), back=st.sampled_from([0, 40, 1_000_000]), to=targets)
    def ask(self, data: st.DataObject, back: int, to: ReplicaId | None) -> None:
        self.simulation.ask(data.draw(st.sampled_from(_indexes(self.simulation))), back, to)

    @precondition(lambda self: len(self.simulation.leases.promises) < 4)
    @rule(data=st.data(), back=st.sampled_from([0, 40, 1_000_000]))
    def lease(self, data: st.DataObject, back: int) -> None:
        """Lease a table or an index."""
        indexes = [f"{owner}-index" for owner in _indexes(self.simulation)]
        of = data.draw(st.sampled_from([TABLES, TABLES, indexes or TABLES, indexes or TABLES, indexes or TABLES]))
        self.simulation.leases.take(GlobalId(data.draw(st.sampled_from(of))), back)

    @precondition(lambda self: self.simulation.leases.promises)
    @rule(data=st.data(), by=st.sampled_from([0, 0, 30]))
    def renew_a_lease(self, data: st.DataObject, by: int) -> None:
        self.simulation.leases.renew(data.draw(st.sampled_from(list(self.simulation.leases.promises))), by)

    @precondition(lambda self: self.simulation.leases.promises)
    @rule(data=st.data())
    def end_a_lease(self, data: st.DataObject) -> None:
        self.simulation.leases.end(data.draw(st.sampled_from(list(self.simulation.leases.promises))))

    @precondition(lambda self: self.simulation.questions.waiting)
    @rule(data=st.data(), name=replicas)
    def fail_to_read(self, data: st.DataObject, name: ReplicaId) -> None:
        """An error of one replica alone."""
        self.simulation.questions.fail(name, data.draw(st.sampled_from(self.simulation.questions.waiting)))

    @precondition(lambda self: self.simulation.stored)
    @rule(data=st.data())
    def suspect(self, data: st.DataObject) -> None:
        self.simulation.suspect(data.draw(st.sampled_from(list(self.simulation.stored))))

    @precondition(lambda self: self.simulation.questions.asked)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        self.simulation.questions.give_up(data.draw(st.sampled_from(list(self.simulation.questions.asked))))

    @precondition(lambda self: self.simulation.stored)
    @rule(name=replicas, data=st.data())
    def lie(self, name: str, data: st.DataObject) -> None:
        """Frontiers that go back, answers that nobody asked for, statuses about nothing."""
        stored = self.simulation.stored[data.draw(st.sampled_from(list(self.simulation.stored)))]
        back, pending = Frontier.at(Time(0)), list(self.simulation.questions.asked)
        self.simulation.said(
            name,
            data.draw(
                st.sampled_from(
                    [
                        Frontiers(stored.description.export_ids[0], back, back, back),
                        Frontiers(GlobalId("nobody"), Frontier.empty(), back, None),
                        ShardFrontiers(TABLES[0], back, back),
                        PeekResponse("nobody's", PeekError("no")),
                        *(PeekResponse(uuid, PeekCanceled()) for uuid in pending),
                        *(PeekResponse(uuid, PeekError("again")) for uuid in self.simulation.questions.answered),
                        Failure(GlobalId("nobody"), FailureKind.STEP, "no"),
                        Failure(stored.description.export_ids[0], FailureKind.STEP, "no"),
                    ]
                )
            ),
        )

    @invariant()
    def promises(self) -> None:
        self.simulation.check()

    def teardown(self) -> None:
        self.simulation.settle()


def parts(all_parts: int, quick: int) -> list[Any]:
    """The numbers of parts, each with a seed of its own: the first `quick` run in `make test`, one of them at each
    commit; the others are slow."""
    broad = [pytest.param(part, marks=pytest.mark.broad) for part in range(1, quick)]
    return [0, *broad, *(pytest.param(part, marks=pytest.mark.slow) for part in range(quick, all_parts))]


def _indexes(simulation: Simulation) -> list[str]:
    return [owner for owner, stored in simulation.stored.items() if stored.description.index_exports]


@pytest.mark.parametrize("part", parts(PARTS, QUICK_PARTS))
def test_random_programs_keep_every_promise(part: int) -> None:
    """Each part from a seed of its own, so that several run beside each other."""
    run_state_machine_as_test(
        seed(SEED + part)(type(f"Model{part}", (Model,), {})),
        settings=settings(
            max_examples=-(-PROGRAMS // PARTS),
            stateful_step_count=40,
            report_multiple_bugs=False,
            phases=(Phase.generate,),
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
