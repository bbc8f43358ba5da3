"""`bench.cluster` reads the statuses that a replica sends."""

from __future__ import annotations

from prometheus_client import generate_latest

from bench.harness.replica import Steps
from tidemark_replica.telemetry.metrics import Metrics


def test_steps_are_counted_and_timed_as_replicas_tell_them() -> None:
    """The count is that of all its dataflows together."""
    metrics = Metrics()
    assert Steps.read(generate_latest(metrics.registry).decode()) == Steps(0, 0.0)
    for seconds in (0.25, 0.5):
        metrics.step(seconds, cold_reads=0)
    assert Steps.read(generate_latest(metrics.registry).decode()) == Steps(2, 0.75)
