"""Prometheus metrics of the replica, served on loopback unless configured otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app

from tidemark_protocol import metrics_http
from tidemark_protocol.messages.commands import Command
from tidemark_protocol.messages.responses import PeekCanceled, PeekError, PeekRows, PeekStashed, Response
from tidemark_protocol.wire.protobuf import MESSAGE_NAMES
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.telemetry.cost_status import arrangement_sizes

PEEK_BUCKETS = (0.001, 0.003, 0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
STEP_BUCKETS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)

_PEEK_RESULTS: Mapping[type, str] = {
    PeekRows: "PeekRows",
    PeekStashed: "PeekStashed",
    PeekError: "PeekError",
    PeekCanceled: "PeekCanceled",
}


class _Children(dict[type, Any]):
    """The children of a metric with one label, by type: to find one again costs more than to count."""

    def __init__(self, metric: Any, names: Mapping[type, str]) -> None:
        super().__init__()
        self._metric, self._names = metric, names

    def __missing__(self, kind: type) -> Any:
        made = self[kind] = self._metric.labels(self._names[kind])
        return made


def _size(kept: Callable[[], Iterable[Manifest]], name: str) -> float:
    return arrangement_sizes(kept())[name]


class Metrics:
    """The metrics of a process, in one registry."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        own: dict[str, Any] = {"registry": self.registry}
        commands = Counter("tidemark_replica_commands", "Commands received", ["kind"], **own)
        responses = Counter("tidemark_replica_responses", "Responses sent", ["kind"], **own)
        self._commands, self._responses = _Children(commands, MESSAGE_NAMES), _Children(responses, MESSAGE_NAMES)
        self._steps = Histogram("tidemark_replica_step_seconds", "Steps committed", buckets=STEP_BUCKETS, **own)
        self._cold_reads = Counter(
            "tidemark_replica_cold_reads", "Files of state that the process of a step had not open", **own
        )
        self._recomputations = Counter(
            "tidemark_replica_recomputations", "Times at which views of policy auto were computed anew", **own
        )
        self._hydrations = Counter("tidemark_replica_hydrations", "Dataflows hydrated", **own)
        self._collections = Gauge("tidemark_replica_collections", "Exports installed", ["hydrated"], **own)
        self._peeks = Gauge("tidemark_replica_peeks", "Peeks not yet answered", **own)
        self._reconciled = Counter(
            "tidemark_replica_reconciled_dataflows", "Dataflows that a new client asked for", ["outcome"], **own
        )
        seconds = Histogram(
            "tidemark_replica_peek_seconds", "From the command to the answer", ["result"], buckets=PEEK_BUCKETS, **own
        )
        self._peek_seconds = _Children(seconds, _PEEK_RESULTS)
        self.hydrations = 0

    def command(self, command: Command) -> None:
        self._commands[type(command)].inc()

    def response(self, response: Response) -> None:
        self._responses[type(response)].inc()

    def step(self, seconds: float, cold_reads: int) -> None:
        self._steps.observe(seconds)
        self._cold_reads.inc(cold_reads)

    def hydrated(self) -> None:
        self.hydrations += 1
        self._hydrations.inc()

    def recomputed(self) -> None:
        self._recomputations.inc()

    def installed(self, hydrated: int, others: int) -> None:
        self._collections.labels("true").set(hydrated)
        self._collections.labels("false").set(others)

    def reconciled(self, reason: str | None) -> None:
        """`reason`: why a dataflow is created anew; None: it was reused."""
        self._reconciled.labels(reason or "reused").inc()

    def peek(self, result: object, seconds: float) -> None:
        self._peek_seconds[type(result)].observe(seconds)

    def arrangements(self, kept: Callable[[], Iterable[Manifest]]) -> None:
        """Registers gauges that read `kept` when they are scraped."""
        for name in ("arrangements", "records", "batches", "bytes"):
            says = f"Of all arrangements: {name}"
            gauge = Gauge(f"tidemark_replica_arrangement_{name}", says, registry=self.registry)
            gauge.set_function(partial(_size, kept, name))

    def set_waiting_peeks(self, peeks: int) -> None:
        """Show how many peeks wait."""
        self._peeks.set(peeks)

    def serve(self, host: str, port: int) -> None:
        """Serves on threads of its own. Raises OSError."""
        metrics_http.serve(make_wsgi_app(self.registry), host, port)
