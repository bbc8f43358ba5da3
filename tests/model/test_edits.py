"""Edits in any order of events: random programs, each promise checked after every step of every one.

`TIDEMARK_MODEL_PROGRAMS=20000 pytest tests/model` runs more of them.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from tests.model.edits import EditedSimulation
from tests.model.operator import Spec
from tests.model.simulation import REPLICAS, TABLES
from tests.model.test_model import PROGRAMS, SEED, parts
from tidemark_protocol.ids import GlobalId

PARTS, QUICK_PARTS = 5, 2
replicas, tables = st.sampled_from(REPLICAS), st.sampled_from(TABLES)
kinds = st.sampled_from(["index", "view"])
disasters = st.sampled_from(["cut", "kill", "operator", "moment"])
few = st.sampled_from([1, 3, 1_000])


class Edits(RuleBasedStateMachine):
    """An index, a view over it and a view beside them to begin with; at most six Dataflows at a time."""

    def __init__(self) -> None:
        super().__init__()
        self.simulation, self._edits = EditedSimulation(), 0
        for name in REPLICAS[:2]:
            self.simulation.connect(name)
        for spec in (Spec("index", TABLES[0]), Spec("view", "d1"), Spec("view", TABLES[1])):
            self.simulation.add(spec)
        self._go_on(REPLICAS[:2], 100)

    @precondition(lambda self: len(self.simulation.durable) < 6)
    @rule(kind=kinds, table=tables, data=st.data())
    def create(self, kind: str, table: str, data: st.DataObject) -> None:
        self.simulation.add(Spec(kind, data.draw(st.sampled_from([table, *self.simulation.indexes()]))))

    @precondition(lambda self: self.simulation.durable)
    @rule(data=st.data())
    def drop(self, data: st.DataObject) -> None:
        self.simulation.drop(data.draw(st.sampled_from(list(self.simulation.durable))))

    @precondition(lambda self: self.simulation.durable)
    @rule(data=st.data(), columns=st.booleans(), then=st.sampled_from(["", "goes on", "dies", "reverts"]))
    def edit(self, data: st.DataObject, columns: bool, then: str) -> None:
        """Other SQL, or other columns; then some while passes, or the operator dies, or the edit is taken back."""
        self._edits += 1
        fields = {"edit": self._edits, **({"version": self._edits + 1} if columns else {})}
        name = data.draw(st.sampled_from(list(self.simulation.durable)))
        self.simulation.edit(name, then == "dies", **fields)
        if then == "goes on":
            self._go_on(REPLICAS[:2], 0)
        elif then == "reverts":
            self.simulation.maintain()
            self.simulation.revert(name)

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

    @rule(what=disasters, names=st.permutations(REPLICAS), most=st.integers(0, 3))
    def disaster(self, what: str, names: list[str], most: int) -> None:
        """A connection, a replica, or the operator is lost, perhaps at the moment at which revisions take over."""
        if what in ("operator", "moment"):
            (self.simulation.new_operator if what == "operator" else self.simulation.die_while_taking_over)()
            for name in names[:most]:
                self.simulation.connect(name)
        else:
            {"cut": self.simulation.cut, "kill": self.simulation.kill}[what](names[0])

    @rule(name=replicas, most=few)
    def deliver(self, name: str, most: int) -> None:
        self.simulation.deliver(name, most)

    @rule(name=replicas, most=few)
    def hear(self, name: str, most: int) -> None:
        self.simulation.hear(name, most)

    @rule(name=replicas, fuel=st.sampled_from([0, 1, 30, 1_000]))
    def work(self, name: str, fuel: int) -> None:
        """Also of one that is cut off, and goes on with what it was told last."""
        self.simulation.work(name, fuel)

    @rule(names=st.sampled_from([REPLICAS[:1], REPLICAS[1:2], REPLICAS[:2], REPLICAS]), by=st.sampled_from([0, 100]))
    def go_on(self, names: tuple[str, ...], by: int) -> None:
        self._go_on(names, by)

    @precondition(lambda self: self.simulation.indexes())
    @rule(data=st.data(), back=st.sampled_from([0, 40, 1_000_000]))
    def ask(self, data: st.DataObject, back: int) -> None:
        self.simulation.ask(data.draw(st.sampled_from(self.simulation.indexes())), back)

    @precondition(lambda self: len(self.simulation.leases.promises) < 4)
    @rule(data=st.data(), back=st.sampled_from([0, 40]))
    def lease(self, data: st.DataObject, back: int) -> None:
        """Lease a table or an index that serves, which keeps nobody from editing or dropping it."""
        indexes = [self.simulation.serving(name)[0] for name in self.simulation.indexes()]
        self.simulation.leases.take(GlobalId(data.draw(st.sampled_from([*TABLES, *indexes]))), back)

    @precondition(lambda self: self.simulation.leases.promises)
    @rule(data=st.data())
    def renew_a_lease(self, data: st.DataObject) -> None:
        self.simulation.leases.renew(data.draw(st.sampled_from(list(self.simulation.leases.promises))), 0)

    @invariant()
    def promises(self) -> None:
        self.simulation.check()

    def teardown(self) -> None:
        self.simulation.settle()

    def _go_on(self, names: tuple[str, ...], by: int) -> None:
        """Some while in which these replicas do all that there is to do."""
        for table in TABLES:
            self.simulation.advance(table, by)
        for _ in range(2):
            self.simulation.exchange(names)


@pytest.mark.parametrize("part", parts(PARTS, QUICK_PARTS))
def test_edits_take_over_together_whatever_happens(part: int) -> None:
    """Never does one write before it took over, or serve what cannot run; in the end, what was asked for serves."""
    run_state_machine_as_test(
        seed(SEED + part)(type(f"Edits{part}", (Edits,), {})),
        settings=settings(
            max_examples=-(-PROGRAMS // 10 // PARTS),
            stateful_step_count=30,
            report_multiple_bugs=False,
            phases=(Phase.generate,),
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


def test_crash_at_the_moment_of_taking_over() -> None:
    """The operator dies after the one write: the next one finds that all have taken over, whatever their own statuses
    say, and what imports the edited index runs on the new one."""
    simulation = EditedSimulation()
    simulation.connect(REPLICAS[0])
    for spec in (Spec("index", TABLES[0]), Spec("index", "d1"), Spec("view", "d2")):
        simulation.add(spec)
    for _ in range(8):
        simulation.exchange(REPLICAS[:1])
    before = {name: stored.active for name, stored in simulation.durable.items()}
    simulation.edit("d1", False, edit=1)
    while before["d1"] == simulation.durable["d1"].active:
        simulation.deliver(REPLICAS[0], 10_000)
        simulation.work(REPLICAS[0], 1_000_000)
        simulation.hear(REPLICAS[0], 10_000)
        if simulation.operator.take_over(simulation.operator.states[0], simulation.now, dies=True):
            break
        for state in simulation.operator.states:
            simulation.operator.mark(state)
            simulation.operator.install(state)
        simulation.now += 1_000
        simulation.instance.maintain(simulation.now)
    assert [simulation.durable[name].active == before[name] for name in ("d1", "d2", "d3")] == [False, True, True]
    simulation.new_operator()
    simulation.check()
    assert all(state.active != before[state.key.name] for state in simulation.operator.states)
    simulation.settle()
