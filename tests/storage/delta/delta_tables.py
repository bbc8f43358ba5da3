"""Delta tables for the tests of the delta source: random histories that delta-rs writes, and the source's ingester."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import DeltaTable as Table
from deltalake import write_deltalake

from tests.storage.ingestion_samples import contents, description
from tidemark_persist import DIFF, ERROR, TIME, ShardWriters, open_shard, read_part
from tidemark_persist.storage.mounted_settings import Options
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.plan.ingestion import DeltaSource, DeltaTable, SourceTable
from tidemark_replica.storage.delta import source
from tidemark_replica.storage.delta.copies import pauses
from tidemark_replica.storage.delta.copies.table_copies import TableCopies
from tidemark_replica.storage.delta.inspect import tables_of
from tidemark_replica.storage.delta.source import DeltaIngestion
from tidemark_replica.storage.ingester import Ingester
from tidemark_replica.storage.leftovers import Leftovers

SCHEMA = pa.schema([("id", pa.int64()), ("part", pa.string()), ("amount", pa.float64()), ("day", pa.date32())])
Row = tuple[Any, ...]
source.WAIT_SECONDS = 60.0  # a tick has the first rows of small tables, however busy the machine is
pauses.PAUSE_SECONDS = 0.0  # histories have gaps more often than tables upstream


class Upstream:
    """A Delta table that changes at random. `seed` decides on everything."""

    def __init__(self, path: Path, seed: int, feed: bool = False, partitioned: bool = False) -> None:
        self.path, self.random = str(path), random.Random(seed)
        self.added_column = False
        write_deltalake(
            self.path,
            self.rows(20),
            partition_by=["part", "day"] if partitioned else None,
            configuration={"delta.enableChangeDataFeed": "true"} if feed else None,
        )

    @property
    def table(self) -> Table:
        return Table(self.path)

    def rows(self, count: int) -> pa.Table:
        draw = self.random
        columns: dict[str, list[Any]] = {
            "id": [draw.randrange(60) for _ in range(count)],
            "part": [draw.choice(["a", "b b", "c/%é=1", None]) for _ in range(count)],
            "amount": [draw.choice([0.0, -0.0, float("nan"), 1.5, None, draw.random()]) for _ in range(count)],
            "day": [draw.choice([0, -700_000, 20_000, None]) for _ in range(count)],
        }
        table = pa.Table.from_pydict(columns, SCHEMA)
        if self.added_column:
            table = table.append_column("more", pa.array([draw.choice(["x", None]) for _ in range(count)], pa.string()))
        return table

    def step(self) -> str:
        """One commit at random; its name."""
        moves = [self.append] * 3 + [self.update, self.delete, self.merge, self.merge]
        moves += [self.optimize, self.overwrite, self.overwrite_some, self.restore, self.add_column]
        move = self.random.choice(moves)
        move()
        return move.__name__

    def append(self) -> None:
        write_deltalake(self.path, self.rows(self.random.randrange(1, 8)), mode="append")

    def overwrite(self) -> None:
        write_deltalake(self.path, self.rows(self.random.randrange(0, 10)), mode="overwrite")

    def overwrite_some(self) -> None:
        rows = self.rows(4)
        rows = rows.set_column(1, "part", pa.array(["a"] * 4))
        write_deltalake(self.path, rows, mode="overwrite", predicate="part = 'a'")

    def update(self) -> None:
        self.table.update({"amount": "amount + 1"}, predicate=f"id % 7 = {self.random.randrange(7)}")

    def delete(self) -> None:
        self.table.delete(self.random.choice([f"id % 5 = {self.random.randrange(5)}", "part = 'a'", "day is null"]))

    def merge(self) -> None:
        source = self.rows(6)
        distinct = source.take([source.column("id").to_pylist().index(i) for i in set(source.column("id").to_pylist())])
        merge = self.table.merge(distinct, "t.id = s.id", source_alias="s", target_alias="t")
        merge.when_matched_delete("s.amount is null").when_matched_update_all().when_not_matched_insert_all().execute()

    def optimize(self) -> None:
        self.table.optimize.compact()

    def restore(self) -> None:
        if (newest := self.table.version()) > 0:
            self.table.restore(self.random.randrange(max(0, newest - 4), newest))
        self.added_column = "more" in [f.name for f in self.table.schema().fields]

    def add_column(self) -> None:
        self.added_column = True
        write_deltalake(self.path, self.rows(1), mode="append", schema_mode="merge")


def spec_of(*tables: DeltaTable, options: Options = None) -> DeltaSource:
    """The tables with the columns that they have now, as the operator pins them."""
    found = tables_of(DeltaSource(tables), options)
    return DeltaSource(tuple(replace(table, columns=each.columns) for table, each in zip(tables, found, strict=True)))


def ingester(
    root: Path,
    spec: DeltaSource,
    term: int = 1,
    copies: TableCopies | None = None,
    shards: ShardWriters | None = None,
    leftovers: Leftovers | None = None,
) -> Ingester:
    """A new one, as a new process would make it; or the same process, with the copies that it has begun, the handles
    that it has, and the files of appends that failed."""
    tables = tuple(SourceTable(t.name, t.columns or ()) for t in spec.tables)
    source = DeltaIngestion(spec, None, copies)
    return Ingester(description(root, spec, tables), WriterTerm(term), source, shards or ShardWriters(), leftovers)


def bound_versions(root: Path, table: str) -> dict[int, int]:
    """The table's version by the time of the binding that says so."""
    remap = open_shard(f"{root}/remap")
    parts = remap.listen(0, remap.state().upper)
    rows = [r for p in parts for b in read_part(p) for r in b.to_pylist()]
    return {r[TIME]: r["version"] for r in rows if r[DIFF] > 0 and r["table"] == table}


def ingested_rows(root: Path, table: str, at: int) -> Counter[Row]:
    """The table's rows at a time, each with its multiplicity."""
    rows: Counter[Row] = Counter()
    for row in contents(root, table, at).to_pylist():
        diff, error = row.pop(DIFF), row.pop(ERROR)
        assert (error, diff > 0) == (None, True)
        rows[_key(row.values())] += diff
    return rows


def delta_rows(path: str, version: int, columns: tuple[str, ...]) -> Counter[Row]:
    """The Delta table's rows at a version, as delta-rs's query engine reads them."""
    table = Table(path, version=version)
    present = {f.name for f in table.schema().fields}
    rows = pa.table(table.scan(columns=[c for c in columns if c in present]))
    return Counter(_key(row.get(c) for c in columns) for row in rows.to_pylist())


def check(root: Path, spec: DeltaSource) -> None:
    """At every binding, every table is the Delta table at the bound version. A binding whose process died before it
    had the first rows is void: the table is readable from a later one on."""
    for table in spec.tables:
        since = open_shard(f"{root}/{table.name}").state().since
        bound = {at: version for at, version in bound_versions(root, table.name).items() if at >= since}
        assert bound
        names = tuple(column.name for column in table.columns or ())
        for at, version in bound.items():
            assert ingested_rows(root, table.name, at) == delta_rows(table.path, version, names), (
                table.name,
                at,
                version,
            )


def _key(values: Any) -> Row:
    """Values that compare by their bits: NaN equals NaN, -0.0 is not 0.0."""
    return tuple(repr(value) if isinstance(value, float | dict | list) else value for value in values)


def tick(one: Ingester, time: int) -> None:
    assert one.tick(Time(time))
