"""Copies as CSV equal the files that Spark writes of the same rows."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.replica.sinks.deltas import Update, staged
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.dataflow import CopyToSink
from tidemark_protocol.types import BIGINT, BOOLEAN, DATE, DOUBLE, STRING, TIMESTAMP, Column, SqlType
from tidemark_replica.sinks.copy.files import Copy, write_copy
from tidemark_replica.values.arrow_types import arrow_schema

pytestmark = pytest.mark.spark
COLUMNS = (
    Column("n", BIGINT),
    Column("te xt`s", STRING),
    Column("f", DOUBLE),
    Column("at", TIMESTAMP),
    Column("day", DATE),
    Column("d", SqlType("decimal", 10, 2)),
    Column("yes", BOOLEAN),
)
TEXTS = [None, "", "a", "with,comma", 'a "quote"', "new\nline", " blanks ", "back\\slash", 'b\\"', "é", "#x"]


def rows() -> list[tuple[Any, ...]]:
    from datetime import UTC, date, datetime
    from decimal import Decimal

    at = datetime(2026, 1, 31, 12, 0, 0, 123456, UTC)
    return [
        (i, text, f, None if i == 3 else at, date(2026, 1, i + 1), Decimal(i) / 4, i % 2 == 0)
        for i, (text, f) in enumerate(zip(TEXTS, [0.1, 1e20, 1.0, -0.5, 3e-9, None] * 2, strict=False))
    ]


def lines(folder: Path) -> list[str]:
    """Headers once; records may hold line breaks, so they are not told apart further."""
    texts = [f.read_text() for f in sorted(folder.glob("*.csv"))]
    header = texts[0].split("\n", 1)[0]
    assert all(text.startswith(header) for text in texts)
    return [header, *sorted("\n".join(text.removeprefix(header) for text in texts).split("\n"))]


@pytest.mark.parametrize("count", [0, len(TEXTS)], ids=["no rows", "rows"])
def test_agree_a_copy_as_csv_has_the_text_of_spark(spark: Any, tmp_path: Path, count: int) -> None:
    """NULL, empty text, quotes, blanks, line breaks, numbers and times; the header also of nothing. Wherever it is."""
    contents = rows()[:count]
    updates: list[Update] = [(row, 10, 1) for row in contents]
    store = f"{tmp_path}/a store%20é#1"
    sink = CopyToSink(COLUMNS, f"{store}/ns/_copies/x", "csv")
    copy = Copy(GlobalId("c"), sink, 10, store)
    delta = staged(tmp_path, COLUMNS, 10, 11, updates).delta
    assert write_copy(copy, delta, lambda: spark, lambda: False) == count

    schema = arrow_schema(COLUMNS)
    arrays = [pa.array([r[i] for r in contents], t) for i, t in enumerate(schema.types)]
    frame = spark.createDataFrame(pa.Table.from_arrays(arrays, schema=schema)).coalesce(1)
    frame.write.option("header", True).csv(str(tmp_path / "expected"))
    place = Path(sink.location)
    assert lines(place) == lines(tmp_path / "expected")
    manifest = json.loads((place / "_manifest.json").read_text())
    assert sorted(p.name for p in place.iterdir()) == ["_manifest.json", *manifest["files"]]
    assert manifest["rows"] == count
