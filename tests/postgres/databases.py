"""PostgreSQL databases for the tests of the postgres source: random histories, and the contents between any two
transactions."""

from __future__ import annotations

import math
import random
import threading
import time as clock
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any

import psycopg
import pytest

from tests.dialects.postgres import Postgres, running
from tests.storage.ingestion_samples import contents, description
from tests.waiting import until
from tidemark_persist import DIFF, ERROR, TIME, ShardWriters, open_shard, read_part
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.plan.ingestion import PostgresSource, PostgresTable, SourceTable
from tidemark_replica.storage.ingester import Ingester
from tidemark_replica.storage.postgres.connection import Replication
from tidemark_replica.storage.postgres.inspect import tables_of
from tidemark_replica.storage.postgres.pgoutput import parse_lsn
from tidemark_replica.storage.postgres.source import PostgresIngestion
from tidemark_replica.storage.postgres.tick import Tick

LOGICAL = ("wal_level=logical", "max_wal_senders=20", "max_replication_slots=20", "wal_sender_timeout=20s")
FOLLOWED_SECONDS = 600.0
"""Tables that are not followed by then are never: the test says why."""
Row = tuple[Any, ...]
State = Mapping[str, Counter[Row]]
Keys = tuple[tuple[int, ...], ...]
CREDENTIALS = {"username": "test", "password": ""}
SCHEMA = """
create table a (id int, part text, amount numeric(10,2), note text, at timestamptz, ok boolean);
create table b (k bigint, v double precision, tags int[], day date, raw bytea);
create table "Odd Name" ("The Key" smallint, words text[]);
alter table a alter column note set storage external;
alter table a replica identity full;
alter table b replica identity full;
alter table "Odd Name" replica identity full;
create publication everything for all tables;
"""
KEYED_SCHEMA = """
create table a (id int primary key, part text, amount numeric(10,2), note text, at timestamptz, ok boolean);
create table b (k bigint not null, v double precision, tags int[], day date, raw bytea not null);
create table "Odd Name" ("The Key" smallint primary key, words text[]);
alter table a alter column note set storage external;
create unique index b_by_key on b (raw, k);
alter table b replica identity using index b_by_key;
create publication everything for all tables;
"""
TABLES = (
    PostgresTable("a", "public", "a"),
    PostgresTable("b", "public", "b"),
    PostgresTable("odd", "public", "Odd Name"),
)


def connect(server: Postgres, database: str, autocommit: bool = False) -> psycopg.Connection[Any]:
    return psycopg.connect(
        host=str(server.folder), port=server.port, user="test", dbname=database, autocommit=autocommit
    )


def create_database(server: Postgres, name: str, schema: str = SCHEMA) -> None:
    with connect(server, "postgres", autocommit=True) as connection:
        connection.execute(f"create database {name}")
    with connect(server, name, autocommit=True) as connection:
        connection.execute(schema)


def drop_slots(server: Postgres) -> None:
    with connect(server, "postgres", autocommit=True) as connection:
        for (pid,) in connection.execute("select active_pid from pg_replication_slots where active").fetchall():
            connection.execute("select pg_terminate_backend(%s, 10000)", (pid,))
        connection.execute("select pg_drop_replication_slot(slot_name) from pg_replication_slots where not active")


def spec_of(server: Postgres, database: str, *tables: PostgresTable, **more: Any) -> PostgresSource:
    """The tables with the columns that they have now, as the operator pins them."""
    spec = PostgresSource(
        str(server.folder), server.port, database, "db", "everything", tables or TABLES, ssl_mode="disable", **more
    )
    found = {table.name: table.columns for table in tables_of(spec, lambda: CREDENTIALS)}
    return replace(spec, tables=tuple(replace(table, columns=found[table.name]) for table in spec.tables))


def ingester(
    root: Path,
    spec: PostgresSource,
    term: int = 1,
    credentials: Callable[[], Mapping[str, str]] = lambda: CREDENTIALS,
    keys: Mapping[str, Keys] | None = None,
) -> Ingester:
    """A new one, as a new process would make it. `keys`: of the tables, as plans know them."""
    tables = tuple(SourceTable(t.name, t.columns or (), (keys or {}).get(t.name, ())) for t in spec.tables)
    described = description(root, spec, tables)
    return Ingester(described, WriterTerm(term), PostgresIngestion(spec, described.id, credentials), ShardWriters())


def read_everything(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each tick waits for what was written before it."""
    read = Tick.read

    def read_all(self: Tick, stream: Replication, until: int = 0) -> int:
        return read(self, stream, max(until, parse_lsn(database.value("select pg_current_wal_lsn()::text"))))

    monkeypatch.setattr(Tick, "read", read_all)


def source_of(one: Ingester) -> PostgresIngestion:
    assert isinstance(one._source, PostgresIngestion)
    return one._source


class Database:
    """A database of a server, for tests that say what happens one after the other."""

    def __init__(self, server: Postgres, name: str) -> None:
        self.server, self.name = server, name

    def run(self, *statements: str) -> None:
        """One transaction."""
        with connect(self.server, self.name) as connection:
            for statement in statements:
                connection.execute(statement)

    def value(self, query: str) -> Any:
        with connect(self.server, self.name) as connection:
            (value,) = connection.execute(query).fetchone() or (None,)
            return value

    def rows(self, query: str) -> list[Row]:
        with connect(self.server, self.name) as connection:
            return connection.execute(query).fetchall()

    def drop_slot(self, slot: str) -> None:
        """Drops the slot, once the server has noticed that the connection ended which had it."""
        until(lambda: not self.value(f"select active from pg_replication_slots where slot_name = '{slot}'"))
        self.run(f"select pg_drop_replication_slot('{slot}')")

    def spec(self, *tables: PostgresTable, **more: Any) -> PostgresSource:
        return spec_of(self.server, self.name, *tables, **more)


class History:
    """Transactions at random, several of them open at a time. `states`: the contents after each commit. `shown`: of
    each table its name upstream, and its columns as the shards are to have them, the last one for rows that are errors.
    """

    shown: Mapping[str, tuple[str, str]] = {
        "a": (
            "a",
            "id, part, nullif(amount, 'NaN'), note, case when isfinite(at) then at end, ok,"
            " case when amount = 'NaN' then 'amount' when not isfinite(at) then 'at' end",
        ),
        "b": (
            "b",
            "k, v, case when array_ndims(tags) is distinct from 2 then tags end,"
            " case when extract(year from day) > 0 then day end, raw,"
            " case when array_ndims(tags) = 2 then 'tags' when extract(year from day) < 0 then 'day' end",
        ),
        "odd": (
            '"Odd Name"',
            '"The Key", case when array_ndims(words) = 1 then words end,'
            " case when array_ndims(words) > 1 then 'words' end",
        ),
    }

    def __init__(self, server: Postgres, database: str, seed: int, truncates: bool = True) -> None:
        self.random, self._server, self._database = random.Random(seed), server, database
        self._open: list[psycopg.Connection[Any]] = []
        self._truncates, self._allowed = truncates, math.inf
        self._reader = connect(server, database, autocommit=True)
        self.states: list[State] = [self.now()]

    def now(self) -> State:
        with self._reader.transaction():
            self._reader.execute("set transaction isolation level repeatable read")
            return {name: self._rows(*upstream) for name, upstream in self.shown.items()}

    def step(self) -> None:
        """Begins a transaction, or goes on with an open one, or ends one."""
        draw = self.random
        if len(self._open) < 3 and draw.random() < 0.4:
            self._open.append(connect(self._server, self._database))
            self._open[-1].execute("set lock_timeout = '20ms'")
        if not self._open:
            return
        one = draw.choice(self._open)
        if draw.random() < 0.4:
            self._end(one, draw.random() < 0.8)
            return
        statement = self._statement()
        try:
            with one.transaction():
                one.execute(statement)
        except (psycopg.errors.LockNotAvailable, psycopg.errors.UniqueViolation):
            return  # another open transaction has the row, or the key is there
        if "truncate" in statement or "alter" in statement:  # whoever reads waits for its end
            self._end(one, True)

    def allow(self, steps: int) -> None:
        """Allow so many steps until the next call, and then the ends of the transactions that are open, as a new slot
        waits for them: the history, and what ticks read, do not grow with the time that ticks take."""
        self._allowed = steps

    @contextmanager
    def going_on(self, pause_s: float = 0.01) -> Iterator[None]:
        """Steps in a thread of its own, until the block ends."""
        end, failures = threading.Event(), list[BaseException]()

        def steps() -> None:
            try:
                while not end.wait(pause_s):
                    if self._allowed > 0:
                        self._allowed -= 1
                        self.step()
                    elif self._open:
                        self._end(self._open[0], True)
                self.close()
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=steps)
        thread.start()
        try:
            yield
        finally:
            end.set()
            thread.join()
        assert not failures, failures

    def close(self) -> None:
        """Ends what is open."""
        for one in list(self._open):
            self._end(one, True)
        self._reader.close()

    def reconnect(self) -> None:
        """For more steps after `close`."""
        self._reader = connect(self._server, self._database, autocommit=True)

    def _end(self, one: psycopg.Connection[Any], commit: bool) -> None:
        self._open.remove(one)
        one.commit() if commit else one.rollback()
        one.close()
        if commit:
            self.states.append(self.now())

    def _statement(self) -> str:
        draw = self.random
        statements = self._statements(draw.randrange(30), draw.randrange(30))
        if self._truncates and draw.random() < 0.08:
            return draw.choice(["truncate a", 'truncate b, "Odd Name"', "truncate a, b"])
        return draw.choice(statements)

    def _statements(self, n: int, m: int) -> list[str]:
        """One of each kind of change."""
        return [
            f"insert into a select g, chr(97 + g % 5), (g * 1.5)::numeric(10,2), repeat('x', {n} * 300),"
            f" timestamptz '2020-01-01' + g * interval '1.000001 s', g % 2 = 0 from generate_series({n}, {n + m}) g",
            f"insert into a values ({n}, null, 'NaN', null, 'infinity', null)",
            f"insert into a values ({m}, '', -0.01, 'é\"\\,\n', null, true)",
            f"insert into b select g, g::float8 / 3, array[g, null, {m}], date '1999-12-31' + g, decode('00ff', 'hex')"
            f" from generate_series({n}, {n + 5}) g",
            f"insert into b values ({n}, 'NaN', '{{}}', '0044-03-15 BC', ''), ({m}, '-0', null, null, null)",
            "insert into \"Odd Name\" values (1, array['a b', 'NULL', null, '\"', '']), (null, '{{1},{2}}')",
            f"update a set amount = amount + 1 where id = {n}",
            f"update a set id = id + 7, note = note || 'y' where id % 9 = {n % 9}",
            f"update b set v = v * 2, k = k + 1 where k % 5 = {n % 5}",
            f"update b set v = v where k = {m}",
            'update "Odd Name" set "The Key" = "The Key" + 1',
            f"delete from a where id % 7 = {n % 7}",
            f"delete from b where k < {n % 15}",
            f'delete from "Odd Name" where "The Key" > {n}',
        ]

    def _rows(self, table: str, columns: str) -> Counter[Row]:
        """The rows as the shards are to have them: None for a row that is an error."""
        return Counter(map(row_key, self._reader.execute(f"select {columns} from {table}").fetchall()))


class KeyedHistory(History):
    """Transactions over tables whose replica identity is a key (KEYED_SCHEMA). No row of `a` that cannot be taken (NaN,
    infinity) has a note that is stored apart: an update that leaves out the note would stop the table."""

    def _statements(self, n: int, m: int) -> list[str]:
        return [
            f"insert into a select g, chr(97 + g % 5), (g * 1.5)::numeric(10,2), repeat('x', {n} * 300),"
            f" timestamptz '2020-01-01' + g * interval '1.000001 s', g % 2 = 0 from generate_series({n}, {n + m}) g"
            " on conflict do nothing",
            f"insert into a values ({n}, null, 'NaN', null, 'infinity', null)"
            " on conflict (id) do update set amount = 'NaN', note = null",
            f"insert into a values ({m}, '', -0.01, repeat('é', 3000), null, true)"
            " on conflict (id) do update set part = 'again', amount = excluded.amount, note = excluded.note, at = null",
            f"update a set amount = 7, at = null where id = {n}",
            f"update a set amount = amount + 1 where id % 3 = {n % 3}",
            f"update a set id = id + 30 where id % 9 = {n % 9}",
            f"update a set id = id - 30, ok = not ok where id % 4 = {n % 4}",
            f"update a set note = note || 'y' where id = {n}",
            f"update a set part = part where id < {n}",
            f"insert into b select g, g::float8 / 3, array[g, null, {m}], date '1999-12-31' + g,"
            f" decode(lpad(to_hex(g % 3), 2, '0'), 'hex') from generate_series({n}, {n + 5}) g on conflict do nothing",
            f"insert into b values ({n}, 'NaN', '{{}}', '0044-03-15 BC', ''), ({m} + 40, '-0', null, null, '')"
            " on conflict do nothing",
            f"update b set v = v * 2, k = k + 50 where k % 5 = {n % 5}",
            f"update b set day = '0044-03-15 BC' where k = {n}",
            f"update b set day = null, tags = '{{{{1}},{{2}}}}' where k = {m}",
            f"update b set raw = raw || '\\x00', tags = null where k % 7 = {n % 7}",
            f"insert into \"Odd Name\" values ({n}, array['a b', 'NULL', null, '\"', '']),"
            f" (-{m} - 1, '{{{{1}},{{2}}}}')"
            ' on conflict ("The Key") do update set words = null',
            f'update "Odd Name" set "The Key" = "The Key" + 40 where "The Key" % 4 = {n % 4}',
            f"delete from a where id % 7 = {n % 7}",
            f"delete from b where k < {n % 15}",
            f'delete from "Odd Name" where "The Key" > {n}',
        ]


def row_key(row: Row) -> Row:
    """Values that compare by their bits; all of an error row is its column."""
    *values, error = row
    if error is not None:
        return ("error", error)
    return tuple(
        repr(v) if isinstance(v, float | list) else bytes(v) if isinstance(v, memoryview) else v for v in values
    )


def ingested_rows(root: Path, table: str, at: int) -> Counter[Row]:
    """The table's rows at a time, each with its multiplicity."""
    rows: Counter[Row] = Counter()
    for row in contents(root, table, at).to_pylist():
        diff, error = row.pop(DIFF), row.pop(ERROR)
        assert diff > 0, (table, at, row, diff)
        wrong = None if error is None else error.split('"expression":"')[1].split('"')[0]
        rows[row_key((*row.values(), wrong))] += diff
    return rows


def bound_until(root: Path) -> int:
    """The remap's upper: ticks at which nothing was bound move it, too."""
    return int(open_shard(f"{root}/remap").state().upper)


def readable_tables(root: Path) -> dict[int, set[str]]:
    """By the time of each binding, the tables that have begun and are not stopped."""
    remap = open_shard(f"{root}/remap")
    parts = remap.listen(0, remap.state().upper)
    rows = [row for part in parts for batch in read_part(part) for row in batch.to_pylist()]
    live, found = set[tuple[str, str]](), dict[int, set[str]]()
    for row in sorted(rows, key=lambda row: (row[TIME], row[DIFF])):
        entry = (row["table"], row["entry"])
        live.add(entry) if row[DIFF] > 0 else live.discard(entry)
        found[row[TIME]] = {n for n, each in live if each == "pinned" and (n, "stopped") not in live}
    return found


def check(root: Path, states: list[State], times_max: int = 1 << 30) -> None:
    """At every binding (or `times_max` of them, the last one included), the tables that are followed are together as
    they were between two transactions, later and later ones; at the end all are as they are now."""
    at, readable = 0, readable_tables(root)
    times = sorted(readable)
    for time in reversed(times[:: -1 - len(times) // times_max]):
        found = {table: ingested_rows(root, table, time) for table in readable[time]}
        while at < len(states) and any(states[at].get(table) != rows for table, rows in found.items()):
            at += 1
        assert at < len(states), f"the contents at {time} are of no moment between transactions, or of an earlier one"
    assert readable[times[-1]] == states[-1].keys()
    assert states[at] == states[-1]


def tick_until_followed(one: Ingester, time: int, every_s: float = 0.02) -> None:
    """Ticks until all tables are followed, also some ticks later. Stopped tables begin anew at once."""
    source, followed, end = source_of(one), 0, clock.monotonic() + FOLLOWED_SECONDS
    for at in range(time, time + 5000):
        if clock.monotonic() > end:
            break
        tick(one, at)
        followed = 0 if source.stop_reasons() or source.unbound_tables() else followed + 1
        if followed == 20:
            return
        source._due = dict.fromkeys(source._due, 0.0)
        sleep(every_s)
    late = source._late and source._late.activity
    raise AssertionError(f"stopped: {source.stop_reasons()}; held: {source.unbound_tables()}; late: {late}")


def tick_until_begun(one: Ingester, time: int, every_s: float = 0.02) -> int:
    """Ticks until no table is copied, or due to be. Returns the time of the last tick."""
    source = source_of(one)
    for at in range(time, time + 5000):
        tick(one, at)
        if source._late is None and min(source._due.values(), default=math.inf) > clock.monotonic():
            return at
        sleep(every_s)
    raise AssertionError(f"tables are late: {source._late and source._late.activity}")


def tick(one: Ingester, time: int) -> None:
    assert one.tick(Time(time))


@contextmanager
def server_with_replication() -> Iterator[Postgres]:
    with running(*LOGICAL) as server:
        yield server
