"""Tables that cannot be followed any further: they stop by name, the others go on; or are resnapshotted."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Table
from deltalake import write_deltalake

from tests.storage.delta.delta_logs import actions_of, data_file, entry, field, mapped, metadata, protocol
from tests.storage.delta.delta_tables import bound_versions, check, delta_rows, ingested_rows, ingester, spec_of, tick
from tests.storage.dying_appends import die_after
from tests.storage.ingestion_samples import oks
from tidemark_persist import Storage, open_shard
from tidemark_protocol.plan.ingestion import DeltaTable
from tidemark_replica.storage.delta import pieces, stop
from tidemark_replica.storage.delta.reading import RowReader
from tidemark_replica.storage.delta.versions import open_version
from tidemark_replica.storage.errors import SourceUnusable, TableStopped
from tidemark_replica.storage.ingester import Ingester


def ids(*values: int) -> pa.Table:
    return pa.table({"id": pa.array(values, pa.int64())})


class Pair:
    """A source of two tables, `t` and `other`; both have ingested their first version at 1000."""

    def __init__(self, root: Path, on_gap: str = "stop", **options: Any) -> None:
        self.root, self.path, self.other = root, str(root / "up" / "t"), str(root / "up" / "other")
        if not os.path.exists(self.path):
            write_deltalake(self.path, ids(1, 2, 3))
        write_deltalake(self.other, ids(0))
        tables = DeltaTable("t", self.path, on_gap=on_gap, **options), DeltaTable("other", self.other)
        self.spec = spec_of(*tables)
        self.one = self.again()
        tick(self.one, 1000)

    def again(self) -> Ingester:
        """Another process."""
        self.one = ingester(self.root, self.spec)
        self.one.recover()
        return self.one

    def stop_reason(self) -> str:
        assert set(self.one._source.stop_reasons()) <= {"t"}
        return self.one._source.stop_reasons().get("t", "")

    def upper(self, table: str) -> int:
        return open_shard(f"{self.root}/{table}").state().upper

    def vacuum(self) -> None:
        Table(self.path).vacuum(0, dry_run=False, enforce_retention_duration=False)


def expect_stop(pair: Pair, reason: str, rows: list[tuple[int]]) -> None:
    """The table stops at its contents, for this process and the next; the other goes on."""
    write_deltalake(pair.other, ids(5), mode="append")
    tick(pair.one, 1100)
    assert reason in pair.stop_reason()
    assert (pair.upper("t"), pair.upper("other")) == (1001, 1101)
    pair.again()
    tick(pair.one, 1200)
    assert reason in pair.stop_reason()
    assert (pair.upper("t"), pair.upper("other")) == (1001, 1201)
    assert oks(pair.root, "t") == rows
    assert oks(pair.root, "other") == [(0,), (5,)]


def test_vacuum_of_a_needed_file_stops_the_table(tmp_path: Path) -> None:
    """The message names the version."""
    pair = Pair(tmp_path)
    Table(pair.path).delete("id = 1")
    Table(pair.path).update({"id": "id + 10"}, predicate="id = 2")
    pair.vacuum()

    expect_stop(pair, "VersionGone: table t: file", [(1,), (2,), (3,)])
    assert "which version 0 needs, is gone" in pair.stop_reason()


def test_a_cleaned_log_stops_the_table(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    for _ in range(3):
        write_deltalake(pair.path, ids(7), mode="append")
    Table(pair.path).create_checkpoint()
    write_deltalake(pair.path, ids(8), mode="append")
    for version in range(3):
        os.remove(f"{pair.path}/_delta_log/{version:020}.json")

    expect_stop(pair, f"VersionGone: table t: version 1 of {pair.path} is gone", [(1,), (2,), (3,)])


@pytest.mark.parametrize("version", [2, 5, 7, 12])
def test_versions_that_the_log_does_not_reach_are_gone(tmp_path: Path, version: int) -> None:
    """Before the first checkpoint, after one whose next entries were removed, and after the newest version."""
    path = str(tmp_path / "t")
    for n in range(10):
        write_deltalake(path, ids(n), mode="append")
        if n in (4, 8):
            Table(path).create_checkpoint()
    for n in range(7):
        os.remove(f"{path}/_delta_log/{n:020}.json")

    with pytest.raises(TableStopped, match=f"version {version} of .* is gone; the newest is 9") as stopped:
        open_version(Storage.at(path), version)
    assert stopped.value.reason == stop.VERSION_GONE
    assert open_version(Storage.at(path), 4).version == 4


@pytest.mark.parametrize("versions", [1, 2, 4])
def test_another_table_at_the_path_stops_the_table(tmp_path: Path, versions: int) -> None:
    """Shorter than, as long as and longer than what was read."""
    pair = Pair(tmp_path)
    write_deltalake(pair.path, ids(4), mode="append")
    tick(pair.one, 1050)
    shutil.rmtree(pair.path)
    for n in range(versions):
        write_deltalake(pair.path, ids(n), mode="append")
    write_deltalake(pair.other, ids(5), mode="append")
    tick(pair.one, 1100)

    assert "TableReplaced: table t:" in pair.stop_reason()
    assert (pair.upper("t"), pair.upper("other")) == (1051, 1101)
    pair.again()
    assert "TableReplaced: table t:" in pair.stop_reason()


def test_a_table_that_is_gone_stops_and_goes_on_when_it_is_back(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    os.rename(pair.path, f"{pair.path}-away")
    expect_stop(pair, "TableMissing: table t:", [(1,), (2,), (3,)])
    os.rename(f"{pair.path}-away", pair.path)
    write_deltalake(pair.path, ids(4), mode="append")
    pair.again()
    tick(pair.one, 1300)

    assert pair.stop_reason() == ""
    assert oks(tmp_path, "t") == [(1,), (2,), (3,), (4,)]
    check(tmp_path, pair.spec)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ([field("id", "string")], "was declared as bigint and is string now"),
        ([field("other", "long")], "no column 'id'"),
    ],
)
def test_a_declared_column_that_changed_stops_the_table(tmp_path: Path, fields: list[Any], reason: str) -> None:
    """Earlier commits are ingested first."""
    pair = Pair(tmp_path)
    write_deltalake(pair.path, ids(4), mode="append")
    id = Table(pair.path).metadata().id
    entry(pair.path, 2, metadata(str(id), fields))
    tick(pair.one, 1001)

    assert oks(tmp_path, "t") == [(1,), (2,), (3,), (4,)]
    tick(pair.one, 1100)
    assert f"ColumnChanged: table t: {'' if 'no column' not in reason else 'the table has '}" in pair.stop_reason()
    assert reason in pair.stop_reason()
    assert pair.upper("t") == 1002


def test_a_column_that_was_dropped_and_added_again_is_another(tmp_path: Path) -> None:
    """With column mapping this changes the rows without a data file."""
    path = tmp_path / "up" / "t"
    mapping = {"columnMapping_mode": "name"}
    add = data_file(path, "f.parquet", pa.table({"c1": pa.array([1, 2, 3], pa.int64())}))
    entry(path, 0, protocol(2, 5), metadata("x", [mapped("id", "long", "c1", 1)], **mapping), add)
    pair = Pair(tmp_path)
    entry(path, 1, metadata("x", [mapped("id", "long", "c2", 2)], **mapping))

    expect_stop(pair, "ColumnChanged: table t: version 1 dropped a declared column", [(1,), (2,), (3,)])


def test_a_new_feature_stops_the_table(tmp_path: Path) -> None:
    pair = Pair(tmp_path)
    entry(pair.path, 1, protocol(3, 7, "typeWidening"))

    expect_stop(pair, "FeatureNotSupported: table t:", [(1,), (2,), (3,)])


@pytest.mark.parametrize(
    "name", ["../secret.parquet", "%2E%2E/secret.parquet", "/etc/passwd", "file:///etc/x", "link/x"]
)
def test_files_outside_the_table_are_not_read(tmp_path: Path, name: str) -> None:
    pair = Pair(tmp_path)
    data_file(tmp_path / "up", "secret.parquet", ids(42))
    os.symlink("/etc", f"{pair.path}/link")
    add = {"path": name, "partitionValues": {}, "size": 5, "modificationTime": 1, "dataChange": True}
    entry(pair.path, 1, {"add": add})

    expect_stop(pair, "FeatureNotSupported: table t: file", [(1,), (2,), (3,)])


@pytest.mark.parametrize("damage", ["footer", "page"])
def test_a_damaged_file_stops_the_table(tmp_path: Path, damage: str) -> None:
    pair = Pair(tmp_path)
    write_deltalake(pair.path, ids(*range(1000)), mode="append")
    [add] = [a["add"] for a in actions_of(pair.path, 1) if "add" in a]
    file = Path(pair.path, add["path"])
    whole = file.read_bytes()
    file.write_bytes(whole[:100] if damage == "footer" else whole[:40] + b"\xff" * 400 + whole[440:])

    expect_stop(pair, "FileUnreadable: table t:", [(1,), (2,), (3,)])


def replace_table(path: str, versions: int) -> None:
    """Another table at the path, of so many versions: numbers from 2 on, one twice."""
    shutil.rmtree(path)
    for n in range(versions):
        write_deltalake(path, ids(2 + n, *([3] if n == 1 else [])), mode="append")


def resnapshotted(pair: Pair, at: int) -> None:
    assert pair.stop_reason() == ""
    newest = Table(pair.path).version()
    assert ingested_rows(pair.root, "t", at) == delta_rows(pair.path, newest, ("id",))
    assert bound_versions(pair.root, "t")[at] == newest
    assert pair.upper("t") == at + 1


def test_resnapshot_emits_the_difference_at_one_time(tmp_path: Path) -> None:
    """The vacuumed version is left out; before the gap's end readers see the old contents, after it the newest."""
    pair = Pair(tmp_path, on_gap="resnapshot")
    Table(pair.path).delete("id = 1")
    write_deltalake(pair.path, ids(9, 9), mode="append")
    pair.vacuum()
    tick(pair.one, 1100)
    assert "VersionGone" in pair.stop_reason()
    assert pair.upper("t") == 1001
    tick(pair.one, 1200)

    resnapshotted(pair, 1200)
    shard = open_shard(f"{tmp_path}/t")
    assert oks(tmp_path, "t", 1199) == [(1,), (2,), (3,)]
    assert sum(part.rows for part in shard.listen(1001, 1201)) == 2  # -1 of id 1, and id 9 with a diff of 2
    write_deltalake(pair.path, ids(10), mode="append")
    tick(pair.one, 1300)
    resnapshotted(pair, 1300)


def test_resnapshot_of_a_cleaned_log_needs_one_tick(tmp_path: Path) -> None:
    pair = Pair(tmp_path, on_gap="resnapshot")
    write_deltalake(pair.path, ids(2, 7), mode="overwrite")
    Table(pair.path).create_checkpoint()
    write_deltalake(pair.path, ids(8), mode="append")
    for version in range(2):
        os.remove(f"{pair.path}/_delta_log/{version:020}.json")
    tick(pair.one, 1100)

    resnapshotted(pair, 1100)


@pytest.mark.parametrize("read_before", [0, 3])
@pytest.mark.parametrize("versions", [1, 2, 4, 7])
def test_another_table_at_the_path_is_resnapshotted(tmp_path: Path, versions: int, read_before: int) -> None:
    """Shorter than, as long as and longer than the one before; the difference has one time."""
    pair = Pair(tmp_path, on_gap="resnapshot")
    for n in range(read_before):
        write_deltalake(pair.path, ids(40 + n), mode="append")
    tick(pair.one, 1050)
    replace_table(pair.path, versions)
    tick(pair.one, 1100)

    resnapshotted(pair, 1100)
    assert oks(tmp_path, "t", 1099) == [(1,), (2,), (3,), *((40 + n,) for n in range(read_before))]
    write_deltalake(pair.path, ids(10), mode="append")
    pair.again()
    tick(pair.one, 1200)
    resnapshotted(pair, 1200)


@pytest.mark.parametrize("further", [0, 1, 4])
def test_a_log_that_went_back_is_resnapshotted(tmp_path: Path, further: int) -> None:
    """The table was restored from a backup: it has the same id, and then other versions."""
    pair = Pair(tmp_path, on_gap="resnapshot")
    shutil.copytree(pair.path, tmp_path / "backup")
    for n in range(2):
        write_deltalake(pair.path, ids(40 + n), mode="append")
    tick(pair.one, 1050)
    shutil.rmtree(pair.path)
    shutil.copytree(tmp_path / "backup", pair.path)
    for n in range(further):
        write_deltalake(pair.path, ids(50 + n), mode="append")
    tick(pair.one, 1100)

    resnapshotted(pair, 1100)
    assert oks(tmp_path, "t", 1099) == [(1,), (2,), (3,), (40,), (41,)]


def test_another_table_whose_log_was_cleaned_is_not_taken_for_the_one_before(tmp_path: Path) -> None:
    """It has no entry of the version that is bound, and one of the next version."""
    pair = Pair(tmp_path)
    replace_table(pair.path, 2)
    Table(pair.path).create_checkpoint()
    os.remove(f"{pair.path}/_delta_log/{0:020}.json")

    expect_stop(pair, "TableReplaced: table t:", [(1,), (2,), (3,)])


def test_another_table_without_the_declared_columns_waits_for_them(tmp_path: Path) -> None:
    pair = Pair(tmp_path, on_gap="resnapshot")
    shutil.rmtree(pair.path)
    write_deltalake(pair.path, pa.table({"other": [1]}))
    expect_stop(pair, "ColumnChanged: table t:", [(1,), (2,), (3,)])
    write_deltalake(pair.path, ids(8), mode="append", schema_mode="merge")
    pair.again()
    tick(pair.one, 1300)

    assert pair.stop_reason() == ""
    assert ingested_rows(tmp_path, "t", 1300) == delta_rows(pair.path, 1, ("id",))


def test_another_table_after_a_version_that_violates_the_key(tmp_path: Path) -> None:
    """It has fewer versions than the one before had."""
    pair = Pair(tmp_path, on_gap="resnapshot", primary_key=("id",))
    write_deltalake(pair.path, ids(4), mode="append")
    write_deltalake(pair.path, ids(1), mode="append")
    tick(pair.one, 1100)
    assert "KeyViolated" in pair.stop_reason()
    replace_table(pair.path, 1)
    pair.again()
    tick(pair.one, 1200)

    resnapshotted(pair, 1200)


@pytest.mark.parametrize("died_after", range(1, 7))
def test_crash_around_another_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, died_after: int) -> None:
    """The process dies after the n-th append from the tick on that finds another table; then there is a third one."""
    pair = Pair(tmp_path, on_gap="resnapshot")
    replace_table(pair.path, 2)
    die_after(monkeypatch, died_after)
    with pytest.raises(KeyboardInterrupt):
        _ = [tick(pair.one, time) for time in range(1100, 1600, 100)]
    monkeypatch.undo()
    if died_after % 2:
        replace_table(pair.path, 1)
    pair.again()
    for time in (2000, 2100):
        tick(pair.one, time)

    newest = Table(pair.path).version()
    assert ingested_rows(tmp_path, "t", 2100) == delta_rows(pair.path, newest, ("id",))
    assert pair.upper("t") == 2101
    assert oks(tmp_path, "t", 1099) == [(1,), (2,), (3,)]


@pytest.mark.parametrize("died_after", range(1, 7))
def test_crash_around_a_resnapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, died_after: int) -> None:
    """The process dies after the n-th append from the tick on whose version is gone."""
    pair = Pair(tmp_path, on_gap="resnapshot")
    Table(pair.path).delete("id = 1")
    write_deltalake(pair.path, ids(9), mode="append")
    pair.vacuum()
    die_after(monkeypatch, died_after)
    with pytest.raises(KeyboardInterrupt):
        _ = [tick(pair.one, time) for time in range(1100, 1600, 100)]
    monkeypatch.undo()
    pair.again()
    for time in (2000, 2100):
        tick(pair.one, time)

    assert ingested_rows(tmp_path, "t", 2100) == delta_rows(pair.path, 2, ("id",))
    assert pair.upper("t") == 2101
    assert oks(tmp_path, "t", 1099) == [(1,), (2,), (3,)]


def test_a_long_reading_says_how_far_it_is_and_can_be_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A source that is dropped in the middle of a version leaves no file of it; the next one reads it all."""
    monkeypatch.setattr(pieces, "ACTIVITY_SECONDS", 0.0)
    pair = Pair(tmp_path)
    for n in range(4):
        write_deltalake(pair.path, ids(*range(100 * n, 100 * n + 50)), mode="append")
    before = set(Path(tmp_path, "t").rglob("*.parquet"))
    said: list[str] = []
    read = RowReader.updates

    def noted(self: RowReader, file: Any, dictionaries: bool = False) -> Any:
        said.append(pair.one._source.activity())
        if len(said) == 3:
            pair.one._source.interrupt()
        return read(self, file, dictionaries)

    monkeypatch.setattr(RowReader, "updates", noted)
    with pytest.raises(SourceUnusable, match="not ingested any more"):
        tick(pair.one, 1100)

    assert [text.partition(":")[0] for text in said] == ["reads table t up to version 4"] * 3
    percents = [int(text.split(": ")[1].partition("%")[0]) for text in said]
    assert percents[0] == 0 < percents[1] < percents[2] < 100
    assert pair.one._source.activity() == ""
    assert set(Path(tmp_path, "t").rglob("*.parquet")) == before
    monkeypatch.undo()
    pair.again()
    check(tmp_path, pair.spec)
    assert ingested_rows(tmp_path, "t", 1100) == delta_rows(pair.path, 4, ("id",))
