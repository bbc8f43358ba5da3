"""DELETE, and INSERT ... ON CONFLICT, to the tables of a real ingester: rows by their whole primary key."""

from __future__ import annotations

import select
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.pgwire.served import served
from tests.pgwire.writes.written import MAY_INSERT, SPEC, Written, written
from tests.waiting import BOUND
from tidemark_operator.catalogue.registry import SourceState
from tidemark_operator.kube.cache import Key
from tidemark_operator.kube.client import DATA_SOURCES
from tidemark_operator.resources.conditions.data_source import IngestionFailure
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.gateway import WRITE_SECONDS
from tidemark_pgwire.session import writes
from tidemark_pgwire.statements.commands import parse
from tidemark_pgwire.statements.lexer import POSTGRES, split
from tidemark_protocol.ids import GlobalId
from tidemark_replica.storage.written.refusal import WriteUnknown

MAY_WRITE = tuple(
    f"{verb} datasources/rows {name} in namespace ns"
    for verb in ("create", "update", "delete")
    for name in ("shop", "orders", "sole")
)


SET_NAME = "ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name"


@pytest.fixture(scope="module")
def module_tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    with written(tmp_path_factory.mktemp("deletes"), MAY_WRITE) as made:
        yield made


@pytest.fixture
def tables(module_tables: Written) -> Written:
    """Empty."""
    with module_tables.server.connect() as connection:
        for table, keys in (("orders", "id"), ("pairs", '"B", a')):
            count = 1 if keys == "id" else 2
            rows = {row[:count] if count == 1 else (row[1], row[0]) for row in module_tables.rows(table)}
            if rows:
                connection.cursor().executemany(
                    f"DELETE FROM shop.{table} WHERE ({keys}) = ({', '.join(['%s'] * count)})", [*rows]
                )
    module_tables.calls.clear()
    return module_tables


def test_rows_go_by_their_primary_key(tables: Written) -> None:
    """By literals and parameters, one condition or several; each number is exact, and NULL equals nothing."""
    with tables.server.connect() as connection:
        connection.cursor().executemany("INSERT INTO shop.orders VALUES (%s, 'x')", [(n,) for n in range(20)])
        for count, text, values in (
            (1, "WHERE id = 0", ()),
            (1, "AS o WHERE (o.id = %s)", (1,)),
            (2, "WHERE shop.orders.id IN (2, '3'::bigint)", ()),
            (2, "WHERE orders.ID IN (%s, 5, %s, NULL)", (4, 4)),
            (0, "WHERE id = %s", (None,)),
            (2, "WHERE (id) IN (VALUES (6), (7))", ()),
            (1, f"WHERE {'(' * 16}id = 8{')' * 16}", ()),
        ):
            done = connection.execute(f"DELETE FROM shop.orders {text}".encode(), values or None)
            assert (done.statusmessage, done.rowcount) == (f"DELETE {count}", count), text
        connection.execute(
            "INSERT INTO shop.pairs VALUES (1, 'x', 1), (1, 'y', 2), (2, 'x', 3), (2, 'y', 4), (3, 'x', 5)"
        )
        for count, text in (
            (1, """WHERE "B" = 'x' AND a = 1"""),
            (2, """WHERE a IN (1, 2) AND "B" IN ('y')"""),
            (2, """WHERE (a, "B") IN ((2, 'x'), (3, 'x'), (2, NULL))"""),
        ):
            assert connection.execute(f"DELETE FROM shop.pairs {text}".encode()).rowcount == count
    assert sorted(row[0] for row in tables.rows("orders")) == list(range(9, 20))
    assert tables.rows("pairs") == []


def test_a_transaction_deletes_at_one_time_or_not_at_all(tables: Written) -> None:
    with tables.server.connect() as connection:
        connection.execute("INSERT INTO shop.orders VALUES (1, 'a'), (2, 'b'), (3, 'c')")
        tables.calls.clear()
        with connection.transaction():
            connection.execute("DELETE FROM shop.orders WHERE id = 1")
            with connection.transaction(force_rollback=True):
                connection.execute("DELETE FROM shop.orders WHERE id = 2")
        assert len(tables.calls) == 1
        assert sorted(tables.rows("orders")) == [(2, "b"), (3, "c")]
        connection.cursor().executemany("DELETE FROM shop.orders WHERE id = %s", [(2,), (3,)])
        assert tables.rows("orders") == []


@pytest.mark.parametrize("is_prepared", [False, True])
def test_a_delete_says_how_many_rows_were_there(tables: Written, is_prepared: bool) -> None:
    """None is no error. In a transaction block the number is said before, so COMMIT checks it; so it is with all but
    the only statement of a message."""
    with tables.server.connect() as connection:
        connection.execute("INSERT INTO shop.orders VALUES (1, 'a'), (2, 'b'), (3, 'c'), (4, 'd')")
        for keys, count in ((9, 0), (1, 1), (1, 0)):
            done = connection.execute("DELETE FROM shop.orders WHERE id = %s", [keys], prepare=is_prepared)
            assert (done.statusmessage, done.rowcount) == (f"DELETE {count}", count)
        assert connection.execute("DELETE FROM shop.orders WHERE id IN (1, 2, NULL)").statusmessage == "DELETE 1"
        missing = "ROWS_MISSING: 2 rows are to be deleted or updated, and 1 of them are there"
        delete = "DELETE FROM shop.orders WHERE id"
        for text in (
            f"BEGIN; {delete} IN (2, 3); COMMIT",
            f"{delete} = 2; {delete} = 3",
            f"{delete} IN (2, 3); {delete} = NULL",
            f"{delete} IN (2, 3); SET application_name = 'a'",
        ):
            with pytest.raises(psycopg.errors.NoDataFound, match=missing):
                connection.execute(text.encode())
        with pytest.raises(psycopg.errors.NoDataFound):
            connection.cursor().executemany("DELETE FROM shop.orders WHERE id = %s", [(2,), (3,)])
        assert sorted(tables.rows("orders")) == [(3, "c"), (4, "d")]
        with connection.transaction():
            connection.execute("DELETE FROM shop.orders WHERE id = 3")
            connection.execute("DELETE FROM shop.orders WHERE id IN (4)")
    assert tables.rows("orders") == []


def test_a_repeated_delete_that_says_another_number_than_the_first_is_an_error(tables: Written) -> None:
    with tables.server.connect() as connection:
        connection.execute("INSERT INTO shop.orders VALUES (1, 'a'), (2, 'b')")
        connection.execute("SET tidemark.write_key = 'again'")
        for _ in range(2):
            assert connection.execute("DELETE FROM shop.orders WHERE id IN (1, 2, 3)").statusmessage == "DELETE 2"
        with pytest.raises(psycopg.errors.NoDataFound, match=r"changed 2 rows of shop\.orders, and this .* has said 3"):
            connection.execute("BEGIN; DELETE FROM shop.orders WHERE id IN (1, 2, 3); COMMIT")
    assert tables.rows("orders") == []


def test_crash_a_delete_whose_answer_is_lost_has_the_number_of_the_first_call(
    tables: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(ingestion: str, header: Any, pieces: Any) -> Any:
        pending = tables.put(ingestion, header, pieces)
        while pending.answer(BOUND) is None:
            pass
        monkeypatch.undo()
        raise WriteUnknown("the ingestion ended")

    with tables.server.connect() as connection:
        connection.execute("INSERT INTO shop.orders VALUES (1, 'a'), (2, 'b')")
        tables.calls.clear()
        monkeypatch.setattr(tables, "write", lost)
        assert connection.execute("DELETE FROM shop.orders WHERE id IN (1, 2, 3)").statusmessage == "DELETE 2"
    assert (tables.rows("orders"), len(tables.calls), len(set(tables.calls))) == ([], 2, 1)


def test_an_upsert_replaces_whole_rows(tables: Written) -> None:
    """A column that the statement does not name is NULL, as PostgreSQL's EXCLUDED has it."""
    upsert = (
        'INSERT INTO shop.pairs (a, "B", n) VALUES (%s, \'x\', %s) ON CONFLICT (a, "B") DO UPDATE SET n = EXCLUDED.n'
    )
    with tables.server.connect() as connection:
        done = connection.cursor()
        done.executemany(upsert, [(1, 10), (2, 20)])
        assert connection.execute(upsert.encode(), (2, 21)).statusmessage == "INSERT 0 1"
        connection.execute(
            'INSERT INTO shop.pairs (a, "B") VALUES (1, \'x\') ON CONFLICT ("B", a) DO UPDATE SET n = excluded.n, '
            "a = excluded.a"
        )
        assert sorted(tables.rows("pairs")) == [(1, "x", None), (2, "x", 21)]
        twice = upsert.replace("(%s, 'x', %s)", "(5, 'x', 1), (5, 'x', 2)")
        with pytest.raises(psycopg.errors.UniqueViolation, match="KEY_TWICE"):
            connection.execute(twice.encode())
        connection.cursor().executemany(upsert, [(5, 1), (5, 2)])
    assert sorted(tables.rows("pairs"))[2:] == [(5, "x", 2)]


def test_upserts_that_are_too_many_for_sections_are_one(tables: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """Then none of them may have a key of another."""
    upsert = "INSERT INTO shop.orders VALUES (%s, 'x') " + SET_NAME
    monkeypatch.setattr(writes, "MIXED_SECTIONS", 3)
    with tables.server.connect() as connection:
        connection.cursor().executemany(upsert, [(n,) for n in range(9)])
        assert len(tables.rows("orders")) == 9
        with pytest.raises(psycopg.errors.UniqueViolation, match="KEY_TWICE"):
            connection.cursor().executemany(upsert, [(1,)] * 5)
        with pytest.raises(psycopg.errors.ProgramLimitExceeded):
            connection.cursor().executemany("UPDATE shop.orders SET name = 'y' WHERE id = %s", [(n,) for n in range(5)])
    assert {name for _, name in tables.rows("orders")} == {"x"}


def test_a_transaction_inserts_upserts_and_deletes(tables: Written) -> None:
    """Each statement finds what those before it left, all are one call, and a savepoint takes the later ones back."""
    with tables.server.connect() as connection:
        connection.execute("INSERT INTO shop.orders VALUES (1, 'x'), (2, 'y')")
        tables.calls.clear()
        with connection.transaction():
            assert connection.execute("DELETE FROM shop.orders WHERE id = 1").statusmessage == "DELETE 1"
            connection.execute("INSERT INTO shop.orders VALUES (1, 'again'), (3, 'z')")
            connection.execute("SAVEPOINT s")
            connection.execute("DELETE FROM shop.orders WHERE id IN (1, 2)")
            connection.execute("INSERT INTO shop.orders VALUES (2, 'lost')")
            connection.execute("ROLLBACK TO s")
            with connection.cursor().copy("COPY shop.orders FROM STDIN") as rows:
                rows.write_row((4, "copied"))
            connection.execute("INSERT INTO shop.orders VALUES (3, 'Z') " + SET_NAME)
            connection.execute("DELETE FROM shop.orders WHERE id = 4")
        assert sorted(tables.rows("orders")) == [(1, "again"), (2, "y"), (3, "Z")]
        assert len(tables.calls) == 1

        for statements, refused in (
            (("INSERT INTO shop.orders VALUES (9, 'x')", "DELETE FROM shop.orders WHERE id = 77"), "P0002"),
            (("DELETE FROM shop.orders WHERE id = 1", "INSERT INTO shop.orders VALUES (2, 'x')"), "23505"),
        ):
            connection.execute("BEGIN")
            for statement in statements:
                connection.execute(statement.encode())
            with pytest.raises(psycopg.Error) as failed:
                connection.execute("COMMIT")
            assert failed.value.sqlstate == refused
        assert sorted(tables.rows("orders")) == [(1, "again"), (2, "y"), (3, "Z")]


def test_an_error_within_parentheses_has_the_position_in_the_statement() -> None:
    for text, wrong in (
        ("SELECT 1; DELETE FROM t WHERE ((id = 1) AND (b > 2))", ">"),
        ("DELETE FROM t WHERE (a, b) IN ((1, 2), (3, c))", "c)"),
        ("DELETE FROM t WHERE (a, b) IN ((1, 2), (3))", "(3)"),
        ("DELETE FROM t WHERE (a, b,) = (1, 2)", ") ="),
        ("CREATE TABLE t (a int, b decimal(x, 2))", "x, 2"),
        ("CREATE TABLE t (a int, PRIMARY KEY (a,))", "))"),
        ("CREATE INDEX i ON v (a,)", ")"),
    ):
        statement = split(text, POSTGRES)[-1]
        with pytest.raises(WireError) as failed:
            parse(statement)
        assert statement.at + failed.value.position == text.index(wrong) + 1, text


SET = "DO UPDATE SET name = EXCLUDED.name"


@pytest.mark.parametrize(("text", "sqlstate"), [
    ("DELETE FROM shop.orders", "0A000"),
    ("DELETE FROM shop.orders WHERE name = 'x'", "0A000"),
    ("DELETE FROM shop.orders WHERE id = 1 AND name = 'x'", "0A000"),
    ("DELETE FROM shop.orders WHERE id > 1", "0A000"),
    ("DELETE FROM shop.orders WHERE id = 1 OR id = 2", "0A000"),
    ("DELETE FROM shop.orders WHERE (id = 1 OR id = 2)", "0A000"),
    ("DELETE FROM shop.orders WHERE NOT id = 1", "0A000"),
    ("DELETE FROM shop.orders WHERE id IN (SELECT 1)", "0A000"),
    ("DELETE FROM shop.orders WHERE id = 1 + 1", "0A000"),
    ("DELETE FROM shop.orders WHERE id = 1 RETURNING id", "0A000"),
    ("DELETE FROM shop.orders USING s.a WHERE id = 1", "0A000"),
    ("DELETE FROM shop.orders WHERE id = 1 AND id = 2", "0A000"),
    ("DELETE FROM shop.orders WHERE id IS NULL", "0A000"),
    ("DELETE FROM shop.plain WHERE id = 1", "0A000"),
    ("DELETE FROM shop.pairs WHERE a = 1", "0A000"),
    ("DELETE FROM shop.orders WHERE other.id = 1", "42P01"),
    ("DELETE FROM shop.orders WHERE nope = 1", "42703"),
    ("DELETE FROM shop.orders WHERE (id, name) IN ((1))", "42601"),
    ("DELETE FROM shop.orders WHERE id = DEFAULT", "42601"),
    ("DELETE FROM shop.orders WHERE " + "(" * 17 + "id = 1" + ")" * 17, "54001"),
    ("DELETE FROM shop.orders WHERE id IN ()", "0A000"),
    ("DELETE FROM shop.orders WHERE id = 'x'", "22P02"),
    ("DELETE FROM shop.nothing WHERE id = 1", "42P01"),
    ("DELETE FROM other.t WHERE id = 1", "42501"),
    ("INSERT INTO shop.orders VALUES (1, 'x') ON CONFLICT DO NOTHING", "0A000"),
    ("INSERT INTO shop.orders VALUES (1, 'x') ON CONFLICT (id) DO NOTHING", "0A000"),
    ("INSERT INTO shop.orders VALUES (1, 'x') ON CONFLICT ON CONSTRAINT orders_pkey " + SET, "0A000"),
    ("INSERT INTO shop.orders VALUES (1, 'x') ON CONFLICT (name) " + SET, "42P10"),
    ("INSERT INTO shop.plain VALUES (1, 'x') ON CONFLICT (id) " + SET, "42P10"),
    ("INSERT INTO shop.orders VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET id = EXCLUDED.id", "0A000"),
    ("INSERT INTO shop.orders VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET name = 'y'", "0A000"),
    ("INSERT INTO shop.orders VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.id", "0A000"),
    ("INSERT INTO shop.orders VALUES (1, 'x') ON CONFLICT (id) " + SET + " || 'y'", "42601"),
    ("INSERT INTO shop.orders VALUES (1, 'x') ON CONFLICT (id) " + SET + " WHERE orders.id > 1", "0A000"),
    ("INSERT INTO shop.orders VALUES (1, 'x') ON CONFLICT (id) DO UPDATE SET (name) = (EXCLUDED.name)", "0A000"),
])  # fmt: skip
def test_what_is_more_than_a_call_by_the_primary_key_is_refused(tables: Written, text: str, sqlstate: str) -> None:
    with tables.server.connect() as connection:
        with pytest.raises(psycopg.Error) as failed:
            connection.execute(text.encode())
        assert failed.value.sqlstate == sqlstate, str(failed.value)
    assert tables.calls == [] or sqlstate == "22P02"


def test_a_statement_waits_for_a_table_that_starts(tables: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table was created just now."""
    key, asked = Key(DATA_SOURCES, "ns", "shop"), list[str]()

    def known(where: Key) -> SourceState | None:
        found = source(where)
        if where != key or found is None or len(asked) > 2:
            return found
        asked.append("")
        return replace(found, pinned=None)

    source = tables.server.registry.source
    monkeypatch.setattr(tables.server.registry, "source", known)
    with tables.server.connect() as connection:
        connection.execute("INSERT INTO shop.orders VALUES (1, 'early')")
    assert (tables.rows("orders"), len(asked)) == ([(1, "early")], 3)


@pytest.mark.parametrize("names", [("orders", "plain"), ("plain", "orders"), ("orders",)])
def test_the_name_of_a_source_alone_is_that_of_one_table(
    tables: Written, monkeypatch: pytest.MonkeyPatch, names: tuple[str, ...]
) -> None:
    """It means the table of its name among several, or its only one, whatever its name is."""
    source, alone = tables.server.registry.source, "orders" if len(names) > 1 else "sole"

    def known(where: Key) -> SourceState | None:
        found = source(Key(DATA_SOURCES, "ns", "shop"))
        assert found is not None
        assert found.pinned is not None
        spec = replace(SPEC, tables=tuple(table for table in SPEC.tables if table.name in names))
        return replace(found, key=where, pinned=replace(found.pinned, source=spec))

    monkeypatch.setattr(tables.server.registry, "source", known)
    with tables.server.connect() as connection:
        connection.execute(f"INSERT INTO {alone} VALUES (1, 'a'), (2, 'b')".encode())
        connection.execute(f"INSERT INTO {alone} VALUES (2, 'c') ON CONFLICT (id) {SET}".encode())
        with connection.cursor().copy(f"COPY {alone} FROM STDIN".encode()) as copy:
            copy.write_row((3, "d"))
        connection.execute(f"DELETE FROM {alone} WHERE {alone}.id = 1".encode())
        if len(names) > 1:
            with pytest.raises(psycopg.errors.UndefinedTable, match=r"several tables; name one of them: "):
                connection.execute("INSERT INTO shop VALUES (4, 'e')")
    assert sorted(tables.rows("orders")) == [(2, "c"), (3, "d")]


@pytest.mark.parametrize("pinned", [True, False])
def test_rows_for_a_table_that_cannot_begin_are_refused_at_once(
    tables: Written, monkeypatch: pytest.MonkeyPatch, pinned: bool
) -> None:
    """Also those that waited for COMMIT while the table stopped."""
    source, monotonic, stops = tables.server.registry.source, time.monotonic(), list[str]()

    def stopped(where: Key) -> SourceState | None:
        found = source(where)
        if not stops or found is None:
            return found
        failure = IngestionFailure("CannotAdopt", "its tables have other columns")
        return replace(found, failure=failure, **({} if pinned else {"pinned": None}))

    monkeypatch.setattr(tables.server.registry, "source", stopped)
    monkeypatch.setattr(tables.server.running, "is_ingesting", lambda id: not stops)
    refused = "DataSource shop takes no rows: CannotAdopt: its tables have other columns"
    with tables.server.connect() as connection:
        connection.execute("BEGIN")
        connection.execute("INSERT INTO shop.orders VALUES (1, 'early')")
        stops.append("")
        for text in ("COMMIT", "INSERT INTO shop.orders VALUES (2, 'late')"):
            with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match=refused):
                connection.execute(text.encode())
    assert (tables.calls, tables.rows("orders")) == ([], [])
    assert time.monotonic() - monotonic < WRITE_SECONDS


@pytest.mark.parametrize(
    "changes",
    [
        {"id": GlobalId("u-new")},
        {"source": replace(SPEC, tables=(replace(SPEC.tables[0], primary_key=("name",)), *SPEC.tables[1:]))},
        {"source": replace(SPEC, tables=(replace(SPEC.tables[0], columns=SPEC.tables[1].columns[:1]),))},
    ],
)
@pytest.mark.parametrize(
    "text", ["DELETE FROM shop.orders WHERE id = 1", "INSERT INTO shop.orders VALUES (1, 'b') ON CONFLICT (id) "]
)
def test_rows_that_were_made_for_an_earlier_table_of_the_name_are_not_written(
    tables: Written, monkeypatch: pytest.MonkeyPatch, text: str, changes: dict[str, Any]
) -> None:
    """The table was dropped and made anew, with the same columns or others, between the statement and COMMIT."""
    source, known = tables.server.registry.source, dict[str, Any]()

    def changed(where: Key) -> SourceState | None:
        found = source(where)
        assert found is not None
        assert found.pinned is not None
        return replace(found, pinned=replace(found.pinned, **known))

    monkeypatch.setattr(tables.server.registry, "source", changed)
    with tables.server.connect() as connection:
        connection.execute("INSERT INTO shop.orders VALUES (1, 'a')")
        tables.calls.clear()
        connection.execute("BEGIN")
        connection.execute(f"{text}{SET if 'CONFLICT' in text else ''}".encode())
        known.update(changes)
        with pytest.raises(psycopg.errors.SerializationFailure, match=r"TABLE_CHANGED: shop\.orders was made anew"):
            connection.execute("COMMIT")
        assert (tables.calls, tables.rows("orders")) == ([], [(1, "a")])
        known.clear()
        connection.execute("DELETE FROM shop.orders WHERE id = 1")
    assert tables.rows("orders") == []


def test_each_statement_needs_its_own_right(tmp_path: Path) -> None:
    with served(tmp_path, (MAY_INSERT,)) as server, server.connect() as connection:
        for verb, text in (
            ("delete", "DELETE FROM shop.orders WHERE id = 1"),
            ("update", "UPDATE shop.orders SET name = 'x' WHERE id = 1"),
            ("update", f"INSERT INTO shop.orders VALUES (1, 'x') ON CONFLICT (id) {SET}"),
        ):
            with pytest.raises(
                psycopg.errors.InsufficientPrivilege, match=f"anne may not {verb} datasources/rows shop"
            ):
                connection.execute(text.encode())


def test_a_delete_of_nothing_after_a_copy_in_one_message_has_a_number_of_its_own(tables: Written) -> None:
    """The client is libpq, which sends both: the tag of the last statement is written at the end of the message."""
    with tables.server.connect() as connection:
        client = connection.pgconn
        client.send_query(b"COPY shop.orders FROM STDIN; DELETE FROM shop.orders WHERE id = NULL")
        copying = _result(client)
        assert copying is not None
        assert copying.status == psycopg.pq.ExecStatus.COPY_IN
        client.put_copy_data(b"1\ta\n2\tb\n")
        client.put_copy_end()
        tags = [result.command_status for result in iter(lambda: _result(client), None)]
    assert tags == [b"COPY 2", b"DELETE 0"]
    assert tables.rows("orders") == [(1, "a"), (2, "b")]


def _result(client: psycopg.pq.abc.PGconn) -> psycopg.pq.abc.PGresult | None:
    """The client's next result. libpq itself would wait for it with Python's lock held, and the server needs that."""
    while client.flush() or client.is_busy():
        select.select([client.socket], [], [], BOUND)
        client.consume_input()
    return client.get_result()
