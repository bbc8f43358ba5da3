"""Files of DataSources that come and go, of which some adopt the tables of the one before."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.storage.dying_appends import die_around
from tests.storage.files.directory import COLUMNS, HEADER
from tests.storage.source_lives import Lives, Rows, random_lives
from tidemark_protocol.plan.ingestion import FilesSource, FilesTable, SourceTable
from tidemark_replica.storage import ingester as ingester_module
from tidemark_replica.storage.files.inspect import tables_of
from tidemark_replica.storage.files.source import FilesIngestion

pytestmark = [pytest.mark.spark, pytest.mark.broad]


class FilesKind:
    """Tables over two folders, which have files of the same names."""

    def __init__(self, session: SparkSession, root: Path, seed: int) -> None:
        self.session, self.random, self.written = session, random.Random(seed), 0
        self.folders, self.read = [root / "x", root / "y"], list[Path]()
        """The files that a table had last are read."""
        for folder in self.folders:
            folder.mkdir()
            self.write(folder)

    def table(self, name: str) -> FilesTable:
        return FilesTable(name, "csv", str(self.random.choice(self.folders)), "*", COLUMNS, HEADER)

    def write(self, folder: Path | None = None) -> None:
        folder = folder or self.random.choice(self.folders)
        self.written += 1
        free = (f"{n}.csv" for n in range(1000) if not (folder / f"{n}.csv").exists())
        name = next(name for name in free if folder / name not in self.read)
        (folder / f".{name}").write_text(f"a,b\n{self.written},{folder.name}\n")
        (folder / f".{name}").rename(folder / name)

    def forget(self) -> None:
        there = [file for file in self.read if file.exists()]
        if there:
            self.random.choice(there).unlink()

    def spec(self, tables: Sequence[FilesTable]) -> FilesSource:
        return FilesSource(tuple(tables))

    def found(self, spec: FilesSource) -> tuple[SourceTable, ...]:
        return tables_of(self.session, spec)

    def source(self, spec: FilesSource) -> FilesIngestion:
        return FilesIngestion(spec, self.session)

    def is_read(self, source: Any, spec: FilesSource) -> bool:
        return all(
            not source._known[table.name].split(source._stores[table.name].list(table.pattern).files)[0]
            for table in spec.tables
        )

    def rows(self, table: FilesTable, before: Rows) -> Rows:
        files = sorted(Path(table.path).glob("[0-9]*.csv"))
        self.read += files
        lines = [file.read_text().splitlines()[1].split(",") for file in files]
        return Rows({*before, *((int(a), b) for a, b in lines)})


def test_a_table_of_a_name_that_adopted_bindings_know(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has the rows of all files, though the table before it read files of these names."""
    monkeypatch.setattr(ingester_module, "REMAP_SINCE_LAG_MS", 100)
    kind = FilesKind(spark, tmp_path, 0)
    lives = Lives(tmp_path / "store", kind)
    a, b, other = (
        FilesTable(name, "csv", str(folder), "*", COLUMNS, HEADER)
        for name, folder in (("a", kind.folders[0]), ("b", kind.folders[0]), ("b", kind.folders[1]))
    )
    assert not lives.begin([a, b])
    lives.settle()
    assert not lives.begin([a])
    lives.settle()
    lives.compact()
    lives.edit([other], [])
    kind.write()
    lives.settle()
    lives.close()
    lives.check()


@pytest.mark.parametrize("seed", [1, *(pytest.param(n, marks=pytest.mark.slow) for n in range(2, 8))])
def test_random_lives(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    monkeypatch.setattr(ingester_module, "REMAP_SINCE_LAG_MS", 300)
    kind = FilesKind(spark, tmp_path, seed)
    lives = Lives(tmp_path / "store", kind)
    done = random_lives(lives, kind, seed, 25, die_around(monkeypatch, 1_000_000))
    lives.check()
    assert done["adopt"] + done["add"]
