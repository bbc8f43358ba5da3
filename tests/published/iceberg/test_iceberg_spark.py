"""Spark with Apache Iceberg reads what a view is published as: its rows, and earlier ones."""

from __future__ import annotations

import datetime
import random
import uuid
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from tests.kafka.jars import installed
from tests.published.iceberg.rest_catalogue import RestCatalogue
from tests.storage.delta.spark_writer import SparkWriter
from tidemark_persist import create_or_open
from tidemark_protocol.ids import ShardId, Time
from tidemark_replica.sinks.published.iceberg_mirror import IcebergMirror
from tidemark_replica.sinks.published.publication import TablePublication
from tidemark_replica.sinks.published.published_table import TableOptions
from tidemark_replica.storage.source_secrets import SourceSecrets

pytestmark = [pytest.mark.iceberg, pytest.mark.slow]
VERSION = "1.10.1"
SUMS = Path(__file__).parent / "spark_jars.sha256"
SCHEMA = pa.schema(
    [
        pa.field("k", pa.int64()),
        pa.field("tiny", pa.int8()),
        pa.field("small", pa.int16()),
        pa.field("at", pa.timestamp("us", "UTC")),
        pa.field("local", pa.timestamp("us")),
        pa.field("price", pa.decimal128(20, 2)),
        pa.field("tags", pa.list_(pa.struct([pa.field("x", pa.int8())]))),
        pa.field("bag", pa.map_(pa.string(), pa.int64())),
    ]
)
COLUMNS = "k, tiny, small, at, local, price, CAST(tags AS STRING) AS tags, CAST(bag AS STRING) AS bag"


def append(shard: object, rows: list[tuple[int, int]]) -> None:
    """`rows`: each with its diff."""
    upper = shard.refresh().upper  # type: ignore[attr-defined]
    columns = {
        "tiny": [k % 100 - 50 for k, _ in rows],
        "small": [k - 300 for k, _ in rows],
        "at": [k * 1_000_000 if k % 5 else None for k, _ in rows],
        "local": [k * 1_000_001 for k, _ in rows],
        "price": [None if k % 7 == 0 else k for k, _ in rows],
        "tags": [None if k % 3 == 0 else [{"x": k % 100}, None] for k, _ in rows],
        "bag": [[(f"ü{k}", None), ("", k)] for k, _ in rows],
    }
    arrays = [pa.array([k for k, _ in rows]), *(pa.array(columns[f.name], f.type) for f in list(SCHEMA)[1:])]
    updates = pa.table([*arrays, [upper] * len(rows), [d for _, d in rows]], [*SCHEMA.names, "__time", "__diff"])
    shard.compare_and_append(updates, expected_upper=upper, new_upper=upper + 1, term=1)  # type: ignore[attr-defined]


def test_spark_reads_rows_and_history(iceberg_catalogue: RestCatalogue, tmp_path: Path) -> None:
    """The same as Spark reads in the Delta table, also after it has compacted that."""
    jars = sorted(installed("iceberg-spark", VERSION, [_RUNTIME], SUMS).glob("*.jar"))
    shard = create_or_open(f"{tmp_path}/shard", SCHEMA, shard_id="u1")
    options = TableOptions(f"{tmp_path}/published", "shop.flow.view", uid="u", term=1)
    name = f"sales.s{uuid.uuid4().hex}"
    mirror = IcebergMirror(iceberg_catalogue.settings, name, options, SourceSecrets(None))

    def publish() -> None:
        at = Time(shard.refresh().upper - 1)
        TablePublication(shard, options, 2_000).publish(at)
        assert mirror.mirror(ShardId(shard.contents_id)) == at

    append(shard, [(k, 1) for k in range(300)])
    publish()
    append(shard, [(7, -1), (5, 2)])
    publish()
    settings = catalogue_settings(iceberg_catalogue)
    first = iceberg_catalogue.load(name).metadata.snapshots[0].snapshot_id
    delta = f"delta.`{options.location}`"
    with SparkWriter(tmp_path / "spark.log", jars, settings) as spark:

        def rows(query: str) -> list[tuple[object, ...]]:
            to = f"{tmp_path}/{uuid.uuid4().hex}"
            spark.sql(f"INSERT OVERWRITE DIRECTORY '{to}' USING parquet {query}")
            return sorted(duckdb.sql(f"SELECT * FROM read_parquet('{to}/*.parquet')").fetchall(), key=str)

        wanted = rows(f"SELECT {COLUMNS} FROM {delta}")
        assert len(wanted) == 301
        assert rows(f"SELECT {COLUMNS} FROM ice.{name}") == wanted
        before = rows(f"SELECT {COLUMNS} FROM {delta} VERSION AS OF 0")
        assert rows(f"SELECT {COLUMNS} FROM ice.{name} VERSION AS OF {first}") == before
        few = rows(f"SELECT k FROM ice.{name} WHERE tiny = -40 AND small < 0 AND at IS NULL")
        assert few == rows(f"SELECT k FROM {delta} WHERE tiny = -40 AND small < 0 AND at IS NULL") != []
        spark.sql(f"OPTIMIZE {delta}")
        mirror.mirror(ShardId(shard.contents_id))
        assert rows(f"SELECT {COLUMNS} FROM ice.{name}") == wanted
        spark.sql(f"INSERT INTO ice.{name} SELECT * FROM ice.{name} LIMIT 3")
        spark.sql(f"DELETE FROM ice.{name} WHERE k < 50")
        assert rows(f"SELECT {COLUMNS} FROM ice.{name}") != wanted
        mirror.mirror(ShardId(shard.contents_id))
        assert rows(f"SELECT {COLUMNS} FROM ice.{name}") == wanted
    assert len(iceberg_catalogue.rows(name)) == 301


def test_spark_reads_partitions(iceberg_catalogue: RestCatalogue, tmp_path: Path) -> None:
    """The values are in no file, and the same as Spark reads in the Delta table: also after Spark has compacted that,
    and after edits of the partition columns and of all columns."""
    jars = sorted(installed("iceberg-spark", VERSION, [_RUNTIME], SUMS).glob("*.jar"))
    schema = pa.schema([*((name, kind) for name, kind, _ in PARTITIONS), ("n", pa.int32())])
    options = TableOptions(f"{tmp_path}/published", "shop.flow.view", uid="u", term=1)
    name, chance = f"sales.s{uuid.uuid4().hex}", random.Random(1)
    delta, settings = f"delta.`{options.location}`", catalogue_settings(iceberg_catalogue)

    def publish(schema: pa.Schema, number: int, by: tuple[str, ...]) -> None:
        shard = create_or_open(f"{tmp_path}/shard{number}", schema, shard_id=f"u{number}")
        rows = [[chance.choice(values) for _, _, values in PARTITIONS] for _ in range(200)]
        arrays = {name: pa.array([row[at] for row in rows], kind) for at, (name, kind, _) in enumerate(PARTITIONS)}
        arrays["n"] = pa.array(range(200), pa.int32())
        columns = {each: arrays[each] for each in schema.names}
        updates = pa.table({**columns, "__time": [0] * 200, "__diff": [1] * 200})
        shard.compare_and_append(updates, expected_upper=0, new_upper=1, term=1)
        of = replace(options, partition_by=by, term=number)
        TablePublication(shard, of).publish(Time(0))
        contents.append((IcebergMirror(iceberg_catalogue.settings, name, of, SourceSecrets(None)), shard.contents_id))
        mirror()

    def mirror() -> None:
        of, shard = contents[-1]
        of.mirror(ShardId(shard))

    contents = list[tuple[IcebergMirror, str]]()
    with SparkWriter(tmp_path / "spark.log", jars, settings) as spark:

        def rows(query: str) -> list[tuple[object, ...]]:
            to = f"{tmp_path}/{uuid.uuid4().hex}"
            spark.sql(f"INSERT OVERWRITE DIRECTORY '{to}' USING parquet {query}")
            return sorted(duckdb.sql(f"SELECT * FROM read_parquet('{to}/*.parquet')").fetchall(), key=str)

        def check(of: pa.Schema = schema) -> None:
            listed = ", ".join(of.names)
            assert len(wanted := rows(f"SELECT {listed} FROM {delta}")) == 200
            assert rows(f"SELECT {listed} FROM ice.{name}") == wanted
            found = iceberg_catalogue.rows(name)
            assert Counter(row["n"] for row in found) == Counter(range(200))
            for where in CONDITIONS:
                query = f"SELECT n FROM {{}} WHERE {where}"
                assert rows(query.format(f"ice.{name}")) == rows(query.format(delta)) != [], where

        publish(schema, 1, ("day", "yes", "tiny", "text"))
        check()
        spark.sql(f"OPTIMIZE {delta}")
        mirror()
        check()
        assert rows(f"SELECT file_path FROM ice.{name}.files") != []
        publish(schema, 2, ("large", "text"))
        check()
        others = pa.schema([("n", pa.int32()), *list(schema)[2:-1], *list(schema)[:2]])
        publish(others, 3, ("text", "day"))
        check(others)
        assert rows(f"SELECT file_path FROM ice.{name}.files") != []
        publish(schema, 4, ())
        check()


PARTITIONS: list[tuple[str, pa.DataType, list[Any]]] = [
    ("day", pa.date32(), [None, datetime.date(1, 1, 1), datetime.date(9999, 12, 31), datetime.date(2026, 11, 29)]),
    ("yes", pa.bool_(), [None, True, False]),
    ("tiny", pa.int8(), [None, -128, 7]),
    ("large", pa.int64(), [None, -(1 << 63), 7]),
    ("text", pa.string(), [None, "a/b", "a=b", "%41", "ü\n", "__HIVE_DEFAULT_PARTITION__", "null", "#?&"]),
]
CONDITIONS = (
    "day = DATE'0001-01-01'",
    "day > DATE'2026-01-01' AND NOT yes",
    "yes IS NULL OR tiny = -128",
    "large < 0",
    "text = '%41'",
    "text = 'a/b'",
    "text IS NULL",
    "text = '#?&' AND day IS NULL",
)


def catalogue_settings(catalogue: RestCatalogue) -> dict[str, str]:
    """Spark's, for a catalogue `ice`."""
    return {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
        "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        "spark.sql.catalog.ice": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.ice.type": "rest",
        "spark.sql.catalog.ice.uri": catalogue.settings.uri,
        "spark.sql.catalog.ice.cache-enabled": "false",
    }


_RUNTIME = f"org.apache.iceberg:iceberg-spark-runtime-4.0_2.13:{VERSION}"
