"""The time for which a failure that a replica reports stands."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.controller.harness import R1, VIEW, InstanceHarness, at
from tidemark_operator.controller.frontiers.collection import failures
from tidemark_protocol.messages.responses import Failure, FailureKind, Frontiers


def hears(*told: Failure) -> InstanceHarness:
    harness = InstanceHarness()
    harness.install()
    harness.connect(R1)
    for failure in told:
        harness.hear(R1, failure)
    return harness


def failures_after(kind: FailureKind, *reports: Frontiers, stopped: bool = False) -> list[int]:
    """The number of failures of the view, at first and after each report: the first says where it begins."""
    harness, counts = hears(Failure(VIEW, kind, "no room", stopped=stopped)), []
    collection = harness.instance.dataflows.collection(VIEW)
    assert collection is not None
    for report in (Frontiers(VIEW, at(300), at(300), at(300)), *reports):
        harness.hear(R1, report)
        counts.append(len(failures(collection.replicas[R1])))
    return counts


def test_a_sink_has_failed_until_the_table_is_further() -> None:
    """Its dataflow steps on meanwhile."""
    steps = [Frontiers(VIEW, input=at(time), output=at(time)) for time in (310, 320)]
    assert failures_after(FailureKind.SINK, *steps, Frontiers(VIEW, write=at(310))) == [1, 1, 1, 0]


@pytest.mark.parametrize("kind", [FailureKind.SINK, FailureKind.FENCED])
def test_a_sink_that_has_stopped_for_good_says_so_for_good(kind: FailureKind) -> None:
    """Its dataflow steps on, and another one appends to its table, which it sees; and it says nothing again."""
    reports = [Frontiers(VIEW, input=at(310), output=at(310)), Frontiers(VIEW, write=at(310))]
    assert failures_after(kind, *reports, stopped=True) == [1, 1, 1]


@pytest.mark.parametrize("kind", [FailureKind.STEP, FailureKind.RENDER])
def test_a_dataflow_has_failed_until_it_has_stepped(kind: FailureKind) -> None:
    """Other replicas write its table meanwhile."""
    written = [Frontiers(VIEW, write=at(time), output=at(time)) for time in (310, 320)]
    assert failures_after(kind, *written, Frontiers(VIEW, input=at(310))) == [1, 1, 1, 0]


def test_a_failure_that_is_repeated_to_a_new_connection_stands_until_it_has_stepped() -> None:
    """The connection before has told it too, and what that one told is forgotten. Twice is once: nothing is new."""
    harness = hears(failed := Failure(VIEW, FailureKind.STEP, "no room", attempts=3))
    harness.connect(R1)
    collection = harness.instance.dataflows.collection(VIEW)
    assert collection is not None
    assert failures(collection.replicas[R1]) == []

    repeated = replace(failed, repeated=True)
    assert [len(harness.hear(R1, repeated)) for _ in range(2)] == [1, 0]
    assert failures(collection.replicas[R1]) == ["step failed: no room"]
    harness.report(R1, at(305), VIEW)
    assert failures(collection.replicas[R1]) == ["step failed: no room"], "as old as the failure"
    harness.hear(R1, Frontiers(VIEW, input=at(306)))
    assert failures(collection.replicas[R1]) == []
