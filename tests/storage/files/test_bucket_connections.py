"""Connections to a bucket that are slow, break, or stand still, through toxiproxy: the source says so and tries again,
another one goes on beside it, and at the end each row is there once."""

from __future__ import annotations

import random
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pytest
from deltalake import DeltaTable as Table
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from tests.e2e.failures.network_faults import Proxy, toxiproxy
from tests.s3_server import S3Server
from tests.storage.delta.delta_tables import spec_of
from tests.storage.ingestion_samples import description, oks
from tests.storage.test_sources_side_by_side import put as put_file
from tests.storage.test_sources_side_by_side import start as follow_folder
from tests.waiting import until
from tidemark_persist import ShardNotFound, ShardWriters, open_shard
from tidemark_persist.storage.object_reader import open_store
from tidemark_protocol.ids import GlobalId, Time, WriterTerm
from tidemark_protocol.messages.commands import RunIngestion
from tidemark_protocol.messages.responses import IngestionStatus
from tidemark_protocol.plan.ingestion import DeltaTable, FilesSource, FilesTable, SourceSpec, SourceTable
from tidemark_protocol.types import BIGINT, STRING, Column
from tidemark_replica.storage.clock import ControllerClock
from tidemark_replica.storage.ingestion_threads import IngestionThreads

pytestmark = [pytest.mark.spark, pytest.mark.slow]

COLUMNS = (Column("a", BIGINT), Column("b", STRING))
BATCH = 400
"""Rows of some 100 bytes each, of a file or a commit."""
HOUR_MS = 3_600_000


class Bucket(ABC):
    """A table in a bucket, which is written by a way of its own."""

    def __init__(self, s3: S3Server) -> None:
        self.location, self.direct, self.sent = s3.location(f"{uuid.uuid4().hex}/in"), s3.environ, 0

    def more(self) -> None:
        """Another batch of rows."""
        ids = range(self.sent, self.sent + BATCH)
        self.write(pa.table({"a": list(ids), "b": [f"{i}" * 30 for i in ids]}))
        self.sent += BATCH

    @abstractmethod
    def write(self, rows: pa.Table) -> None: ...

    @abstractmethod
    def source(self) -> SourceSpec: ...


class Files(Bucket):
    def write(self, rows: pa.Table) -> None:
        text = "".join(f"{a},{b}\n" for a, b in zip(*rows.to_pydict().values(), strict=True))
        obstore.put(open_store(self.location, self.direct), f"{self.sent:09}.csv", text.encode())

    def source(self) -> SourceSpec:
        return FilesSource((FilesTable("t", "csv", self.location, "*", COLUMNS),))


class Delta(Bucket):
    def write(self, rows: pa.Table) -> None:
        """With some commits that change no row."""
        write_deltalake(self.location, rows, mode="append", storage_options=self.direct)
        if self.sent % (3 * BATCH) == BATCH:
            Table(self.location, storage_options=self.direct).optimize.compact()

    def source(self) -> SourceSpec:
        return spec_of(DeltaTable("t", self.location))


class Followed:
    """A process that follows the bucket by way of the proxy, and a folder beside it."""

    def __init__(self, session: SparkSession, root: Path, bucket: Bucket, proxy: Proxy) -> None:
        self.root, self.bucket, self.proxy = root, bucket, proxy
        self._session, self._beside = session, 0
        self._status = ""

    @contextmanager
    def going_on(self) -> Iterator[None]:
        """A new process that follows both."""
        self._threads = IngestionThreads(self._session, ShardWriters(), self.root / "cache")
        spec = self.bucket.source()
        made = description(self.root / "bucket", spec, (SourceTable("t", COLUMNS),))
        described = replace(made, id=GlobalId("bucket"), name="bucket", tick_ms=200)
        now = Time(int(time.time() * 1000))
        self._threads.run(RunIngestion(described, WriterTerm(1), now, HOUR_MS), ControllerClock(now, HOUR_MS))
        if not self._beside:
            self._folder = follow_folder(self._threads, self._session, self.root, "beside")
        try:
            yield
        finally:
            self.proxy.heal()
            self._threads.close(60.0)

    def is_whole(self) -> bool:
        """All rows are there. The present ones are there once."""
        if not upper_of(f"{self.root}/bucket/t"):
            return False
        found = [row[0] for row in oks(self.root / "bucket", "t")]
        assert len(set(found)) == len(found)
        assert set(found) <= set(range(self.bucket.sent))
        return len(found) == self.bucket.sent

    def other_goes_on(self) -> None:
        """A file in the folder is read."""
        self._beside += 1
        put_file(self._folder, f"{self._beside}.csv", 1)
        location = f"{self.root}/beside/t"

        def has_read() -> bool:
            upper = upper_of(location)
            parts = open_shard(location).snapshot_parts(upper - 1) if upper else ()
            return sum(part.rows for part in parts) == self._beside

        until(has_read)

    def status(self) -> str:
        """The state and the message of the bucket's source."""
        for each in self._threads.poll():
            if isinstance(each, IngestionStatus) and each.id == GlobalId("bucket"):
                self._status = f"{each.state}: {each.message}"
        return self._status


def upper_of(location: str) -> int:
    """The upper of a shard; 0 where there is none yet."""
    try:
        return int(open_shard(location).refresh().upper)
    except ShardNotFound:
        return 0


@pytest.fixture
def proxy(s3: S3Server, tmp_path: Path) -> Iterator[Proxy]:
    with toxiproxy(tmp_path) as program:
        yield Proxy(program, "s3", s3.port)


@pytest.fixture(params=[Files, Delta])
def followed(
    request: pytest.FixtureRequest,
    spark: SparkSession,
    s3: S3Server,
    proxy: Proxy,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Followed:
    for name, value in s3.through(int(proxy.address.rpartition(":")[2])).items():
        monkeypatch.setenv(name, value)
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
    bucket = request.param(s3)
    bucket.more()
    return Followed(spark, tmp_path, bucket, proxy)


SLOW: dict[str, Callable[[Proxy], Any]] = {
    "latency": lambda proxy: proxy.toxic("latency", "downstream", latency=300, jitter=200),
    "bandwidth": lambda proxy: proxy.toxic("bandwidth", "downstream", rate=20),
    "slices": lambda proxy: proxy.toxic("slicer", "downstream", average_size=400, size_variation=200, delay=2000),
}


@pytest.mark.parametrize("kind", SLOW)
def test_a_slow_connection_is_read_to_the_end(followed: Followed, kind: str) -> None:
    with followed.going_on():
        SLOW[kind](followed.proxy)
        until(followed.is_whole)
        for _ in range(2):
            followed.bucket.more()
            followed.other_goes_on()
            until(followed.is_whole)


def test_a_flapping_connection_loses_and_doubles_nothing(followed: Followed) -> None:
    """It is cut and joined; other times it ends after some bytes, in the middle of an answer."""
    draw = random.Random(19)
    with followed.going_on():
        until(followed.is_whole)
        for amount in (300, 5000, 20_000):
            followed.proxy.cut()
            followed.bucket.more()
            until(lambda: followed.status().startswith("failed: StorageError"))
            followed.other_goes_on()
            followed.proxy.toxic("limit_data", "downstream", bytes=amount)
            followed.proxy.join()
            for _ in range(4):
                time.sleep(draw.random())
                followed.is_whole()
            followed.proxy.heal()
            until(followed.is_whole)
            until(lambda: followed.status() == "running: ")


@pytest.mark.parametrize("how", ["swallow", "stand_still"])
def test_a_half_open_connection_is_given_up(followed: Followed, how: str) -> None:
    """Nothing passes, and nobody is told. The same process goes on later, as does another one."""
    with followed.going_on():
        until(followed.is_whole)
        getattr(followed.proxy, how)()
        followed.bucket.more()
        until(lambda: followed.status().startswith("failed: StorageError"))
        followed.other_goes_on()
        followed.proxy.heal()
        until(followed.is_whole)
        until(lambda: followed.status() == "running: ")
    followed.bucket.more()
    with followed.going_on():
        until(followed.is_whole)
