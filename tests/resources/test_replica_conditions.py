"""The truth table of a ComputeReplica."""

from __future__ import annotations

import pytest

from tests.resources.test_conditions import INSTANCE, MISSING, SUSPENDED, expect
from tidemark_operator.resources.conditions import replica
from tidemark_operator.resources.conditions.instance import InstanceFacts
from tidemark_operator.resources.conditions.replica import (
    Answering,
    Down,
    ExecutorFacts,
    Process,
    ReplicaFacts,
    Starting,
)


@pytest.mark.parametrize(
    ("beside", "rows"),
    [
        (None, "Ready=True/Hydrated UpToDate=True/UpToDate"),
        (Starting(), "Ready=True/Hydrated UpToDate=False/Surging"),
        (Answering(2, 1), "Ready=True/Hydrated UpToDate=False/Surging"),
        (Down("Unschedulable", "no room"), "Ready=True/Hydrated UpToDate=False/SurgeUnschedulable"),
    ],
)
def test_a_shape_beside_the_one_that_serves_is_no_trouble_of_it(beside: Process | None, rows: str) -> None:
    """It says why it does not take over, and what to do."""
    facts = ReplicaFacts(INSTANCE, False, Answering(2, 2), beside)

    expect(replica.replica_conditions(facts), rows)


@pytest.mark.parametrize(
    ("process", "executors", "rows"),
    [
        (Answering(2, 2), ExecutorFacts(2, 2), "ExecutorsReady=True/ExecutorsRunning"),
        (Answering(2, 2), ExecutorFacts(2, 1), "ExecutorsReady=False/Starting"),
        (
            Answering(2, 2),
            ExecutorFacts(2, 0, "OOMKilled", "137"),
            "Ready=True/Hydrated ExecutorsReady=False/OOMKilled",
        ),
        (Starting(), ExecutorFacts(2, 0, "OOMKilled", "137"), "ExecutorsReady=False/Starting"),
        (
            Down("NoExecutors", "13"),
            ExecutorFacts(2, 0, "Error", "1"),
            "Online=False/NoExecutors ExecutorsReady=False/Error",
        ),
    ],
)
def test_executors_are_told_of_where_there_should_be_some(
    process: Process, executors: ExecutorFacts, rows: str
) -> None:
    """Readers do not depend on them."""
    facts = ReplicaFacts(INSTANCE, False, process, executors=executors)

    expect(replica.replica_conditions(facts), rows)


@pytest.mark.parametrize(
    ("instance", "suspended", "process", "rows"),
    [
        (INSTANCE, False, Answering(2, 2), "InstanceFound=True/Found Online=True/Online Ready=True/Hydrated"),
        (INSTANCE, False, Answering(2, 1), "Online=True/Online Ready=False/Hydrating"),
        (INSTANCE, False, Starting(), "Online=False/Starting Ready=False/Starting"),
        (INSTANCE, False, Down("Killed", "2Gi"), "Online=False/Killed Ready=False/Killed"),
        (INSTANCE, True, Answering(2, 2), "Online=False/Suspended Ready=False/Suspended"),
        (SUSPENDED, False, Down("Stopped", ""), "Online=False/InstanceSuspended"),
        (MISSING, False, Starting(), "InstanceFound=False/InstanceNotFound Online=False/InstanceNotFound"),
    ],
)
def test_replica(instance: InstanceFacts, suspended: bool, process: Process, rows: str) -> None:
    """Online is the process, Ready is the process with everything hydrated."""
    verdicts = replica.replica_conditions(ReplicaFacts(instance, suspended, process))

    assert tuple(v.type for v in verdicts) == replica.TYPES
    expect(verdicts, rows)


@pytest.mark.parametrize(
    ("instance", "suspended", "left", "rows"),
    [
        (SUSPENDED, False, True, "Online=False/Stopping Ready=False/Stopping"),
        (SUSPENDED, False, False, "Online=False/InstanceSuspended Ready=False/InstanceSuspended"),
        (SUSPENDED, True, False, "Online=False/InstanceSuspended"),
        (INSTANCE, True, True, "Online=False/Stopping"),
        (INSTANCE, True, False, "Online=False/Suspended"),
    ],
)
def test_a_replica_is_suspended_when_nothing_of_it_is_left(
    instance: InstanceFacts, suspended: bool, left: bool, rows: str
) -> None:
    """A process that was told to end may still append: who copies its tables waits for the reason. That is the same on
    all replicas of an instance."""
    expect(
        replica.replica_conditions(
            ReplicaFacts(instance, suspended, Down("Stopping", "the process is being stopped"), process_exists=left)
        ),
        rows,
    )
