"""Statuses of a hydration: its progress when it changes, and its end."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tidemark_operator.controller.reports.hydration_progress import HydrationProgress as Heard
from tidemark_operator.controller.reports.hydration_progress import hydration_progress
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import Response, Status
from tidemark_replica.dataflow import hydration_status as module
from tidemark_replica.dataflow.hydration_status import OPERATORS_MAX, HydrationStatus, fields_of
from tidemark_replica.events.jobs import Done, Failed, Job
from tidemark_replica.render.telemetry.progress import HydrationProgress, OperatorProgress

ID = GlobalId("d/i")


class AtOnce:
    """A pool that does what it is told to do at once."""

    def submit(self, name: str, work: Callable[[], Any], done: Callable[[Any], None]) -> Job:
        try:
            outcome: Done[Any] | Failed = Done(work())
        except OSError as error:
            outcome = Failed(error)
        done(outcome)
        return Job(name)


def at(*percents: int) -> HydrationProgress:
    return HydrationProgress(tuple(OperatorProgress(f"read {n}", percent, 100) for n, percent in enumerate(percents)))


@pytest.fixture
def reporting(monkeypatch: pytest.MonkeyPatch) -> tuple[HydrationStatus, list[Response]]:
    """One whose looks are never too early, and all that it has sent."""
    monkeypatch.setattr(module, "POLL_SECONDS", 0.0)
    responses: list[Response] = []
    return HydrationStatus([ID], AtOnce(), responses.append), responses


def percents(responses: list[Response]) -> list[str]:
    return [r.fields.get("percent", r.fields["state"]) for r in responses if isinstance(r, Status)]


def test_only_changes_are_reported(reporting: tuple[HydrationStatus, list[Response]]) -> None:
    """The same again is none; so is a step that has not begun, or a look that failed."""
    hydration, responses = reporting
    for look in (at(0, 0), at(40, 0), None, at(40, 0), at(40, 20)):
        hydration.poll(lambda look=look: look)  # type: ignore[misc]
    hydration.poll(lambda: (_ for _ in ()).throw(OSError("gone")))

    assert percents(responses) == ["0", "20", "30"]


def test_it_does_not_go_back_unless_it_begins_again(reporting: tuple[HydrationStatus, list[Response]]) -> None:
    """An operator that turns out to be two is no step back; a failure is one."""
    hydration, responses = reporting
    hydration.poll(lambda: at(60))
    hydration.poll(lambda: at(60, 0))
    assert percents(responses) == ["60", "60"]

    hydration.failed()
    hydration.poll(lambda: at(5))
    assert percents(responses)[-1] == "5"


def test_after_its_end_nothing_more_is_said(reporting: tuple[HydrationStatus, list[Response]]) -> None:
    """A look that was under way comes too late, and a new client hears of frontiers what it must."""
    hydration, responses = reporting

    def late() -> HydrationProgress:
        hydration.report_hydrated()
        return at(99)

    hydration.poll(late)
    hydration.poll(lambda: at(99))
    hydration.report_again()
    assert percents(responses) == ["hydrated"]


def test_after_it_was_dropped_nothing_more_is_said(reporting: tuple[HydrationStatus, list[Response]]) -> None:
    """There may be another dataflow of these exports: how far the old one was is nothing to its client."""
    hydration, responses = reporting

    def late() -> HydrationProgress:
        hydration.stop()
        return at(99)

    hydration.poll(late)
    hydration.report_again()
    assert responses == []


def test_a_new_client_is_told_again(reporting: tuple[HydrationStatus, list[Response]]) -> None:
    """The client is told the last progress."""
    hydration, responses = reporting
    hydration.report_again()
    hydration.poll(lambda: at(60))
    hydration.report_again()
    assert percents(responses) == ["60", "60"]


def test_the_controller_reads_the_replicas_hydration_reports() -> None:
    """Both name the fields alike; of very many operators those come first that are not done."""
    assert hydration_progress(fields_of(at(100, 20), 60)) == Heard(60, (("read 0", 100), ("read 1", 20)))

    many = hydration_progress(fields_of(at(*[100] * OPERATORS_MAX, 7), 50))
    assert many is not None
    assert len(many.operators) == OPERATORS_MAX
    assert many.operators[0][1] == 7


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"state": "hydrated"},
        {"state": "hydrating"},
        {"state": "hydrating", "percent": "many"},
        {"state": "hydrating", "percent": "5", "operators": "{"},
        {"state": "hydrating", "percent": "5", "operators": "[1]"},
    ],
)
def test_nonsense_is_not_shown(fields: dict[str, str]) -> None:
    """A report of an image with another format is not shown either."""
    assert hydration_progress(fields) is None
