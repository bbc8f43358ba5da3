"""What replicas say of themselves is kept where it makes sense, and bounded."""

from __future__ import annotations

import pytest

from tests.controller.worlds import INDEX, R1, VIEW, World, at
from tidemark_operator.controller.frontiers.collection import failures
from tidemark_operator.controller.reports.hydration_progress import hydrating
from tidemark_operator.controller.reports.operator_costs import operators
from tidemark_operator.controller.reports.status_validation import CHARACTERS, KINDS
from tidemark_operator.handlers.status.statuses import _errors
from tidemark_protocol.messages.responses import Frontiers, Status
from tidemark_protocol.pb.gateway_pb2 import OperatorHydration
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.types import STRING


def hears(*said: Status) -> World:
    world = World()
    world.install()
    world.connect(R1)
    for status in said:
        world.hear(R1, status)
    return world


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("erroring", {"errors": "many"}),
        ("erroring", {"errors": "-1"}),
        ("erroring", {"errors": "²"}),
        ("steps", {"steps": "9" * 19}),
        ("step_failed", {"failures": "1.5"}),
        ("step_failed", {"message": "x" * CHARACTERS}),
    ],
)
def test_what_makes_no_sense_is_counted_and_not_kept(kind: str, fields: dict[str, str]) -> None:
    """It ended the operator, which builds statuses of what it keeps."""
    collection = hears(Status(INDEX, kind, fields)).instance.dataflows.collection(INDEX)

    assert collection is not None
    assert _errors(collection) == []
    assert collection.replicas[R1].statuses == {}
    assert collection.replicas[R1].refused_reports == 1


def test_what_is_kept_of_an_export_is_bounded() -> None:
    """A kind that is kept already may still change."""
    world = hears(*(Status(INDEX, f"kind {n}", {}) for n in range(KINDS + 5)))
    world.hear(R1, Status(INDEX, "kind 0", {"is": "new"}))

    collection = world.instance.dataflows.collection(INDEX)
    assert collection is not None
    assert len(collection.replicas[R1].statuses) == KINDS
    assert collection.replicas[R1].statuses["kind 0"] == {"is": "new"}


def failures_after(kind: str, *reports: Frontiers, retrying: bool = True) -> list[int]:
    """How many failures are told of the view, at first and after each report: the first says where it begins."""
    said = {"message": "no room", "retrying": str(retrying).lower()}
    world, counts = hears(Status(VIEW, kind, said)), []
    collection = world.instance.dataflows.collection(VIEW)
    assert collection is not None
    for report in (Frontiers(VIEW, at(300), at(300), at(300)), *reports):
        world.hear(R1, report)
        counts.append(len(failures(collection.replicas[R1])))
    return counts


def test_a_sink_has_failed_until_the_table_is_further() -> None:
    """Its dataflow steps on meanwhile."""
    steps = [Frontiers(VIEW, input=at(time), output=at(time)) for time in (310, 320)]
    assert failures_after("sink_failed", *steps, Frontiers(VIEW, write=at(310))) == [1, 1, 1, 0]


@pytest.mark.parametrize("kind", ["sink_failed", "fenced"])
def test_a_sink_that_has_stopped_for_good_says_so_for_good(kind: str) -> None:
    """Its dataflow steps on, and another one appends to its table, which it sees; and it says nothing again."""
    reports = [Frontiers(VIEW, input=at(310), output=at(310)), Frontiers(VIEW, write=at(310))]
    assert failures_after(kind, *reports, retrying=False) == [1, 1, 1]


@pytest.mark.parametrize("kind", ["step_failed", "render_failed"])
def test_a_dataflow_has_failed_until_it_has_stepped(kind: str) -> None:
    """Other replicas write its table meanwhile."""
    written = [Frontiers(VIEW, write=at(time)) for time in (310, 320)]
    assert failures_after(kind, *written, Frontiers(VIEW, input=at(310))) == [1, 1, 1, 0]


def names_of(told: str) -> list[str]:
    """Those of operators, while they hydrate and later."""
    early = hydrating({"state": "hydrating", "percent": "4", "operators": f'[["{told}", 4]]'})
    assert early is not None
    (later,) = operators({"operators": f'[["{told}", "{told}", 1, 2, 3, 4]]'})
    return [early.operators[0][0], later.name, later.kind]


def test_names_that_nobody_could_be_sent_are_told_all_the_same() -> None:
    """Half of a surrogate pair, which JSON can spell: by one, a replica kept everybody from seeing what others do."""
    for name in names_of("join \\ud800"):
        assert OperatorHydration(name=name, percent=4).name == "join ?"
        assert codec.encode(Literal(name, STRING))
