"""Sequential hydration: commands and responses in, commands out."""

from __future__ import annotations

import pytest

from tests.controller.worlds import EMPTY, at
from tests.protocol.samples import dataflow
from tidemark_operator.controller.hydration import HydrationGate
from tidemark_protocol import commands as c
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.responses import Frontiers, Status


def create(name: str) -> c.CreateDataflow:
    return c.CreateDataflow(dataflow(name, 3))


def index(name: str) -> c.Schedule:
    return c.Schedule(GlobalId(f"{name}/i"))


def view(name: str) -> c.Schedule:
    return c.Schedule(GlobalId(f"{name}/v"))


def gate(*names: str) -> HydrationGate:
    gate = HydrationGate(concurrency=1)
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


@pytest.mark.parametrize("kind", ["refused", "step_failed", "render_failed", "sink_failed", "fenced"])
def test_what_fails_keeps_nobody_waiting(kind: str) -> None:
    """A dataflow that a replica refuses never hydrates: its slot goes to the next."""
    g = gate("a", "b")
    g.absorb(index("a")), g.absorb(view("a"))
    g.absorb(index("b")), g.absorb(view("b"))

    assert g.observe(Status(index("a").id, "hydration", {})) == []
    assert g.observe(Status(index("a").id, kind, {})) == []
    assert g.observe(Status(view("a").id, kind, {})) == [index("b"), view("b")]


def test_what_hydrates_unprompted_still_gets_its_schedule() -> None:
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
