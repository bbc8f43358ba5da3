"""What replicas say of their object store and their executors: kept while they are connected, where it makes sense."""

from __future__ import annotations

import pytest

from tests.controller.worlds import R1, R2, World
from tidemark_operator.controller.reports.replica_problems import EXECUTORS, STORAGE
from tidemark_operator.resources.conditions.instance import ReplicaTrouble
from tidemark_protocol.ids import INSTANCE
from tidemark_protocol.messages.responses import Status

DENIED = {"reason": "AccessDenied", "message": "403"}
FULL = {"reason": "QuotaExceeded", "message": "exceeded quota: q"}


def test_trouble_stands_until_the_replica_says_otherwise_or_goes() -> None:
    """Of each replica its own; nobody is told, as statuses are looked at all the time."""
    world = World(upper=900)
    world.connect(R1, R2)
    for replica in (R2, R1):
        assert world.hear(replica, Status(INSTANCE, "storage", DENIED)) == []
    troubles = world.instance.replica_problems
    assert troubles.all(STORAGE) == tuple(ReplicaTrouble(r, "AccessDenied", "403") for r in (R1, R2))
    world.hear(R1, Status(INSTANCE, "storage", {}))
    assert [trouble.replica for trouble in troubles.all(STORAGE)] == [R2]
    world.instance.disconnect(R2)
    assert troubles.all(STORAGE) == ()


def test_a_store_and_executors_are_troubles_of_their_own() -> None:
    """The end of one says nothing of the other; with its replica both go."""
    world = World(upper=900)
    world.connect(R1, R2)
    world.hear(R1, Status(INSTANCE, "storage", DENIED))
    world.hear(R1, Status(INSTANCE, "executors", FULL))
    world.hear(R1, Status(INSTANCE, "storage", {}))
    troubles = world.instance.replica_problems
    assert troubles.of(STORAGE, R1) is None
    assert troubles.of(EXECUTORS, R1) == ReplicaTrouble(R1, "QuotaExceeded", "exceeded quota: q")
    assert troubles.of(EXECUTORS, R2) is None
    world.instance.disconnect(R1)
    assert troubles.of(EXECUTORS, R1) is None


@pytest.mark.parametrize(
    ("kind", "fields", "kept"),
    [
        ("weather", DENIED, None),
        ("storage", {"message": "no", "reason": "no reason at all!"}, "Failed"),
        ("storage", {"message": "no"}, "Failed"),
    ],
)
def test_what_makes_no_sense_is_not_kept_and_no_reason_is_made_up(
    kind: str, fields: dict[str, str], kept: str | None
) -> None:
    """A reason becomes part of a condition, which the API server checks."""
    world = World(upper=900)
    world.connect(R1)
    world.hear(R1, Status(INSTANCE, kind, fields))
    assert [trouble.reason for trouble in world.instance.replica_problems.all(STORAGE)] == ([kept] if kept else [])
