"""Reports of a collection's frontiers: the rules of `Frontiers`, as tables of observed and reported."""

from __future__ import annotations

import pytest

from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import Frontiers
from tidemark_replica.dataflow.frontier_report import FrontierReport, Observed

U1 = GlobalId("u1")


EMPTY = Frontier.empty()
at = Frontier.at


def observed(write: int, input: int, output: int) -> Observed:
    return Observed(at(write), at(input), at(output))


@pytest.mark.parametrize(
    ("history", "reported"),
    [
        ([at(4), at(9), at(10), at(12)], [None, None, at(10), at(12)]),
        ([at(10), at(12), at(11), at(12), at(13)], [at(10), at(12), None, None, at(13)]),
        ([at(11), EMPTY, EMPTY, at(12)], [at(11), EMPTY, None, None]),
    ],
    ids=["first not before as_of", "never backwards", "nothing after empty"],
)
def test_must_report_each_kind_forwards_only(history: list[Frontier], reported: list[Frontier | None]) -> None:
    """The as_of is 10. The cases have the report for each observation of the output frontier, the other kinds standing
    still."""
    report = FrontierReport(U1, at(10))
    news = [report.advance(Observed(at(10), at(10), output)) for output in history]

    assert [n.output if n else None for n in news] == reported


def test_must_report_kinds_apart() -> None:
    """One kind may run ahead of another; the unchanged ones are left out."""
    report = FrontierReport(U1, at(10))

    assert report.advance(observed(20, 5, 12)) == Frontiers(U1, write=at(20), output=at(12))
    assert report.advance(observed(20, 12, 12)) == Frontiers(U1, input=at(12))
    assert report.advance(observed(20, 12, 12)) is None


def test_must_report_empty_for_every_kind_when_dropped() -> None:
    """Kinds that had become empty on their own are not reported again; then there is silence."""
    report = FrontierReport(U1, at(10))
    report.advance(Observed(EMPTY, at(10), at(12)))

    assert report.finish() == Frontiers(U1, input=EMPTY, output=EMPTY)
    assert report.finish() is None
    assert report.advance(observed(50, 50, 50)) is None


def test_a_new_client_is_told_everything_from_its_own_as_of_on() -> None:
    """After `restart` what was known is reported anew, unless it lies before the new as_of."""
    report = FrontierReport(U1, at(10))
    report.advance(observed(30, 30, 18))
    report.restart(at(20))

    assert report.advance(observed(30, 30, 18)) == Frontiers(U1, write=at(30), input=at(30))
    assert report.advance(observed(30, 30, 20)) == Frontiers(U1, output=at(20))
