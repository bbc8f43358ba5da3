"""Files as a source, read by a real Spark: every kind of bad file has its outcome, and none is a wrong row."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.storage.files.directory import HEADER, Directory
from tests.storage.ingestion_samples import contents, oks
from tidemark_protocol.plan.ingestion import FilesSource, FilesTable, Option
from tidemark_protocol.types import BIGINT, DOUBLE, STRING, Column, SqlType
from tidemark_replica.storage.errors import SourceNotReady, SourceUnusable
from tidemark_replica.storage.files.inspect import tables_of
from tidemark_replica.storage.files.listing import FileVersion
from tidemark_replica.storage.files.reading import FileStaging, StagedRows

pytestmark = pytest.mark.spark


@pytest.fixture
def directory(spark: SparkSession, tmp_path: Path) -> Callable[..., Directory]:
    return lambda **table: Directory(spark, tmp_path, **table)


def test_new_files_are_picked_up_one_after_the_other(directory: Callable[..., Directory]) -> None:
    """Each once, at its own time; NULLs and quotes as Spark reads them."""
    d = directory(options=(*HEADER, Option("nullValue", "NA")))
    d.put("1.csv", 'a,b\n1,x\nNA,"y,z"\n')
    d.ticks()
    first = d.now
    d.put("2.csv", "a,b\n3,w\n")
    d.ticks(3)

    assert oks(d.root, "t", first) == [(1, "x"), (None, "y,z")]
    assert d.rows() == [(1, "x"), (3, "w"), (None, "y,z")]
    assert d.errors() == {}


def test_a_half_written_file_is_waited_for(directory: Callable[..., Directory]) -> None:
    """Not a row of it is read until it ends with a newline."""
    d = directory()
    path = d.put("1.csv", "a,b\n1,x\n2,hal")
    d.ticks(3)

    assert d.rows() == []
    assert "half written" in d.source.warning()
    with path.open("a") as file:
        file.write("f\n")
    d.ticks()
    assert d.rows() == [(1, "x"), (2, "half")]


def test_a_file_that_still_grows_is_waited_for(directory: Callable[..., Directory]) -> None:
    """Also when it ends with a newline each time we look."""
    d = directory()
    path = d.put("1.csv", "a,b\n1,x\n")
    d.ticks(1)
    with path.open("a") as file:
        file.write("2,y\n")
    d.ticks(1)

    assert d.rows() == []
    d.ticks(1)
    assert d.rows() == [(1, "x"), (2, "y")]


def test_a_file_that_changes_after_it_was_read_is_told_and_changes_nothing(
    directory: Callable[..., Directory],
) -> None:
    """Its rows stay what they were, also for an ingester that starts later."""
    d = directory()
    path = d.put("1.csv", "a,b\n1,x\n")
    d.ticks()
    path.write_text("a,b\n9,other\n")
    d.ticks()

    assert d.rows() == [(1, "x")]
    assert d.source.counters()["changed_files"] == 1
    d.restart()
    d.ticks()
    assert d.rows() == [(1, "x")]
    assert "changed after they were read" in d.source.warning()


@pytest.mark.parametrize(("change", "code"), [("rewrite", "FILE_CHANGED"), ("remove", "FILE_MISSING")])
def test_crash_a_bound_file_that_is_another_by_then_is_an_error_row(
    directory: Callable[..., Directory], change: str, code: str
) -> None:
    """The ingester died between the binding and the reading; no part of either version is taken."""
    d = directory()
    path = d.put("1.csv", "a,b\n1,x\n")
    d.put("2.csv", "a,b\n2,y\n")
    d.ticks(1)
    original = d.ingester._apply
    d.ingester._apply = lambda *_: (_ for _ in ()).throw(KeyboardInterrupt())  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        d.ticks(1)
    d.ingester._apply = original  # type: ignore[method-assign]
    path.unlink()
    if change == "rewrite":
        d.put("1.csv", "a,b\n7,partial\n")
    d.restart()

    assert d.rows() == [(2, "y")]
    assert d.errors() == {f'{{"code":"{code}","expression":"1.csv"}}': 1}


def test_a_file_that_changes_while_it_is_read_is_an_error_row(
    directory: Callable[..., Directory], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Noticed after the job, before anything is committed; the other files are read again without it."""
    d = directory()
    path = d.put("1.csv", "a,b\n1,x\n")
    d.put("2.csv", "a,b\n2,y\n")
    real = FileStaging.stage

    def stage_then_touch(self: FileStaging, files: Sequence[FileVersion]) -> StagedRows:
        staged = real(self, files)
        path.write_text("a,b\n7,other\n")
        return staged

    monkeypatch.setattr(FileStaging, "stage", stage_then_touch)
    d.ticks()

    assert d.rows() == [(2, "y")]
    assert d.errors() == {'{"code":"FILE_CHANGED","expression":"1.csv"}': 1}


BAD_RECORDS = "a,b\n1,x\nnot-a-number,y\n3\n4,z,extra\n5,v\n"


def test_bad_records_become_error_rows(directory: Callable[..., Directory]) -> None:
    """A wrong value, too few and too many columns; the good rows of the same file are there."""
    d = directory()
    d.put("1.csv", BAD_RECORDS)
    d.ticks()

    assert d.rows() == [(1, "x"), (5, "v")]
    assert d.errors() == {'{"code":"MALFORMED_RECORD","expression":"1.csv"}': 3}


@pytest.mark.parametrize("format", ["csv", "json"])
def test_a_file_that_is_not_utf_8_is_one_error_row(
    spark: SparkSession, directory: Callable[..., Directory], format: str
) -> None:
    """Wherever the byte is: Spark's reader would put U+FFFD in its place. A character that two reads cut in two is one,
    and U+FFFD itself is a character as another."""
    d = directory(format=format, options=HEADER if format == "csv" else ())
    header, record = (b"a,b\n", b"1,%s\n") if format == "csv" else (b"", b'{"a":1,"b":"%s"}\n')
    long = "x" + "é" * (1 << 19) + "\ufffd"
    d.put("good", header + record % long.encode())
    d.put("latin", header + record % b"x" + record % "é".encode("latin-1"))
    d.put("cut", header + record % "€".encode()[:2])
    d.ticks()
    code = '{"code":"FILE_UNREADABLE","expression":"%s"}'
    assert d.errors() == {code % "latin": 1, code % "cut": 1}
    assert d.rows() == [(1, long)]
    with pytest.raises(SourceUnusable, match="FILE_UNREADABLE: no schema can be inferred from latin; give the schema"):
        tables_of(spark, FilesSource((FilesTable("t", format, str(d.folder), "latin"),)))


def test_bad_records_go_to_the_dead_letter_table_as_they_were(directory: Callable[..., Directory]) -> None:
    """With their file; the table has no error."""
    d = directory(on_bad_record="deadLetter")
    d.put("1.csv", BAD_RECORDS)
    d.ticks()

    assert d.rows() == [(1, "x"), (5, "v")]
    assert d.errors() == {}
    assert oks(d.root, "t_dead_letter") == [("1.csv", "3"), ("1.csv", "4,z,extra"), ("1.csv", "not-a-number,y")]


def test_crash_between_a_table_and_its_dead_letters(directory: Callable[..., Directory]) -> None:
    """Read again for the shard that lacks its rows; the other gets none twice."""
    d = directory(on_bad_record="deadLetter")
    d.put("1.csv", BAD_RECORDS)
    d.ticks(1)
    append, done = d.ingester._append, []

    def append_two_then_die(*args: object) -> None:
        if len(done) == 2:
            raise KeyboardInterrupt
        done.append(append(*args))  # type: ignore[arg-type, func-returns-value]

    d.ingester._append = append_two_then_die  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        d.ticks(1)
    d.restart()

    assert d.rows() == [(1, "x"), (5, "v")]
    assert d.errors() == {}
    assert len(oks(d.root, "t_dead_letter")) == 3


def test_a_file_with_another_header_is_one_error_row(directory: Callable[..., Directory]) -> None:
    """Its records are not guessed by position."""
    d = directory()
    d.put("1.csv", "b,a\nx,1\n")
    d.put("2.csv", "a,b\n2,y\n")
    d.ticks()

    assert d.rows() == [(2, "y")]
    assert d.errors() == {'{"code":"SCHEMA_MISMATCH","expression":"1.csv"}': 1}


def test_json_lines_with_missing_extra_and_wrong_fields(directory: Callable[..., Directory]) -> None:
    """Missing is NULL, extra is ignored, of the wrong type is a bad record."""
    d = directory(format="json", options=())
    d.put("1.json", '{"a": 1, "b": "x"}\n{"a": 2}\n{"a": 3, "b": "y", "c": 1}\n{"a": "four"}\n{"a": 5\n')
    d.ticks()

    assert d.rows() == [(1, "x"), (2, None), (3, "y")]
    assert d.errors() == {'{"code":"MALFORMED_RECORD","expression":"1.json"}': 2}


def parquet(path: Path, **columns: pa.Array) -> None:
    pq.write_table(pa.table(columns), path)


def test_parquet_with_the_right_wrong_and_no_schema(directory: Callable[..., Directory]) -> None:
    """By name, extra columns ignored; a wrong type and a missing column are the file's error; no footer waits."""
    d = directory(format="parquet", options=())
    parquet(d.folder / "1", b=pa.array(["x"]), a=pa.array([1]), more=pa.array([1.5]))
    parquet(d.folder / "2", a=pa.array(["1"]), b=pa.array(["x"]))
    parquet(d.folder / "3", a=pa.array([1]))
    (d.folder / "4").write_bytes((d.folder / "1").read_bytes()[:40])
    (d.folder / "5").write_bytes(b"PAR1 nonsense PAR1")
    d.ticks(3)

    assert d.rows() == [(1, "x")]
    assert d.errors() == {
        '{"code":"SCHEMA_MISMATCH","expression":"2"}': 1,
        '{"code":"SCHEMA_MISMATCH","expression":"3"}': 1,
        '{"code":"FILE_UNREADABLE","expression":"5"}': 1,
    }
    assert "parquet footer" in d.source.warning()


def test_many_small_files_come_in_bounded_bindings(directory: Callable[..., Directory]) -> None:
    """At most `max_files_per_tick` at a time, oldest first, until all are there."""
    d = directory(max_files_per_tick=40, options=())
    for i in range(100):
        os.utime(d.put(f"{i:03}.csv", f"{i},x\n"), ns=(i * 10**9, i * 10**9))
    d.ticks()

    assert sorted(a for a, _ in d.rows()) == list(range(40))
    d.ticks()
    assert sorted(a for a, _ in d.rows()) == list(range(100))


def test_names_that_mean_something_to_hadoop_are_just_names(directory: Callable[..., Directory]) -> None:
    """Spaces, percent signs, braces and brackets."""
    d = directory(options=())
    for i, name in enumerate(["a b.csv", "c%20d.csv", "{e}.csv", "[f].csv", "g*.csv", "h#.csv", "i\\j?.csv"]):
        d.put(name, f"{i},x\n")
    d.ticks()

    assert [a for a, _ in d.rows()] == [0, 1, 2, 3, 4, 5, 6]


def test_a_schema_is_inferred_once_from_the_first_file(spark: SparkSession, tmp_path: Path) -> None:
    """With Spark's own inference; without a file it is waited for."""
    spec = FilesSource((FilesTable("t", "csv", str(tmp_path), "*.csv", None, HEADER),))
    with pytest.raises(SourceNotReady, match="to infer a schema from"):
        tables_of(spark, spec)
    (tmp_path / "1.csv").write_text("a,b,c\n1,x,1.5\n")

    expected = (Column("a", SqlType("int")), Column("b", STRING), Column("c", DOUBLE))
    assert tables_of(spark, spec)[0].columns == expected


REFUSED = {
    "a reserved name": ({"columns": (Column("__time", BIGINT),)}, "reserved"),
    "a name twice": ({"columns": (Column("a", BIGINT), Column("A", BIGINT))}, "must be there and differ"),
}


@pytest.mark.parametrize(("table", "message"), REFUSED.values(), ids=REFUSED.keys())
def test_a_source_that_cannot_be_is_refused(
    directory: Callable[..., Directory], table: dict[str, object], message: str
) -> None:
    """Before anything is read."""
    with pytest.raises(SourceUnusable, match=message):
        directory(**table)


def test_every_time_shows_whole_files_only(directory: Callable[..., Directory]) -> None:
    """Following the table at every tick: the row count is always that of whole files."""
    d = directory(max_files_per_tick=1, options=())
    for i in range(4):
        os.utime(d.put(f"{i}.csv", f"{i},x\n{i},y\n"), ns=(i * 10**9, i * 10**9))
    seen = []
    for _ in range(6):
        d.ticks(1)
        seen.append(contents(d.root, "t", d.now).num_rows)

    assert seen == [0, 2, 4, 6, 8, 8]
