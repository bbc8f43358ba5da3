"""Sources on one replica do not wait for each other: while one reads a large file, the other's ticks go on."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.storage.ingestion_samples import contents, description
from tests.waiting import BOUND
from tidemark_persist import ShardWriters, open_shard
from tidemark_protocol.ids import GlobalId, Time, WriterTerm
from tidemark_protocol.messages.commands import RunIngestion
from tidemark_protocol.messages.responses import IngestionStatus
from tidemark_protocol.plan.ingestion import FilesSource, FilesTable
from tidemark_protocol.types import BIGINT, STRING, Column
from tidemark_replica.storage.clock import ControllerClock
from tidemark_replica.storage.files import source
from tidemark_replica.storage.files.inspect import tables_of
from tidemark_replica.storage.ingestion_threads import IngestionThreads

pytestmark = pytest.mark.spark
COLUMNS = (Column("a", BIGINT), Column("b", STRING), Column("c", STRING))
ROW_BYTES = 90


def start(threads: IngestionThreads, session: SparkSession, root: Path, name: str) -> Path:
    """An ingestion of one folder, with ticks of 200 ms; returns the folder."""
    folder = root / name / "in"
    folder.mkdir(parents=True)
    spec = FilesSource((FilesTable("t", "csv", str(folder), "*", COLUMNS),))
    made = description(root / name, spec, tables_of(session, spec))
    described = replace(made, id=GlobalId(name), name=name, tick_ms=200)
    now = Time(int(time.time() * 1000))
    threads.run(RunIngestion(described, WriterTerm(1), now, 3_600_000), ControllerClock(now, 3_600_000))
    return folder


def put(folder: Path, name: str, rows: int) -> None:
    with (folder / f".{name}").open("w") as file:
        file.writelines(f"{i:07},{'x' * 40},{'y' * 40}\n" for i in range(rows))
    (folder / f".{name}").rename(folder / name)


def rows(root: Path) -> int:
    """The rows of the table as of its last complete time."""
    shard = open_shard(f"{root}/t")
    upper = shard.state().upper
    return sum(part.rows for part in shard.snapshot_parts(upper - 1)) if upper else 0


def wait_until(what: str, ready: Callable[[], bool]) -> None:
    until = time.monotonic() + BOUND
    while not ready():
        assert time.monotonic() < until, what
        time.sleep(0.05)


def side_by_side(session: SparkSession, root: Path, megabytes: int) -> dict[str, float]:
    """Reads a large file in one source while the other one gets small files. Seconds: how long the large file took,
    and the longest time from a small file to its row."""
    threads = IngestionThreads(session, ShardWriters(), root / "cache")
    activities: set[str] = set()

    def look() -> int:
        """Notes what the sources do; the rows of the small one."""
        activities.update(s.activity for s in threads.poll() if isinstance(s, IngestionStatus) and s.activity)
        return rows(root / "small")

    try:
        large, small = (start(threads, session, root, name) for name in ("large", "small"))
        put(small, "0.csv", 1)
        wait_until("both sources", lambda: (root / "large" / "t").exists() and rows(root / "small") == 1)
        put(large, "large.csv", megabytes * 1_000_000 // ROW_BYTES)
        began, waits = time.monotonic(), list[float]()
        while rows(root / "large") == 0:
            put(small, f"{len(waits) + 1}.csv", 1)
            put_at, wanted = time.monotonic(), len(waits) + 2
            wait_until("a small file", lambda wanted=wanted: look() >= wanted)  # type: ignore[misc]
            waits.append(time.monotonic() - put_at)
            look()
            time.sleep(0.3)
        took = time.monotonic() - began
    finally:
        threads.close(BOUND)
    named = any(f"reads 1 file(s) of table t, {megabytes} MB" in text for text in activities)
    return {"large_s": took, "small_max_s": max(waits), "small_files": len(waits), "named": float(named)}


def test_a_small_source_goes_on_while_a_large_file_is_read(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The large file is one job of many tasks, and the small source's jobs come in between: several of its files are
    there before the large one is, which becomes visible as a whole."""
    monkeypatch.setattr(source, "ACTIVITY_SECONDS", 0.0)
    measured = side_by_side(spark, tmp_path, 60)
    assert measured["small_files"] >= 3, measured
    assert measured["named"], measured
    assert contents(tmp_path / "large", "t").num_rows == 60_000_000 // ROW_BYTES


@pytest.mark.slow
def test_a_small_source_goes_on_beside_250_megabytes(spark: SparkSession, tmp_path: Path) -> None:
    """The measurement of docs/benchmarks.md: `pytest -s -m slow tests/storage/test_sources_side_by_side.py`."""
    measured = side_by_side(spark, tmp_path, 250)
    print(json.dumps(measured), file=sys.stderr)
    assert measured["small_max_s"] < measured["large_s"] / 4, measured
