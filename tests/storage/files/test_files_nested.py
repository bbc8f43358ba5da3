"""Arrays and structs in files: inferred, read, and kept in the shard; other values are errors."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.storage.files.directory import Directory
from tests.storage.files.test_files_ingestion import parquet
from tests.storage.ingestion_samples import contents
from tidemark_protocol.plan.ingestion import FilesSource, FilesTable
from tidemark_protocol.types import Column, SqlType
from tidemark_replica.storage.files.inspect import tables_of

pytestmark = pytest.mark.spark
COLUMNS = (
    Column("a", SqlType.parse("array<bigint>")),
    Column("s", SqlType.parse("struct<x:double,y:array<string>>")),
)


@pytest.fixture
def directory(spark: SparkSession, tmp_path: Path) -> Callable[..., Directory]:
    return lambda **table: Directory(spark, tmp_path, columns=COLUMNS, options=(), **table)


def rows(d: Directory) -> list[tuple[object, ...]]:
    return [(r["a"], r["s"]) for r in contents(d.root, "t").to_pylist() if r["__error"] is None]


def test_nested_parquet_is_inferred_and_read(spark: SparkSession, directory: Callable[..., Directory]) -> None:
    """A file whose elements are of another type does not fit."""
    d = directory(format="parquet")
    parquet(d.folder / "1", a=pa.array([[1, None], None]), s=pa.array([{"x": 0.5, "y": ["a"]}, None]))
    parquet(d.folder / "2", a=pa.array([["1"]]), s=pa.array([{"x": 0.5, "y": ["a"]}]))
    d.ticks(3)

    inferred = tables_of(spark, FilesSource((FilesTable("t", "parquet", str(d.folder), "1", None, ()),)))
    assert inferred[0].columns == COLUMNS
    assert sorted(rows(d), key=repr) == [(None, None), ([1, None], {"x": 0.5, "y": ["a"]})]
    assert d.errors() == {'{"code":"SCHEMA_MISMATCH","expression":"2"}': 1}


def test_nested_json_is_inferred_and_read(spark: SparkSession, directory: Callable[..., Directory]) -> None:
    """A record with a part of another type is malformed as a whole."""
    d = directory(format="json")
    d.put("1.json", '{"a":[1,null],"s":{"x":0.5,"y":["a"]}}\n{"s":{"y":[]}}\n{"a":["no"],"s":null}\n')
    d.ticks(3)
    (d.root / "other").mkdir()
    (d.root / "other" / "2.json").write_text('{"a":[1,null],"s":{"x":0.5,"y":["a"]}}\n')

    inferred = tables_of(spark, FilesSource((FilesTable("t", "json", str(d.root / "other"), "*", None, ()),)))
    assert inferred[0].columns == COLUMNS
    assert sorted(rows(d), key=repr) == [(None, {"x": None, "y": []}), ([1, None], {"x": 0.5, "y": ["a"]})]
    assert d.errors() == {'{"code":"MALFORMED_RECORD","expression":"1.json"}': 1}
