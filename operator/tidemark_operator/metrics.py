"""Metrics for Prometheus, served where --metrics-port is given.

    scrape ──► HTTP thread ──► the event loop, which owns all state ──► samples, by instance ──► text

Gauges are read at the time of the scrape; counters and histograms are kept by fleet/instance_counters.py and
fleet/lag_histogram.py. A standby operator serves metrics too, so that its liveness can be probed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from tidemark_operator.catalogue.registry import Registry
from tidemark_operator.catalogue.source_tables import SourceTableState, all_tables
from tidemark_operator.errors import OperatorError
from tidemark_operator.fleet.clock import now_ms
from tidemark_operator.fleet.fleet import Fleet
from tidemark_operator.fleet.instance_counters import SECONDS
from tidemark_operator.fleet.lag_histogram import BUCKETS
from tidemark_operator.fleet.running_instance import RunningInstance
from tidemark_operator.gateway.server.listener import LOOPBACK
from tidemark_operator.kube.leadership import Leadership
from tidemark_protocol import metrics_http
from tidemark_protocol.messages.responses import TableReport
from tidemark_protocol.wire.protobuf import MESSAGE_NAMES

OF_INSTANCE = ("namespace", "instance")
OF_TABLE = (*OF_INSTANCE, "source", "table")
SCRAPE_SECONDS = 5.0
_Numbers = GaugeMetricFamily | CounterMetricFamily
_Sample = tuple[Sequence[str], float]


def serve(read: Callable[[], Iterable[Metric]], port: int, host: str = LOOPBACK) -> int:
    """Serve metrics from threads; call it on the event loop. `read`: called there at each scrape. `port` 0: any free
    port.

    Returns:
        The port.

    Raises:
        OperatorError: the port cannot be bound.
    """
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_OnLoop(asyncio.get_running_loop(), lambda: list(read())))
    try:
        return metrics_http.serve(make_wsgi_app(registry), host, port)
    except OSError as error:
        raise OperatorError(f"metrics on {host}, port {port}: {error.strerror or error}") from None


class _OnLoop(Collector):
    """Collects on the event loop, so that no state changes during a scrape."""

    def __init__(self, loop: asyncio.AbstractEventLoop, read: Callable[[], list[Metric]]) -> None:
        self._loop, self._read = loop, read

    def describe(self) -> Iterable[Metric]:
        return ()

    def collect(self) -> Iterable[Metric]:
        async def read() -> list[Metric]:
            return self._read()

        return asyncio.run_coroutine_threadsafe(read(), self._loop).result(SCRAPE_SECONDS)


def leading(leadership: Leadership) -> Iterator[Metric]:
    """Whether this operator is the leader, and its term."""
    yield GaugeMetricFamily(
        "tidemark_operator_leading", "1: this operator is the leader", value=float(leadership.leads)
    )
    yield GaugeMetricFamily(
        "tidemark_operator_term", "The term under which it last led; 0: never", value=leadership.term
    )


def metrics(fleet: Fleet, registry: Registry) -> Iterator[Metric]:
    """The samples of all instances, and of the tables of all DataSources."""
    instances = list(fleet.all())
    yield from _numbers(instances)
    yield from _histograms(instances)
    yield from _leases(fleet, now_ms())
    yield from _tables(list(all_tables(registry, fleet)), now_ms())


_GAUGES: Mapping[str, tuple[str, Callable[[RunningInstance], float]]] = {
    "replicas": ("Replicas that are to run", lambda i: len(i.replicas)),
    "connected_replicas": ("Replicas that are connected", lambda i: len(i.online)),
    "dataflows": ("Dataflows installed", lambda i: len(i.owners())),
    "unscheduled_dataflows": (
        "Dataflows that wait for their inputs",
        lambda i: sum(not dataflow.scheduled for dataflow in i.dataflows()),
    ),
    "peeks": ("Peeks without an answer", lambda i: len(i.pending_peeks())),
    "subscribes": ("Subscribes that run", lambda i: i.clients.subscribes),
    "copies": ("Copies that run", lambda i: i.clients.copies),
    "queued_commands": (
        "Commands that replicas have not taken yet",
        lambda i: i.queued_commands,
    ),
    "hydrations_waiting": (
        "Dataflows that wait to hydrate, on all replicas",
        lambda i: i.gated_dataflows,
    ),
    "history_commands": ("Commands that a new replica would receive", lambda i: i.history_commands),
    "history_dataflows": ("Dataflows among them", lambda i: i.history_dataflows),
    "refused_reports": (
        "Reports of installed exports that were refused as impossible",
        lambda i: i.refused_reports,
    ),
}


def _by_hydration(instance: RunningInstance) -> dict[str, float]:
    hydrated = [collection.hydrated for collection in instance.collections()]
    return {"true": sum(hydrated), "false": len(hydrated) - sum(hydrated)}


def _by_message(counted: Mapping[type, int]) -> dict[str, float]:
    return {MESSAGE_NAMES[kind]: count for kind, count in counted.items()}


_COUNTERS: Mapping[str, tuple[str, Callable[[RunningInstance], float]]] = {
    "replica_connects": ("Connections made", lambda i: i.counts.connects),
    "replica_connect_seconds": (
        "Seconds from dialing, or from the loss of the previous connection, to the new one",
        lambda i: i.traffic.connect_seconds,
    ),
    "command_bytes": ("Frames of commands, written", lambda i: i.traffic.sent_bytes),
    "response_bytes": ("Frames of responses, read", lambda i: i.traffic.received_bytes),
}
_BY_LABEL: Mapping[str, tuple[type[_Numbers], str, str, Callable[[RunningInstance], Mapping[str, float]]]] = {
    "collections": (GaugeMetricFamily, "Exports installed", "hydrated", _by_hydration),
    "commands": (CounterMetricFamily, "Commands sent", "kind", lambda i: _by_message(i.counts.commands)),
    "responses": (CounterMetricFamily, "Responses received", "kind", lambda i: _by_message(i.counts.responses)),
    "peek_results": (CounterMetricFamily, "Peeks answered", "result", lambda i: i.counts.peeks.results),
}
"""Metrics with a number for each value of a label."""


def _numbers(instances: Sequence[RunningInstance]) -> Iterator[Metric]:
    kinds: tuple[tuple[type[_Numbers], Any], ...] = (GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)
    for kind, table in kinds:
        for name, (says, read) in table.items():
            samples = [(_labels(instance), read(instance)) for instance in instances]
            yield _family(kind, f"controller_{name}", says, OF_INSTANCE, samples)
    for name, (kind, says, label, by_label) in _BY_LABEL.items():
        found = [((*_labels(i), value), number) for i in instances for value, number in by_label(i).items()]
        yield _family(kind, f"controller_{name}", says, (*OF_INSTANCE, label), found)


def _family(kind: type[_Numbers], name: str, says: str, labels: Sequence[str], samples: Iterable[_Sample]) -> Metric:
    made = kind(f"tidemark_{name}", says, labels=labels)
    for values, number in samples:
        made.add_metric(values, number)
    return made


def _leases(fleet: Fleet, now: int) -> Iterator[Metric]:
    books, of = fleet.all_leases(), ("namespace",)
    count = [((namespace,), len(book)) for namespace, book in books]
    behind = [((namespace,), book.furthest_behind_ms(now) / 1000) for namespace, book in books]
    yield _family(GaugeMetricFamily, "controller_leases", "Leases of clients", of, count)
    says = "How far behind the read policy they keep a relation, at most"
    yield _family(GaugeMetricFamily, "controller_lease_behind_seconds", says, of, behind)


_TABLES: Mapping[str, tuple[str, Callable[[TableReport], float | None]]] = {
    "rows": ("Updates in the files of the table", lambda r: r.rows),
    "bytes": ("Bytes of the files of the table", lambda r: r.bytes),
    "snapshot_ratio": (
        "How much of the first rows is read; only while they are",
        lambda r: None if r.snapshot_percent is None else r.snapshot_percent / 100,
    ),
    "malformed_records": ("Records that could not be decoded", lambda r: r.malformed),
    "errors": ("Errors since the ingester began", lambda r: r.errors),
    "stopped": ("1: the table takes no further rows", lambda r: float(r.stopped)),
}


def _tables(tables: Sequence[SourceTableState], now: int) -> Iterator[Metric]:
    """The metrics of tables whose sources are ingested now: others stand still because somebody suspended them."""
    ingesting = [(_table_labels(table), table) for table in tables if table.ingesting]
    reports = [(labels, table.report) for labels, table in ingesting if table.report is not None]
    for name, (says, read) in _TABLES.items():
        found = [(labels, value) for labels, report in reports if (value := read(report)) is not None]
        yield _family(GaugeMetricFamily, f"source_table_{name}", says, OF_TABLE, found)
    lags = [(labels, lag_ms / 1000) for labels, table in ingesting if (lag_ms := table.lag_ms(now)) is not None]
    yield _family(GaugeMetricFamily, "source_table_lag_seconds", "Behind the clock", OF_TABLE, lags)
    behind = [((*labels, report.unit), report.behind) for labels, report in reports if report.behind is not None]
    says = "What the source has and the table lacks"
    yield _family(GaugeMetricFamily, "source_table_behind", says, (*OF_TABLE, "unit"), behind)


def _table_labels(table: SourceTableState) -> tuple[str, ...]:
    key = table.source.key
    return key.namespace, table.source.instance, key.name, table.name


def _histograms(instances: Sequence[RunningInstance]) -> Iterator[Metric]:
    lag = HistogramMetricFamily(
        "tidemark_dataflow_wallclock_lag_seconds",
        "Lag of exports behind the clock, sampled every second",
        labels=OF_INSTANCE,
    )
    took = HistogramMetricFamily(
        "tidemark_controller_peek_seconds", "Seconds from a peek to its answer", labels=OF_INSTANCE
    )
    for instance in instances:
        bounds = [float(1 << bucket) for bucket in range(BUCKETS - 1)]
        lag.add_metric(_labels(instance), _buckets(bounds, instance.lags.total), instance.lags.sum_seconds)
        peeks = instance.counts.peeks
        took.add_metric(_labels(instance), _buckets(SECONDS, peeks.buckets), peeks.sum_seconds)
    yield from (lag, took)


def _buckets(bounds: Sequence[float], counts: Sequence[int]) -> list[tuple[str, float]]:
    """Cumulative buckets by upper bound, as Prometheus expects them."""
    names = [*(f"{bound:g}" if bound % 1 else f"{bound:.1f}" for bound in bounds), "+Inf"]
    return list(zip(names, accumulate(counts), strict=True))


def _labels(instance: RunningInstance) -> tuple[str, str]:
    return instance.namespace, instance.name
