"""What the replica counts, for Prometheus; served on a loopback port where that was asked for."""

from __future__ import annotations

from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, start_http_server

from tidemark_protocol.commands import Command
from tidemark_protocol.responses import Response

STEP_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)


class Metrics:
    """One registry per process."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"registry": self.registry}
        self._commands = Counter("tidemark_replica_commands", "Commands received", ["kind"], **own)
        self._responses = Counter("tidemark_replica_responses", "Responses sent", ["kind"], **own)
        self._steps = Histogram("tidemark_replica_step_seconds", "Steps committed", buckets=STEP_BUCKETS, **own)
        self._hydrations = Counter("tidemark_replica_hydrations", "Dataflows hydrated", **own)
        self._collections = Gauge("tidemark_replica_collections", "Exports installed", ["hydrated"], **own)
        self._peeks = Gauge("tidemark_replica_peeks", "Peeks not yet answered", **own)
        self.hydrations = 0

    def command(self, command: Command) -> None:
        self._commands.labels(type(command).__name__).inc()

    def response(self, response: Response) -> None:
        self._responses.labels(type(response).__name__).inc()

    def step(self, seconds: float) -> None:
        self._steps.observe(seconds)

    def hydrated(self) -> None:
        self.hydrations += 1
        self._hydrations.inc()

    def installed(self, hydrated: int, others: int) -> None:
        self._collections.labels("true").set(hydrated)
        self._collections.labels("false").set(others)

    def waiting(self, peeks: int) -> None:
        self._peeks.set(peeks)

    def serve(self, port: int) -> None:
        """On 127.0.0.1, from a thread of its own."""
        start_http_server(port, addr="127.0.0.1", registry=self.registry)
