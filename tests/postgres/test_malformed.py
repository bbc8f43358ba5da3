"""Rows with a value that a column's type here does not have are counted once each: by copies, by changes, and over
restarts, as the count is bound with the rows."""

from __future__ import annotations

import random
from collections.abc import Iterable
from itertools import count
from pathlib import Path
from time import sleep

import pyarrow as pa
import pytest

from tests.dialects.postgres import Postgres
from tests.postgres.databases import (
    KEYED_SCHEMA,
    SCHEMA,
    Database,
    History,
    KeyedHistory,
    create_database,
    drop_slots,
    ingested_rows,
    ingester,
    read_everything,
    source_of,
    spec_of,
    tick,
    tick_until_begun,
)
from tests.postgres.test_late_tables import held_copies, late_of
from tests.postgres.test_stops import ingesting, upper
from tests.storage.dying_appends import die_after, die_around
from tests.waiting import until
from tidemark_persist import consolidate, open_shard, read_part
from tidemark_protocol.plan.ingestion import PostgresTable
from tidemark_replica.storage.errors import SourceNotReady
from tidemark_replica.storage.ingester import Ingester
from tidemark_replica.storage.postgres.contents import copied_tables
from tidemark_replica.storage.postgres.values.updates import new_errors

A = PostgresTable("a", "public", "a", ("id", "amount", "at"))
B = PostgresTable("b", "public", "b", ("k", "day"))
WRONG = "insert into a values (1, 'x', 'NaN'), (2, 'x', 2.5), (3, 'x', 'NaN')"

pytestmark = [pytest.mark.postgres, pytest.mark.broad]


def counts(one: Ingester) -> dict[str, int]:
    return {name: report.malformed for name, report in source_of(one).progress().items()}


def errors_of(root: Path, table: str) -> int:
    """The number of error rows that the table has now."""
    rows = ingested_rows(root, table, upper(root, table) - 1)
    return sum(number for row, number in rows.items() if row[0] == "error")


@pytest.fixture(autouse=True)
def ticks_read_everything(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a test has one database."""
    if "database" in request.fixturenames:
        read_everything(request.getfixturevalue("database"), monkeypatch)


@pytest.mark.parametrize("keyed", [False, True])
def test_malformed_rows_count_once_by_copies_and_changes(database: Database, tmp_path: Path, keyed: bool) -> None:
    """A row counts when it becomes an error, and not again while the error stays."""
    if keyed:
        database.run("alter table a add primary key (id)", "alter table a replica identity default")
    database.run(WRONG, "insert into b values (1)")
    spec = database.spec(A, B, on_gap="resnapshot")
    with ingesting(tmp_path, spec) as one:
        assert counts(one) == {"a": 0, "b": 0}
        tick(one, 1000)
        assert counts(one) == {"a": 2, "b": 0}
        database.run(
            "insert into a values (4, 'x', 1, null, 'infinity')", "insert into b values (2, 1, null, '0044-03-15 BC')"
        )
        tick(one, 1100)
        assert counts(one) == {"a": 3, "b": 1}
    with ingesting(tmp_path, spec) as one:
        assert counts(one) == {"a": 3, "b": 1}
        database.run("update a set part = 'y' where id = 1", "update a set amount = 'NaN' where id = 2")
        tick(one, 2000)
        assert counts(one) == {"a": 4, "b": 1}
        database.run("update a set amount = 3 where id = 1", "delete from a where id = 3")
        tick(one, 2100)
        assert (counts(one)["a"], errors_of(tmp_path, "a")) == (4, 2)
    drop_slots(database.server)
    database.run("insert into a values (5, 'x', 'NaN')")
    with ingesting(tmp_path, spec) as one:
        tick(one, 5000)  # the contents are copied again
        assert (counts(one), errors_of(tmp_path, "a")) == ({"a": 5, "b": 1}, 3)


def test_malformed_rows_of_a_table_that_begins_late(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rows are of its contents, and of changes while the contents are copied. Rows that a TRUNCATE takes back
    before they are bound do not count."""
    monkeypatch.setattr(copied_tables, "GROUP_BYTES", 0)
    database.run(
        WRONG, "insert into b values (1)", "insert into a select 9, repeat('x', 900) from generate_series(1, 99)"
    )
    with ingesting(tmp_path, database.spec(A, B)) as one:
        with held_copies(monkeypatch) as go_on:
            go_on()
            tick(one, 1000)
        assert source_of(one).unbound_tables() == ["a"]
        with held_copies(monkeypatch) as go_on:
            tick(one, 1100)
            until(lambda: late_of(one).activity.startswith("snapshot"))
            database.run("insert into a values (4, 'x', 'NaN')")
            go_on()
            tick_until_begun(one, 1200)
        assert (counts(one), errors_of(tmp_path, "a")) == ({"a": 3, "b": 0}, 3)
        database.run("insert into a values (5, 'x', 'NaN')")
        database.run("truncate a")
        database.run("insert into a values (6, 'x', 'NaN')")
        tick(one, 8000)
        assert (counts(one), errors_of(tmp_path, "a")) == ({"a": 4, "b": 0}, 1)


def test_malformed_rows_of_a_table_that_stops_do_not_count(database: Database, tmp_path: Path) -> None:
    """The tick that stops it binds none of its rows."""
    database.run(WRONG, "insert into b values (1)")
    with ingesting(tmp_path, database.spec(A, B)) as one:
        tick(one, 1000)
        database.run("insert into a values (4, 'x', 'NaN')", "insert into b values (2, 1, null, '0044-03-15 BC')")
        database.run("alter table a rename amount to price")
        database.run("insert into a values (5, 'x', 'NaN')")
        tick(one, 1100)
        assert list(source_of(one).stop_reasons()) == ["a"]
        assert counts(one) == {"a": 2, "b": 1}


def test_crash_around_each_append_malformed_rows_count_once(
    database: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process dies before or after it bound, or before or after the table has what was bound; or twice at once."""
    spec = database.spec(A, B)
    until_death = die_around(monkeypatch, 1_000_000)
    for moment in count(1):
        root = tmp_path / f"{moment}"
        database.run("delete from a", "delete from b", WRONG, "insert into b values (1, 1, null, '0044-03-15 BC')")
        deaths, time = 0, 1000
        until_death.left = moment
        for change in ("select 1", "insert into a values (4, 'x', 'NaN')", "update b set k = 2, day = '0045-03-15 BC'"):
            database.run(change)
            for _ in range(4):
                time += 100
                one = ingester(root, spec)
                try:
                    one.recover()
                    tick(one, time)
                    assert counts(one)["a"] == errors_of(root, "a")
                    break
                except KeyboardInterrupt:
                    deaths += 1
                    until_death.left = 3 if deaths == 1 else 1_000_000
                finally:
                    source_of(one).close()
        with ingesting(root, spec) as one:
            assert counts(one) == {"a": 3, "b": 1}
            assert (errors_of(root, "a"), errors_of(root, "b")) == (3, 1)
        drop_slots(database.server)
        if not deaths:
            break
    assert moment > 8


@pytest.mark.parametrize("seed", range(2))
def test_oracle_counts_are_those_of_the_updates_in_the_shards(
    server: Postgres, tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random histories, and deaths. Each tick is one batch of changes, so the count is that of its updates. Without
    TRUNCATE, after which an error that is there again counts again."""
    kind, schema = (KeyedHistory, KEYED_SCHEMA) if seed % 2 else (History, SCHEMA)
    create_database(server, f"malformed{seed}", schema)
    moments, history = random.Random(seed), kind(server, f"malformed{seed}", seed, truncates=False)
    for _ in range(20):
        history.step()
    spec = spec_of(server, f"malformed{seed}")
    until_death = die_after(monkeypatch, moments.randrange(1, 12))
    one = ingester(tmp_path, spec)
    one.recover()
    with history.going_on():
        for time in range(1000, 2500, 100):
            history.allow(20)
            try:
                tick(one, time)
            except (KeyboardInterrupt, SourceNotReady):
                source_of(one).close()
                one = ingester(tmp_path, spec)
                one.recover()
            if until_death.left <= 0:
                until_death.left = moments.randrange(1, 16)
            sleep(moments.random() * 0.1)
    until_death.left = 1_000_000
    tick(one, 9000)
    tick(one, 9100)
    source_of(one).close()
    drop_slots(server)
    assert counts(one) == {name: errors_ever(tmp_path, name) for name in ("a", "b", "odd")}
    assert max(counts(one).values()) >= 3


def errors_ever(root: Path, table: str) -> int:
    """The number of error rows that the table ever got: those that it began with, and the later ones."""
    shard = open_shard(f"{root}/{table}")
    since, upper = shard.state().since, shard.state().upper
    later = consolidate(pa.Table.from_batches(updates(shard.listen(since + 1, upper))))
    return new_errors(shard.snapshot(since)) + new_errors(later)


def updates(parts: Iterable[object]) -> list[pa.RecordBatch]:
    return [batch for part in parts for batch in read_part(part)]  # type: ignore[arg-type]
