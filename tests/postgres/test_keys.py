"""Tables whose changes name rows by a key: what cannot be found by it stops by name, and is found again afterwards."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.postgres.databases import Database, ingested_rows, source_of, spec_of, tick, tick_until_begun
from tests.postgres.test_stops import ingesting, rows, ticks_read_everything
from tidemark_protocol.plan.ingestion import PostgresTable
from tidemark_replica.storage.errors import SourceUnusable, TableStopped
from tidemark_replica.storage.keyed_rows.index import KeyIndex
from tidemark_replica.storage.postgres import changes, source
from tidemark_replica.storage.postgres.inspect import tables_of
from tidemark_replica.storage.postgres.keyed.rows import KeyedRows

T = PostgresTable("t", "public", "t")
TABLE = (
    "create table t (part text, id int, at timestamptz, note text, primary key (id, part))",
    "alter table t alter column note set storage external",
)
LONG = "x" * 5000

pytestmark = [pytest.mark.postgres, pytest.mark.broad]
__all__ = ["ticks_read_everything"]


def test_the_key_is_one_of_the_table(database: Database) -> None:
    """With FULL rows none is promised: a primary key may go, and changes would say nothing of it."""
    database.run(*TABLE)
    spec = database.spec(T)
    [table] = tables_of(spec, lambda: {"username": "test", "password": ""})
    assert [[table.columns[place].name for place in key] for key in table.keys] == [["id", "part"]]
    database.run("alter table t replica identity full")
    [table] = tables_of(spec, lambda: {"username": "test", "password": ""})
    assert table.keys == ()


@pytest.mark.parametrize(
    ("statement", "names", "reason"),
    [
        ("alter table t drop constraint t_pkey", (), "do not name rows"),
        ("alter table t replica identity nothing", (), "do not name rows"),
        ("alter table t drop constraint t_pkey, add primary key (id, part) deferrable", (), "do not name rows"),
        ("alter table t alter column id type float8", (), "column id of the replica identity is double"),
        ("select 1", ("id", "note"), "column part of the replica identity is not declared"),
    ],
)
def test_a_key_by_which_rows_are_not_found_is_refused(
    database: Database, statement: str, names: tuple[str, ...], reason: str
) -> None:
    database.run(*TABLE, statement)
    with pytest.raises(SourceUnusable, match=reason):
        database.spec(PostgresTable("t", "public", "t", names))


def test_rows_before_are_those_of_the_same_transaction_or_of_the_table(database: Database, tmp_path: Path) -> None:
    """Values that were not sent go with their row through changes of its key, two keys are swapped, and a table that
    was emptied begins anew: all in one tick."""
    database.run(
        *TABLE, f"insert into t values ('a', 1, null, '{LONG}1'), ('a', 2, 'infinity', '2'), ('b', 3, null, '')"
    )
    with ingesting(tmp_path, database.spec(T)) as one:
        tick(one, 1000)
        database.run(
            "update t set id = 9 where id = 1",
            "update t set id = 1, at = 'infinity' where id = 2",
            "update t set id = 2, part = 'c' where id = 9",
            "update t set at = '2020-01-01' where id = 2",
            "delete from t where id = 3",
            f"insert into t values ('b', 3, null, '{LONG}3')",
            "update t set at = '2020-01-02' where id = 3",
        )
        tick(one, 1100)
        found = rows(tmp_path, "t")
        assert {row[:2] + row[3:]: n for row, n in found.items() if row[0] != "error"} == {
            ("c", 2, f"{LONG}1"): 1,
            ("b", 3, f"{LONG}3"): 1,
        }
        assert found[("error", "at")] == 1
        database.run("update t set at = null where id = 1", "delete from t where id = 2")
        tick(one, 1200)
        assert rows(tmp_path, "t").keys() == {("a", 1, None, "2"), next(row for row in found if row[0] == "b")}
        database.run("update t set note = 'y'", "truncate t", "insert into t values ('a', 1, null, 'z')")
        database.run("update t set id = 2")
        tick(one, 1300)
        database.run("insert into t values ('a', 1, null, 'z')", "update t set note = 'w' where id = 2")
        tick(one, 1400)
        assert not source_of(one).stop_reasons()
    assert ingested_rows(tmp_path, "t", 1300) == Counter([("a", 2, None, "z")])
    assert rows(tmp_path, "t") == Counter([("a", 2, None, "w"), ("a", 1, None, "z")])


def test_a_table_that_only_grows_needs_no_index(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database.run(*TABLE, "insert into t values ('a', 1)")
    with ingesting(tmp_path, database.spec(T)) as one:
        with monkeypatch.context() as patch:
            patch.setattr(KeyIndex, "__init__", lambda *_: pytest.fail("an index was built"))
            tick(one, 1000)
            database.run(
                "insert into t values ('a', 2)", "insert into t values ('a', 3)", "update t set id = 4 where id = 3"
            )
            tick(one, 1100)
        database.run("delete from t where id = 2")
        tick(one, 1200)
    assert rows(tmp_path, "t") == Counter([("a", 1, None, None), ("a", 4, None, None)])


def test_small_changes_of_large_rows_take_bounded_memory(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Values that are not sent are those of the rows before, many times the bytes of the changes."""
    lookup, sizes = KeyIndex.lookup, []

    def measured(self: KeyIndex, keys: pa.Table) -> pa.Table:
        found = lookup(self, keys)
        sizes.append(found.nbytes)
        return found

    monkeypatch.setattr(KeyIndex, "lookup", measured)
    monkeypatch.setattr(changes, "FOUND_BYTES", 1 << 20)
    database.run(*TABLE, f"insert into t select 'a', g, null, '{LONG}' || g from generate_series(1, 1000) g")
    with ingesting(tmp_path, database.spec(T)) as one:
        tick(one, 1000)
        database.run(
            "update t set at = '2020-01-01'",
            "update t set id = id + 1000 where id <= 500",
            "delete from t where id = 700",
        )
        tick(one, 1100)
        assert not source_of(one).stop_reasons()
    assert 0 < max(sizes) < 2 << 20
    assert Counter({row[:2] + row[3:]: n for row, n in rows(tmp_path, "t").items()}) == Counter(
        ("a", n + 1000 if n <= 500 else n, f"{LONG}{n}") for n in range(1, 1001) if n != 700
    )


def test_an_index_outlives_its_connections(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """To build one may take longer than an idle connection is kept; a table that is added has a connection anew."""
    begin, built = KeyIndex.__init__, []

    def counted(self: KeyIndex, *args: Any) -> None:
        built.append(args)
        begin(self, *args)

    monkeypatch.setattr(KeyIndex, "__init__", counted)
    monkeypatch.setattr(source, "IDLE_SECONDS", 0.0)
    database.run(*TABLE, "insert into t values ('a', 1), ('a', 2)", "create table other (id int primary key)")
    with ingesting(tmp_path, database.spec(T, PostgresTable("other", "public", "other"))) as one:
        tick(one, 1000)
        for number in range(3):
            if number == 2:
                source_of(one)._stop("other", TableStopped("SnapshotFailed", "for a while"))
                source_of(one)._due["other"] = 0.0
            database.run(f"update t set note = '{number}' where id = 1")
            tick(one, 1100 + 100 * number)
        tick_until_begun(one, 2000)
        assert not source_of(one).stop_reasons()
    assert len(built) == 2  # of rows, and of error rows
    assert rows(tmp_path, "t") == Counter([("a", 1, None, "2"), ("a", 2, None, None)])


def test_a_value_that_nothing_has_stops_the_table(database: Database, tmp_path: Path) -> None:
    """The row before is an error row, which has no values; new contents have them."""
    database.run(*TABLE, f"insert into t values ('a', 1, 'infinity', '{LONG}')")
    spec = database.spec(T, on_gap="resnapshot")
    with ingesting(tmp_path, spec) as one:
        tick(one, 1000)
        database.run("update t set at = null")
        tick(one, 1100)
        assert (
            source_of(one).stop_reasons()["t"].startswith("ReplicaIdentity: table t: a change leaves out the value of")
        )
        assert rows(tmp_path, "t") == Counter([("error", "at")])
    with ingesting(tmp_path, spec) as one:
        tick_until_begun(one, 1200)
        assert not source_of(one).stop_reasons()
    assert rows(tmp_path, "t") == Counter([("a", 1, None, LONG)])


@pytest.mark.parametrize(
    "statements",
    [
        ("alter table t replica identity full",),
        ("alter table t drop constraint t_pkey", "insert into t values ('a', 1)"),
        ("create unique index other on t (part)", "alter table t replica identity using index other"),
    ],
)
def test_another_replica_identity_stops_the_table_until_it_is_back(
    database: Database, tmp_path: Path, statements: tuple[str, ...]
) -> None:
    """Also new contents do not bring it back before: plans rely on its key."""
    database.run(*TABLE, "insert into t values ('a', 1), ('b', 2)")
    spec, keys = database.spec(T, on_gap="resnapshot"), {"t": ((1, 0),)}
    with ingesting(tmp_path, spec, keys) as one:
        tick(one, 1000)
        database.run(*statements)
        database.run("insert into t values ('c', 3)")
        tick(one, 1100)
        assert source_of(one).stop_reasons()["t"].startswith("ReplicaIdentity: table t: ")
    with ingesting(tmp_path, spec, keys) as one:
        tick_until_begun(one, 1200)
        assert source_of(one).stop_reasons()["t"].startswith("ReplicaIdentity: table t: ")
    assert rows(tmp_path, "t") == Counter([("a", 1, None, None), ("b", 2, None, None)])
    database.run("alter table t replica identity full")
    database.run("delete from t where id = 1", "alter table t drop constraint if exists t_pkey")
    database.run("alter table t add primary key (id, part)", "alter table t replica identity default")
    with ingesting(tmp_path, spec, keys) as one:
        tick_until_begun(one, 8000)
        assert not source_of(one).stop_reasons()
    assert rows(tmp_path, "t") == Counter([("c", 3, None, None), ("b", 2, None, None)])


def test_a_followed_key_may_get_another_index(database: Database, tmp_path: Path) -> None:
    """Also with its columns in another order. An error row is found by the order of before."""
    database.run(*TABLE, "insert into t values ('a', 1, null), ('b', 2, null), ('c', 3, 'infinity')")
    with ingesting(tmp_path, spec_of(database.server, database.name, T)) as one:
        tick(one, 1000)
        database.run("create unique index other on t (part, id)", "alter table t replica identity using index other")
        database.run("update t set note = 'n' where id = 1", "delete from t where id = 2")
        tick(one, 1100)
        database.run("delete from t where id = 3")
        tick(one, 1200)
        assert not source_of(one).stop_reasons()
    assert rows(tmp_path, "t") == Counter([("a", 1, None, "n")])


def test_the_building_of_an_index_is_told(database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    told, add = list[str](), KeyedRows._add
    database.run(*TABLE, "insert into t values ('a', 1)")
    with ingesting(tmp_path, database.spec(T)) as one:

        def observed(self: KeyedRows, updates: pa.Table) -> None:
            told.append(source_of(one).activity())
            add(self, updates)

        tick(one, 1000)
        database.run("delete from t")
        monkeypatch.setattr(KeyedRows, "_add", observed)
        monkeypatch.setattr(source, "ACTIVITY_SECONDS", 0.0)
        tick(one, 1100)
        assert told[0] == "reading the rows of table t, to find them by key"
        assert source_of(one).activity() == ""
