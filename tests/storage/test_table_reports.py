"""The reports of an ingestion about its tables: sizes, what is missing, malformed records, and errors."""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from pyspark.sql import SparkSession

from tests.storage.delta.delta_tables import Upstream, ingester, spec_of, tick
from tests.storage.files.directory import Directory
from tests.storage.ingestion_samples import description, tpch_tables
from tests.waiting import until
from tidemark_persist import ShardWriters, open_shard
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.messages.commands import RunIngestion
from tidemark_protocol.messages.responses import IngestionStatus, TableReport
from tidemark_protocol.plan.ingestion import DeltaTable, SourceTable, TpchSource
from tidemark_replica.storage.clock import ControllerClock
from tidemark_replica.storage.delta import followed_table
from tidemark_replica.storage.delta.source import DeltaIngestion
from tidemark_replica.storage.ingester import Ingester
from tidemark_replica.storage.ingestion_threads import IngestionThreads
from tidemark_replica.storage.kafka.reader import TopicReader
from tidemark_replica.storage.source import Source
from tidemark_replica.storage.source_secrets import SourceSecrets
from tidemark_replica.storage.table_reports import SnapshotProgress, TableErrors
from tidemark_replica.storage.tpch.source import TpchIngestion


def test_errors_are_counted_once_for_each_time_that_they_happen() -> None:
    """A table that stays stopped is not counted at every tick; one that stops again is."""
    errors = TableErrors()

    def told(table: str) -> tuple[str, int, Time | None]:
        report = errors.add_to(TableReport(table, rows=5))
        assert report.rows == 5
        return report.error, report.errors, report.error_time

    for at in range(3):
        errors.record_stopped({"t": "VersionGone: 7"}, Time(at))
    assert told("t") == ("VersionGone: 7", 1, 0)
    errors.begin()
    errors.record_stopped({"t": "VersionGone: 7"}, Time(9))
    errors.record_stopped({"t": "TableMissing: it"}, Time(10))
    assert told("t") == ("TableMissing: it", 3, 10)
    errors.failed(["t", "u"], "x" * 5000, Time(11))
    assert (told("t")[1], told("u")) == (4, ("x" * 500, 1, 11))
    assert told("v") == ("", 0, None)


def test_the_size_of_a_shard_is_that_of_its_files(tmp_path: Path) -> None:
    """After appends and compaction, by a handle that followed and by one that opens it."""
    upstream = Upstream(tmp_path / "up", 3)
    follower = ingester(tmp_path, spec_of(DeltaTable("t", upstream.path)))
    follower.recover()
    for step in range(12):
        upstream.append()
        tick(follower, 1000 * (step + 1))
    ((_, writer),) = follower.table_shards()
    for work in writer.maintenance_due():
        writer.run_maintenance(work)
    opened, on_disk = open_shard(writer.location), list(Path(writer.location).glob("*.parquet"))

    assert writer.size() == opened.size()
    assert opened.size().rows >= 20 + 12
    assert 0 < opened.size().bytes <= sum(file.stat().st_size for file in on_disk)


def test_a_delta_table_tells_how_many_versions_it_lacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick binds a bounded number of commits; the rest is behind. A number that cannot be asked for is unknown."""
    monkeypatch.setattr(followed_table, "COMMITS_MAX", 3)
    upstream = Upstream(tmp_path / "up", 3)
    spec = spec_of(DeltaTable("t", upstream.path))
    source = DeltaIngestion(spec)
    tables = tuple(SourceTable(t.name, t.columns or ()) for t in spec.tables)
    follower = Ingester(description(tmp_path, spec, tables), WriterTerm(1), source, ShardWriters())
    follower.recover()
    tick(follower, 1000)
    for _ in range(7):
        upstream.append()
    told = []
    for step in range(4):
        tick(follower, 2000 + step)
        told.append(source.progress()["t"])
    assert [report.behind for report in told] == [4, 1, 0, 0]
    assert {report.unit for report in told} == {"versions"}

    for _ in range(4):
        upstream.append()
    tick(follower, 3000)
    shutil.rmtree(upstream.path)
    assert source.progress()["t"].behind is None


@pytest.mark.spark
def test_files_tell_what_waits_and_what_was_malformed(spark: SparkSession, tmp_path: Path) -> None:
    """Malformed records are counted in error rows, also after a restart, and in dead letters of this ingester."""
    for policy in ("error", "deadLetter"):
        root = tmp_path / policy
        root.mkdir()
        directory = Directory(spark, root, on_bad_record=policy, max_files_per_tick=1)
        directory.put("1.csv", "a,b\n1,x\nbad,y\nworse,z\n")
        directory.put("2.csv", "a,b\n2,x\n")
        directory.put("3.csv", "a,b\n3,x")
        directory.ticks(1)
        waiting = directory.source.progress()["t"]
        assert (waiting.behind, waiting.snapshot_percent) == (3, 0)
        directory.ticks(1)
        percent = 100 * 22 // (22 + 8 + 7)  # of the bytes that there were at first
        found = directory.source.progress()["t"]
        assert found == TableReport("t", behind=2, unit="files", snapshot_percent=percent, malformed=2)
        directory.ticks(2)  # 3.csv may never be whole
        assert directory.source.progress()["t"] == TableReport("t", behind=1, unit="files", malformed=2)
        directory.restart()
        directory.ticks(2)
        known = 2 if policy == "error" else 0
        assert directory.source.progress()["t"] == TableReport("t", behind=1, unit="files", malformed=known)


def test_the_progress_of_the_first_rows_ends_where_there_were_rows_as_the_table_began() -> None:
    """Later rows are no part of it; a number that cannot be asked for is unknown, and changes nothing."""
    progress = SnapshotProgress()
    assert progress.percent("t", 0, 70) is None, "an earlier attempt began it"
    progress.begin("t", 10)
    told = [
        progress.percent("t", done, missing)
        for done, missing in ((10, None), (30, 80), (60, 90), (60, None), (109, 41))
    ]
    assert told == [None, 20, 50, None, 99]
    assert [progress.percent("t", done, 40) for done in (110, 120)] == [None, None]
    progress.begin("u", 0)
    assert progress.percent("u", 0, 0) is None
    assert progress.percent("u", 0, 5) is None, "it had no rows, and is level"


def test_must_a_topic_that_is_created_anew_have_no_negative_percent() -> None:
    """Its table goes on before the offset at which it began: also where the end was not known before."""
    for first in ((500, 500), (500, None)):
        progress = SnapshotProgress()
        progress.begin("t", 500)
        progress.percent("t", *first)
        told = [progress.percent("t", done, 1000 - done) for done in (0, 400, 600, 1000)]
        assert told == [None] * 4


class Ends:
    """A client that knows these high watermarks; it raises where it does not know the partition."""

    def __init__(self, **of: int) -> None:
        self.of = of

    def assign(self, partitions: object) -> None: ...

    def get_watermark_offsets(self, at: TopicPartition, cached: bool) -> tuple[int, int]:
        assert cached
        if f"p{at.partition}" not in self.of:
            raise KafkaException(KafkaError(KafkaError._UNKNOWN_PARTITION))
        return 0, self.of[f"p{at.partition}"]


@pytest.mark.parametrize(
    ("ends", "lag"),
    [
        ({"p0": 100, "p1": 5}, 95),  # the end of p1 is older than what was read
        ({"p0": 100, "p1": -1001}, None),
        ({"p0": -1001, "p1": 7}, None),
        ({"p0": 100}, None),
    ],
)
def test_must_the_lag_of_a_topic_be_unknown_until_all_ends_are_known(ends: dict[str, int], lag: int | None) -> None:
    """An unknown end is no sign that the table has all first rows."""
    client: Any = Ends(**ends)
    reader, progress = TopicReader(client, "t", {0: 5, 1: 7}), SnapshotProgress()
    assert reader.lag(reader.offsets) == lag
    progress.begin("t", 12)
    progress.percent("t", 12, reader.lag(reader.offsets))
    client.of = {"p0": 100, "p1": 12}
    assert progress.percent("t", 62, reader.lag({0: 50, 1: 12})) == (50 if lag is None else 52)


def test_must_a_client_that_no_broker_answered_know_no_lag() -> None:
    settings = {"bootstrap.servers": "127.0.0.1:1", "group.id": "g", "log_level": 0}
    reader = TopicReader(Consumer(settings), "t", {0: 5})
    assert reader.lag(reader.offsets) is None
    reader.close()


class Failing(TpchIngestion):
    """A source whose errors quote a password, `times` times."""

    times = 3
    password = "hunter2-hunter2"

    def discover(self, time: Time) -> pa.Table:
        if Failing.times > 0:
            Failing.times -= 1
            raise PermissionError(13, f"password {self.password}")
        return super().discover(time)

    def stop_reasons(self) -> Mapping[str, str]:
        return {"nation": f"ColumnChanged: asked with {self.password}"}

    def warning(self) -> str:
        return f"connected with {self.password}"


@pytest.fixture
def threads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[IngestionThreads]:
    secrets = SourceSecrets(tmp_path / "secrets")
    (tmp_path / "secrets" / "db").mkdir(parents=True)
    (tmp_path / "secrets" / "db" / "password").write_text(Failing.password)
    secrets.read("db")
    manager = IngestionThreads(None, ShardWriters(), tmp_path / "cache", secrets)

    def failing(*_: object) -> Source:
        return Failing(TpchSource("0.001", 10, 7), tmp_path / "cache")

    monkeypatch.setattr(manager, "source_for", failing)
    monkeypatch.setattr(Failing, "times", 3)
    monkeypatch.setattr("tidemark_replica.storage.ingestion_threads._BACKOFF_S", (0.01,))
    yield manager
    manager.close()


def test_an_ingestion_reports_its_tables_and_no_secret(threads: IngestionThreads, tmp_path: Path) -> None:
    """Failures of the whole source count for each table, and stay as the last error when it goes on."""
    now = Time(int(time.time() * 1000))
    of = description(tmp_path, TpchSource("0.001", 10, 7), tpch_tables("nation", "region"))
    threads.run(RunIngestion(of, WriterTerm(1), now, 30_000), ControllerClock(now, 30_000))
    reported: list[IngestionStatus] = []

    def is_stopped() -> bool:
        reported.extend(r for r in threads.poll() if isinstance(r, IngestionStatus))
        return bool(reported) and reported[-1].state == "stopped"

    until(is_stopped)
    nation, region = reported[-1].tables
    assert (region.table, region.errors, region.stopped) == ("region", 3, False)
    assert region.error.startswith("PermissionError: Permission denied")
    assert (nation.rows, region.rows) == (0, 5)  # the stopped one takes nothing
    assert region.bytes > nation.bytes == 0
    assert (nation.errors, nation.stopped) == (4, True)
    assert nation.error == "ColumnChanged: asked with <password of Secret db>"
    failed = [status for status in reported if status.state == "failed"]
    assert failed
    assert [table.errors for table in failed[-1].tables] == [failed[-1].tables[0].errors] * 2
    assert Failing.password not in repr(reported)
