"""The history of hydrations has each one that a replica began, once, with its end, and no export that the replica
had already."""

from __future__ import annotations

import itertools

from tests.controller.harness import EMPTY, R1, InstanceHarness
from tests.controller.hydration.test_hydration_gate import create, index, output, owner_of, view
from tidemark_operator.controller.hydration import hydration_history
from tidemark_operator.controller.hydration.hydration_gate import HydrationGate
from tidemark_operator.controller.hydration.hydration_history import Hydration
from tidemark_operator.controller.hydration.quarantine import HydrationPolicy
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages import commands as c
from tidemark_protocol.messages.responses import OUT_OF_MEMORY, Failure, FailureKind, Status

EXPORTS = (index("a"), view("a"))


class RecordedGate(HydrationGate):
    """A gate whose clock goes on by one at each look, with dataflow `a`, which has two exports, as of 3."""

    def __init__(self, resumed: tuple[str, ...] = (), known: tuple[GlobalId, ...] = ()) -> None:
        clock, self.ended = itertools.count(100), list[Hydration]()
        policy = HydrationPolicy(concurrency=1, clock=lambda: next(clock))
        super().__init__(policy, owner_of, resumed, known=known, ended=self.ended.append)
        self.absorb(create("a"))

    def take_ended(self) -> list[Hydration]:
        """Return the hydrations that have ended since the last call."""
        found, self.ended[:] = [*self.ended], []
        return found


def scheduled(g: RecordedGate) -> RecordedGate:
    for export in EXPORTS:
        g.absorb(export)
    return g


def test_a_hydration_begins_with_its_slot_and_ends_with_its_last_export() -> None:
    g = scheduled(RecordedGate())
    assert g.hydrating == [Hydration("a", 3, 100)]
    g.observe(output(index("a"), 9))
    assert (g.take_ended(), len(g.hydrating)) == ([], 1)
    g.observe(output(view("a"), 9))
    assert (g.take_ended(), g.hydrating) == ([Hydration("a", 3, 100, 101, "hydrated")], [])
    assert g.take_ended() == []


def test_what_waits_for_a_slot_has_not_begun() -> None:
    g = scheduled(RecordedGate())
    g.absorb(create("b")), g.absorb(index("b")), g.absorb(view("b"))
    for export in (index("b"), view("b")):
        g.absorb(c.AllowCompaction(export.id, EMPTY))
    assert [each.owner for each in g.hydrating] == ["a"]
    assert g.take_ended() == []


def test_a_drop_and_a_failure_are_ends() -> None:
    g = scheduled(RecordedGate())
    for export in EXPORTS:
        g.absorb(c.AllowCompaction(export.id, EMPTY))
    assert g.take_ended() == [Hydration("a", 3, 100, 101, "dropped")]

    g = scheduled(RecordedGate())
    g.observe(Failure(index("a").id, FailureKind.STEP, "no"))
    g.observe(output(view("a"), 9))
    assert g.take_ended() == [Hydration("a", 3, 100, 101, "failed")]
    g.observe(output(index("a"), 9))
    assert g.take_ended() == [Hydration("a", 3, 100, 102, "hydrated")]


def test_running_out_of_memory_ends_an_attempt_and_another_begins() -> None:
    g = scheduled(RecordedGate())
    for export in EXPORTS:
        g.observe(Failure(export.id, FailureKind.STEP, "no", OUT_OF_MEMORY, 1))
    assert g.take_ended() == [Hydration("a", 3, 100, 101, "out of memory")]
    g.maintain(0)
    assert g.hydrating == [Hydration("a", 3, 102)]
    for export in EXPORTS:
        g.observe(output(export, 9))
    assert g.take_ended() == [Hydration("a", 3, 102, 103, "hydrated")]


def test_what_a_replica_had_before_the_connection_is_no_hydration() -> None:
    """The history has it only if the replica was told to hydrate before, or tells of its progress now."""
    known = tuple(export.id for export in EXPORTS)
    g = scheduled(RecordedGate(known=known))
    assert g.hydrating == []
    for export in EXPORTS:
        g.observe(output(export, 9))
    assert g.take_ended() == []

    g = scheduled(RecordedGate(resumed=("a",), known=known))
    assert g.hydrating == [Hydration("a", 3, None)]

    g = scheduled(RecordedGate(known=known))
    g.observe(Status(index("a").id, "hydration", {"state": "hydrating", "percent": "7"}))
    assert g.hydrating == [Hydration("a", 3, 100)]


def test_the_newest_are_kept() -> None:
    history = InstanceHarness().instance.hydrations
    history.extend((R1, Hydration("a", n, n, n, "hydrated")) for n in range(hydration_history.MOST + 5))
    assert len(history) == hydration_history.MOST
    assert history[0] == (R1, Hydration("a", 5, 5, 5, "hydrated"))
