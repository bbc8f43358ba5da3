"""Costs and state of a dataflow are reported from time to time, and only changes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tidemark_operator.controller.reports.operator_costs import OperatorCost as Heard
from tidemark_operator.controller.reports.operator_costs import operator_channels, operator_costs, operator_nodes
from tidemark_operator.controller.reports.step_histogram import step_histogram
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import Response, Status
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.render.telemetry.operator_costs import OperatorCost
from tidemark_replica.telemetry.cost_status import (
    NAME_LENGTH_MAX,
    OPERATORS_MAX,
    REPORT_SECONDS,
    CostStatus,
    arrangement_sizes,
    channels_json,
    nodes_json,
    operators_json,
)
from tidemark_replica.telemetry.status_repeater import StatusRepeater


def manifests(*rows: int) -> list[Manifest]:
    """One arrangement with a batch of so many rows each."""
    batches = [SimpleNamespace(rows=r, bytes=10 * r) for r in rows]
    return [cast(Manifest, SimpleNamespace(batches=batches))]


def test_sizes_are_of_all_arrangements_together() -> None:
    """Whoever wants them apart looks at the files."""
    assert arrangement_sizes([*manifests(1, 2), *manifests(4)]) == {
        "arrangements": 2,
        "records": 7,
        "batches": 3,
        "bytes": 70,
    }


def test_steps_are_told_together_after_a_while_and_again_to_a_new_client() -> None:
    """Nothing before the first step; nothing twice."""
    responses: list[Response] = []
    now = [100.0]
    repeater = StatusRepeater(responses.append)
    working = CostStatus(GlobalId("d/i"), repeater, lambda: now[0])
    working.report(lambda: manifests(5))
    assert responses == []

    working.step(0.25)
    working.report(lambda: manifests(5))
    first = {s.kind: s.fields for s in cast(list[Status], responses)}
    known = {"steps": "1", "elapsed_ms": "250", "max_ms": "250", "hydration_ms": "250", "histogram": "[[256, 1]]"}
    assert first["steps"] == known
    assert first["arrangements"]["records"] == "5"
    assert operator_costs(first["operators"]) == ()

    working.step(0.5)
    working.report(lambda: manifests(6))
    assert len(responses) == 3
    now[0] += REPORT_SECONDS
    working.report(lambda: manifests(5))
    last: Any = responses[-1]
    assert (len(responses), last.kind, last.fields["elapsed_ms"], last.fields["hydration_ms"]) == (
        4,
        "steps",
        "750",
        "250",
    )
    repeater.report_again()
    working.report(lambda: manifests(5))
    assert len(responses) == 7


@pytest.mark.parametrize(
    ("seconds", "up_to"),
    [(0, 1), (0.001, 1), (0.0011, 2), (0.002, 2), (0.0041, 8), (1.024, 1024), (1.025, 2048), (10**6, 1 << 21)],
)
def test_a_step_is_counted_below_the_next_power_of_two_milliseconds(seconds: float, up_to: int) -> None:
    """The last bucket takes the rest. The controller reads what the replica reports."""
    responses: list[Response] = []
    working = CostStatus(GlobalId("d/i"), responses.append, lambda: 100.0)
    working.step(seconds)
    working.step(seconds)
    working.report(lambda: manifests(5))
    (steps,) = (s.fields for s in cast(list[Status], responses) if s.kind == "steps")
    assert step_histogram(steps) == ((up_to, 2),)
    assert step_histogram({"histogram": "[[1]]"}) == step_histogram({}) == ()


def test_the_controller_reads_the_replicas_operator_reports() -> None:
    """In milliseconds, and in the order of the plan."""
    join, reduce = OperatorCost("join", "Join", 5, 2, 70, 1_999), OperatorCost("reduce" * 40, "Reduce", 1, 1, 9, 500)
    fields = {"operators": operators_json([join, reduce]), "channels": channels_json({(0, 1)}, 2)}
    heard = operator_costs(fields)
    assert operator_channels(fields) == ((0, 1),)
    assert channels_json({(0, 1)}, OPERATORS_MAX + 1) == "[]"
    nodes = nodes_json([replace(join, node=(0, 3)), reduce])
    assert operator_nodes({"nodes": nodes}) == ((0, 3), None)
    assert operator_nodes({}) == operator_nodes({"nodes": "[[7]]"}) == operator_nodes({"nodes": "7"}) == ()
    assert heard == (Heard("join", "Join", 5, 2, 70, 1), Heard(("reduce" * 40)[:NAME_LENGTH_MAX], "Reduce", 1, 1, 9, 0))


def test_of_very_many_operators_those_that_worked_longest_are_told() -> None:
    """The others together as one, so that sums stay what they are; and not more than is kept of what is said."""
    many = [OperatorCost(f"{n} " * NAME_LENGTH_MAX, "Join", 1, 2, 3, 1000 * (n % 100)) for n in range(200)]
    reported = operators_json(many)
    heard = operator_costs({"operators": reported})
    assert len(heard) == OPERATORS_MAX
    assert len(reported) < 64 * 1024
    assert heard[-1].name == f"{200 - OPERATORS_MAX + 1} others"
    assert [o.elapsed_ms for o in heard[:3]] == [68, 69, 70]
    assert sum(o.elapsed_ms for o in heard) == 2 * sum(range(100))
    assert sum(o.records for o in heard) == 200
    nodes = operator_nodes({"nodes": nodes_json([replace(o, node=(0, n)) for n, o in enumerate(many)])})
    assert [int(o.name.split()[0]) for o in heard[:-1]] == [node[1] for node in nodes[:-1] if node is not None]
    assert len(nodes) == OPERATORS_MAX
    assert nodes[-1] is None


@pytest.mark.parametrize(
    "message",
    [
        "",
        "{",
        "7",
        "[1]",
        '[["join", "Join", 1, 2, 3]]',
    ],
)
def test_nonsense_is_not_shown(message: str) -> None:
    """A report of an image with another format is not shown either."""
    assert operator_costs({"operators": message}) == ()
