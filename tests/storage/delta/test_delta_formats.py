"""The contents that a Delta table may have: deletion vectors, column mapping, partitions, the change data feed, all
types."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Table
from deltalake import write_deltalake

from tests.s3_server import S3Server
from tests.storage.delta.delta_logs import (
    VECTORS,
    actions_of,
    data_file,
    entry,
    field,
    mapped,
    metadata,
    protocol,
    removal,
    with_vector,
)
from tests.storage.delta.delta_tables import check, ingester, spec_of, tick
from tests.storage.ingestion_samples import oks
from tidemark_persist import open_shard
from tidemark_persist.files.spill import divide
from tidemark_protocol.plan.ingestion import DeltaSource, DeltaTable
from tidemark_replica.storage.delta import changes, followed_table, pieces
from tidemark_replica.storage.delta.file_reads import FileRead
from tidemark_replica.storage.delta.inspect import tables_of
from tidemark_replica.storage.delta.reading import RowReader
from tidemark_replica.storage.errors import SourceNotReady, SourceUnusable
from tidemark_replica.storage.ingester import Ingester

INTS = [field("id", "long")]
LATER = metadata("x", INTS)
LATER["metaData"]["configuration"]["tidemark.format"] = "2"
MAP = {"type": "map", "keyType": "long", "valueType": "long", "valueContainsNull": True}


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


def followed(root: Path, path: Path | str, **options: Any) -> tuple[Ingester, DeltaSource]:
    """An ingester of the table `t`, which has ingested its present version at 1000."""
    spec = spec_of(DeltaTable("t", str(path), **options))
    one = ingester(root, spec)
    one.recover()
    tick(one, 1000)
    return one, spec


def rows_appended(root: Path, at: int) -> int:
    """The number of updates that the table's shard got at a time."""
    shard = open_shard(f"{root}/t")
    return sum(part.rows for part in shard.listen(at, at + 1))


def test_deletion_vectors_that_grow_go_and_come_back(tmp_path: Path) -> None:
    """One file whose vector changes; a restore takes it back; two changes of a tick count once."""
    path = tmp_path / "up"
    add = data_file(path, "f.parquet", ids(*range(10)))
    entry(path, 0, VECTORS, metadata("x", INTS), add)
    one, spec = followed(tmp_path, path)
    two, four = with_vector(add, [1, 3]), with_vector(add, [1, 3, 5, 9])
    entry(path, 1, removal(add), two)
    tick(one, 1100)
    assert rows_appended(tmp_path, 1100) == 2
    entry(path, 2, removal(two), four)
    entry(path, 3, removal(four), two)
    entry(path, 4, removal(two), four)
    tick(one, 1200)
    assert rows_appended(tmp_path, 1200) == 2
    entry(path, 5, removal(four, extended=False), add)
    tick(one, 1300)
    entry(path, 6, removal(add))
    tick(one, 1400)

    check(tmp_path, spec)
    assert oks(tmp_path, "t", 1300) == [(i,) for i in range(10)]
    assert oks(tmp_path, "t") == []


def test_a_snapshot_of_a_table_with_deletion_vectors(tmp_path: Path) -> None:
    """In partitions whose folders have names that are encoded."""
    path = tmp_path / "up"
    write_deltalake(path, ids(*range(6)).append_column("p", pa.array(["a b/%"] * 6)), partition_by=["p"])
    [add] = [action for action in actions_of(path, 0) if "add" in action]
    entry(path, 1, VECTORS, removal(add), with_vector(add, [0, 5]))
    _, spec = followed(tmp_path, path)

    check(tmp_path, spec)
    assert oks(tmp_path, "t") == [(i, "a b/%") for i in range(1, 5)]


def test_column_mapping_by_name_reads_physical_names(tmp_path: Path) -> None:
    """Also of partitions. A renamed column that is not declared changes nothing."""
    path = tmp_path / "up"
    fields = [mapped("id", "long", "col-1", 1), mapped("p", "string", "col-2", 2), mapped("n", "long", "col-3", 3)]
    rows = pa.table({"col-1": pa.array([1, 2], pa.int64()), "col-3": pa.array([5, 6], pa.int64())})
    add = data_file(path, "f.parquet", rows)
    add["add"]["partitionValues"] = {"col-2": "z"}
    options = {"columnMapping_mode": "name", "columnMapping_maxColumnId": "3"}
    entry(path, 0, protocol(2, 5), metadata("x", fields, ["p"], **options), add)
    one, spec = followed(tmp_path, path, names=("id", "p"))
    renamed = [*fields[:2], mapped("other", "long", "col-3", 3)]
    entry(path, 1, metadata("x", renamed, ["p"], **options))
    entry(path, 2, removal(add, extended=False), with_partition(data_file(path, "g.parquet", rows.slice(1)), "y"))
    tick(one, 1100)

    assert oks(tmp_path, "t", 1000) == [(1, "z"), (2, "z")]
    assert oks(tmp_path, "t", 1100) == [(2, "y")]
    check(tmp_path, spec)


STREETS = pa.struct([("f-2", pa.string()), ("f-3", pa.list_(pa.struct([("f-4", pa.int64())])))])
ADDRESSES = {
    "type": "struct",
    "fields": [
        mapped("street", "string", "f-2", 2),
        mapped(
            "seen",
            {
                "type": "array",
                "elementType": {"type": "struct", "fields": [mapped("at", "long", "f-4", 4)]},
                "containsNull": True,
            },
            "f-3",
            3,
        ),
    ],
}


def test_fields_inside_structs_are_read_by_their_physical_names(tmp_path: Path) -> None:
    """The structs are in arrays, too, with NULLs at each level, in slices; a file that is older than a field has NULL
    in it. A field that was dropped and added again is another one."""
    path = str(tmp_path / "up")
    values = [
        {"f-2": "a", "f-3": [{"f-4": 1}, None, {"f-4": None}]},
        {"f-2": None, "f-3": None},
        None,
        {"f-2": "b", "f-3": []},
        {"f-2": "c", "f-3": [{"f-4": 2}]},
    ]
    rows = pa.table({"f-1": pa.array(values, STREETS)})
    older = pa.table({"f-1": pa.array([{"f-2": "old"}], pa.struct([("f-2", pa.string())]))})
    options = {"columnMapping_mode": "name", "columnMapping_maxColumnId": "4"}
    files = (
        data_file(path, "f.parquet", rows),
        data_file(path, "g.parquet", rows.slice(2)),
        data_file(path, "h.parquet", older),
    )
    definition = metadata("x", [mapped("address", ADDRESSES, "f-1", 1)], **options)
    entry(path, 0, protocol(2, 5), definition, *files)
    one, spec = followed(tmp_path, path)

    def expected(value: dict[str, Any] | None) -> dict[str, Any] | None:
        if value is None:
            return None
        seen = value.get("f-3")
        return {"street": value["f-2"], "seen": seen and [each and {"at": each["f-4"]} for each in seen]}

    wanted = [expected(value) for value in [*values, *values[2:], {"f-2": "old"}]]
    assert sorted(oks(tmp_path, "t", 1000), key=repr) == sorted(((each,) for each in wanted), key=repr)
    one = ingester(tmp_path, spec)
    one.recover()
    fields = [mapped("street", "string", "f-9", 9), ADDRESSES["fields"][1]]
    entry(path, 1, metadata("x", [mapped("address", {"type": "struct", "fields": fields}, "f-1", 1)], **options))
    tick(one, 1100)
    assert "ColumnChanged" in one._source.stop_reasons()["t"]


def with_partition(add: dict[str, Any], value: str) -> dict[str, Any]:
    return {"add": add["add"] | {"partitionValues": {"col-2": value}}}


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ([protocol(3, 7, "typeWidening"), metadata("x", INTS)], "typeWidening"),
        ([protocol(3, 7, "variantType"), metadata("x", INTS)], "variantType"),
        ([protocol(2, 5), metadata("x", [mapped("id", "long", "c", 1)], columnMapping_mode="id")], "mode 'id'"),
        ([protocol(1, 2), metadata("x", [field("m", MAP)])], "column 'm': type map has no counterpart"),
        ([protocol(1, 2), metadata("x", [field("__time", "long")])], "reserved"),
        ([protocol(1, 2), LATER], "tidemark.format is '2', of another version of Tidemark; .*: upgrade it"),
        ([protocol(1, 2), metadata("x", [field("a", "long"), field("b", "long")])], "no column 'id'"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_refused_by_name(tmp_path: Path, first: list[Any], reason: str) -> None:
    """Before anything is ingested."""
    entry(tmp_path / "up", 0, *first)
    names = ("id",) if "no column" in reason else ()

    with pytest.raises(SourceUnusable, match=f"table t: .*{reason}"):
        tables_of(DeltaSource((DeltaTable("t", str(tmp_path / "up"), names),)))


def test_a_path_without_a_table_is_waited_for(tmp_path: Path) -> None:
    with pytest.raises(SourceNotReady, match="there is no Delta table"):
        tables_of(DeltaSource((DeltaTable("t", str(tmp_path / "up")),)))


def test_optimize_is_no_change_and_is_not_read(tmp_path: Path) -> None:
    """No row is appended at its tick, and no data file is opened."""
    path = str(tmp_path / "up")
    for first in range(3):
        write_deltalake(path, ids(first, first + 10), mode="append")
    one, spec = followed(tmp_path, path)
    Table(path).optimize.compact()
    before = sum(part.rows for part in open_shard(f"{tmp_path}/t").snapshot_parts(1000))
    tick(one, 1100)

    assert (before, rows_appended(tmp_path, 1100)) == (6, 0)
    check(tmp_path, spec)


def test_what_did_not_change_cancels(tmp_path: Path) -> None:
    """An update rewrites a file of 1,000 rows; two updates reach the shard, with and without the change data feed."""
    for feed in (False, True):
        path, root = str(tmp_path / f"up-{feed}"), tmp_path / str(feed)
        root.mkdir()
        options = {"delta.enableChangeDataFeed": "true"} if feed else None
        write_deltalake(path, ids(*range(1000)), configuration=options)
        one, spec = followed(root, path)
        Table(path).update({"id": "id + 5000"}, predicate="id = 7")
        tick(one, 1100)

        assert rows_appended(root, 1100) == 2
        check(root, spec)


def test_the_feed_is_read_instead_of_the_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No data file of a commit with change data is read."""
    path, read = str(tmp_path / "up"), list[str]()
    write_deltalake(path, ids(*range(10)), configuration={"delta.enableChangeDataFeed": "true"})
    one, spec = followed(tmp_path, path)
    Table(path).delete("id < 3")
    plain = RowReader.updates

    def noted(reader: RowReader, file: FileRead, dictionaries: bool = False) -> Iterator[pa.RecordBatch]:
        read.append(file.path)
        return plain(reader, file, dictionaries)

    monkeypatch.setattr(RowReader, "updates", noted)
    tick(one, 1100)

    assert [name.split("/")[0] for name in read] == ["_change_data"]
    check(tmp_path, spec)


@pytest.mark.parametrize("rows", [["z", "a", "b"], ["z", "z", "a"], ["a", "a", "z"]])
@pytest.mark.parametrize("predicate", ["name = 'a'", "name = 'a' OR name = 'z'"])
def test_an_update_that_makes_rows_equal(tmp_path: Path, rows: list[str], predicate: str) -> None:
    """delta-rs leaves new rows that others of the file equal out of its change data feed."""
    path = str(tmp_path / "up")
    write_deltalake(path, pa.table({"name": rows}), configuration={"delta.enableChangeDataFeed": "true"})
    one, spec = followed(tmp_path, path)
    Table(path).update({"name": "'z'"}, predicate=predicate)
    tick(one, 1100)

    check(tmp_path, spec)


@pytest.mark.parametrize("shares_max", [3, 256])
def test_many_shares_and_pieces_are_one_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shares_max: int
) -> None:
    """The limits of memory divide the reading, and those of open files the shares; all of it is at one time."""
    opened = list[int]()
    monkeypatch.setattr(changes, "divide", lambda t, s, count, *by: [opened.append(count), divide(t, s, count, *by)][1])
    monkeypatch.setattr(changes, "SHARE_BYTES", 200)
    monkeypatch.setattr(changes, "MEMORY_BYTES", 1)
    monkeypatch.setattr(changes, "TWICE_BYTES", 0 if shares_max == 3 else 1 << 20)
    monkeypatch.setattr(changes, "SHARES_MAX", shares_max)
    monkeypatch.setattr(pieces, "PIECE_BYTES", 1)
    path = str(tmp_path / "up")
    for first in range(5):
        write_deltalake(path, ids(*range(first, first + 50)), mode="append")
    one, spec = followed(tmp_path, path)
    Table(path).delete("id % 3 = 0")
    tick(one, 1100)

    assert 1 < max(opened) <= shares_max
    check(tmp_path, spec)


def test_a_backlog_is_bound_in_whole_commits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bounded in number and in bytes, and never in the middle of a commit."""
    path = str(tmp_path / "up")
    write_deltalake(path, ids(0))
    one, spec = followed(tmp_path, path)
    monkeypatch.setattr(followed_table, "COMMITS_MAX", 3)
    for first in range(1, 8):
        write_deltalake(path, ids(first, first + 100), mode="append")
    tick(one, 1100)
    assert len(oks(tmp_path, "t")) == 1 + 3 * 2
    monkeypatch.setattr(followed_table, "BYTES_MAX", 1)
    tick(one, 1200)
    assert len(oks(tmp_path, "t")) == 1 + 4 * 2
    monkeypatch.undo()
    tick(one, 1300)

    assert len(oks(tmp_path, "t")) == 1 + 7 * 2
    check(tmp_path, spec)


TYPES = {
    "b": pa.array([True, None]),
    "i8": pa.array([-1, None], pa.int8()),
    "i16": pa.array([-1, None], pa.int16()),
    "i32": pa.array([-1, None], pa.int32()),
    "i64": pa.array([1 << 60, None], pa.int64()),
    "f": pa.array([float("nan"), None], pa.float32()),
    "d": pa.array([-0.0, None], pa.float64()),
    "s": pa.array(["x", None]),
    "bin": pa.array([b"\xff", None], pa.binary()),
    "day": pa.array([-700_000, None], pa.date32()),
    "ts": pa.array([-(10**15), None], pa.timestamp("us", "UTC")),
    "ntz": pa.array([1, None], pa.timestamp("us")),
    "dec": pa.array([12345, None], pa.int32()).cast(pa.decimal128(15, 2)),
    "l": pa.array([[1, None], None], pa.list_(pa.int64())),
    "st": pa.array([{"x": 1, "y": ["q"]}, None], pa.struct([("x", pa.int32()), ("y", pa.list_(pa.string()))])),
}


def test_all_types_arrive_as_they_are(tmp_path: Path) -> None:
    path = str(tmp_path / "up")
    write_deltalake(path, pa.table(TYPES))
    one, spec = followed(tmp_path, path)
    write_deltalake(path, pa.table(TYPES).slice(1), mode="overwrite")
    tick(one, 1100)

    assert [str(column.type) for column in spec.tables[0].columns or ()][:6] == [
        "boolean", "tinyint", "smallint", "int", "bigint", "float"
    ]  # fmt: skip
    check(tmp_path, spec)


@pytest.mark.parametrize("name", ["b", "i8", "i32", "i64", "s", "day", "ts", "ntz", "dec"])
def test_partitions_of_every_type(tmp_path: Path, name: str) -> None:
    """Read from the log's text and, in snapshots, as delta-rs types it."""
    path = str(tmp_path / "up")
    rows = ids(1, 2).append_column("p", TYPES[name])
    write_deltalake(path, rows, partition_by=["p"])
    one, spec = followed(tmp_path, path)
    write_deltalake(path, rows, mode="append")
    tick(one, 1100)
    Table(path).delete("id = 1")
    tick(one, 1200)

    check(tmp_path, spec)


def test_timestamps_of_96_bits_and_fields_that_came_later(tmp_path: Path) -> None:
    """Spark writes INT96 by default, also far from 1970; a file may be older than a field of a struct."""
    path = tmp_path / "up"
    inner = {"type": "struct", "fields": [field("x", "integer"), field("y", "string")]}
    old = pa.table(
        {"ts": pa.array([-(10**16)], pa.timestamp("us")), "st": pa.array([{"x": 1}], pa.struct([("x", pa.int32())]))}
    )
    add = data_file(path, "f.parquet", old, use_deprecated_int96_timestamps=True)
    fields = [field("ts", "timestamp"), field("st", inner), field("new", "date")]
    entry(path, 0, protocol(1, 2), metadata("x", fields), add)
    followed(tmp_path, path)

    [row] = oks(tmp_path, "t")
    assert (row[0].timestamp(), row[1:]) == (-(10**10), ({"x": 1, "y": None}, None))  # type: ignore[attr-defined]


def test_tables_in_a_bucket(s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the settings of the instance's store: snapshot, changes, deletion vectors, and what VACUUM took."""
    for name, value in s3.environ.items():
        monkeypatch.setenv(name, value)
    path = s3.location(f"lake/{uuid.uuid4().hex}/t")
    rows = ids(1, 2, 3).append_column("p", pa.array(["a b/%"] * 3))
    write_deltalake(path, rows, partition_by=["p"], storage_options=s3.environ)
    one, _ = followed(tmp_path, path)
    table = Table(path, storage_options=s3.environ)
    table.delete("id = 1")
    tick(one, 1100)
    assert oks(tmp_path, "t") == [(2, "a b/%"), (3, "a b/%")]
    table.update({"id": "id + 10"}, predicate="id = 2")
    table.delete("id = 3")
    table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    tick(one, 1200)

    assert "VersionGone: table t: file" in one._source.stop_reasons()["t"]
    assert oks(tmp_path, "t") == [(2, "a b/%"), (3, "a b/%")]
