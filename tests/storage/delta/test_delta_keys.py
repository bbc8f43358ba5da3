"""Primary keys of Delta tables: a version that violates one is never read, whatever wrote it."""

from __future__ import annotations

import random
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable as Table
from deltalake import write_deltalake

from tests.storage.delta.delta_tables import bound_versions, check, ingester, spec_of, tick
from tests.storage.ingestion_samples import description, oks
from tests.waiting import until
from tidemark_persist import ShardWriters, StorageError, open_shard, write_staged
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.messages.commands import RunIngestion
from tidemark_protocol.plan.ingestion import DeltaSource, DeltaTable
from tidemark_replica.storage import ingestion_threads
from tidemark_replica.storage.clock import ControllerClock
from tidemark_replica.storage.delta import key_checks
from tidemark_replica.storage.delta.copies import first_copy
from tidemark_replica.storage.delta.copies.table_copies import TableCopies
from tidemark_replica.storage.delta.inspect import tables_of
from tidemark_replica.storage.delta.source import DeltaIngestion
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.ingester import Ingester
from tidemark_replica.storage.ingestion_threads import IngestionThreads
from tidemark_replica.storage.keyed_rows import unique


def rows(*pairs: tuple[int | None, str]) -> pa.Table:
    columns = {"id": [id for id, _ in pairs], "name": [name for _, name in pairs]}
    return pa.table(columns, pa.schema([("id", pa.int64()), ("name", pa.string())]))


class Keyed:
    """A table with the primary key `id`, and a second one without."""

    def __init__(self, root: Path, on_gap: str = "stop") -> None:
        self.root, self.path, self.other = root, str(root / "up"), str(root / "up2")
        for path in (self.path, self.other):
            write_deltalake(path, rows((1, "a"), (2, "b")))
        tables = DeltaTable("t", self.path, primary_key=("id",), on_gap=on_gap), DeltaTable("other", self.other)
        self.spec = spec_of(*tables)
        self.now = 1000
        self.dies()

    def dies(self) -> None:
        """Another process goes on."""
        self.copies = TableCopies()
        self.again()

    def again(self) -> None:
        """The source begins again in its process."""
        self.one: Ingester = ingester(self.root, self.spec, copies=self.copies)
        self.one.recover()

    def ticks(self) -> None:
        """With a row for the other table, which must go on."""
        self.now += 100
        write_deltalake(self.other, rows((self.now, "x")), mode="append")
        tick(self.one, self.now)
        assert (self.now, "x") in oks(self.root, "other")

    def stop_reason(self) -> str:
        return self.one._source.stop_reasons().get("t", "")


@pytest.mark.parametrize(
    ("more", "text"),
    [
        (rows((3, "c"), (1, "z")), "in version 1, 2 rows have one primary key (id)"),
        (rows((3, "c"), (3, "c")), "in version 1, 2 rows have one primary key (id)"),
        (rows((None, "c")), "in version 1, a row has NULL in id, which is of the primary key"),
    ],
)
def test_a_violation_stops_the_table_with_its_contents(tmp_path: Path, more: pa.Table, text: str) -> None:
    """The key is one of an earlier version, one of its own, or NULL; for this process and the next. The other table
    goes on."""
    keyed = Keyed(tmp_path)
    text = f"KeyViolated: table t: {text}; the replica's log has the first such key"
    keyed.ticks()
    write_deltalake(keyed.path, more, mode="append")
    keyed.ticks()
    assert keyed.stop_reason() == text
    for begins in (keyed.again, keyed.dies, keyed.again):
        begins()
        keyed.ticks()
        assert keyed.stop_reason() == text
    assert oks(tmp_path, "t") == [(1, "a"), (2, "b")]


def test_the_values_of_a_key_are_in_the_log_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Everybody who sees a DataSource reads its conditions and Events."""
    write_deltalake(tmp_path / "up", pa.table({"email": ["alice@example.com"] * 2}))
    one = ingester(tmp_path, spec_of(DeltaTable("t", str(tmp_path / "up"), primary_key=("email",))))
    one.recover()
    tick(one, 100)
    assert "2 rows have one primary key (email)" in one._source.stop_reasons()["t"]
    assert "alice" not in one._source.stop_reasons()["t"]
    assert "version 0: 2 rows have one primary key (email): email = 'alice@example.com'" in caplog.text


@pytest.mark.parametrize("on_gap", ["stop", "resnapshot"])
def test_a_version_that_violates_the_key_is_staged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, on_gap: str
) -> None:
    """However often the source begins again; and nothing of it stays on the disk. A later version is read, with `stop`
    too: no row of the table has been seen."""
    monkeypatch.setattr(ingestion_threads, "RETRY_STOPPED_S", 0.05)
    staged, begun = [], []
    write, resume = write_staged, DeltaIngestion.resume
    monkeypatch.setattr(first_copy, "write_staged", lambda *args, **more: [staged.append(1), write(*args, **more)][1])
    monkeypatch.setattr(DeltaIngestion, "resume", lambda self, *args: [resume(self, *args), begun.append(self)][0])
    path = str(tmp_path / "up")
    write_deltalake(path, rows((1, "a")))
    spec = spec_of(DeltaTable("t", path, primary_key=("id",), on_gap=on_gap))
    write_deltalake(path, rows((1, "z")), mode="append")
    threads, now = IngestionThreads(None, ShardWriters(), tmp_path / "cache"), Time(int(time.time() * 1000))
    of = description(tmp_path, spec, tables_of(spec))
    threads.run(RunIngestion(of, WriterTerm(1), now, 300_000), ControllerClock(now, 300_000))
    try:
        until(lambda: len(begun) > 4)
        assert len(staged) == 1
        until(lambda: list((tmp_path / "t").glob("**/*.parquet")) == [])
        Table(path).delete("name = 'z'")
        until(lambda: open_shard(f"{tmp_path}/t").state().upper > 0)
    finally:
        threads.close()
    assert len(staged) == 2
    assert oks(tmp_path, "t") == [(1, "a")]


def test_nothing_stays_of_a_tick_that_cannot_be_staged_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is tried again for as long as the source stands still: the files of tries would fill the disk."""
    keyed = Keyed(tmp_path)
    keyed.spec = spec_of(*reversed(keyed.spec.tables))  # `t` is staged last
    keyed.again()
    keyed.ticks()
    write_deltalake(keyed.path, rows((3, "c")), mode="append")
    before = set(tmp_path.glob("other/**/*.parquet")) | set(tmp_path.glob("t/**/*.parquet"))

    def away(*_: object) -> None:
        raise StorageError("the store does not answer")

    monkeypatch.setattr(key_checks, "key_violation", away)
    for stages in (keyed.ticks, keyed.again, keyed.again):
        with pytest.raises(StorageError):
            stages()
    after = set(tmp_path.glob("other/**/*.parquet")) | set(tmp_path.glob("t/**/*.parquet"))
    assert after == before


def test_a_first_version_that_violates_the_key_gives_no_row(tmp_path: Path) -> None:
    write_deltalake(tmp_path / "up", rows((1, "a"), (1, "b")))
    spec = spec_of(DeltaTable("t", str(tmp_path / "up"), primary_key=("id",)))
    one = ingester(tmp_path, spec)
    one.recover()
    tick(one, 100)
    assert "KeyViolated" in one._source.stop_reasons()["t"]
    assert [shard.state().upper for _, shard in one.table_shards()] == [0]


def test_with_resnapshot_a_later_version_that_keeps_the_key_is_read(tmp_path: Path) -> None:
    """Not the version between; and no snapshot is read before there is a later one."""
    keyed = Keyed(tmp_path, on_gap="resnapshot")
    keyed.ticks()
    write_deltalake(keyed.path, rows((1, "z"), (3, "c")), mode="append")
    for _ in range(3):
        keyed.ticks()
        assert "KeyViolated" in keyed.stop_reason()
    assert set(bound_versions(tmp_path, "t").values()) == {0, 1}
    Table(keyed.path).delete("name = 'a'")
    keyed.dies()
    keyed.ticks()
    assert "KeyViolated" in keyed.stop_reason()
    keyed.again()
    keyed.ticks()
    assert keyed.stop_reason() == ""
    assert oks(tmp_path, "t") == [(1, "z"), (2, "b"), (3, "c")]
    keyed.again()
    assert (keyed.stop_reason(), oks(tmp_path, "t")) == ("", [(1, "z"), (2, "b"), (3, "c")])


def test_a_table_whose_key_stays_violated_is_not_read_at_each_tick(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy writer has a later version by the time that the check ends; the whole table would be read, again and
    again."""
    keyed, check = Keyed(tmp_path, on_gap="resnapshot"), unique.key_violation
    keyed.ticks()

    def slow(*args: Any) -> unique.KeyViolation | None:
        found = check(*args)
        write_deltalake(keyed.path, rows((keyed.now, "more")), mode="append")
        return found

    monkeypatch.setattr(key_checks, "key_violation", slow)
    write_deltalake(keyed.path, rows((1, "z")), mode="append")
    for _ in range(3):
        keyed.ticks()
        assert "KeyViolated" in keyed.stop_reason()
    assert set(bound_versions(tmp_path, "t").values()) == {0, 1}


@pytest.mark.parametrize("share_rows", [3, 1 << 19])
def test_oracle_histories_that_keep_the_key_are_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, share_rows: int
) -> None:
    """Merges, deletes, updates of the key itself, overwrites and OPTIMIZE; keys move from row to row in one tick."""
    monkeypatch.setattr(unique, "SHARE_ROWS", share_rows)
    draw, path = random.Random(5), str(tmp_path / "up")
    write_deltalake(path, rows(*((id, "first") for id in range(10))))
    spec = spec_of(DeltaTable("t", path, primary_key=("id",)))
    one = ingester(tmp_path, spec)
    one.recover()
    for at in range(100, 2500, 100):
        for _ in range(draw.randrange(3)):
            table, some = Table(path), rows(*((id, str(at)) for id in draw.sample(range(30), 5)))
            move = draw.randrange(5)
            if move == 0:
                merge = table.merge(some, "t.id = s.id", source_alias="s", target_alias="t")
                merge.when_matched_update_all().when_not_matched_insert_all().execute()
            elif move == 1:
                table.delete(f"id % 4 = {draw.randrange(4)}")
            elif move == 2:
                table.update({"id": "59 - id"}, predicate=None)
            elif move == 3:
                write_deltalake(path, some, mode="overwrite")
            else:
                table.optimize.compact()
        tick(one, at)
        if draw.random() < 0.2:
            one = ingester(tmp_path, spec)
            one.recover()
    assert one._source.stop_reasons() == {}
    check(tmp_path, spec)


def test_a_key_that_cannot_be_checked_is_refused(tmp_path: Path) -> None:
    """Equal floating numbers may differ in their bits; a column that is not taken is not there."""
    write_deltalake(tmp_path / "up", pa.table({"id": [1], "x": [1.5], "many": [[1]]}))

    def keys(*key: str, names: tuple[str, ...] = ()) -> tuple[tuple[int, ...], ...]:
        table = DeltaTable("t", str(tmp_path / "up"), names, primary_key=key)
        return tables_of(DeltaSource((table,)))[0].keys

    assert (keys("id"), keys()) == (((0,),), ())
    for key, names, text in (
        (("x",), (), "'x' of type double: a key has no floating numbers"),
        (("many",), (), "'many' of type array<bigint>: a key has no"),
        (("id",), ("x",), "'id', which is no column of it"),
    ):
        with pytest.raises(SourceUnusable, match=f"table t: primaryKey names {text}"):
            keys(*key, names=names)
