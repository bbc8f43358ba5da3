"""A replica's metrics while dataflows are created and dropped and peeks are answered: a real process, on Spark.

The process is shared with other tests: what is counted since it began is compared with what was counted before.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from tests.metrics_client import scrape
from tests.replica.conversations import reaches, started, unique
from tests.replica.peek.test_peeks_on_spark import answer, peek_of
from tests.replica.plans import copies, shard
from tests.replica.process import ScriptedClient, wait_until
from tests.replica.tables import Table
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.commands import AllowCompaction, CancelPeek, IndexTarget

pytestmark = pytest.mark.spark

ROWS = 1000


class MetricsReader:
    """By the replica, now; by the name after `tidemark_replica_`."""

    def __init__(self, port: int) -> None:
        self._port = port

    def __call__(self, name: str, **labels: str) -> float:
        return scrape(self._port).value(f"tidemark_replica_{name}", **labels)

    def reconciled(self, outcome: str) -> float:
        return self("reconciled_dataflows_total", outcome=outcome)


@pytest.fixture
def replica_metrics(metrics_port: int) -> MetricsReader:
    return MetricsReader(metrics_port)


def test_dataflows_are_told_as_they_come_hydrate_are_kept_and_go(
    connect: Callable[..., ScriptedClient], replica_metrics: MetricsReader, tmp_path: Path
) -> None:
    """The report has their number, the size of their arrangements, and what became of them when a new client came."""
    connect()  # whoever asks for nothing
    wait_until(
        lambda: replica_metrics("collections", hydrated="true") == replica_metrics("collections", hydrated="false") == 0
    )
    wait_until(lambda: replica_metrics("arrangement_records") == replica_metrics("arrangement_arrangements") == 0)
    missing, hydrations = replica_metrics.reconciled("missing"), replica_metrics("hydrations_total")
    table = Table(tmp_path, "t")
    table.append(10, *(((n, "a"), 3, 1) for n in range(ROWS)))
    kept = copies(unique("kept"), 6, source=table.metadata, index=unique("i"))
    other, never = unique("other"), shard("never", str(tmp_path))
    waits = copies(other, 6, source=never, index=f"{other}-i")
    (index,) = kept.export_ids
    first = connect(*started(kept, waits))
    first.wait_for(reaches("output", index, 10))

    wait_until(
        lambda: (
            (replica_metrics("collections", hydrated="true"), replica_metrics("collections", hydrated="false"))
            == (1, 1)
        )
    )
    assert replica_metrics.reconciled("missing") == missing + 2
    assert replica_metrics("hydrations_total") == hydrations + 1
    assert replica_metrics("arrangement_records") == ROWS
    assert replica_metrics("arrangement_arrangements") >= 1
    assert replica_metrics("arrangement_batches") >= 1
    assert replica_metrics("arrangement_bytes") > ROWS

    reused, incompatible = replica_metrics.reconciled("reused"), replica_metrics.reconciled("incompatible")
    changed = copies(other, 6, source=table.metadata, index=f"{other}-i")
    second = connect(*started(replace(kept, as_of=Time(8)), changed))
    second.wait_for(reaches("output", changed.export_ids[0], 10))
    wait_until(
        lambda: (
            (replica_metrics("collections", hydrated="true"), replica_metrics("collections", hydrated="false"))
            == (2, 0)
        )
    )
    assert replica_metrics.reconciled("reused") == reused + 1
    assert replica_metrics.reconciled("incompatible") == incompatible + 1
    assert replica_metrics.reconciled("missing") == missing + 2
    assert replica_metrics("hydrations_total") == hydrations + 2
    wait_until(lambda: replica_metrics("arrangement_records") == 2 * ROWS)

    second.send(*(AllowCompaction(id, Frontier.empty()) for id in (index, *changed.export_ids)))
    wait_until(lambda: replica_metrics("collections", hydrated="true") == 0)
    kept_of_them = ("arrangements", "records", "batches", "bytes")
    wait_until(lambda: all(replica_metrics(f"arrangement_{kind}") == 0 for kind in kept_of_them))


def test_peeks_are_reported_by_answer_and_time(
    connect: Callable[..., ScriptedClient], replica_metrics: MetricsReader, tmp_path: Path
) -> None:
    """One that is given up counts for as long as it was waited for."""
    table = Table(tmp_path, "t")
    table.append(10, ((1, "a"), 3, 1))
    dataflow = copies(unique("d"), 6, source=table.metadata, index=unique("i"))
    client = connect(*started(dataflow))
    target = IndexTarget(dataflow.export_ids[0])
    client.wait_for(reaches("output", dataflow.export_ids[0], 10))
    count, total = partial(replica_metrics, "peek_seconds_count"), partial(replica_metrics, "peek_seconds_sum")
    rows, failed, canceled = (count(result=r) for r in ("PeekRows", "PeekError", "PeekCanceled"))
    waited, took = total(result="PeekCanceled"), total(result="PeekRows")

    assert answer(client, peek_of(target, 9)) == answer(client, peek_of(target, 8)) == [(1, "a")]
    wait_until(lambda: count(result="PeekRows") == rows + 2)
    assert total(result="PeekRows") > took
    assert "not an index" in str(answer(client, peek_of(IndexTarget(GlobalId("gone")), 9)))
    wait_until(lambda: count(result="PeekError") == failed + 1)

    later = peek_of(target, 50)
    client.send(later)
    wait_until(lambda: replica_metrics("peeks") == 1)
    seen = time.monotonic()
    assert count(result="PeekRows") == rows + 2
    held = time.monotonic() - seen
    client.send(CancelPeek(later.uuid))
    wait_until(lambda: (replica_metrics("peeks"), count(result="PeekCanceled")) == (0, canceled + 1))
    assert total(result="PeekCanceled") - waited >= held
    assert replica_metrics("peek_seconds_bucket", result="PeekCanceled", le="+Inf") == canceled + 1
