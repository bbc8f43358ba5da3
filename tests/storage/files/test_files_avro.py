"""Avro files as a source, read by a real Spark's tasks; files of each codec are those that Avro's own Java writes."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from tests.avro.containers import container
from tests.s3_server import S3Server
from tests.storage.files.bucket import BucketDirectory
from tests.storage.files.directory import Directory
from tidemark_protocol.messages.commands import RELEASE, REREAD
from tidemark_protocol.plan.ingestion import FilesSource, FilesTable
from tidemark_protocol.types import BIGINT, STRING, Column, SqlType
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.files.inspect import tables_of
from tidemark_replica.storage.files.streamed import pieces

pytestmark = pytest.mark.spark
CODECS = ("null", "deflate", "snappy", "bzip2", "xz", "zstandard")


@pytest.fixture
def directory(spark: SparkSession, tmp_path: Path) -> Callable[..., Directory]:
    return lambda **table: Directory(spark, tmp_path, **{"format": "avro", "options": (), **table})


def schema(**fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": type} for name, type in fields.items()]}


PAIRS = schema(a="long", b=["null", "string"])


def pairs(*rows: tuple[int, str | None], block_bytes: int = 16_000) -> bytes:
    return container(PAIRS, [{"a": a, "b": b} for a, b in rows], block_bytes=block_bytes)


def by_java(spark: SparkSession, file: bytes, codec: str, folder: Path) -> bytes:
    """The records of a file, written by Avro's own Java with the codec."""
    jvm = spark._jvm
    assert jvm is not None
    avro, given, made = jvm.org.apache.avro, folder / "given", folder / "made"
    given.write_bytes(file)
    reader = avro.file.DataFileReader(jvm.java.io.File(str(given)), avro.generic.GenericDatumReader())
    writer = avro.file.DataFileWriter(avro.generic.GenericDatumWriter())
    writer.setCodec(avro.file.CodecFactory.fromString(codec))
    writer.setSyncInterval(2000)
    writer.create(reader.getSchema(), jvm.java.io.File(str(made)))
    writer.appendAllFrom(reader, True)
    writer.close()
    return made.read_bytes()


def test_files_of_each_codec_in_pieces(
    spark: SparkSession, directory: Callable[..., Directory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each row of each piece, once; another file of 0 records."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 3000)
    d = directory()
    expected: Counter[object] = Counter()
    for place, codec in enumerate(CODECS):
        rows = [(place * 10_000 + i * i, None if i % 5 == 0 else f"text {i % 70}") for i in range(2000)]
        made = by_java(spark, pairs(*rows), codec, tmp_path)
        assert f"avro.codec{chr(2 * len(codec))}{codec}".encode() in made
        d.put(f"{codec}.avro", made)
        expected.update(rows)
    d.put("none.avro", pairs())
    d.ticks()

    assert (Counter(d.rows()), d.errors()) == (expected, {})
    assert d.file("none.avro").rows == 0


def test_files_of_several_writers(directory: Callable[..., Directory]) -> None:
    """Columns are found by name: in another order, with more fields, narrower numbers. A value that does not fit is the
    file's error."""
    d = directory()
    d.put("1", container(schema(more={"type": "map", "values": "int"}, b="string", a="int"), [
        {"more": {"x": 1}, "b": "x", "a": 1}]))  # fmt: skip
    d.put("2", pairs((2, None)))
    d.put("3", container(schema(a="string", b="string"), [{"a": "3", "b": "x"}]))
    d.put("4", container(schema(a="long"), [{"a": 4}]))
    d.put("5", container("long", [5]))
    d.ticks()

    assert d.rows() == [(1, "x"), (2, None)]
    code = '{"code":"SCHEMA_MISMATCH","expression":"%s"}'
    assert d.errors() == {code % name: 1 for name in "345"}


def test_bad_files_and_records(directory: Callable[..., Directory]) -> None:
    """A cut file is waited for; a damaged one is an error; of a record that cannot be decoded the others stay."""
    d = directory()
    good = pairs(*((n, "x" * n) for n in range(8)), block_bytes=1)
    d.put("1", good[:-1])
    d.put("2", good[:200] + b"\xff" + good[201:])
    d.put("3", b"no Avro at all\n")
    d.put("4", pairs((1, "x"), (2, "good"), (3, "y")).replace(b"good", b"g\xff\xffd"))
    d.put("5", "")
    d.ticks(3)

    assert d.rows() == [(1, "x"), (3, "y")]
    code = '{"code":"%s","expression":"%s"}'
    assert d.errors() == {
        code % ("FILE_UNREADABLE", "2"): 1,
        code % ("FILE_UNREADABLE", "3"): 1,
        code % ("MALFORMED_RECORD", "4"): 1,
    }
    assert "1: waiting, it does not end with its sync marker" in d.source.warning()
    assert d.ask(RELEASE, "4") == ""
    d.put("2", good)
    assert d.ask(REREAD, "2") == ""
    assert d.rows() == [(n, "x" * n) for n in range(8)]


def test_dead_letters_are_records_in_base64(directory: Callable[..., Directory]) -> None:
    d = directory(on_bad_record="deadLetter")
    d.put("1", pairs((1, "x"), (2, "good")).replace(b"good", b"g\xff\xffd"))
    d.put("2", container(schema(a="long"), [{"a": 4}]))
    d.ticks()

    assert (d.rows(), d.errors()) == ([(1, "x")], {})
    whole = json.dumps({"code": "SCHEMA_MISMATCH", "expression": "2"}, separators=(",", ":")) + "\n"
    assert [tuple(row) for row in d.letters()] == [("1", "BAIIZ///ZA=="), ("2", whole)]


def test_objects_of_a_bucket(
    spark: SparkSession, tmp_path: Path, s3: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In pieces, by ranges."""
    monkeypatch.setattr(pieces, "PIECE_BYTES", 500)
    d = BucketDirectory(spark, tmp_path, s3, monkeypatch, format="avro", options=())
    d.put("1", pairs(*((n, str(n)) for n in range(300)), block_bytes=100))
    d.put("2", pairs((1000, None))[:-1])
    d.ticks(1)

    assert sorted(d.rows(), key=str) == sorted(((n, str(n)) for n in range(300)), key=str)
    assert d.errors() == {'{"code":"FILE_UNREADABLE","expression":"2"}': 1}


def test_the_schema_is_that_of_the_first_file_and_evolves_with_the_newest(spark: SparkSession, tmp_path: Path) -> None:
    """The inspection names types without a counterpart in SQL, and files that cannot be read."""
    spec = FilesSource((FilesTable("t", "avro", str(tmp_path), "*.avro"),))
    (tmp_path / "1.avro").write_bytes(pairs((1, None)))
    expected = (Column("a", BIGINT), Column("b", STRING))
    assert tables_of(spark, spec)[0].columns == expected
    (tmp_path / "0.avro").write_bytes(container(schema(a={"type": "array", "items": "int"}), []))
    os.utime(tmp_path / "0.avro", ns=(0, 0))
    assert tables_of(spark, spec)[0].columns == (Column("a", SqlType.parse("array<int>")),)
    (tmp_path / "0.avro").write_bytes(container(schema(a={"type": "map", "values": "int"}), []))
    with pytest.raises(SourceUnusable, match=r"file 0\.avro: \$\.a: type map has no counterpart in SQL.*give the"):
        tables_of(spark, spec)
    (tmp_path / "0.avro").write_bytes(b"nothing of Avro")
    with pytest.raises(SourceUnusable, match=r"FILE_UNREADABLE: no schema can be inferred from 0\.avro"):
        tables_of(spark, spec)
