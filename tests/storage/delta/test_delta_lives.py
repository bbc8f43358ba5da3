"""Delta tables of DataSources that come and go, of which some adopt the tables of the one before."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Table
from deltalake import write_deltalake

from tests.storage.delta.delta_tables import spec_of
from tests.storage.dying_appends import die_around
from tests.storage.source_lives import Lives, Rows, random_lives
from tidemark_protocol.plan.ingestion import DeltaSource, DeltaTable, SourceTable
from tidemark_replica.storage import ingester as ingester_module
from tidemark_replica.storage.delta import source
from tidemark_replica.storage.delta.bindings import BoundVersion
from tidemark_replica.storage.delta.inspect import tables_of
from tidemark_replica.storage.delta.source import DeltaIngestion
from tidemark_replica.storage.ingester import Ingester


class DeltaKind:
    """Tables over two Delta tables."""

    def __init__(self, root: Path, seed: int = 0) -> None:
        self.random, self.paths, self.written = random.Random(seed), [str(root / "up" / n) for n in ("x", "y")], 0
        for path in self.paths:
            write_deltalake(path, self.ids(3))

    def ids(self, count: int) -> pa.Table:
        self.written += count
        return pa.table({"id": list(range(self.written - count, self.written))})

    def table(self, name: str) -> DeltaTable:
        return spec_of(DeltaTable(name, self.random.choice(self.paths), on_gap="resnapshot")).tables[0]

    def write(self) -> None:
        path = self.random.choice(self.paths)
        if self.random.random() < 0.3:
            Table(path).delete(f"id % 4 = {self.random.randrange(4)}")
        else:
            write_deltalake(path, self.ids(2), mode="append")

    def forget(self) -> None:
        path = self.random.choice(self.paths)
        if self.random.random() < 0.4:  # another table at the path, of which versions may have the same numbers
            shutil.rmtree(path)
            for _ in range(self.random.randrange(1, 4)):
                write_deltalake(path, self.ids(2), mode="append")
            return
        Table(path).delete(f"id % 4 = {self.random.randrange(4)}")
        Table(path).optimize.compact()
        Table(path).vacuum(0, dry_run=False, enforce_retention_duration=False)

    def spec(self, tables: Sequence[DeltaTable]) -> DeltaSource:
        return DeltaSource(tuple(tables))

    def found(self, spec: DeltaSource) -> tuple[SourceTable, ...]:
        return tables_of(spec, None)

    def source(self, spec: DeltaSource) -> DeltaIngestion:
        return DeltaIngestion(spec)

    def is_read(self, source: Any, spec: DeltaSource) -> bool:
        def is_newest(bound: BoundVersion, table: Table) -> bool:
            return (bound.table_id, bound.version) == (table.metadata().id, table.version())

        return not source.unbound_tables() and all(
            table.name in source._bound and is_newest(source._bound[table.name], Table(table.path))
            for table in spec.tables
        )

    def rows(self, table: DeltaTable, before: Rows) -> Rows:
        return Counter((id,) for id in Table(table.path).to_pyarrow_table().column("id").to_pylist())


@pytest.mark.parametrize("compacted", [False, True])
def test_a_table_of_a_name_that_adopted_bindings_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compacted: bool
) -> None:
    """It has all rows, and none of the table before it."""
    monkeypatch.setattr(ingester_module, "REMAP_SINCE_LAG_MS", 100)
    kind = DeltaKind(tmp_path)
    lives = Lives(tmp_path / "store", kind)
    a, b = (DeltaTable(name, kind.paths[0], columns=kind.table("n").columns) for name in "ab")
    assert not lives.begin([a, b])
    for _ in range(4):
        kind.write()
        lives.settle()
    assert not lives.begin([a])
    lives.settle()
    if compacted:
        lives.compact()
    lives.edit([b], [])
    kind.write()
    lives.settle()
    lives.close()
    assert len(lives.expected) == 3
    lives.check()


@pytest.mark.parametrize("compacted", [False, True])
def test_a_table_that_was_removed_between_its_binding_and_its_rows_is_adopted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compacted: bool
) -> None:
    """Its binding is void, and gone by then: the next one has all rows."""
    monkeypatch.setattr(ingester_module, "REMAP_SINCE_LAG_MS", 100)
    kind = DeltaKind(tmp_path)
    lives, append = Lives(tmp_path / "store", kind), Ingester._append
    a, b = (DeltaTable(name, kind.paths[0], columns=kind.table("n").columns) for name in "ab")
    assert not lives.begin([a])
    lives.settle()
    lives.edit([b], [])
    location = lives.tables["b"].shard.location

    def dies(self: Ingester, shard: Any, *more: Any) -> None:
        if shard.location == location:
            raise KeyboardInterrupt
        append(self, shard, *more)

    with monkeypatch.context() as dying:
        dying.setattr(Ingester, "_append", dies)
        with pytest.raises(KeyboardInterrupt):
            lives.settle()
    lives.close()
    lives.edit([], ["b"])
    for _ in range(4):
        kind.write()
        lives.settle()
    if compacted:
        lives.compact()
    assert not lives.begin([a, b])
    assert lives.tables["b"].shard.location == location
    lives.settle()
    lives.close()
    lives.check()


@pytest.mark.broad
@pytest.mark.parametrize("seed", [*range(8), *(pytest.param(n, marks=pytest.mark.slow) for n in range(8, 40))])
def test_random_lives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """In half of the histories no tick waits for copies: these are made while tables come, go and die."""
    monkeypatch.setattr(ingester_module, "REMAP_SINCE_LAG_MS", 300)
    if seed % 2:
        monkeypatch.setattr(source, "WAIT_SECONDS", 0.0)
    kind = DeltaKind(tmp_path, seed)
    lives = Lives(tmp_path / "store", kind)
    done = random_lives(lives, kind, seed, 40, die_around(monkeypatch, 1_000_000))
    lives.check()
    assert done["adopt"] + done["add"]
