"""Tables that Spark with Delta Lake wrote: deletion vectors in files, change data, column mapping, INT96, MERGE."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from deltalake import DeltaTable as Table

from tests.storage.delta.delta_tables import check, ingester, spec_of, tick
from tests.storage.delta.spark_writer import SparkWriter
from tidemark_protocol.plan.ingestion import DeltaTable
from tidemark_replica.storage.delta import changes

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

COLUMNS = "id BIGINT, part STRING, amount DOUBLE, day DATE, ts TIMESTAMP, st STRUCT<x INT, y ARRAY<STRING>>"
NAMES = "(id, part, amount, day, ts, st)"


@pytest.fixture(scope="module")
def writer(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkWriter]:
    with SparkWriter(tmp_path_factory.mktemp("spark") / "log") as writer:
        yield writer


class SparkTable:
    """A table that changes at random."""

    def __init__(self, writer: SparkWriter, path: Path, draw: random.Random) -> None:
        self.path, self.draw, self._writer, self._added = str(path), draw, writer, 0
        vectors, feed = draw.choice(["true", "true", "false"]), draw.choice(["true", "false"])
        properties = [f"'delta.enableDeletionVectors' = '{vectors}'", f"'delta.enableChangeDataFeed' = '{feed}'"]
        mapped = draw.choice([False, True])
        properties += ["'delta.columnMapping.mode' = 'name'"] if mapped else []
        self.names = ("id", "part", "amount", "day", "ts") if mapped else ()
        """The columns to follow: Spark maps fields inside structs, too, which the source refuses."""
        partitions = draw.choice(["", "PARTITIONED BY (part)", "PARTITIONED BY (day)"])
        self.description = f"{properties} {partitions}"
        self._sql(f"CREATE TABLE T ({COLUMNS}) USING delta {partitions} TBLPROPERTIES ({', '.join(properties)})")
        self.insert(20)

    def _sql(self, statement: str) -> None:
        self._writer.sql(statement.replace(" T ", f" delta.`{self.path}` "))

    def values(self, count: int) -> str:
        of = self.draw.choice
        rows = (
            (
                str(self.draw.randrange(60)),
                of(["'a'", "'b b'", "'c/%é=1'", "NULL"]),
                of(["1.5D", "NULL", "-0.0D", "double('NaN')", "2.25D"]),
                of(["DATE'1970-01-01'", "DATE'2024-02-29'", "NULL"]),
                of(["TIMESTAMP'2024-01-01 10:00:00.123456'", "TIMESTAMP'1800-10-14 00:00:00'", "NULL"]),
                of(["NULL", "named_struct('x', 1, 'y', array('p', NULL))"]),
            )
            for _ in range(count)
        )
        return ", ".join(f"({', '.join(row)})" for row in rows)

    def step(self) -> None:
        moves = [self.insert] * 3 + [self.merge] * 3 + [self.update, self.delete, self.optimize]
        moves += [self.restore, self.add_column, self.overwrite, self.purge]
        self.draw.choice(moves)()

    def insert(self, count: int = 4) -> None:
        self._sql(f"INSERT INTO T {NAMES} VALUES {self.values(count)}")

    def overwrite(self) -> None:
        self._sql(f"INSERT OVERWRITE T {NAMES} VALUES {self.values(10)}")

    def update(self) -> None:
        self._sql(f"UPDATE T SET amount = amount + 1 WHERE id % 7 = {self.draw.randrange(7)}")

    def delete(self) -> None:
        which = self.draw.choice(["id % 5 = 3", "id % 3 = 1", "part = 'a'", "day IS NULL"])
        self._sql(f"DELETE FROM T WHERE {which}")

    def merge(self) -> None:
        amounts = ["1.0D", "double(NULL)"]
        rows = (
            f"SELECT {id} AS id, '{self.draw.choice('ab')}' AS part, {self.draw.choice(amounts)} AS amount"
            for id in self.draw.sample(range(60), 8)
        )
        self._sql(
            f"MERGE INTO T t USING ({' UNION ALL '.join(rows)}) s ON t.id = s.id "
            "WHEN MATCHED AND s.amount IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET amount = s.amount + t.id "
            "WHEN NOT MATCHED THEN INSERT (id, part, amount) VALUES (s.id, s.part, s.amount)"
        )

    def optimize(self) -> None:
        self._sql("OPTIMIZE T ")

    def purge(self) -> None:
        self._sql("REORG TABLE T APPLY (PURGE)")

    def restore(self) -> None:
        version = Table(self.path).version()
        self._sql(f"RESTORE TABLE T TO VERSION AS OF {max(1, version - self.draw.randrange(1, 4))}")

    def add_column(self) -> None:
        self._added += 1
        self._sql(f"ALTER TABLE T ADD COLUMNS (more{self._added}_{Table(self.path).version()} INT)")


@pytest.mark.parametrize("seed", range(4))
def test_oracle_histories_that_spark_wrote(
    tmp_path: Path, writer: SparkWriter, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At every tick the contents are those that delta-rs's query engine reads at the bound version.

    Timestamps are from 1678 to 2262: outside of these that engine reads other values from INT96. In
    half of the histories, files that may cancel are read twice, as those of large tables are.
    """
    if seed % 2:
        monkeypatch.setattr(changes, "TWICE_BYTES", -1)
    table = SparkTable(writer, tmp_path / "up" / "t", random.Random(seed))
    spec = spec_of(DeltaTable("t", table.path, table.names))
    one = ingester(tmp_path, spec)
    one.recover()
    for time in range(1000, 2500, 100):
        tick(one, time)
        assert one._source.stop_reasons() == {}, table.description
        for _ in range(table.draw.randrange(4)):
            table.step()
        if table.draw.random() < 0.3:
            one = ingester(tmp_path, spec)
            one.recover()
    tick(one, 2500)

    check(tmp_path, spec)
