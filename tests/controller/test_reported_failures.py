"""How long a failure that a replica reports stands."""

from __future__ import annotations

import pytest

from tests.controller.harness import R1, VIEW, InstanceHarness, at
from tidemark_operator.controller.frontiers.collection import failures
from tidemark_protocol.messages.responses import Frontiers, Status


def hears(*statuses: Status) -> InstanceHarness:
    harness = InstanceHarness()
    harness.install()
    harness.connect(R1)
    for status in statuses:
        harness.hear(R1, status)
    return harness


def failures_after(kind: str, *reports: Frontiers, retrying: bool = True) -> list[int]:
    """How many failures are told of the view, at first and after each report: the first says where it begins."""
    settings = {"message": "no room", "retrying": str(retrying).lower()}
    harness, counts = hears(Status(VIEW, kind, settings)), []
    collection = harness.instance.dataflows.collection(VIEW)
    assert collection is not None
    for report in (Frontiers(VIEW, at(300), at(300), at(300)), *reports):
        harness.hear(R1, report)
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
