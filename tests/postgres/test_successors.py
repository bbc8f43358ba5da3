"""A table and its successor, which one table upstream feeds: what reaches both, and what one of them alone."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.postgres import databases
from tests.postgres.databases import Database, connect, source_of, tick, tick_until_begun
from tests.postgres.test_stops import ingesting, rows, ticks_read_everything
from tests.storage.ingestion_samples import description
from tests.waiting import until
from tidemark_protocol.ids import ShardId
from tidemark_protocol.plan.ingestion import IngestionDescription, PostgresSource, PostgresTable, SourceTable
from tidemark_replica.storage.ingester import Ingester
from tidemark_replica.storage.postgres.pgoutput import parse_lsn

pytestmark = [pytest.mark.postgres, pytest.mark.broad]
__all__ = ["ticks_read_everything"]


def first_followed(database: Database, root: Path, **options: Any) -> PostgresSource:
    """`t` is followed, and columns have come; the source with it and its successor."""
    database.run(
        "create table t (id int primary key, note text); alter table t alter note set storage external",
        "insert into t select g, repeat('x', 5000) from generate_series(1, 3) g",
        "drop publication everything; create publication everything for table t",
    )
    first = database.spec(PostgresTable("t", "public", "t"), **options)
    with ingesting(root, first) as one:
        tick(one, 1000)
        database.run("alter table t add at timestamptz default clock_timestamp()", "alter table t add n int default 7")
        tick(one, 1100)
        assert not source_of(one).stop_reasons()
    [second] = database.spec(PostgresTable("t.2", "public", "t", ("id", "n", "note")), **options).tables
    return replace(first, tables=(*first.tables, second))


def source_with_both(database: Database, root: Path, **options: Any) -> PostgresSource:
    """Both are followed."""
    both = first_followed(database, root, **options)
    with ingesting(root, both) as one:
        tick_until_begun(one, 2000)
    return both


def ids(root: Path, table: str) -> Counter[int]:
    return Counter(row[0] for row in rows(root, table).elements())


def reasons(one: Ingester) -> dict[str, str]:
    return {name: text.partition(":")[0] for name, text in source_of(one).stop_reasons().items()}


def test_rows_of_before_have_the_default_of_upstream(database: Database, tmp_path: Path) -> None:
    """Also where a value that is stored apart did not change; and the first one goes while the successor goes on."""
    both = source_with_both(database, tmp_path)
    assert Counter(row[1] for row in rows(tmp_path, "t.2").elements()) == Counter({7: 3})
    with ingesting(tmp_path, both) as one:
        database.run(
            "update t set n = 8 where id = 1",
            "insert into t (id, note, n) values (4, 'y', null)",
            "delete from t where id = 2",
        )
        tick(one, 8000)
        long = "x" * 5000
        assert rows(tmp_path, "t") == Counter([(1, long), (3, long), (4, "y")])
        assert rows(tmp_path, "t.2") == Counter([(1, 8, long), (3, 7, long), (4, None, "y")])
    with ingesting(tmp_path, replace(both, tables=both.tables[1:])) as one:
        database.run("update t set n = n + 1 where id = 3")
        tick(one, 8100)
        assert rows(tmp_path, "t.2") == Counter([(1, 8, long), (3, 8, long), (4, None, "y")])


def test_what_the_successor_has_from_its_own_slot_comes_once(database: Database, tmp_path: Path) -> None:
    """The first table has the same transactions from the stream that feeds both from then on."""
    with ingesting(tmp_path, first_followed(database, tmp_path)) as one:
        tick(one, 2000)
        late = source_of(one)._late
        assert late is not None
        until(lambda: late.is_waiting)
        database.run("insert into t (id, n) values (4, 4)", "delete from t where id = 1")
        until(lambda: late.position >= parse_lsn(database.value("select pg_current_wal_lsn()::text")))
        tick_until_begun(one, 2100)
        assert (reasons(one), ids(tmp_path, "t"), ids(tmp_path, "t.2")) == ({}, *[Counter([2, 3, 4])] * 2)


def test_rows_that_are_written_anew_may_have_other_values(database: Database, tmp_path: Path) -> None:
    """PostgreSQL writes the default of `n` into each row then, and its catalogue does not tell that from another value.
    The first table has no such column, and goes on; the successor begins anew, with nothing to change."""
    both = source_with_both(database, tmp_path, on_gap="resnapshot")
    with ingesting(tmp_path, both) as one:
        database.run("alter table t add more float default random()", "insert into t values (4, 'y')")
        tick(one, 8000)
        assert reasons(one) == {"t.2": "ColumnChanged"}
        assert (ids(tmp_path, "t"), ids(tmp_path, "t.2")) == (Counter([1, 2, 3, 4]), Counter([1, 2, 3]))
        source_of(one)._due["t.2"] = 0.0
        tick_until_begun(one, 8100)
        assert (reasons(one), ids(tmp_path, "t.2")) == ({}, Counter([1, 2, 3, 4]))


def test_a_default_that_vacuum_full_writes_into_the_rows(database: Database, tmp_path: Path) -> None:
    """ALTER TABLE might have written other values: but that makes the table of long values anew, too."""
    database.run(
        "create table bare (id int primary key); create table long (id int primary key, note text)",
        "insert into bare values (1); insert into long values (1)",
        "drop publication everything; create publication everything for table bare, long",
        "alter table bare add n int default 7; alter table long add n int default 7",
    )
    tables = [PostgresTable(name, "public", name) for name in ("bare", "long")]
    with ingesting(tmp_path, database.spec(*tables)) as one:
        tick(one, 1000)
        with connect(database.server, database.name, autocommit=True) as connection:
            connection.execute("vacuum full bare")
            connection.execute("vacuum full long")
        database.run("insert into bare values (2)", "insert into long values (2)")
        tick(one, 1100)
        assert reasons(one) == {"bare": "ColumnChanged"}
        assert (
            "column n was altered, or PostgreSQL wrote its default into the rows"
            in source_of(one).stop_reasons()["bare"]
        )
    assert (ids(tmp_path, "bare"), ids(tmp_path, "long")) == (Counter([1]), Counter([1, 2]))


def test_what_stops_or_empties_one_reaches_the_other(database: Database, tmp_path: Path) -> None:
    """The stop reaches a table as far as it is of its columns."""
    both = source_with_both(database, tmp_path, max_transaction_bytes=1 << 20)
    with ingesting(tmp_path, both) as one:
        database.run("insert into t (id, n) values (5, 5)", "truncate t", "insert into t (id, n) values (6, 6)")
        tick(one, 8000)
        assert (ids(tmp_path, "t"), ids(tmp_path, "t.2")) == (Counter([6]), Counter([6]))
        database.run("alter table t drop n", "insert into t values (7)")
        tick(one, 8100)
        assert [(name, text.split(":")[0]) for name, text in source_of(one).stop_reasons().items()] == [
            ("t.2", "ColumnChanged")
        ]
        database.run("insert into t values (8)")
        tick(one, 8200)
        assert (ids(tmp_path, "t"), ids(tmp_path, "t.2")) == (Counter([6, 7, 8]), Counter([6]))


def test_a_transaction_that_is_too_large_stops_both(database: Database, tmp_path: Path) -> None:
    both = source_with_both(database, tmp_path, max_transaction_bytes=1 << 20)
    with ingesting(tmp_path, both) as one:
        database.run("insert into t select g, repeat('x', 5000) from generate_series(10, 500) g")
        tick(one, 8000)
        assert reasons(one) == dict.fromkeys(("t", "t.2"), "TransactionTooLarge")


def with_another_table(root: Path, spec: PostgresSource, tables: tuple[SourceTable, ...]) -> IngestionDescription:
    """`t.2` as an operator adds it that adopted `t` alone."""
    whole = description(root, spec, tables)
    first, second = whole.tables
    shard = replace(second.shard, shard_id=ShardId("other/t.2"), location=f"{root}/other")
    return replace(whole, tables=(first, replace(second, shard=shard, bound_as="t.2@other")))


@pytest.mark.parametrize("compacted", [False, True])
def test_bindings_of_an_earlier_table_are_not_those_of_another_one(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, compacted: bool
) -> None:
    """Another DataSource adopted the first table, and later gets a successor: the adopted bindings have its name."""
    both = source_with_both(database, tmp_path)
    with ingesting(tmp_path, replace(both, tables=both.tables[:1])) as one:
        for time in (100_000, 200_000):
            database.run(f"insert into t (id, n) values ({time}, 1)")
            tick(one, time)
        if compacted:
            one.compact_remap()
            assert one._remap.state().since > 100_000
    monkeypatch.setattr(databases, "description", with_another_table)
    with ingesting(tmp_path, both) as one:
        assert source_of(one).unbound_tables() == ["t.2"]
        database.run("insert into t (id, n) values (4, 1)")
        tick_until_begun(one, 300_000)
    with ingesting(tmp_path, both) as one:
        database.run("insert into t (id, n) values (5, 1)")
        tick(one, 400_000)
        assert source_of(one).unbound_tables() == []
    assert ids(tmp_path, "t") == ids(tmp_path, "other") == Counter([1, 2, 3, 4, 5, 100_000, 200_000])
