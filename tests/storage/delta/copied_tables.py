"""Sources of a small Delta table and of a large one, which is copied beside the ticks of the small one."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Table
from deltalake import write_deltalake

from tests.storage.delta.delta_tables import ingester, spec_of, tick
from tests.storage.ingestion_samples import oks
from tests.waiting import until
from tidemark_persist import ShardWriters, open_shard
from tidemark_protocol.plan.ingestion import DeltaSource, DeltaTable
from tidemark_replica.storage.delta import pieces, source
from tidemark_replica.storage.delta.copies.table_copies import TableCopies
from tidemark_replica.storage.delta.reading import RowReader
from tidemark_replica.storage.ingester import Ingester

FILES = 6
ROWS = sorted([(n + k,) for n in range(FILES) for k in (0, 100)], key=repr)


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


class Gate:
    """Copies of a table `big` pass it only as far as it lets them. `reached`: how many files they came to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reached, self.passed = 0, threading.Semaphore(0)
        read = RowReader.updates

        def gated(reader: RowReader, file: Any, dictionaries: bool = False) -> Any:
            if reader.storage.location.endswith("big"):
                self.reached += 1
                assert self.passed.acquire(timeout=60)
            return read(reader, file, dictionaries)

        monkeypatch.setattr(RowReader, "updates", gated)

    def let(self, files: int) -> None:
        self.passed.release(files)

    def open(self) -> None:
        self.let(1000)


class Copied:
    """A source of `small`, and of `big`, which has FILES files; each file is a piece. It has ingested nothing."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        monkeypatch.setattr(source, "WAIT_SECONDS", 0.05)
        monkeypatch.setattr(pieces, "PIECE_BYTES", 1)
        self.root, self.now = root, 1000
        self.big, self.small = str(root / "up" / "big"), str(root / "up" / "small")
        write_deltalake(self.small, ids(0))
        for n in range(FILES):
            write_deltalake(self.big, ids(n, n + 100), mode="append")
        small = DeltaTable("small", self.small)
        self.small_spec, self.spec = spec_of(small), spec_of(small, DeltaTable("big", self.big, **options))
        self.copies, self.shards = TableCopies(), ShardWriters()

    def again(self, spec: DeltaSource | None = None) -> Ingester:
        """The ingestion begins again in its process."""
        self.one = ingester(self.root, spec or self.spec, copies=self.copies, shards=self.shards)
        self.one.recover()
        return self.one

    def dies(self) -> Ingester:
        """Another process goes on."""
        self.copies.close()
        self.copies, self.shards = TableCopies(), ShardWriters()
        return self.again()

    def ticks(self) -> None:
        """The other table has a row more, at once."""
        self.now += 100
        write_deltalake(self.small, ids(self.now), mode="append")
        tick(self.one, self.now)
        assert (self.now,) in oks(self.root, "small")

    def settles(self, name: str = "big") -> None:
        """Ticks until the table has rows."""

        def has_rows() -> bool:
            self.now += 100
            tick(self.one, self.now)
            return name not in self.one._source.unbound_tables()

        until(has_rows)

    def ticks_on(self) -> None:
        """Ticks until one fails, with nothing new for the other table."""

        def tick_once() -> bool:
            self.now += 100
            tick(self.one, self.now)
            return False

        until(tick_once)

    def upper(self, table: str) -> int:
        return open_shard(f"{self.root}/{table}").state().upper

    def staged(self) -> list[Path]:
        return sorted(self.root.glob("big/**/*.parquet"))

    def percent(self) -> int | None:
        return self.one._source.progress()["big"].snapshot_percent


class Added(Copied):
    """It has ingested `small`, and `big` is added to it."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> None:
        super().__init__(root, monkeypatch, **options)
        self.one = self.again(self.small_spec)
        self.settles("small")
        self.one = self.again(self.spec)


class Gapped(Copied):
    """It has ingested both, and then `big` gets a gap."""

    def __init__(self, root: Path, monkeypatch: pytest.MonkeyPatch, gap: str = "replaced", **options: Any) -> None:
        super().__init__(root, monkeypatch, **{"on_gap": "resnapshot", **options})
        self.one = self.again()
        self.settles()
        self.before = oks(root, "big")
        getattr(self, gap)()

    def replaced(self) -> None:
        """Another table of FILES files: some of the rows, and others."""
        shutil.rmtree(self.big)
        for n in range(FILES):
            write_deltalake(self.big, ids(n, n + 1000), mode="append")

    def saved(self) -> None:
        """Another table is at the path, and the one of before is kept."""
        shutil.copytree(self.big, self.root / "saved")
        self.replaced()

    def violating(self) -> None:
        """A version, and then another one, that violate a primary key."""
        write_deltalake(self.big, ids(1), mode="append")

    def vacuumed(self) -> None:
        Table(self.big).delete("id = 1")
        write_deltalake(self.big, ids(1000, 1000), mode="append")
        self.vacuum()

    def cleaned(self) -> None:
        """The log has neither the bound version nor the next one."""
        write_deltalake(self.big, ids(2, 1000), mode="overwrite")
        Table(self.big).create_checkpoint()
        write_deltalake(self.big, ids(1001), mode="append")
        for version in range(FILES + 1):
            Path(f"{self.big}/_delta_log/{version:020}.json").unlink()

    def vacuum(self) -> None:
        Table(self.big).vacuum(0, dry_run=False, enforce_retention_duration=False)

    def rows(self) -> list[tuple[Any, ...]]:
        """The rows of the large table upstream."""
        return sorted(((id,) for id in Table(self.big).to_pyarrow_table().column("id").to_pylist()), key=repr)
