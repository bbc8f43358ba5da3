"""A table of files and its successor, which has further columns: both have the same files at each time, and each the
values that the files have."""

from __future__ import annotations

import errno
import gzip
import io
import json
import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from tests.avro.containers import container
from tests.storage.files.directory import HEADER, Directory
from tests.storage.ingestion_samples import description, errors, oks
from tidemark_persist import ShardWriters, open_shard
from tidemark_protocol.ids import WriterTerm
from tidemark_protocol.messages.commands import RELEASE, REREAD
from tidemark_protocol.plan.ingestion import FilesTable, IngestionDescription
from tidemark_protocol.types import BIGINT, STRING, Column
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.files import checks, read_again
from tidemark_replica.storage.files import source as files_source
from tidemark_replica.storage.files.inspect import tables_of
from tidemark_replica.storage.ingester import Ingester

pytestmark = pytest.mark.spark
FIRST = (Column("a", BIGINT), Column("b", STRING))
SECOND = (*FIRST, Column("vip", STRING))


@pytest.fixture(autouse=True)
def pauses_are_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files_source, "RETRY_SECONDS", 0.0)


@pytest.fixture
def directory(spark: SparkSession, tmp_path: Path) -> Callable[..., Directory]:
    return lambda **table: Directory(spark, tmp_path, **{"format": "json", "options": (), "columns": FIRST, **table})


def lines(*rows: dict[str, Any]) -> str:
    return "".join(json.dumps(row) + "\n" for row in rows)


def csv(*rows: dict[str, Any], columns: Iterable[str]) -> str:
    return "".join(
        ",".join(map(str, line)) + "\n" for line in [columns, *([r.get(c, "") for c in columns] for r in rows)]
    )


def parquet(*rows: dict[str, Any], columns: Iterable[str] = ("a", "b", "vip")) -> bytes:
    types = {"a": pa.int64()}
    sink = io.BytesIO()
    pq.write_table(
        pa.Table.from_pylist(list(rows), pa.schema([(name, types.get(name, pa.string())) for name in columns])), sink
    )
    return sink.getvalue()


def avro(*rows: dict[str, Any], columns: Iterable[str] = ("a", "b", "vip")) -> bytes:
    types = {name: "long" if name == "a" else "string" for name in columns}
    fields = [{"name": name, "type": ["null", type]} for name, type in types.items()]
    values = [{name: row.get(name) for name in types} for row in rows]
    return container({"type": "record", "name": "R", "fields": fields}, values, block_bytes=1)


WITH_SCHEMA = {"parquet": parquet, "avro": avro}
"""The writers of files that name their columns."""


def grown(d: Directory, *added: Column, first: bool = True) -> FilesTable:
    """The source gets a successor of its last table; without its earlier ones unless `first`."""
    last = d.spec.tables[-1]
    number = 1 + int(last.name.partition(".")[2] or 1)
    names = tuple(column.name for column in added)
    assert last.columns is not None
    successor = replace(last, name=f"t.{number}", columns=(*last.columns, *added), added=(*last.added, *names))
    d.spec = replace(d.spec, tables=(*(d.spec.tables if first else ()), successor))
    d.restart()
    return successor


def upper(d: Directory, table: str) -> int:
    return int(open_shard(f"{d.root}/{table}").state().upper)


def rows(d: Directory, table: str = "t.2") -> list[tuple[object, ...]]:
    return oks(d.root, table)


def test_rows_of_before_have_what_their_files_say(directory: Callable[..., Directory]) -> None:
    """The successor has a field of the files that the first table did not take. Later files are in both tables at one
    time, and no time shows the successor without the rows of earlier files. The first table goes, and the successor
    goes on."""
    d = directory()
    d.put("1.json", lines({"a": 1, "b": "x", "vip": "yes"}, {"a": 2}))
    d.put("2.json", lines({"a": 3, "vip": "no"}) + "not json\n")
    d.ticks()
    grown(d, Column("vip", STRING))
    assert upper(d, "t.2") == 0
    d.put("3.json", lines({"a": 4, "vip": "?"}))
    d.ticks(1)
    begun = d.now
    assert upper(d, "t.2") == begun + 1
    assert rows(d) == [(1, "x", "yes"), (2, None, None), (3, None, "no")]
    assert errors(d.root, "t.2") == errors(d.root, "t") == {'{"code":"MALFORMED_RECORD","expression":"2.json"}': 1}
    assert open_shard(f"{d.root}/t.2").state().since == begun
    d.ticks(2)
    assert rows(d)[-1] == (4, None, "?")
    assert [row[0] for row in oks(d.root, "t", begun)] == [row[0] for row in oks(d.root, "t.2", begun)] == [1, 2, 3]

    d.spec = replace(d.spec, tables=d.spec.tables[1:])
    d.restart()
    d.put("4.json", lines({"a": 5}))
    d.ticks()
    assert [row[0] for row in rows(d)] == [1, 2, 3, 4, 5]
    assert d.source.counters()["files"] == 4


@pytest.mark.broad
@pytest.mark.parametrize("format", WITH_SCHEMA)
def test_files_with_schemas_lack_the_column(directory: Callable[..., Directory], format: str) -> None:
    """Files of before the column lack it. The first table takes files that have the column, too."""
    d, made = directory(format=format), WITH_SCHEMA[format]
    d.put("1", made({"a": 1, "b": "x"}, columns=("a", "b")))
    d.ticks()
    grown(d, Column("vip", STRING))
    d.put("2", made({"a": 2, "b": "y", "vip": "yes"}))
    d.put("3", made({"b": "y", "vip": "yes"}, columns=("b", "vip")))
    d.put("4", made({"a": 4, "Vip": "?"}, columns=("a", "b", "Vip")))
    d.ticks(4)
    assert rows(d) == [(1, "x", None), (2, "y", "yes")]
    assert rows(d, "t") == [(1, "x"), (2, "y"), (4, None)]
    refused = {f'{{"code":"SCHEMA_MISMATCH","expression":"{n}"}}': 1 for n in (3, 4)}
    assert errors(d.root, "t.2") == refused
    assert errors(d.root, "t") == {'{"code":"SCHEMA_MISMATCH","expression":"3"}': 1}


@pytest.mark.broad
@pytest.mark.parametrize("end", ["", ".gz"])
def test_files_of_csv_have_columns_by_their_headers(directory: Callable[..., Directory], end: str) -> None:
    """A column that nobody takes is left out; one that was added is NULL where a header lacks it. A record that has too
    few fields, or too many, is malformed as before."""
    d = directory(format="csv", options=HEADER)

    def put(name: str, text: str) -> None:
        d.put(f"{name}.csv{end}", gzip.compress(text.encode()) if end else text)

    put("1", "a,b\n1,x\n")
    put("2", "vip,a,other,b,\nyes,2,,y,\n7,3\nno,4,1,z,,9\n")
    put("3", "a,b\nbad,x\n")
    put("4", "b,a\nx,1\n")
    put("5", "a,vip\n1,yes\n")
    d.ticks()
    assert rows(d, "t") == [(1, "x"), (2, "y")]
    refused = {f'{{"code":"SCHEMA_MISMATCH","expression":"{n}.csv{end}"}}': 1 for n in "45"}
    bad = {f'{{"code":"MALFORMED_RECORD","expression":"{n}.csv{end}"}}': count for n, count in (("2", 2), ("3", 1))}
    assert errors(d.root, "t") == refused | bad
    grown(d, Column("vip", STRING))
    put("6", "a,vip,b\n6,yes,w\n")
    d.ticks(4)
    assert rows(d) == [(1, "x", None), (2, "y", "yes"), (6, "w", "yes")]
    assert rows(d, "t") == [(1, "x"), (2, "y"), (6, "w")]
    assert errors(d.root, "t.2") == refused | bad


@pytest.mark.broad
@pytest.mark.parametrize("format", WITH_SCHEMA)
def test_the_newest_file_says_which_columns_there_are(directory: Callable[..., Directory], format: str) -> None:
    """For a table that is ingested; a new one has the columns of its first file. Without a file nothing is said."""
    d, made = directory(format=format), WITH_SCHEMA[format]
    d.put("1", made({"a": 1}, columns=("a", "b")))
    d.ticks()
    pinned = description(d.root, d.spec, tables_of(d.session, d.spec))
    asked = replace(d.spec, tables=(replace(d.spec.tables[0], columns=None),))

    def found(of: IngestionDescription | None) -> list[list[str]]:
        return [[column.name for column in table.columns] for table in tables_of(d.session, asked, None, of)]

    newest = d.put("0", made({"a": 2}, columns=("vip", "a", "b")))
    os.utime(newest, ns=(0, newest.stat().st_mtime_ns + 10**9))
    assert (found(pinned), found(None)) == ([["vip", "a", "b"]], [["vip", "a", "b"]])
    newest.rename(d.folder / "2")
    assert (found(pinned), found(None)) == ([["vip", "a", "b"]], [["a", "b"]])
    for name in ("1", "2"):
        (d.folder / name).unlink()
    assert found(pinned) == []


def test_pieces_are_bounded_and_the_first_table_goes_on(
    directory: Callable[..., Directory], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The successor reads one file in each tick, and reports that. The first table binds new files meanwhile."""
    monkeypatch.setattr(read_again, "PIECE_BYTES", 1)
    d = directory()
    for number in range(3):
        d.put(f"{number}.json", lines({"a": number, "vip": f"v{number}"}))
    d.ticks()
    grown(d, Column("vip", STRING))
    seen = []
    for number in range(3, 6):
        d.put(f"{number}.json", lines({"a": number, "vip": f"v{number}"}))
        d.ticks(1)
        report = d.source.progress()["t.2"]
        seen.append((report.behind, report.unit, upper(d, "t.2"), len(rows(d, "t"))))
    assert seen == [(2, "files", 0, 3), (2, "files", 0, 4), (2, "files", 0, 5)]
    d.ticks(4)
    assert [row[2] for row in rows(d)] == [f"v{number}" for number in range(6)]
    assert upper(d, "t") == upper(d, "t.2") == d.now + 1


@pytest.mark.broad
def test_successors_share_the_piece_of_a_tick(
    directory: Callable[..., Directory], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each in its turn, so none waits for another one to begin. Where bytes are left, several read in one tick."""
    d = directory()
    for number in range(4):
        d.put(f"{number}.json", lines({"a": number, "vip": f"v{number}"}))
    d.ticks()
    grown(d, Column("vip", STRING))
    grown(d, Column("more", STRING))
    with monkeypatch.context() as small:
        small.setattr(read_again, "PIECE_BYTES", 1)
        seen = []
        for _ in range(4):
            d.ticks(1)
            reports = d.source.progress()
            seen.append((reports["t.2"].behind, reports["t.3"].behind))
    assert seen == [(3, 4), (3, 3), (2, 3), (2, 2)]
    d.ticks(2)
    assert upper(d, "t.2") == upper(d, "t.3") == d.now + 1
    assert [row[2] for row in rows(d)] == [f"v{number}" for number in range(4)]


@pytest.mark.broad
def test_what_was_staged_is_kept_while_files_are_gone(
    directory: Callable[..., Directory], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Old data files are copied at each tick, however long the successor waits. Copies that are gone all the same are
    made anew."""
    monkeypatch.setattr(read_again, "PIECE_BYTES", 1)
    d = directory()
    for number in range(3):
        d.put(f"{number}.json", lines({"a": number, "vip": f"v{number}"}))
    d.ticks()
    grown(d, Column("vip", STRING))
    d.ticks(1)
    (d.folder / "1.json").rename(d.root / "kept")
    d.ticks(1)
    assert d.source.stop_reasons()["t.2"].startswith("FilesGone: ")

    def staged() -> set[str]:
        return {file.name for file in (d.root / "t.2").glob("*.parquet")}

    before = staged()
    monkeypatch.setattr(read_again, "RENEW_SECONDS", -1.0)
    d.ticks(1)
    assert len(before) == len(staged()) == 1
    assert before != staged()
    for name in staged():
        (d.root / "t.2" / name).unlink()
    d.ticks(1)
    assert d.source.progress()["t.2"].behind == 3
    (d.root / "kept").rename(d.folder / "1.json")
    d.ticks(5)
    assert [row[2] for row in rows(d)] == [f"v{number}" for number in range(3)]


@pytest.mark.broad
def test_files_that_come_all_the_time_delay_no_beginning(
    directory: Callable[..., Directory], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Reading begins with a piece that leaves some, so each later tick binds a file while others are read."""
    d = directory()
    with monkeypatch.context() as small:
        small.setattr(read_again, "PIECE_BYTES", 1)
        for number in range(6):
            d.put(f"{number}.json", lines({"a": number, "vip": f"v{number}"}))
            d.ticks(1)
            if number == 2:
                grown(d, Column("vip", STRING))
    for number in range(6, 8):
        d.put(f"{number}.json", lines({"a": number, "vip": f"v{number}"}))
        d.ticks(1)
    assert upper(d, "t.2") == upper(d, "t") == d.now + 1
    d.ticks(2)
    assert [row[2] for row in rows(d)] == [f"v{number}" for number in range(8)]


@pytest.mark.broad
def test_a_file_that_cannot_be_opened_for_a_moment_is_waited_for(
    directory: Callable[..., Directory], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first table has its rows, so an error in their place would be another answer."""
    d = directory()
    d.put("1.json", lines({"a": 1, "vip": "yes"}))
    d.ticks()
    grown(d, Column("vip", STRING))

    def refuse(*_: object) -> None:
        raise OSError(errno.EIO, "input/output error")

    with monkeypatch.context() as moment:
        moment.setattr(checks, "check_text", refuse)
        d.ticks(2)
        assert d.source.stop_reasons()["t.2"].startswith("FilesNotRead: ")
    assert upper(d, "t.2") == 0
    d.ticks(2)
    assert (d.source.stop_reasons(), rows(d)) == ({}, [(1, None, "yes")])


@pytest.mark.broad
def test_a_file_of_which_rows_were_read_is_missed_whatever_records_it_had(directory: Callable[..., Directory]) -> None:
    d = directory()
    path = d.put("1.json", lines({"a": 1, "vip": "yes"}) + "not json\n")
    d.ticks()
    path.unlink()
    before = description(d.root, d.spec, tables_of(d.session, d.spec))
    asked = replace(d.spec, tables=(grown(d, Column("vip", STRING)),))
    with pytest.raises(SourceUnusable, match=r"gone, or others by now \(1\.json\)"):
        tables_of(d.session, asked, None, before)


@pytest.mark.parametrize("how", ["gone", "another"])
def test_a_file_that_is_gone_stops_the_successor_alone(
    directory: Callable[..., Directory], how: str, tmp_path: Path
) -> None:
    """An edit of the spec is refused by the inspection; where the file goes afterwards the table waits for it. Nothing
    of it is NULL in silence."""
    d = directory()
    path = d.put("1.json", lines({"a": 1, "vip": "yes"}))
    d.put("2.json", lines({"a": 2}))
    d.ticks()
    stat, text = path.stat(), path.read_text()
    path.unlink() if how == "gone" else path.write_text(lines({"a": 9}))
    before = description(d.root, d.spec, tables_of(d.session, d.spec))
    successor = grown(d, Column("vip", STRING))
    asked = replace(d.spec, tables=(successor,))
    with pytest.raises(SourceUnusable, match=r"^table t cannot begin .* gone, or others by now \(1\.json\); put them"):
        tables_of(d.session, asked, None, before)
    d.put("3.json", lines({"a": 3}))
    d.ticks(3)
    assert list(d.source.stop_reasons()) == ["t.2"]
    assert d.source.stop_reasons()["t.2"].startswith("FilesGone: table t cannot begin")
    assert (upper(d, "t.2"), [row[0] for row in rows(d, "t")]) == (0, [1, 2, 3])
    path.write_text(text)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    assert len(tables_of(d.session, asked, None, before)) == 1
    d.ticks(2)
    assert (d.source.stop_reasons(), rows(d)) == ({}, [(1, None, "yes"), (2, None, None), (3, None, None)])


@pytest.mark.broad
def test_what_the_first_table_refused_is_refused(directory: Callable[..., Directory]) -> None:
    """Whatever the file is by now, as its rows are not in the first table either. Keys are those of the first one."""
    d = directory(primary_key=("a",))
    d.put("1.json", lines({"a": 1, "vip": "yes"}))
    d.ticks()
    d.put("2.json", lines({"a": 1, "vip": "no"}))
    bad = d.put("3.json", b'{"a": 3, "b": "\xff"}\n')
    d.ticks()
    bad.write_text(lines({"a": 3}))
    before = description(d.root, d.spec, tables_of(d.session, d.spec))
    successor = grown(d, Column("vip", STRING))
    assert len(tables_of(d.session, replace(d.spec, tables=(successor,)), None, before)) == 1
    d.ticks(3)
    assert rows(d) == [(1, None, "yes")]
    codes = {'{"code":"FILE_UNREADABLE","expression":"3.json"}': 1, '{"code":"KEY_VIOLATED","expression":"2.json"}': 1}
    assert errors(d.root, "t") == errors(d.root, "t.2") == codes
    assert {f.file: f.reason for f in d.source.files()} == {
        "1.json": "",
        "2.json": "KEY_VIOLATED",
        "3.json": "FILE_UNREADABLE",
    }


@pytest.mark.broad
def test_dead_letters_follow_their_table(directory: Callable[..., Directory]) -> None:
    d = directory(on_bad_record="deadLetter")
    d.put("1.json", lines({"a": 1, "vip": "yes"}) + "not json\n")
    d.ticks()
    grown(d, Column("vip", BIGINT))
    d.ticks(2)
    assert (rows(d, "t"), rows(d)) == ([(1, None)], [])
    assert d.letters() == [("1.json", "not json")]
    assert len(rows(d, "t_dead_letter.2")) == 2
    assert upper(d, "t_dead_letter.2") == upper(d, "t.2") == d.now + 1


def test_requests_about_files_are_of_both_tables(directory: Callable[..., Directory]) -> None:
    """Before the successor begins, and afterwards; what was let go is not bound again, also once the first is gone."""
    d = directory()
    for number in range(4):
        d.put(f"{number}.json", lines({"a": number, "vip": f"v{number}"}))
    d.ticks()
    assert d.ask(RELEASE, "0.json") == ""
    grown(d, Column("vip", STRING))
    d.ticks(1)
    assert d.ask(RELEASE, "1.json") == ""
    d.ticks(2)
    assert [row[0] for row in rows(d)] == [row[0] for row in rows(d, "t")] == [2, 3]
    assert d.ask(RELEASE, "2.json") == ""
    d.put("3.json", lines({"a": 7, "vip": "new"}))
    assert d.ask(REREAD, "3.json").startswith("FILE_CHANGED")
    assert (rows(d), rows(d, "t")) == ([(3, None, "v3")], [(3, None)])
    assert {f.file: f.state for f in d.source.files()} == {
        "3.json": "read",
        **{f"{n}.json": "released" for n in range(3)},
    }
    d.spec = replace(d.spec, tables=d.spec.tables[1:])
    d.restart()
    d.ticks()
    assert rows(d) == [(3, None, "v3")]
    assert d.ask(REREAD, "2.json") == ""
    assert rows(d) == [(2, None, "v2"), (3, None, "v3")]


def bound_as(d: Directory, name: str) -> IngestionDescription:
    """The source with its last table under this name in the bindings, as another DataSource made them."""
    of = description(d.root, d.spec, tables_of(d.session, d.spec))
    named = replace(of, tables=(*of.tables[:-1], replace(of.tables[-1], bound_as=name)))
    d.ingester = Ingester(named, WriterTerm(2), files_source.FilesIngestion(d.spec, d.session), ShardWriters())
    d.ingester.recover()
    return named


def test_a_name_that_another_table_had_begins_anew(directory: Callable[..., Directory], tmp_path: Path) -> None:
    """A source adopted the bindings of one with a successor, and not the table of that."""
    d = directory()
    d.put("1.json", lines({"a": 1, "vip": "yes"}))
    d.ticks()
    grown(d, Column("vip", STRING))
    d.ticks(2)
    assert rows(d) == [(1, None, "yes")]
    shutil.rmtree(tmp_path / "t.2")
    bound_as(d, "t.2@other")
    d.put("2.json", lines({"a": 2}))
    d.ticks(3)
    assert rows(d) == [(1, None, "yes"), (2, None, None)]


def test_files_are_looked_for_by_the_name_in_the_bindings(directory: Callable[..., Directory]) -> None:
    d = directory()
    pinned = bound_as(d, "t@other")
    path = d.put("1.json", lines({"a": 1}))
    d.ticks()
    successor = replace(d.spec.tables[0], name="t.2", columns=SECOND, added=("vip",))
    asked = replace(d.spec, tables=(successor,))
    assert len(tables_of(d.session, asked, None, pinned)) == 1
    path.unlink()
    with pytest.raises(SourceUnusable, match=r"1\.json"):
        tables_of(d.session, asked, None, pinned)
