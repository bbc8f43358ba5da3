"""Problems that replicas report of their object store and executors: kept while the replica is connected."""

from __future__ import annotations

import pytest

from tests.controller.harness import R1, R2, InstanceHarness
from tidemark_operator.controller.reports.replica_problems import EXECUTORS, STORAGE
from tidemark_operator.resources.conditions.instance import ReplicaProblem
from tidemark_protocol.ids import INSTANCE
from tidemark_protocol.messages.responses import Status

DENIED = {"reason": "AccessDenied", "message": "403"}
FULL = {"reason": "QuotaExceeded", "message": "exceeded quota: q"}


def test_trouble_stands_until_the_replica_says_otherwise_or_goes() -> None:
    """Each replica has its own; nobody is told, as statuses are looked at all the time."""
    harness = InstanceHarness(upper=900)
    harness.connect(R1, R2)
    for replica in (R2, R1):
        assert harness.hear(replica, Status(INSTANCE, "storage", DENIED)) == []
    problems = harness.instance.replica_problems
    assert problems.all(STORAGE) == tuple(ReplicaProblem(r, "AccessDenied", "403") for r in (R1, R2))
    harness.hear(R1, Status(INSTANCE, "storage", {}))
    assert [problem.replica for problem in problems.all(STORAGE)] == [R2]
    harness.instance.disconnect(R2)
    assert problems.all(STORAGE) == ()


def test_a_store_and_executors_are_troubles_of_their_own() -> None:
    """The end of one says nothing of the other; with its replica both go."""
    harness = InstanceHarness(upper=900)
    harness.connect(R1, R2)
    harness.hear(R1, Status(INSTANCE, "storage", DENIED))
    harness.hear(R1, Status(INSTANCE, "executors", FULL))
    harness.hear(R1, Status(INSTANCE, "storage", {}))
    problems = harness.instance.replica_problems
    assert problems.of(STORAGE, R1) is None
    assert problems.of(EXECUTORS, R1) == ReplicaProblem(R1, "QuotaExceeded", "exceeded quota: q")
    assert problems.of(EXECUTORS, R2) is None
    harness.instance.disconnect(R1)
    assert problems.of(EXECUTORS, R1) is None


@pytest.mark.parametrize(
    ("kind", "fields", "kept"),
    [
        ("weather", DENIED, None),
        ("storage", {"message": "no", "reason": "no reason at all!"}, "Failed"),
        ("storage", {"message": "no"}, "Failed"),
    ],
)
def test_a_malformed_problem_is_dropped(kind: str, fields: dict[str, str], kept: str | None) -> None:
    """A reason becomes part of a condition, which the API server checks."""
    harness = InstanceHarness(upper=900)
    harness.connect(R1)
    harness.hear(R1, Status(INSTANCE, kind, fields))
    assert [problem.reason for problem in harness.instance.replica_problems.all(STORAGE)] == ([kept] if kept else [])
