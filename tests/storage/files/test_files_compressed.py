"""Compressed csv and json, read by a real Spark: the same rows as of the plain file, and a bad archive is one file's
matter."""

from __future__ import annotations

import gzip
import json
import random
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import duckdb
import pytest
from pyspark.sql import SparkSession

from tests.storage.files.directory import HEADER, Directory
from tests.storage.files.test_compression import compressed
from tidemark_protocol.messages.commands import RELEASE, REREAD
from tidemark_protocol.plan.ingestion import FilesSource, FilesTable, Option
from tidemark_protocol.types import STRING, Column, SqlType
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.files.inspect import tables_of

pytestmark = pytest.mark.spark
UNREADABLE = '{"code":"FILE_UNREADABLE","expression":"%s"}'


@pytest.fixture
def directory(spark: SparkSession, tmp_path: Path) -> Callable[..., Directory]:
    return lambda **table: Directory(spark, tmp_path, **table)


RECORDS = {
    "csv": ["1,x", "2,y z", '3,"a,b"', '"4",""', ",", "", "   ", "NA,NA", "x,y", "5", "6,a,b", '7,"open', "8,é\u2028",
            "a,b", "9223372036854775808,z", " 10 , pad ", "11,\\n", '12,"qu""ote"',
            "\t", "\x01\x1f ", " \x0b"],
    "json": ['{"a":1,"b":"x"}', '{"b":"y","a":2}', '{"a":"3"}', '{"a":4.5}', '{"a":null,"b":null}', "{}", "", "  ",
             '[{"a":5,"b":"p"},{"a":6}]', '[{"a":7},{"a":"no"}]', "null", "17", '"text"', '{"a":8', '{"a":9}x',
             '{"a":10,"b":{"deep":[1]}}', '{"b":"\\u00e9\u2028"}', '{"a":11,"c":true}', "[]", "[1]"],
}  # fmt: skip
ENDS = ["\n", "\n", "\n", "\r\n", "\r"]


def by_spark(spark: SparkSession, path: Path, kind: str, options: dict[str, str]) -> tuple[Counter[object], int]:
    """The good rows of a plain file, and the number of the malformed ones: Spark's own batch read."""
    reader = spark.read.options(mode="PERMISSIVE", columnNameOfCorruptRecord="bad", **options)
    rows = reader.schema("a bigint, b string, bad string").format(kind).load(str(path)).collect()
    return Counter((r.a, r.b) for r in rows if r.bad is None), sum(r.bad is not None for r in rows)


@pytest.mark.parametrize("kind", ["csv", "json"])
def test_oracle_compressed_files_have_the_rows_that_spark_reads_of_plain_ones(
    spark: SparkSession, directory: Callable[..., Directory], kind: str
) -> None:
    """Random files of records that parsers disagree about, each compressed in both ways, all in one table."""
    draw = random.Random(17)
    options = (Option("escape", '"'), *HEADER, Option("nullValue", "NA")) if kind == "csv" else ()
    d = directory(format=kind, options=options)
    rows: Counter[object] = Counter()
    bad: dict[str, int] = {}
    for number in range(12):
        header = ["a,b"] if kind == "csv" else []
        records = [*header, *(draw.choice(RECORDS[kind]) for _ in range(40))]
        text = "".join(record + draw.choice(ENDS) for record in records)
        text = ("\ufeff" if number == 3 else "") + (text.rstrip("\r\n") if number % 4 == 0 else text)
        plain = d.root / f"{number}.plain"
        plain.write_bytes(text.encode())
        good, malformed = by_spark(spark, plain, kind, {o.name: o.value for o in options})
        for name in (f"{number}.gz", f"{number}.zst"):
            d.put(name, compressed("gzip" if name.endswith("gz") else "zstd", text.encode()))
            rows += good
            bad |= {json.dumps({"code": "MALFORMED_RECORD", "expression": name}, separators=(",", ":")): malformed}
    d.ticks()

    assert Counter(d.rows()) == rows
    assert d.errors() == {text: count for text, count in bad.items() if count}


def test_oracle_duckdb_reads_the_same_rows(directory: Callable[..., Directory]) -> None:
    """The file has no doubtful records, and is larger than a chunk."""
    d = directory(options=(Option("escape", '"'), *HEADER))
    path = d.put("1.csv.gz", gzip.compress(b"a,b\n" + b"".join(b'%d,"x ""%d"", y"\n' % (i, i) for i in range(80_000))))
    d.ticks()

    query = f"SELECT a, b FROM read_csv('{path}', header=true, columns={{'a': 'BIGINT', 'b': 'VARCHAR'}})"
    assert Counter(d.rows()) == Counter(duckdb.sql(query).fetchall())


def test_a_bad_archive_is_the_matter_of_that_file_alone(directory: Callable[..., Directory]) -> None:
    """Cut, damaged, a bomb, of another kind than its name, not UTF-8 inside: no row of any of them is there."""
    good = b"a,b\n" + b"".join(b"%d,%d\n" % (i, i) for i in range(60_000))
    d = directory()
    d.put("1.gz", gzip.compress(b"a,b\n1,x\n"))
    d.put("2.gz", gzip.compress(good)[:-5])
    d.put("3.zst", compressed("zstd", good)[:-5])
    d.put("4.zst", compressed("zstd", b"a,b\n" + b"0" * (100 << 20)))
    d.put("5.gz", b"a,b\n5,plain\n")
    d.put("6.gz", gzip.compress("a,b\n6,München\n".encode("latin-1")))
    d.put("7.gz", gzip.compress(b"b,a\nx,7\n"))
    d.put("8.csv", "a,b\n8,plain\n")
    d.ticks()

    assert d.rows() == [(1, "x"), (8, "plain")]
    bad = {UNREADABLE % name: 1 for name in ("2.gz", "3.zst", "5.gz", "6.gz")}
    assert d.errors() == bad | {'{"code":"SCHEMA_MISMATCH","expression":"7.gz"}': 1, UNREADABLE % "4.zst": 1}


def test_dead_letters_of_compressed_files(directory: Callable[..., Directory]) -> None:
    """Records as they were, and an archive that cannot be read."""
    d = directory(on_bad_record="deadLetter", compression="gzip")
    d.put("1", gzip.compress(b"a,b\n1,x\nno,y\n"))
    d.put("2", b"not an archive\n")
    d.put("3", b"")
    d.ticks(3)

    assert (d.rows(), d.errors()) == ([(1, "x")], {})
    letters = [tuple(row) for row in d.letters()]
    assert letters == [("1", "no,y"), ("2", UNREADABLE % "2" + "\n")]
    assert d.source.warning() == "3: waiting, it is empty (half written?)"


def test_a_cut_archive_is_read_again_once_it_is_mended_and_let_go(directory: Callable[..., Directory]) -> None:
    """By requests, as plain files are."""
    d = directory()
    whole = gzip.compress(b"a,b\n1,x\nno,y\n2,z\n")
    d.put("1.gz", whole[:-1])
    d.ticks()
    assert d.ask(REREAD, "1.gz").startswith("FILE_UNREADABLE: file 1.gz still cannot be read")
    d.put("1.gz", whole)
    assert d.ask(REREAD, "1.gz") == ""
    assert (d.rows(), d.file("1.gz").errors) == ([(1, "x"), (2, "z")], 1)
    assert d.ask(RELEASE, "1.gz") == ""
    assert (d.rows(), d.errors()) == ([], {})


def test_crash_an_archive_that_is_another_by_then_is_an_error_row(directory: Callable[..., Directory]) -> None:
    """The ingester died between the binding and the reading."""
    d = directory()
    d.put("1.gz", gzip.compress(b"a,b\n1,x\n"))
    d.put("2.gz", gzip.compress(b"a,b\n2,y\n"))
    d.die_before_reading()
    d.put("1.gz", gzip.compress(b"a,b\n7,another one\n"))
    (d.folder / "2.gz").unlink()
    d.restart()

    assert d.rows() == []
    codes = {"1.gz": "FILE_CHANGED", "2.gz": "FILE_MISSING"}
    assert d.errors() == {f'{{"code":"{code}","expression":"{name}"}}': 1 for name, code in codes.items()}


def test_the_schema_of_a_compressed_file_is_inferred(spark: SparkSession, tmp_path: Path) -> None:
    """The schema is found as that of a plain one; a bad archive is named as such."""
    (tmp_path / "1.csv.gz").write_bytes(gzip.compress(b"a,b,c\n1,x,1.5\n2,y,2.5\n"))
    spec = FilesSource((FilesTable("t", "csv", str(tmp_path), "*.csv.gz", None, HEADER),))
    expected = (Column("a", SqlType("int")), Column("b", STRING), Column("c", SqlType("double")))
    assert tables_of(spark, spec)[0].columns == expected

    (tmp_path / "1.json.zst").write_bytes(b"nothing")
    spec = FilesSource((FilesTable("t", "json", str(tmp_path), "*.json.zst", None, ()),))
    with pytest.raises(SourceUnusable, match=r"FILE_UNREADABLE: no schema can be inferred from 1\.json\.zst"):
        tables_of(spark, spec)
