"""A dataflow that catches up in bounded steps says how far it is, seldom, and that it has caught up."""

from __future__ import annotations

from tidemark_operator.controller.reports.catch_up import CatchUp, catch_up
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import Response, Status
from tidemark_replica.telemetry.catch_up_status import KIND, REPORT_SECONDS, CatchUpStatus
from tidemark_replica.telemetry.status_repeater import StatusRepeater

INDEX, VIEW = GlobalId("index"), GlobalId("view")


def catch_ups(responses: list[Response]) -> list[CatchUp | None]:
    """The updates that a client reads of one export."""
    statuses = [r for r in responses if isinstance(r, Status)]
    assert all(s.kind == KIND for s in statuses)
    return [catch_up(s.fields) for s in statuses if s.id == VIEW]


def test_progress_is_reported_at_most_once_a_second_and_its_end_at_once() -> None:
    """For every export. A new client hears the last one again."""
    responses: list[Response] = []
    now = [100.0]
    repeater = StatusRepeater(responses.append)
    status = CatchUpStatus([INDEX, VIEW], repeater, lambda: now[0])
    status.has_caught_up()
    assert responses == []
    for left in (1000, 900, 750):
        status.is_behind(5000, left)
        now[0] += 0.6 * REPORT_SECONDS
    found = [CatchUp(0, Frontier.at(5000), 1000), CatchUp(25, Frontier.at(5000), 750)]
    assert catch_ups(responses) == found
    repeater.report_again()
    assert catch_ups(responses) == [*found, found[-1]]
    status.has_caught_up()
    status.has_caught_up()
    assert catch_ups(responses) == [*found, found[-1], None]
    assert len(responses) == 8
    repeater.report_again()
    assert len(responses) == 8


def test_more_that_comes_meanwhile_takes_it_back() -> None:
    """The percentage is of all that it was behind at most; it is never 100."""
    responses: list[Response] = []
    now = [0.0]
    status = CatchUpStatus([VIEW], responses.append, lambda: now[0])
    for left in (100, 400, 1):
        status.is_behind(9, left)
        now[0] += REPORT_SECONDS
    assert [found.percent for found in catch_ups(responses) if found] == [0, 0, 99]
