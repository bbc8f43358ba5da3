"""INSERT over the protocol, to the tables of a real ingester: values, transactions, repeats, refusals."""

from __future__ import annotations

import asyncio
import datetime
import struct
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from decimal import Decimal
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.pgwire.frames import Frames
from tests.pgwire.test_clients import psql
from tests.pgwire.writes.written import Written, written
from tests.waiting import BOUND, until
from tidemark.errors import Error
from tidemark.gateway.discovery import Gateway
from tidemark_pgwire import gateway
from tidemark_pgwire.session.portal import Portal
from tidemark_pgwire.session.session import SessionLimits
from tidemark_pgwire.writes.body import Body
from tidemark_replica.storage.written.refusal import WriteUnknown

UTC = datetime.UTC
ROW = (
    True,
    -7,
    70_000,
    2**40,
    0.5,
    -1e300,
    Decimal("12345678.90"),
    'O\'Hara \\ "é😀"\n\t,',
    datetime.date(2026, 1, 31),
    datetime.datetime(2026, 1, 31, 12, 0, 0, 123456, UTC),
)

LITERALS = "INSERT INTO SHOP.Kinds (NAME, price, yes, d) VALUES (DEFAULT, 1.5, 'on', 1e-5), (NULL, -2, FALSE, .5)"
CASTS = r"""INSERT INTO shop.kinds (name, i, day, at) VALUES
    (E'a\\b\'\u00e9', '5'::int, DATE '2026-01-31', CAST('2026-01-31 13:00+01' AS timestamptz)),
    ($x$'$x$::text, +6, '2026-02-01'::date, '2026-02-01')"""


@pytest.fixture(scope="module")
def module_tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    with written(tmp_path_factory.mktemp("inserts")) as made:
        yield made


@pytest.fixture
def tables(module_tables: Written) -> Written:
    """With no rows but those of earlier tests, which use other names and keys."""
    module_tables.write = module_tables.put
    module_tables.calls.clear()
    return module_tables


def named(tables: Written, table: str, *names: str) -> list[tuple[Any, ...]]:
    return [row for row in tables.rows(table) if row[1] in names]


def test_values_of_each_type_by_parameters_and_by_literals(tables: Written) -> None:
    places = ", ".join(["%s"] * len(ROW))
    with tables.server.connect() as connection:
        done = connection.execute(f"INSERT INTO shop.kinds VALUES ({places})".encode(), ROW)
        assert done.statusmessage == "INSERT 0 1"
        connection.execute(f"INSERT INTO shop.kinds VALUES ({places})".encode(), ROW, binary=True)
        connection.execute(f"INSERT INTO shop.kinds VALUES ({places})".encode(), [None] * len(ROW))
        connection.execute(LITERALS.encode())
        connection.execute(CASTS.encode())
    nothing = (None,) * len(ROW)
    midnight = datetime.datetime(2026, 2, 1, tzinfo=UTC)
    noon = datetime.datetime(2026, 1, 31, 12, tzinfo=UTC)
    wanted = [
        ROW,
        ROW,
        nothing,
        (True, *[None] * 4, 1e-5, Decimal("1.50"), None, None, None),
        (False, *[None] * 4, 0.5, Decimal("-2.00"), None, None, None),
        (None, None, 5, None, None, None, None, "a\\b'é", datetime.date(2026, 1, 31), noon),
        (None, None, 6, None, None, None, None, "'", datetime.date(2026, 2, 1), midnight),
    ]
    assert sorted(tables.rows("kinds"), key=repr) == sorted(wanted, key=repr)


def test_many_rows_are_one_call(tables: Written) -> None:
    """executemany is one transaction: with autocommit, and in a block."""
    with tables.server.connect() as connection:
        rows = [(n, "many") for n in range(500)]
        connection.cursor().executemany("INSERT INTO shop.plain (id, name) VALUES (%s, %s)", rows)
        assert len(tables.calls) == 1
        with connection.transaction():
            connection.execute("INSERT INTO shop.plain VALUES (1, 'block'), (2, 'block')")
            connection.execute("INSERT INTO shop.plain (name) VALUES ('block')")
            assert len(tables.calls) == 1
        assert len(tables.calls) == 2
    assert [row[0] for row in named(tables, "plain", "many")] == sorted(range(500), key=repr)
    assert named(tables, "plain", "block") == [(1, "block"), (2, "block"), (None, "block")]


def test_what_is_rolled_back_is_not_written(tables: Written) -> None:
    insert = "INSERT INTO shop.plain VALUES (%s, 'rolled')"
    with tables.server.connect() as connection:
        with connection.transaction(force_rollback=True):
            connection.execute(insert, [1])
        with connection.transaction():
            connection.execute(insert, [2])
            with connection.transaction(force_rollback=True):
                connection.execute(insert, [3])
            connection.execute(insert, [4])
        with connection.transaction(), connection.transaction(force_rollback=True):
            connection.execute(insert, [5])
        with pytest.raises(psycopg.errors.UndefinedColumn), connection.transaction():  # noqa: PT012
            connection.execute(insert, [6])
            connection.execute("INSERT INTO shop.plain (nope) VALUES (1)")
        with pytest.raises(psycopg.errors.UndefinedColumn), connection.pipeline():  # noqa: PT012
            connection.execute(insert, [7])
            connection.execute("INSERT INTO shop.plain (nope) VALUES (1)")
        with pytest.raises(psycopg.errors.UndefinedColumn):
            connection.execute("INSERT INTO shop.plain VALUES (8, 'rolled'); INSERT INTO shop.plain (x) VALUES (1)")
        connection.execute("INSERT INTO shop.plain VALUES (9, 'rolled'); INSERT INTO shop.plain VALUES (10, 'rolled')")
    left = psycopg.connect(**tables.server.options())
    left.execute(insert, [11])
    left.close()
    assert sorted(row[0] for row in named(tables, "plain", "rolled")) == [2, 4, 9, 10]
    assert len(tables.calls) == 2


def test_crash_a_lost_answer_is_asked_for_again_and_the_rows_are_there_once(tables: Written) -> None:
    """The ingestion ends after the rows are durable, and before the answer."""

    def lost(ingestion: str, header: Any, pieces: Any) -> Any:
        pending = tables.put(ingestion, header, pieces)
        while pending.answer(1.0) is None:
            pass
        tables.write = tables.put
        raise WriteUnknown("the ingestion ended; repeat the call with the same key")

    tables.write = lost
    with tables.server.connect() as connection:
        assert connection.execute("INSERT INTO shop.plain VALUES (1, 'lost')").statusmessage == "INSERT 0 1"
    assert named(tables, "plain", "lost") == [(1, "lost")]
    assert len(tables.calls) == 2
    assert len({*tables.calls}) == 1


def test_a_gateway_that_cannot_be_found_after_a_lost_answer_is_looked_for_again(
    tables: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An operator on this machine has no address while it starts: the rows are durable already."""
    found = [Gateway("127.0.0.1:1", ""), None, None]

    def find() -> Gateway:
        if found and (other := found.pop(0)) is not None:
            return other
        if found:
            raise Error("gateway.json does not exist")
        return tables.server.address

    def lost(ingestion: str, header: Any, pieces: Any) -> Any:
        pending = tables.put(ingestion, header, pieces)
        while pending.answer(1.0) is None:
            pass
        tables.write = tables.put
        tables.server.link._find = find
        raise WriteUnknown("the ingestion ended; repeat the call with the same key")

    monkeypatch.setattr(tables.server.link, "_find", tables.server.link._find)
    tables.write = lost
    with tables.server.connect() as connection:
        assert connection.execute("INSERT INTO shop.plain VALUES (1, 'found')").statusmessage == "INSERT 0 1"
    assert (named(tables, "plain", "found"), found) == ([(1, "found")], [])


def test_a_call_that_is_lost_after_a_minute_is_asked_for_again(
    tables: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A large COPY takes that long; the minute is of repeats."""
    monkeypatch.setattr(gateway, "WRITE_SECONDS", 1.0)

    def lost(ingestion: str, header: Any, pieces: Any) -> Any:
        time.sleep(1.5)
        tables.write = tables.put
        raise WriteUnknown("the ingestion ended; repeat the call with the same key")

    tables.write = lost
    with tables.server.connect() as connection:
        connection.execute("INSERT INTO shop.plain VALUES (1, 'late')")
    assert named(tables, "plain", "late") == [(1, "late")]


def test_a_key_is_of_the_rows_that_it_was_set_before(tables: Written) -> None:
    """SET LOCAL outside a transaction would be forgotten, and rows without their key may come twice."""
    with tables.server.connect() as connection:
        connection.execute("SET tidemark.write_key='set'; INSERT INTO shop.plain VALUES (1, 'set'); RESET ALL")
        assert tables.calls == ["set"]
        with pytest.raises(psycopg.errors.NoActiveSqlTransaction):
            connection.execute("SET LOCAL tidemark.write_key = 'x'")
        with pytest.raises(psycopg.errors.ActiveSqlTransaction):
            connection.execute("INSERT INTO shop.plain VALUES (2, 'set'); DISCARD ALL")
    assert named(tables, "plain", "set") == [(1, "set")]


def test_rows_with_a_key_are_written_once(tables: Written) -> None:
    insert = "INSERT INTO shop.plain VALUES (1, 'key')"
    with tables.server.connect() as connection:
        notices = list[str]()
        connection.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
        for _ in range(2):
            with connection.transaction():
                connection.execute("SET LOCAL tidemark.write_key = '2026-01-31/plain'")
                connection.execute(insert)
        assert ["an earlier call" in text for text in notices] == [True]
        with pytest.raises(psycopg.errors.InvalidParameterValue, match="KEY_REUSED"), connection.transaction():  # noqa: PT012
            connection.execute("SET LOCAL tidemark.write_key = '2026-01-31/plain'")
            connection.execute("INSERT INTO shop.plain VALUES (2, 'key')")
        connection.execute(insert)
    assert named(tables, "plain", "key") == [(1, "key"), (1, "key")]


def test_a_key_that_is_there_refuses_the_transaction(tables: Written) -> None:
    """At the statement where it is one of its own, else at COMMIT, after which the session goes on."""
    with tables.server.connect() as connection:
        connection.execute("INSERT INTO shop.orders VALUES (1, 'first')")
        with pytest.raises(psycopg.errors.UniqueViolation, match="DUPLICATE_KEY"):
            connection.execute("INSERT INTO shop.orders VALUES (2, 'x'), (1, 'second')")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("INSERT INTO shop.orders VALUES (%s, %s)", [1, "second"])
        connection.execute("BEGIN")
        connection.execute("INSERT INTO shop.orders VALUES (1, 'third')")
        with pytest.raises(psycopg.errors.UniqueViolation):
            connection.execute("COMMIT")
        assert connection.info.transaction_status.name == "IDLE"
        with pytest.raises(psycopg.errors.NotNullViolation):
            connection.execute("INSERT INTO shop.orders (name) VALUES ('x')")
    assert tables.rows("orders") == [(1, "first")]


@pytest.mark.parametrize(("text", "sqlstate"), [
    ("INSERT INTO shop.plain SELECT 1, 'x'", "0A000"),
    ("INSERT INTO shop.plain VALUES (1 + 1, 'x')", "0A000"),
    ("INSERT INTO shop.plain VALUES (now(), 'x')", "0A000"),
    ("INSERT INTO shop.plain VALUES ('1.7'::int, 'x')", "22P02"),
    ("INSERT INTO shop.plain VALUES (1, '2026-01-31'::date)", "42804"),
    ("INSERT INTO shop.plain VALUES (1, 'x'::varchar(1))", "0A000"),
    ("INSERT INTO shop.plain VALUES (1, 'x') RETURNING id", "0A000"),
    ("INSERT INTO shop.plain VALUES (1, 'x') ON CONFLICT DO NOTHING", "0A000"),
    ("INSERT INTO shop.plain VALUES (1, 'x', 2)", "42601"),
    ("INSERT INTO shop.plain VALUES (1), (1, 'x')", "42601"),
    ("INSERT INTO shop.plain (id, ID) VALUES (1, 2)", "42701"),
    ("INSERT INTO shop.plain (id) VALUES ($1)", "42P02"),
    ("INSERT INTO shop.plain (id) VALUES ($0)", "42P02"),
    ("INSERT INTO shop.plain (id) VALUES (12345678901234567890)", "22P02"),
    ("INSERT INTO shop.kinds (at) VALUES ('2026-01-31 10:00+01'::timestamp)", "42804"),
    ("INSERT INTO shop.kinds (price) VALUES (0.001)", "22P02"),
    ("INSERT INTO shop.kinds (yes) VALUES ('maybe')", "22P02"),
    ("INSERT INTO shop VALUES (1)", "42P01"),
    ("INSERT INTO shop.nothing VALUES (1)", "42P01"),
    ("INSERT INTO other.t VALUES (1)", "42501"),
    ("TRUNCATE shop.plain", "25006"),
])  # fmt: skip
def test_what_cannot_be_written_is_refused(tables: Written, text: str, sqlstate: str) -> None:
    before = {table: len(tables.rows(table)) for table in ("plain", "kinds")}
    with tables.server.connect() as connection:
        with pytest.raises(psycopg.Error) as failed:
            connection.execute(text.encode())
        assert failed.value.sqlstate == sqlstate, str(failed.value)
        connection.execute("SHOW dialect")
    assert {table: len(tables.rows(table)) for table in before} == before


def test_a_transaction_does_not_read_what_it_writes(tables: Written) -> None:
    with tables.server.connect() as connection:
        with pytest.raises(psycopg.errors.FeatureNotSupported), connection.transaction():  # noqa: PT012
            connection.execute("INSERT INTO shop.plain VALUES (1, 'two')")
            connection.execute("SELECT a FROM s.a")
        with connection.transaction():
            assert connection.execute("SELECT a FROM s.a").fetchall() == [(1,), (2,), (3,)]
            connection.execute("INSERT INTO shop.plain VALUES (1, 'read first')")
            assert connection.execute("SHOW tidemark.wait").fetchone() == ("off",)
    assert named(tables, "plain", "two") == []
    assert named(tables, "plain", "read first") == [(1, "read first")]


def test_read_only_transactions_write_nothing(tables: Written) -> None:
    insert = "INSERT INTO shop.plain VALUES (1, 'read only')"
    with tables.server.connect() as connection:
        assert connection.info.parameter_status("default_transaction_read_only") == "off"
        assert connection.info.parameter_status("in_hot_standby") == "off"
        connection.read_only = True
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction), connection.transaction():  # noqa: PT012
            assert connection.execute("SHOW transaction_read_only").fetchone() == ("on",)
            connection.execute(insert)
        with pytest.raises(psycopg.errors.ActiveSqlTransaction), connection.transaction():
            connection.execute("SET transaction_read_only = off")
        assert connection.execute("SHOW transaction_read_only").fetchone() == ("off",)
        connection.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
        for text in (insert, "COPY shop.plain FROM STDIN", "DROP VIEW IF EXISTS v"):
            with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
                connection.execute(text.encode())
        connection.execute("BEGIN READ WRITE")
        connection.execute("SET TRANSACTION READ ONLY")
        with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
            connection.execute(insert)
        connection.execute("ROLLBACK")
        assert connection.execute("SHOW default_transaction_read_only").fetchone() == ("on",)
    assert named(tables, "plain", "read only") == []


def test_times_without_a_zone_are_of_utc_alone(tables: Written) -> None:
    with tables.server.connect(options="-c timezone=Europe/Berlin") as connection:
        for value in ("2026-01-31 12:00", datetime.datetime(2026, 1, 31)):
            with pytest.raises(psycopg.errors.FeatureNotSupported, match="TimeZone is Europe/Berlin"):
                connection.execute("INSERT INTO shop.kinds (at) VALUES (%s)", [value])
        berlin = datetime.timezone(datetime.timedelta(hours=1))
        when = datetime.datetime(2001, 1, 31, 12, tzinfo=berlin)
        connection.execute("INSERT INTO shop.kinds (name, at) VALUES ('zoned', %s)", [when])
    assert [row[-1] for row in tables.rows("kinds") if row[7] == "zoned"] == [when]


def test_parameters_are_described_by_their_columns(tables: Written) -> None:
    with Frames(tables.server) as frames:
        text = b"INSERT INTO shop.kinds (at, price, yes) VALUES ($1, $2, $3), ($1, NULL, $4)"
        frames.send(b"P", b"s\0" + text + b"\0\0\0")
        frames.send(b"D", b"Ss\0")
        frames.send(b"S")
        answers = dict(frames.until_ready())
    assert answers[b"t"] == struct.pack("!H4I", 4, 1184, 1700, 16, 16)
    assert b"n" in answers


def test_spark_dialect(tables: Written) -> None:
    with tables.server.connect() as connection:
        connection.execute("SET dialect = spark")
        connection.execute("INSERT INTO `shop`.plain VALUES (%s, %s)", [1, "a\\b'"])
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="send it as a parameter"):
            connection.execute("INSERT INTO shop.plain VALUES (1, 'a\\\\b')")
    assert named(tables, "plain", "a\\b'") == [(1, "a\\b'")]


def test_psql(tables: Written) -> None:
    done = psql(tables.server, "INSERT INTO shop.plain VALUES (1, 'psql'), (2, 'psql')")
    assert (done.returncode, done.stdout.strip()) == (0, "INSERT 0 2"), done.stderr
    assert named(tables, "plain", "psql") == [(1, "psql"), (2, "psql")]


def test_rows_that_wait_are_bounded(tmp_path: Path) -> None:
    with written(tmp_path, limits=SessionLimits(write_bytes=1 << 20)) as tables, tables.server.connect() as connection:
        with pytest.raises(psycopg.errors.ConfigurationLimitExceeded), connection.transaction():  # noqa: PT012
            for _ in range(100):
                connection.execute("INSERT INTO shop.plain VALUES (1, %s)", ["x" * 10_000])
        connection.execute("INSERT INTO shop.plain VALUES (1, %s)", ["x" * 100_000])
        assert [len(row[1]) for row in tables.rows("plain")] == [100_000]
        until(lambda: not tables.server.server.spool._used)


def test_rows_wait_for_a_client_for_a_while_alone(tmp_path: Path) -> None:
    """Its connection is ended, and their room is free: in a block, before Sync, and in a COPY that gets no data. A
    block that has no rows lasts."""
    with written(tmp_path, limits=SessionLimits(idle_seconds=1.0)) as tables, tables.server.connect() as reading:
        spool = tables.server.server.spool
        reading.execute("BEGIN")
        for sent in (
            [(b"Q", b"BEGIN\0"), (b"Q", b"INSERT INTO shop.plain VALUES (1, 'idle')\0")],
            [(b"Q", b"BEGIN\0"), (b"Q", b"COPY shop.plain FROM STDIN\0"), (b"d", b"1\tidle\n")],
            [
                (b"P", b"\0INSERT INTO shop.plain VALUES (1, 'idle')\0\0\0"),
                (b"B", bytes(8)),
                (b"E", bytes(5)),
            ],
            [(b"Q", b"SET idle_in_transaction_session_timeout = '100ms'\0"), (b"Q", b"BEGIN\0")],
        ):
            with Frames(tables.server) as frames:
                for kind, body in sent:
                    frames.send(kind, body)
                assert b"C25P03" in frames.rest()
            until(lambda: not spool._used and not spool._copies)
        assert reading.execute("SELECT a FROM s.a").fetchall() == [(1,), (2,), (3,)]
        assert tables.rows("plain") == []


def test_a_commit_that_is_canceled_while_cursors_close_has_written_nothing(
    tables: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its error says so."""
    closing = threading.Event()

    async def close(portal: Portal) -> None:
        closing.set()
        await asyncio.sleep(BOUND)

    with tables.server.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("DECLARE c CURSOR FOR SELECT a FROM s.a")
        connection.execute("INSERT INTO shop.plain VALUES (1, 'canceled')")
        with monkeypatch.context() as patched, ThreadPoolExecutor(1) as threads:
            patched.setattr(Portal, "close", close)
            committing = threads.submit(connection.execute, "COMMIT")
            assert closing.wait(BOUND)
            patched.undo()
            connections = tables.server.server._connections.values()
            running = next(each for each in connections if each._running is not None)
            tables.server.loop.call(running.cancel)
            with pytest.raises(psycopg.errors.QueryCanceled):
                committing.result(BOUND)
        assert connection.info.transaction_status.name == "IDLE"
        assert tables.calls == []
        connection.execute("INSERT INTO shop.plain VALUES (2, 'canceled')")
    assert named(tables, "plain", "canceled") == [(2, "canceled")]


def test_threads_keep_large_rows(tables: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """A slow disk would stop all connections."""
    names = list[str]()

    def append(body: Body, data: bytes, rows: int) -> None:
        names.extend([threading.current_thread().name] * bool(rows))
        appended(body, data, rows)

    appended = Body.append
    monkeypatch.setattr(Body, "append", append)
    with tables.server.connect() as connection, connection.transaction():
        for size in (10_000, 60_000, 10):
            connection.execute("INSERT INTO shop.plain VALUES (1, %s)", ["large".ljust(size)])
    assert [name.startswith("rows") for name in names] == [False, True, True]
