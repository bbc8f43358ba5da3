"""Files in a bucket, read by a real Spark from a real S3 server: what folders have, and the faults of a store."""

from __future__ import annotations

import gzip
import io
import json
import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from tests.s3_server import S3Server
from tests.storage.files.bucket import BucketDirectory
from tests.storage.files.directory import HEADER
from tests.storage.files.test_bucket_options import entries_of, source_of
from tests.storage.files.test_files_compressed import ENDS, RECORDS, UNREADABLE, by_spark
from tests.storage.ingestion_samples import contents
from tests.storage.test_source_secrets import mounted
from tidemark_persist import DIFF, ERROR, StorageError
from tidemark_protocol.messages.commands import RELEASE, REREAD
from tidemark_protocol.plan.ingestion import FilesSource, FilesTable, Option
from tidemark_protocol.types import BIGINT, STRING, Column, SqlType
from tidemark_replica.storage.bucket_options import bucket_options
from tidemark_replica.storage.files.inspect import tables_of
from tidemark_replica.storage.files.streamed import pieces
from tidemark_replica.values.failure_text import public_text_with_type

pytestmark = pytest.mark.spark


@pytest.fixture
def bucket(
    spark: SparkSession, tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., BucketDirectory]:
    return lambda **table: BucketDirectory(spark, tmp_path, s3, monkeypatch, **table)


def code(name: str, file: str) -> str:
    return json.dumps({"code": name, "expression": file}, separators=(",", ":"))


def parquet(rows: pa.Table, **options: object) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, **options)
    return sink.getvalue()


def good_rows(d: BucketDirectory) -> pa.Table:
    """With each row as often as it is there."""
    rows = contents(d.root, "t")
    rows = rows.filter(pc.is_null(rows.column(ERROR)))
    times = [at for at, diff in enumerate(rows.column(DIFF).to_pylist()) for _ in range(diff)]
    return rows.take(times).drop_columns([DIFF, ERROR])


def counted(table: pa.Table) -> Counter[str]:
    return Counter(repr(tuple(row.values())) for row in table.to_pylist())


TIMESTAMPS = "spark.sql.parquet.outputTimestampType"
VALUES = {
    "bigint": "id",
    "int": "id",
    "double": "id / 3",
    "decimal(20,3)": "id / 7",
    "date": "date_add(DATE'1500-01-01', CAST(id AS INT))",
    "timestamp": "timestamp_micros(id * 7777777 - 1000000000)",
    "boolean": "id % 2 = 0",
    "string": "concat('é', id)",
    "binary": "CAST(id AS STRING)",
    "array<bigint>": "array(id, NULL)",
    "struct<x:double,y:array<string>>": "named_struct('x', id / 2, 'y', array(CAST(id AS STRING)))",
}


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_oracle_objects_have_the_rows_that_spark_reads_of_the_files(
    spark: SparkSession, bucket: Callable[..., BucketDirectory], monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Plain ones in pieces of a few lines, and compressed ones; records that parsers disagree about."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 150)
    draw = random.Random(23)
    options = (Option("escape", '"'), *HEADER, Option("nullValue", "NA")) if kind == "csv" else ()
    d = bucket(format=kind, options=options)
    rows: Counter[object] = Counter()
    bad: dict[str, int] = {}
    for number in range(4):
        header = ["a,b"] if kind == "csv" else []
        records = [*header, *(draw.choice(RECORDS[kind]) for _ in range(40))]
        data = "".join(record + draw.choice(ENDS) for record in records).encode()
        (d.root / "plain").write_bytes(data)
        good, malformed = by_spark(spark, d.root / "plain", kind, {o.name: o.value for o in options})
        for name, content in ((f"{number} %2.txt", data), (f"{number}.gz", gzip.compress(data))):
            d.put(name, content)
            rows += good
            bad |= {code("MALFORMED_RECORD", name): malformed}
    d.ticks(1)

    assert Counter(d.rows()) == rows
    assert d.errors() == {text: count for text, count in bad.items() if count}


def test_oracle_parquet_objects_have_the_rows_that_spark_reads(
    spark: SparkSession, bucket: Callable[..., BucketDirectory], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All types, nested ones too, in pieces of row groups; a wrong schema or damage is that object's matter."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 3000)
    columns = tuple(Column(f"c{i}", SqlType.parse(name)) for i, name in enumerate(VALUES))
    d = bucket(format="parquet", options=(), columns=columns)
    values = [
        f"CAST(IF(id % {i + 3} = 0, NULL, {value}) AS {name}) c{i}" for i, (name, value) in enumerate(VALUES.items())
    ]
    spark.conf.set(TIMESTAMPS, "TIMESTAMP_MICROS")
    spark.range(2000).selectExpr(*values).coalesce(1).write.parquet(str(d.root / "made"))
    spark.conf.unset(TIMESTAMPS)
    [file] = (d.root / "made").glob("*.parquet")
    table = pq.read_table(file)
    d.put("1", file.read_bytes())
    d.put("2", parquet(table.slice(0, 500), row_group_size=64))
    d.put("3", parquet(table.rename_columns([*table.column_names[:-1], "other"])))
    d.put("4", file.read_bytes()[:-9])
    damaged = bytearray(parquet(table, row_group_size=100, write_page_checksum=False))
    damaged[200:600] = b"\xff" * 400
    d.put("5", bytes(damaged))
    d.put("6", b"")
    d.ticks(1)

    (d.root / "2.parquet").write_bytes(parquet(table.slice(0, 500), row_group_size=64))
    expected = spark.read.parquet(str(file), str(d.root / "2.parquet")).toArrow()
    assert counted(good_rows(d)) == counted(expected)
    assert d.errors() == {code("SCHEMA_MISMATCH", "3"): 1} | {UNREADABLE % name: 1 for name in "45"}


@pytest.mark.parametrize("name", ["1.csv", "1.csv.gz"])
@pytest.mark.parametrize("change", ["rewrite", "remove"])
def test_crash_an_object_that_is_another_by_then_is_an_error_row(
    bucket: Callable[..., BucketDirectory], name: str, change: str
) -> None:
    """The ingester died between the binding and the reading; the same bytes written again are the same object."""
    d = bucket(compression="gzip" if name.endswith("gz") else "none")
    content = gzip.compress(b"a,b\n1,x\n", mtime=0) if name.endswith("gz") else b"a,b\n1,x\n"
    d.put(name, content)
    d.put("2", content)
    d.die_before_reading()
    d.put("2", content)
    if change == "rewrite":
        d.put(name, content[:-1] + b"!")
    else:
        d.remove(name)
    d.restart()

    assert d.rows() == [(1, "x")]
    assert d.errors() == {code("FILE_CHANGED" if change == "rewrite" else "FILE_MISSING", name): 1}


def test_crash_at_any_append_leaves_neither_gap_nor_duplicate(bucket: Callable[..., BucketDirectory]) -> None:
    """Killed before each of the three appends of a tick, with objects that come between; dead letters too."""
    d = bucket(on_bad_record="deadLetter", order="name")
    for number in range(3):
        d.put(f"{number}.csv", f"a,b\n{number},x\nbad,{number}\n")
        d.die_after(number)
        d.restart()
    d.ticks(2)

    assert d.rows() == [(number, "x") for number in range(3)]
    assert d.letters() == [(f"{number}.csv", f"bad,{number}") for number in range(3)]


def test_objects_are_let_go_and_read_again(bucket: Callable[..., BucketDirectory]) -> None:
    """Objects are released as files of a folder are; a release needs the same bytes, whenever they were written."""
    d = bucket()
    d.put("1", "a,b\n1,x\nno,y\n")
    d.put("2", "b,a\nx,2\n")
    d.ticks(1)
    assert (d.rows(), len(d.errors())) == ([(1, "x")], 2)
    assert d.ask(REREAD, "2").startswith("SCHEMA_MISMATCH")
    d.put("2", "a,b\n2,y\n")
    assert d.ask(REREAD, "2") == ""
    assert d.rows() == [(1, "x"), (2, "y")]
    d.put("1", "other")
    assert d.ask(RELEASE, "1").startswith("FILE_CHANGED")
    d.remove("1")
    assert d.ask(RELEASE, "1").startswith("FILE_CHANGED")
    d.put("1", "a,b\n1,x\nno,y\n")
    assert d.ask(RELEASE, "1") == ""
    d.ticks(1)
    assert (d.rows(), d.errors()) == ([(2, "y")], {})
    assert d.ask(REREAD, "3").startswith("NOT_BOUND")


def test_a_store_that_goes_away_is_no_file_s_fault(
    bucket: Callable[..., BucketDirectory], s3: S3Server, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Denied or away between the binding and the reading: nothing is committed, the text has no secret, and the next
    attempt reads the object."""
    d = bucket()
    d.put("1", "a,b\n1,x\n")
    d.die_before_reading()
    for name, value, text in (
        ("AWS_SECRET_ACCESS_KEY", "x" * 40, "403"),
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:1", "error sending request"),
    ):
        with monkeypatch.context() as patch:
            patch.setitem(spark.sparkContext.environment, name, value)
            patch.setenv(name, value)
            with pytest.raises((PySparkException, StorageError)) as raised:
                d.restart()
        told = public_text_with_type(raised.value)
        assert text in told
        assert "StorageError" in told
        assert not [secret for secret in (s3.secret_key, "x" * 40) if secret in str(raised.value)]
    d.restart()
    assert (d.rows(), d.errors()) == ([(1, "x")], {})


@pytest.mark.parametrize("format", ["csv", "parquet"])
def test_tasks_read_with_the_credentials_of_the_source_s_secret(
    bucket: Callable[..., BucketDirectory],
    s3: S3Server,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    format: str,
) -> None:
    """The environments of driver and tasks have other credentials, and no text has those of the Secret. Wrong ones are
    no file's fault, and rotated ones count in the next attempt."""
    d = bucket(format=format, options=HEADER if format == "csv" else ())
    for name, value in {"AWS_SECRET_ACCESS_KEY": "y" * 40, "AWS_ENDPOINT_URL": "http://127.0.0.1:1"}.items():
        monkeypatch.setitem(spark.sparkContext.environment, name, value)
        monkeypatch.setenv(name, value)
    secrets = mounted(tmp_path / "secrets", **entries_of(s3))
    d.options = bucket_options(source_of(s3, d.storage.location), secrets.read)
    d.restart()
    rows = pa.table({"a": pa.array([1]), "b": pa.array(["x"])})
    d.put("1", b"a,b\n1,x\n" if format == "csv" else parquet(rows))
    d.die_before_reading()
    mounted(tmp_path / "secrets", **entries_of(s3, AWS_SECRET_ACCESS_KEY="x" * 40))
    with pytest.raises((PySparkException, StorageError), match="403") as raised:
        d.restart()
    assert not [secret for secret in (s3.secret_key, "x" * 40) if secret in str(raised.value)]
    mounted(tmp_path / "secrets", **entries_of(s3))
    d.restart()
    assert (d.rows(), d.errors()) == ([(1, "x")], {})


def test_a_store_that_is_slow_is_waited_for(bucket: Callable[..., BucketDirectory], s3: S3Server) -> None:
    """It hangs while an object is read, and goes on."""
    d = bucket()
    d.put("1", "a,b\n1,x\n")
    d.die_before_reading()
    with s3.hanging() as proceed:
        timer = threading.Timer(2.0, proceed)
        timer.start()
        d.restart()
        timer.join()
    assert d.rows() == [(1, "x")]


def test_schemas_of_objects_are_inferred(spark: SparkSession, bucket: Callable[..., BucketDirectory]) -> None:
    """By Spark from text, from the footer of Parquet."""
    d = bucket()
    d.put("1.csv", "a,b\n1,x\n")
    d.put("1.parquet", parquet(pa.table({"a": pa.array([1]), "b": pa.array(["x"])})))
    location = d.storage.location
    tables = (
        FilesTable("t", "csv", location, "*.csv", None, HEADER),
        FilesTable("p", "parquet", location, "*.parquet"),
    )
    text, footer = tables_of(spark, FilesSource(tables))
    assert text.columns == (Column("a", SqlType("int")), Column("b", STRING))
    assert footer.columns == (Column("a", BIGINT), Column("b", STRING))
