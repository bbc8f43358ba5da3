"""Metrics for Prometheus, served where --metrics-port is given.

    scrape ──► HTTP thread ──► the event loop, which owns all state ──► samples, by instance ──► text

Gauges are read at the time of the scrape; counters and histograms are kept by fleet/instance_counters.py and
fleet/lag_histogram.py. A standby operator serves metrics too, so that its liveness can be probed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import accumulate

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
    yield from _gauges(instances)
    yield from _counters(instances)
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


def _gauges(instances: Sequence[RunningInstance]) -> Iterator[Metric]:
    for name, (says, read) in _GAUGES.items():
        gauge = GaugeMetricFamily(f"tidemark_controller_{name}", says, labels=OF_INSTANCE)
        for instance in instances:
            gauge.add_metric(_labels(instance), read(instance))
        yield gauge
    gauge = GaugeMetricFamily("tidemark_controller_collections", "Exports installed", labels=(*OF_INSTANCE, "hydrated"))
    for instance in instances:
        hydrated = [c.hydrated for c in instance.collections()]
        gauge.add_metric((*_labels(instance), "true"), sum(hydrated))
        gauge.add_metric((*_labels(instance), "false"), len(hydrated) - sum(hydrated))
    yield gauge


def _leases(fleet: Fleet, now: int) -> Iterator[Metric]:
    count = GaugeMetricFamily("tidemark_controller_leases", "Leases of clients", labels=("namespace",))
    behind = GaugeMetricFamily(
        "tidemark_controller_lease_behind_seconds",
        "How far behind the read policy they keep a relation, at most",
        labels=("namespace",),
    )
    for namespace, leases in fleet.all_leases():
        count.add_metric((namespace,), len(leases))
        behind.add_metric((namespace,), leases.furthest_behind_ms(now) / 1000)
    yield from (count, behind)


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
    for name, (says, read) in _TABLES.items():
        gauge = GaugeMetricFamily(f"tidemark_source_table_{name}", says, labels=OF_TABLE)
        for labels, table in ingesting:
            if table.report is not None and (value := read(table.report)) is not None:
                gauge.add_metric(labels, value)
        yield gauge
    lag = GaugeMetricFamily("tidemark_source_table_lag_seconds", "Behind the clock", labels=OF_TABLE)
    behind = GaugeMetricFamily(
        "tidemark_source_table_behind", "What the source has and the table lacks", labels=(*OF_TABLE, "unit")
    )
    for labels, table in ingesting:
        if (lag_ms := table.lag_ms(now)) is not None:
            lag.add_metric(labels, lag_ms / 1000)
        if table.report is not None and table.report.behind is not None:
            behind.add_metric((*labels, table.report.unit), table.report.behind)
    yield from (lag, behind)


def _table_labels(table: SourceTableState) -> tuple[str, ...]:
    key = table.source.key
    return key.namespace, table.source.instance, key.name, table.name


def _counters(instances: Sequence[RunningInstance]) -> Iterator[Metric]:
    of_kind = (*OF_INSTANCE, "kind")
    commands = CounterMetricFamily("tidemark_controller_commands", "Commands sent", labels=of_kind)
    responses = CounterMetricFamily("tidemark_controller_responses", "Responses received", labels=of_kind)
    peeks = CounterMetricFamily("tidemark_controller_peek_results", "Peeks answered", labels=(*OF_INSTANCE, "result"))
    connects = CounterMetricFamily("tidemark_controller_replica_connects", "Connections made", labels=OF_INSTANCE)
    waits, sent, received = (
        CounterMetricFamily(f"tidemark_controller_{name}", says, labels=OF_INSTANCE)
        for name, says in (
            (
                "replica_connect_seconds",
                "Seconds from dialing, or from the loss of the previous connection, to the new one",
            ),
            ("command_bytes", "Frames of commands, written"),
            ("response_bytes", "Frames of responses, read"),
        )
    )
    for instance in instances:
        labels, counts = _labels(instance), instance.counts
        for family, counted in ((commands, counts.commands), (responses, counts.responses)):
            for kind, count in counted.items():
                family.add_metric((*labels, MESSAGE_NAMES[kind]), count)
        for result, count in counts.peeks.results.items():
            peeks.add_metric((*labels, result), count)
        connects.add_metric(labels, counts.connects)
        waits.add_metric(labels, instance.traffic.connect_seconds)
        sent.add_metric(labels, instance.traffic.sent_bytes)
        received.add_metric(labels, instance.traffic.received_bytes)
    yield from (commands, responses, peeks, connects, waits, sent, received)


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
