"""Transactions that write several tables of a DataSource: one call, at one time in all of them, or nothing."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import psycopg
import pytest

from tests.pgwire.writes.test_deletes import MAY_WRITE
from tests.pgwire.writes.written import Written, written
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.session import writes
from tidemark_pgwire.session.transaction import Pending, Section, SessionTransaction
from tidemark_pgwire.writes.body import Body, BodySpool
from tidemark_pgwire.writes.table import WritableTable
from tidemark_replica.storage.written import receive
from tidemark_replica.storage.written.receive import WriteHeader
from tidemark_replica.storage.written.refusal import WriteUnknown


@pytest.fixture(scope="module")
def module_tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    with written(tmp_path_factory.mktemp("tables"), MAY_WRITE) as made:
        yield made


@pytest.fixture
def tables(module_tables: Written) -> Iterator[Written]:
    """Without rows."""
    module_tables.write = module_tables.put
    with module_tables.server.connect() as connection:
        for name in ("orders", "wide"):
            for id, *_ in module_tables.rows(name):
                connection.execute(f"DELETE FROM shop.{name} WHERE id = {id}".encode())
    module_tables.calls.clear()
    yield module_tables
    spool = module_tables.server.server.spool
    assert not spool._used


def rows_of_both(tables: Written) -> tuple[list[Any], list[Any]]:
    return tables.rows("orders"), tables.rows("wide")


def headers(tables: Written) -> list[WriteHeader]:
    """The headers of the calls that come."""
    found = list[WriteHeader]()

    def put(ingestion: str, header: WriteHeader, pieces: Any) -> Any:
        found.append(header)
        return tables.put(ingestion, header, pieces)

    tables.write = put
    return found


def test_a_transaction_is_one_call(tables: Written) -> None:
    with tables.server.connect() as connection:
        connection.execute("INSERT INTO shop.orders VALUES (1, 'a'), (2, 'b')")
        tables.calls.clear()
        with connection.transaction():
            connection.execute("INSERT INTO shop.wide VALUES (1, 'w', 5)")
            assert connection.execute("DELETE FROM shop.orders WHERE id = 1").statusmessage == "DELETE 1"
            with connection.cursor().copy("COPY shop.wide (id, x) FROM STDIN") as copy:
                copy.write(b"2\tcopied\n")
            connection.execute("UPDATE shop.orders SET name = 'B' WHERE id = 2")
            connection.execute("UPDATE shop.wide SET y = 6 WHERE id = 1")
            assert (tables.calls, rows_of_both(tables)) == ([], ([(1, "a"), (2, "b")], []))
    assert len(tables.calls) == 1
    assert rows_of_both(tables) == ([(2, "B")], [(1, "w", 6), (2, "copied", None)])


def test_nothing_is_written_where_it_is_rolled_back_or_refused(tables: Written) -> None:
    insert, other = "INSERT INTO shop.orders VALUES (1, 'a')", "INSERT INTO shop.wide VALUES (1, 'w', 5)"
    with tables.server.connect() as connection:
        with connection.transaction(force_rollback=True):
            connection.execute(insert)
            connection.execute(other)
        assert tables.calls == []
        connection.execute(insert)
        before = rows_of_both(tables)
        for second in (insert, "DELETE FROM shop.orders WHERE id = 9"):
            connection.execute("BEGIN")
            connection.execute(other.encode())
            connection.execute(second.encode())
            refusals = psycopg.errors.UniqueViolation, psycopg.errors.NoDataFound
            with pytest.raises(refusals, match=r"(DUPLICATE_KEY|ROWS_MISSING): table orders: "):
                connection.execute("COMMIT")
            assert rows_of_both(tables) == before


def test_savepoints_are_of_all_tables(tables: Written) -> None:
    with tables.server.connect() as connection, connection.transaction():
        connection.execute("INSERT INTO shop.orders VALUES (1, 'a')")
        connection.execute("SAVEPOINT one")
        connection.execute("INSERT INTO shop.wide VALUES (1, 'gone', 5)")
        connection.execute("INSERT INTO shop.orders VALUES (2, 'gone')")
        connection.execute("ROLLBACK TO SAVEPOINT one")
        connection.execute("INSERT INTO shop.wide VALUES (2, 'w', 5)")
        connection.execute("SAVEPOINT two")
        connection.execute("INSERT INTO shop.wide VALUES (3, 'gone', 5)")
        connection.execute("INSERT INTO shop.orders VALUES (3, 'gone')")
        connection.execute("ROLLBACK TO SAVEPOINT two")
        connection.execute("INSERT INTO shop.orders VALUES (4, 'd')")
    assert rows_of_both(tables) == ([(1, "a"), (4, "d")], [(2, "w", 5)])
    assert len(tables.calls) == 1


def test_a_table_whose_rows_were_all_taken_back_is_not_of_the_call(tables: Written) -> None:
    """A call of one table says so itself, which an older gateway knows."""
    told = headers(tables)
    with tables.server.connect() as connection, connection.transaction():
        connection.execute("INSERT INTO shop.orders VALUES (1, 'a')")
        connection.execute("DELETE FROM shop.wide WHERE id = NULL")
        connection.execute("SAVEPOINT one")
        connection.execute("INSERT INTO shop.wide VALUES (1, 'gone', 5)")
        connection.execute("ROLLBACK TO SAVEPOINT one")
        with connection.cursor().copy("COPY shop.wide (id, x) FROM STDIN"):
            pass
    assert rows_of_both(tables) == ([(1, "a")], [])
    assert [(each.table, each.operation, each.others) for each in told] == [("orders", "insert", ())]


def test_a_lost_answer_and_a_key_write_once(tables: Written) -> None:
    def lost(ingestion: str, header: Any, pieces: Any) -> Any:
        pending = tables.put(ingestion, header, pieces)
        while pending.answer(1.0) is None:
            pass
        tables.write = tables.put
        raise WriteUnknown("the ingestion ended; repeat the call with the same key")

    tables.write = lost
    with tables.server.connect() as connection:
        told = list[str]()
        connection.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
        for _ in range(2):
            with connection.transaction():
                connection.execute("SET LOCAL tidemark.write_key = 'mine'")
                connection.execute("INSERT INTO shop.orders VALUES (1, 'a')")
                connection.execute("INSERT INTO shop.wide VALUES (1, 'w', 5)")
    assert rows_of_both(tables) == ([(1, "a")], [(1, "w", 5)])
    assert len(tables.calls) == 3
    assert "shop.orders, shop.wide" in told[-1]


def test_the_rows_of_several_tables_are_bounded(tables: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writes, "MIXED_BYTES", 1000)
    insert = "INSERT INTO shop.orders VALUES (1, 'a')"
    with tables.server.connect() as connection:
        for large in (f"INSERT INTO shop.wide VALUES (1, '{'x' * 1000}', 5)", ""):
            with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="several tables"), connection.transaction():  # noqa: PT012
                connection.execute(insert)
                if large:
                    connection.execute(large.encode())
                with connection.cursor().copy("COPY shop.wide (id, x) FROM STDIN") as copy:
                    copy.write(b"2\t" + b"x" * 1000 + b"\n")
        monkeypatch.setattr(writes, "MOST_TABLES", 1)
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="several tables"), connection.transaction():  # noqa: PT012
            connection.execute(insert)
            connection.execute("INSERT INTO shop.wide VALUES (1, 'w', 5)")
    assert (tables.calls, rows_of_both(tables)) == ([], ([], []))


def test_the_sections_of_all_tables_have_one_bound(tables: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """A statement is refused, as the first message of the call would be too large."""
    updates = "UPDATE shop.orders SET name = 'b' WHERE id = 1", "UPDATE shop.wide SET x = 'b' WHERE id = 1"
    with tables.server.connect() as connection:
        connection.execute("INSERT INTO shop.orders VALUES (1, 'a')")
        connection.execute("INSERT INTO shop.wide VALUES (1, 'a', 5)")
        tables.calls.clear()
        for name, most in (("MIXED_SECTIONS", 3), ("HEADER_BYTES", 100)):
            with monkeypatch.context() as patch:
                patch.setattr(writes, name, most)
                connection.execute("BEGIN")
                for statement in (*updates, updates[0]):
                    connection.execute(statement.encode())
                with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="several tables"):
                    connection.execute(updates[1].encode())
                connection.execute("ROLLBACK")
        assert tables.calls == []
        with connection.transaction():
            for statement in updates * 2:
                connection.execute(statement.encode())
    assert rows_of_both(tables) == ([(1, "b")], [(1, "b", 5)])


def test_upserts_that_are_too_many_for_sections_are_one_of_each_table(
    tables: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writes, "MIXED_SECTIONS", 3)
    monkeypatch.setattr(receive, "PARTS_MAX", 3)
    told = headers(tables)
    upserts = (
        "INSERT INTO shop.orders VALUES (%s, 'a') ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name",
        "INSERT INTO shop.wide VALUES (%s, 'w', 5) ON CONFLICT (id) DO UPDATE SET x = EXCLUDED.x, y = EXCLUDED.y",
    )
    with tables.server.connect() as connection, connection.transaction():
        for id in (1, 2):
            for upsert in upserts:
                connection.execute(upsert.encode(), (id,))
        connection.execute("DELETE FROM shop.orders WHERE id = 1")
    assert rows_of_both(tables) == ([(2, "a")], [(1, "w", 5), (2, "w", 5)])
    [header] = told
    assert [(each.table, each.operation, len(each.parts)) for each in (header, *header.others)] == [
        ("orders", "", 3),
        ("wide", "upsert", 0),
    ]


def test_the_order_of_the_tables_does_not_count(tables: Written) -> None:
    """A program that repeats a transaction with its key may begin with another table."""
    statements = "INSERT INTO shop.wide VALUES (1, 'w', 5)", "INSERT INTO shop.orders VALUES (1, 'a')"
    told = list[str]()
    with tables.server.connect() as connection:
        connection.add_notice_handler(lambda notice: told.append(notice.message_primary or ""))
        for some in (statements, statements[::-1]):
            with connection.transaction():
                connection.execute("SET LOCAL tidemark.write_key = 'any order'")
                for statement in some:
                    connection.execute(statement.encode())
    assert rows_of_both(tables) == ([(1, "a")], [(1, "w", 5)])
    assert "they are not doubled" in told[-1]


def test_tables_of_two_sources_are_refused_by_name() -> None:
    transaction, body = SessionTransaction(), Body(BodySpool(), "anne", b"a\n")
    first = WritableTable("shop", "orders", (), id="1")
    transaction.pending = Pending(first, body, "k", [Section("insert", 0)])
    assert transaction.rows_of(WritableTable("shop", "lines", ())) is None
    with pytest.raises(WireError, match=r"rows for shop\.orders, and other\.t is of another") as refused:
        transaction.rows_of(WritableTable("other", "t", ()))
    assert refused.value.sqlstate == "0A000"
    with pytest.raises(WireError, match="is another table now") as refused:
        transaction.rows_of(WritableTable("shop", "orders", (), id="2"))
    assert refused.value.sqlstate == "40001"
    cast(Any, transaction).end()
