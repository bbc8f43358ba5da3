"""What replicas say of themselves is kept where it makes sense, and bounded."""

from __future__ import annotations

import pytest

from tests.controller.worlds import INDEX, R1, World
from tidemark_operator.controller.said import CHARACTERS, KINDS
from tidemark_operator.handlers.statuses import _errors
from tidemark_protocol.responses import Status


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
