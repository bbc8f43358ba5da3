"""A replica whose clock is wrong, and sources that it ingests."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.e2e.failures.fleet import Fleet
from tests.e2e.failures.network_faults import Toxiproxy
from tests.e2e.failures.remote_replicas import Remote, remote
from tests.protocol.samples import A
from tests.replica.conversations import unique
from tests.replica.process import wait_until
from tidemark_operator.controller.frontiers.read_policy import MAX_AHEAD_MS
from tidemark_operator.fleet.clock import now_ms
from tidemark_persist import open_shard
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.ingestion import (
    FilesSource,
    FilesTable,
    IngestedTable,
    IngestionDescription,
    Option,
    SourceTable,
)

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.broad]

HOUR_MS = 3_600_000


@pytest.fixture
def ahead(home: Path, network: Toxiproxy) -> Iterator[Remote]:
    """A replica whose wall clock is an hour ahead: Python reads `sitecustomize` at its start."""
    patch = home / "clock"
    patch.mkdir()
    (patch / "sitecustomize.py").write_text(
        f"import time\n_real = time.time_ns\ntime.time_ns = lambda: _real() + {HOUR_MS} * 1_000_000\n"
    )
    path = f"{patch}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    yield from remote(home, network, "ahead", {**os.environ, "PYTHONPATH": path})


def test_a_replica_with_a_fast_clock_moves_no_other(fleet: Fleet, r1: Remote, ahead: Remote, tmp_path: Path) -> None:
    """It mints no tick beyond the controller's clock and says so; another that takes over goes on at once."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.csv").write_text("a\n1\n2\n")
    table = ShardMetadata(ShardId(unique("files")), str(tmp_path / "files"), (A,))
    ingestion = files(tmp_path / "in", table, tmp_path / "remap")
    for each in (r1, ahead):
        fleet.attach(each.name, each.proxy.address)

    fleet.ingest(ahead.name, ingestion, 1)
    wait_until(lambda: any("ClockSkew" in message for message in fleet.ingestion_said(ahead.name)))
    assert fleet.upper(table) <= 0

    fleet.ingest(r1.name, ingestion, 2)
    first = wait_until(lambda: (upper := fleet.upper(table)) > 0 and upper)
    assert first < now_ms() + MAX_AHEAD_MS
    wait_until(lambda: fleet.upper(table) > first)

    def values() -> list[int]:
        return sorted(row["a"] for row in open_shard(table.location).snapshot(fleet.upper(table) - 1).to_pylist())

    wait_until(lambda: values() == [1, 2])  # ticks go on while a file is read


def files(folder: Path, table: ShardMetadata, remap: Path) -> IngestionDescription:
    """A source of one column, from csv files."""
    columns = SourceTable("a", (A,))
    return IngestionDescription(
        id=GlobalId(unique("files")),
        name="files",
        source=FilesSource((FilesTable("a", "csv", str(folder), "*.csv", (A,), (Option("header", "true"),)),)),
        tick_ms=1000,
        remap_id=ShardId(unique("remap")),
        remap_location=str(remap),
        tables=(IngestedTable(GlobalId("files/a"), columns, table),),
    )
