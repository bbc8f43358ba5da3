"""Sequential hydration: commands and responses in, commands out."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace

import pytest

from tests.controller.harness import EMPTY, at
from tests.protocol.samples import ROW, A, dataflow
from tidemark_operator.controller.hydration.hydration_gate import (
    MOST_OCCUPANTS,
    STALL_MS,
    HydrationGate,
    MemoryExhaustion,
)
from tidemark_operator.controller.hydration.quarantine import HydrationPolicy, HydrationStanding
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.responses import OUT_OF_MEMORY, Failure, FailureKind, Frontiers, Status
from tidemark_protocol.plan.dataflow import IndexImport
from tidemark_protocol.plan.expr import ColumnRef


def create(name: str) -> c.CreateDataflow:
    return c.CreateDataflow(dataflow(name, 3))


def index(name: str) -> c.Schedule:
    return c.Schedule(GlobalId(f"{name}/i"))


def view(name: str) -> c.Schedule:
    return c.Schedule(GlobalId(f"{name}/v"))


def owner_of(id: GlobalId) -> str:
    return id.partition("/")[0]


def gate(*names: str) -> HydrationGate:
    gate = HydrationGate(HydrationPolicy(concurrency=1), owner_of)
    for name in names:
        assert gate.absorb(create(name)) == [create(name)]
    return gate


def output(schedule: c.Schedule, time: int) -> Frontiers:
    return Frontiers(schedule.id, output=at(time))


def test_all_exports_of_one_dataflow_take_one_slot() -> None:
    """Otherwise a dataflow of more exports than slots would never start."""
    g = gate("a")

    assert g.absorb(index("a")) == [index("a")]
    assert g.absorb(view("a")) == [view("a")]


def test_the_next_starts_when_every_export_has_passed_its_as_of() -> None:
    """In the order of scheduling."""
    g = gate("a", "b")
    g.absorb(index("a")), g.absorb(view("a"))
    assert g.absorb(index("b")) == []
    assert g.absorb(view("b")) == []

    assert g.observe(output(index("a"), 3)) == []
    assert g.observe(output(index("a"), 4)) == []
    assert g.observe(output(view("a"), 4)) == [index("b"), view("b")]


def test_dropping_what_hydrates_frees_its_slot() -> None:
    """A drop is never held back."""
    g = gate("a", "b")
    g.absorb(index("a")), g.absorb(index("b")), g.absorb(view("b"))
    drops = [c.AllowCompaction(s.id, EMPTY) for s in (index("a"), view("a"))]

    assert g.absorb(drops[0]) == [drops[0]]
    assert g.absorb(drops[1]) == [drops[1], index("b"), view("b")]


def test_dropping_what_waits_gives_no_slot_away() -> None:
    """The one that hydrates keeps its slot."""
    g = gate("a", "b", "c")
    g.absorb(index("a")), g.absorb(index("b")), g.absorb(index("c"))
    g.absorb(c.AllowCompaction(index("b").id, EMPTY))
    g.absorb(c.AllowCompaction(view("b").id, EMPTY))

    assert g.observe(output(index("a"), 9)) == []
    assert g.observe(output(view("a"), 9)) == [index("c")]


@pytest.mark.parametrize("kind", FailureKind)
def test_a_failed_hydration_frees_its_slot(kind: FailureKind) -> None:
    """A dataflow that a replica refuses never hydrates: its slot goes to the next."""
    g = gate("a", "b")
    g.absorb(index("a")), g.absorb(view("a"))
    g.absorb(index("b")), g.absorb(view("b"))

    assert g.observe(Status(index("a").id, "hydration", {})) == []
    assert g.observe(Failure(index("a").id, kind, "")) == []
    assert g.observe(Failure(view("a").id, kind, "")) == [index("b"), view("b")]


def test_a_dataflow_that_hydrates_unscheduled_still_gets_its_schedule() -> None:
    """A replica that had it from before an operator's restart."""
    g = gate("a", "b")
    g.absorb(index("a")), g.absorb(view("a"))
    g.absorb(index("b")), g.absorb(view("b"))

    g.observe(output(index("b"), 9))
    assert g.observe(output(view("b"), 9)) == [index("b"), view("b")]


def test_other_commands_pass() -> None:
    """Only Schedule is held back."""
    g = gate("a")
    for command in (c.InitializationComplete(), c.CancelPeek("p"), c.AllowCompaction(index("a").id, at(5))):
        assert g.absorb(command) == [command]


class Standings:
    """The standings that the test gives."""

    def __init__(self, concurrency: int = 4, recorded: bool = False, **standings: HydrationStanding) -> None:
        self.now = standings
        self.hydration_policy = HydrationPolicy(
            concurrency, lambda owner: self.now.get(owner, HydrationStanding.CLEAR), recorded
        )

    def gate(self, *names: str, resumed: tuple[str, ...] = ()) -> HydrationGate:
        g = HydrationGate(self.hydration_policy, owner_of, resumed)
        for name in names:
            g.absorb(create(name))
        return g


def schedule(g: HydrationGate, *names: str) -> list[str]:
    """The dataflows that are let through when all of these are scheduled, in order, and at the next look."""
    batches = [command for name in names for s in (index(name), view(name)) for command in g.absorb(s)]
    return scheduled_owners([*batches, *g.admit()])


def scheduled_owners(commands: list[c.Command]) -> list[str]:
    return list(dict.fromkeys(owner_of(command.id) for command in commands if isinstance(command, c.Schedule)))


def hydrate(g: HydrationGate, name: str) -> list[str]:
    return scheduled_owners([*g.observe(output(index(name), 4)), *g.observe(output(view(name), 4))])


def test_nothing_is_scheduled_before_it_is_written_down_the_slots() -> None:
    """The gate lets as many through as there are slots; a freed slot is filled, and waits for its own record."""
    g = Standings(concurrency=2, recorded=True).gate("a", "b", "c")

    assert schedule(g, "a", "b", "c") == []
    assert g.occupants == ("a", "b")
    assert scheduled_owners(g.recorded(["a"])) == ["a"]
    assert g.recorded(["a"]) == []
    assert hydrate(g, "a") == []
    assert g.occupants == ("b", "c")
    assert scheduled_owners(g.recorded(["b", "c"])) == ["b", "c"]


def test_suspects_hydrate_last_and_alone() -> None:
    """One at a time, and with nobody beside them; whoever comes meanwhile waits for that one alone."""
    g = Standings(x=HydrationStanding.SUSPECT, y=HydrationStanding.SUSPECT).gate("x", "y", "a", "b", "c")

    assert schedule(g, "x") == ["x"], "nobody else is there"
    assert schedule(g, "y", "a", "b") == []
    assert hydrate(g, "x") == ["a", "b"]
    assert g.cleared() == ["x"]
    assert schedule(g, "c") == ["c"]
    assert [hydrate(g, name) for name in "abc"] == [[], [], ["y"]]
    assert hydrate(g, "y") == []
    assert g.cleared() == ["y"]


def test_a_hydration_without_progress_blocks_others_for_ten_minutes_at_most() -> None:
    """It is in its slot still: what kills the replica now may be this. Where it moves again, it takes room again."""
    g = gate("a", "b", "x")
    schedule(g, "a", "b", "x")
    for minute in range(30):
        assert g.maintain(minute * 60_000) == []
        g.observe(Status(index("a").id, "hydration", {"state": "hydrating", "percent": f"{minute}"}))
    assert g.occupants == ("a",)
    for minute in range(30, 40):
        assert g.maintain(minute * 60_000) == []
        g.observe(Status(index("a").id, "hydration", {"state": "hydrating", "percent": "29"}))

    assert g.maintain(40 * 60_000) == [index("b"), view("b")]
    assert g.occupants == ("a", "b")
    g.observe(Status(index("a").id, "hydration", {"state": "hydrating", "percent": "30"}))
    assert g.maintain(41 * 60_000) == []
    assert hydrate(g, "b") == []
    assert hydrate(g, "a") == ["x"]


def test_no_more_are_in_slots_than_can_be_written_down() -> None:
    """Where all that are there show no progress for long. When one is done the next one begins."""
    names = [f"d{n}" for n in range(MOST_OCCUPANTS + 6)]
    g = HydrationGate(HydrationPolicy(concurrency=MOST_OCCUPANTS), owner_of)
    for name in names:
        g.absorb(create(name))
        g.absorb(index(name)), g.absorb(view(name))
    for now_ms in (0, 1, STALL_MS + 1, STALL_MS + 2):
        g.maintain(now_ms)
    assert g.occupants == tuple(names[:MOST_OCCUPANTS])

    g.observe(output(index("d0"), 5))
    assert g.observe(output(view("d0"), 5)) == [index("d64"), view("d64")]


class Text(str):
    """A text that can be watched."""


def test_nothing_is_kept_of_what_a_replica_says_of_its_progress() -> None:
    """It may be megabytes of nonsense, of each dataflow."""
    g = gate("a")
    schedule(g, "a")
    reported = Text("x" * 1000)
    kept = weakref.ref(reported)
    g.observe(Status(index("a").id, "hydration", {"operators": reported}))
    del reported
    gc.collect()
    assert kept() is None


def importer(name: str, of: str) -> c.CreateDataflow:
    imported = IndexImport(index(of).id, GlobalId(f"on {of}"), (ColumnRef(0, A.type),), ROW)
    return c.CreateDataflow(replace(dataflow(name, 3), index_imports=(imported,)))


@pytest.mark.parametrize("standing", [HydrationStanding.SUSPECT, HydrationStanding.QUARANTINED])
def test_an_importer_takes_no_slot_before_its_index_is_hydrated_there(standing: HydrationStanding) -> None:
    """Another replica may have it, so both are scheduled. In its slot the importer would wait for the suspect, which
    hydrates alone, for ever, and so would everybody where importers of a quarantined one take all slots."""
    standings = Standings(concurrency=1, recorded=True, x=standing)
    g = standings.gate("x")
    g.absorb(importer("b", of="x"))
    g.absorb(create("a"))

    schedule(g, "b", "a", "x")
    assert g.occupants == ("a",)
    hydrate(g, "a")
    assert g.occupants == (("x",) if standing is HydrationStanding.SUSPECT else ())
    standings.now.clear()
    g.admit()
    assert g.occupants == ("x",)
    g.observe(output(index("x"), 4))
    assert g.occupants == ("x",), "its other export is not hydrated yet, and there is one slot"
    hydrate(g, "x")
    assert g.occupants == ("b",)


def test_importers_of_what_fails_delay_nothing() -> None:
    """They get their turn when it has been mended after all."""
    g = Standings(concurrency=1).gate("x")
    g.absorb(importer("b", of="x"))
    g.absorb(create("a"))
    assert schedule(g, "x", "b", "a") == ["x"]
    failed = [command for s in (index("x"), view("x")) for command in g.observe(Failure(s.id, FailureKind.STEP, ""))]

    assert scheduled_owners(failed) == ["a"]
    assert hydrate(g, "a") == []
    assert hydrate(g, "x") == ["b"]


def test_a_quarantined_dataflow_is_not_scheduled() -> None:
    """It takes nobody's place; released, it is admitted without being scheduled again."""
    standings = Standings(concurrency=1, x=HydrationStanding.QUARANTINED)
    g = standings.gate("x", "a")

    assert schedule(g, "x", "a") == ["a"]
    assert hydrate(g, "a") == []
    assert g.occupants == ()
    standings.now["x"] = HydrationStanding.CLEAR
    assert scheduled_owners(g.admit()) == ["x"]


def test_a_dataflow_that_its_replica_is_hydrating_keeps_its_slot_over_a_reconnection() -> None:
    """Its process was told before: what kills it now is not forgotten."""
    g = Standings(concurrency=1, recorded=True).gate("a", "x", resumed=("x",))

    assert schedule(g, "x") == ["x"]
    assert schedule(g, "a") == []
    assert g.occupants == ("x",)
    assert hydrate(g, "x") == []
    assert g.occupants == ("a",)


def test_a_hydrated_dataflow_is_scheduled_whatever_its_standing() -> None:
    """A controller that reconnects holds nothing back that runs."""
    g = Standings(recorded=True, x=HydrationStanding.QUARANTINED).gate("x")

    assert schedule(g, "x") == []
    assert hydrate(g, "x") == ["x"]


def ran_out(schedule: c.Schedule, attempts: int) -> Failure:
    return Failure(schedule.id, FailureKind.STEP, "a Python worker of Spark vanished", OUT_OF_MEMORY, attempts)


def test_a_hydration_out_of_memory_waits_for_another_slot() -> None:
    """Told once, of whichever export; who is let in first follows from what it makes of its standing."""
    standings = Standings(concurrency=2)
    g = standings.gate("x", "a", "b")
    assert schedule(g, "x", "a", "b") == ["x", "a"]

    for export in (index("x"), view("x")):
        assert g.observe(ran_out(export, 1)) == []
    assert g.out_of_memory() == [MemoryExhaustion("x", False, "1")]
    assert g.out_of_memory() == []
    standings.now["x"] = HydrationStanding.SUSPECT
    assert scheduled_owners(g.admit()) == ["b"]
    assert [hydrate(g, name) for name in "ab"] == [[], ["x"]]
    assert g.occupants == ("x",)

    g.observe(ran_out(view("x"), 2))
    assert g.out_of_memory() == [MemoryExhaustion("x", True, "2")]
    standings.now["x"] = HydrationStanding.QUARANTINED
    assert g.admit() == []
    standings.now["x"] = HydrationStanding.CLEAR
    assert scheduled_owners(g.admit()) == ["x"], "released"
    assert hydrate(g, "x") == []
    assert g.observe(ran_out(index("x"), 3)) == []
    assert g.out_of_memory() == [], "what has hydrated is in nobody's way"


def test_a_hydration_that_failed_before_running_out_of_memory_waits_for_another_slot() -> None:
    """Its slot was given away then: nobody but the gate would schedule it again."""
    g = Standings(concurrency=1).gate("x", "a")
    assert schedule(g, "x", "a") == ["x"]
    failures = [Failure(export.id, FailureKind.STEP, "", attempts=1) for export in (index("x"), view("x"))]
    assert scheduled_owners([command for failure in failures for command in g.observe(failure)]) == ["a"]

    for export in (index("x"), view("x")):
        assert g.observe(ran_out(export, 2)) == []
    assert g.out_of_memory() == [MemoryExhaustion("x", False, "2")]
    assert hydrate(g, "a") == ["x"]
    assert hydrate(g, "x") == []


def test_a_dataflow_dropped_while_it_waits_for_a_slot_is_not_scheduled() -> None:
    """It would name what is not there."""
    g = Standings(concurrency=1).gate("x")
    schedule(g, "x")
    g.observe(ran_out(index("x"), 1))
    for export in (index("x"), view("x")):
        g.absorb(c.AllowCompaction(export.id, EMPTY))
    assert g.admit() == []


@pytest.mark.parametrize("reason", ["", OUT_OF_MEMORY])
def test_a_failure_of_an_attempt_before_the_connection_changes_no_slot(reason: str) -> None:
    """Whether its dataflow waits, is in a slot that is not recorded, or was scheduled meanwhile: the attempt that
    follows the Schedule counts, and once."""
    g = Standings(concurrency=1, recorded=True).gate("a", "x", resumed=("a",))
    before = [Failure(s.id, FailureKind.STEP, "no", reason, 1, repeated=True) for s in (index("x"), view("x"))]

    def repeat() -> None:
        assert [g.observe(failure) for failure in before] == [[], []]
        assert g.out_of_memory() == []

    repeat()
    assert schedule(g, "a", "x") == ["a"]
    repeat()
    assert (g.occupants, g.waiting_count) == (("a",), 1)
    assert hydrate(g, "a") == []
    repeat()
    assert scheduled_owners(g.recorded(("x",))) == ["x"]
    repeat()
    assert (g.occupants, g.waiting_count) == (("x",), 0)

    assert g.observe(ran_out(index("x"), 2)) == []
    assert g.out_of_memory() == [MemoryExhaustion("x", True, "2")]


def test_what_a_replica_refuses_takes_no_slot_of_a_later_connection() -> None:
    """It was said to the earlier one, and no attempt would ever tell it again."""
    g = Standings(concurrency=1).gate("x", "a")
    for export in (index("x"), view("x")):
        assert g.observe(Failure(export.id, FailureKind.REFUSED, "no", stopped=True, repeated=True)) == []
    assert schedule(g, "x", "a") == ["x", "a"]
    assert g.occupants == ("a",)
