"""A published table on a disk and in a bucket, read by other programs than delta-rs: DuckDB, and Spark with Delta."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.s3_fixtures import Place
from tests.storage.delta.spark_writer import SparkWriter
from tidemark_persist import DIFF, TIME, Shard, create_or_open
from tidemark_protocol.ids import Time
from tidemark_replica.sinks.published.publication import TablePublication
from tidemark_replica.sinks.published.published_table import TableOptions, open_table

SCHEMA = pa.schema(
    [pa.field("k", pa.int64()), pa.field("at", pa.timestamp("us", "UTC")), pa.field("name", pa.string())]
)


def append(shard: Shard, rows: list[tuple[int, str, int]]) -> None:
    upper = shard.refresh().upper
    updates = pa.table(
        {
            "k": [k for k, _, _ in rows],
            "at": pa.array([k * 1_000_000 for k, _, _ in rows], pa.timestamp("us", "UTC")),
            "name": [name for _, name, _ in rows],
            TIME: [upper] * len(rows),
            DIFF: [diff for _, _, diff in rows],
        }
    )
    shard.compare_and_append(updates, expected_upper=upper, new_upper=upper + 1, term=1)


def publish(shard: Shard, location: str) -> TablePublication:
    publication = TablePublication(shard, TableOptions(location, "shop.flow.view"), 2_000)
    publication.publish(Time(shard.refresh().upper - 1))
    return publication


def changed_table(root: str) -> tuple[TablePublication, list[tuple[int, str]]]:
    """A table of several files and several commits, and its rows."""
    shard = create_or_open(f"{root}/shard", SCHEMA, shard_id="u1")
    append(shard, [(k, f"name {k}", 1) for k in range(300)])
    publish(shard, f"{root}/published")
    append(shard, [(5, "name 5", -1), (5, "another", 1), (7, "name 7", -1)])
    publication = publish(shard, f"{root}/published")
    rows = [(k, "another" if k == 5 else f"name {k}") for k in range(300) if k != 7]
    return publication, rows


def test_on_a_disk_and_in_a_bucket(place: Place) -> None:
    """Commits, and the removal of old files; a bucket has no folders, and its objects appear as a whole."""
    publication, rows = changed_table(place.location)
    location = publication.options.location
    table = open_table(publication.options)
    assert table is not None
    assert table.remove_unused() == 0, "the retention has not passed"
    found = QueryBuilder().register("t", DeltaTable(location)).execute("SELECT k, name FROM t ORDER BY k").read_all()
    assert [tuple(row.values()) for row in pa.table(found).to_pylist()] == rows
    assert publication.publish(Time(1)).added == 0


def test_duckdb_reads_its_files(tmp_path: Path) -> None:
    publication, rows = changed_table(str(tmp_path))
    files = DeltaTable(publication.options.location).file_uris()
    assert duckdb.sql(f"SELECT k, name FROM read_parquet({files}) ORDER BY k").fetchall() == rows


@pytest.mark.slow
def test_spark_reads_it_with_its_history(tmp_path: Path) -> None:
    """Spark with Delta Lake writes what it reads, as Parquet: the newest version, and the first."""
    publication, rows = changed_table(str(tmp_path))
    table = f"delta.`{publication.options.location}`"
    with SparkWriter(tmp_path / "spark.log") as spark:
        spark.sql(f"INSERT OVERWRITE DIRECTORY '{tmp_path}/now' USING parquet SELECT k, name FROM {table}")
        spark.sql(
            f"INSERT OVERWRITE DIRECTORY '{tmp_path}/first' USING parquet SELECT k, name FROM {table} VERSION AS OF 0"
        )
        spark.sql(f"OPTIMIZE {table}")
    read = "SELECT * FROM read_parquet('{}/*.parquet') ORDER BY k"
    assert duckdb.sql(read.format(tmp_path / "now")).fetchall() == rows
    assert duckdb.sql(read.format(tmp_path / "first")).fetchall() == [(k, f"name {k}") for k in range(300)]
    shard = publication.shard
    assert isinstance(shard, Shard)
    append(shard, [(9, "name 9", -1)])
    published = publication.publish(Time(shard.refresh().upper - 1))
    assert published.anew_because == "", "what Spark's OPTIMIZE does is no change"
    assert published.rows == len(rows) - 1


@pytest.mark.slow
def test_spark_follows_its_change_data_feed(tmp_path: Path) -> None:
    """Each row that came or went, by the commit, and no row of a file that was only rewritten."""
    shard = create_or_open(f"{tmp_path}/shard", SCHEMA, shard_id="u1")
    options = TableOptions(f"{tmp_path}/published", "shop.flow.view", change_data_feed=True)
    expected, folded = list[tuple[int, str, str]](), [(k, f"name {k}") for k in range(300)]
    append(shard, [(k, name, 1) for k, name in folded])
    for number in range(4):
        TablePublication(shard, options, 2_000).publish(Time(shard.refresh().upper - 1))
        expected += [(number, f"name {number}", "delete"), (number, "another", "insert"), (number, "another", "insert")]
        append(shard, [(number, f"name {number}", -1), (number, "another", 2)])
    TablePublication(shard, options, 2_000).publish(Time(shard.refresh().upper - 1))
    with SparkWriter(tmp_path / "spark.log") as spark:
        spark.sql(
            f"INSERT OVERWRITE DIRECTORY '{tmp_path}/feed' USING parquet SELECT k, name, _change_type, _commit_version "
            f"FROM table_changes_by_path('{options.location}', 0)"
        )
    read = f"SELECT k, name, _change_type, _commit_version FROM read_parquet('{tmp_path}/feed/*.parquet')"
    changes = duckdb.sql(read).fetchall()
    assert sorted(change[:3] for change in changes if change[3]) == sorted(expected)
    assert sorted(change[:2] for change in changes if not change[3]) == sorted(folded)
    assert {change[2] for change in changes if not change[3]} == {"insert"}


@pytest.mark.slow
def test_spark_reads_its_partitions_of_decimals_and_timestamps(tmp_path: Path) -> None:
    """In a session of another time zone: a filter finds a partition, and its values are the view's."""
    schema = pa.schema(
        [
            pa.field("price", pa.decimal128(10, 2)),
            pa.field("at", pa.timestamp("us", "UTC")),
            pa.field("local", pa.timestamp("us")),
            pa.field("n", pa.int32()),
        ]
    )
    shard, count = create_or_open(f"{tmp_path}/shard", schema, shard_id="u1"), 40
    prices, micros = [Decimal("-0.05"), Decimal("0.00"), Decimal("1.50"), None], [-1, 0, 1_717_245_015_123_456, None]
    rows = [(prices[n % 4], micros[n // 4 % 4], micros[n // 2 % 4], n) for n in range(count)]
    arrays = [pa.array(column, field.type) for column, field in zip(zip(*rows, strict=True), schema, strict=True)]
    updates = pa.table([*arrays, [0] * count, [1] * count], [*schema.names, TIME, DIFF])
    shard.compare_and_append(updates, expected_upper=0, new_upper=1, term=1)
    options = TableOptions(f"{tmp_path}/published", "shop.flow.view", partition_by=("price", "at", "local"))
    TablePublication(shard, options, 2_000).publish(Time(0))
    columns = "CAST(price AS STRING) AS price, unix_micros(at) AS at, CAST(local AS STRING) AS local, n"
    table, noon = f"delta.`{options.location}`", "TIMESTAMP '2024-06-01T12:30:15.123456Z'"
    queries = {
        "all": f"SELECT {columns} FROM {table}",
        "some": f"SELECT {columns} FROM {table} WHERE price = -0.05 OR at = {noon}",
    }
    with SparkWriter(tmp_path / "spark.log") as spark:
        spark.sql("SET TIME ZONE 'America/New_York'")
        for to, query in queries.items():
            spark.sql(f"INSERT OVERWRITE DIRECTORY '{tmp_path}/{to}' USING parquet {query}")
    found = {to: duckdb.sql(f"SELECT * FROM read_parquet('{tmp_path}/{to}/*.parquet')").fetchall() for to in queries}
    local_texts = {-1: "1969-12-31 23:59:59.999999", 0: "1970-01-01 00:00:00", micros[2]: "2024-06-01 12:30:15.123456"}
    told = [(None if p is None else str(p), at, None if at2 is None else local_texts[at2], n) for p, at, at2, n in rows]
    assert sorted(found["all"], key=lambda row: row[3]) == told
    some = [row for row in told if row[0] == "-0.05" or row[1] == micros[2]]
    assert sorted(found["some"], key=lambda row: row[3]) == some


@pytest.mark.slow
def test_spark_reads_its_partitions(tmp_path: Path) -> None:
    """By the values in the log, NULL too; a partition of its own is found by a filter."""
    shard = create_or_open(f"{tmp_path}/shard", SCHEMA, shard_id="u1")
    options = TableOptions(f"{tmp_path}/published", "shop.flow.view", partition_by=("name",), change_data_feed=True)
    names = ["a/b", "a=b", "ü %41", "../x"]
    append(shard, [(k, names[k % 4], 1) for k in range(100)])
    TablePublication(shard, options, 2_000).publish(Time(0))
    append(shard, [(0, names[0], -1), (1, names[1], -1), (1, "new", 2)])
    TablePublication(shard, options, 2_000).publish(Time(1))
    table, changes = f"delta.`{options.location}`", f"table_changes_by_path('{options.location}', 1)"
    queries = {
        "all": f"SELECT k, name FROM {table}",
        "one": f"SELECT k, name FROM {table} WHERE name = 'ü %41'",
        "feed": f"SELECT k, name, _change_type FROM {changes}",
    }
    with SparkWriter(tmp_path / "spark.log") as spark:
        for to, query in queries.items():
            spark.sql(f"INSERT OVERWRITE DIRECTORY '{tmp_path}/{to}' USING parquet {query}")
    found = {to: duckdb.sql(f"SELECT * FROM read_parquet('{tmp_path}/{to}/*.parquet')").fetchall() for to in queries}
    rows = [(k, names[k % 4]) for k in range(2, 100)] + [(1, "new")] * 2
    assert sorted(found["all"]) == sorted(rows)
    assert sorted(found["one"]) == sorted(row for row in rows if row[1] == "ü %41")
    removed = [(0, names[0], "delete"), (1, names[1], "delete")]
    assert sorted(found["feed"]) == sorted([*removed, *[(1, "new", "insert")] * 2])
