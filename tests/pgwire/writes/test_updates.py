"""UPDATE of tables of a real ingester: columns are set in the rows of a whole primary key, which keep their others."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest

from tests.pgwire.writes.test_deletes import MAY_WRITE
from tests.pgwire.writes.written import Written, written
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.session import writes
from tidemark_pgwire.statements.commands import parse
from tidemark_pgwire.statements.lexer import POSTGRES, split

ROWS = [(1, "x", 10), (1, "y", 20), (2, "x", 30)]


@pytest.fixture(scope="module")
def module_tables(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Written]:
    with written(tmp_path_factory.mktemp("updates"), MAY_WRITE) as made:
        yield made


@pytest.fixture
def tables(module_tables: Written) -> Written:
    """`pairs` has ROWS, `orders` none."""
    with module_tables.server.connect() as connection:
        there = [(row[0], row[1]) for row in module_tables.rows("pairs")]
        connection.cursor().executemany('DELETE FROM shop.pairs WHERE (a, "B") = (%s, %s)', there)
        connection.cursor().executemany("INSERT INTO shop.pairs VALUES (%s, %s, %s)", ROWS)
        gone = [(row[0],) for row in module_tables.rows("orders")]
        connection.cursor().executemany("DELETE FROM shop.orders WHERE id = %s", gone)
    module_tables.calls.clear()
    return module_tables


@pytest.mark.parametrize("is_prepared", [False, True])
def test_rows_are_found_by_their_key_and_keep_what_is_not_set(tables: Written, is_prepared: bool) -> None:
    """The tag has the number of rows that were there, also where nothing changes."""
    with tables.server.connect() as connection:
        for count, text, values in (
            (1, """SET n = 11 WHERE a = 1 AND "B" = 'x'""", ()),
            (2, """AS p SET n = %s WHERE p."B" IN ('x') AND (a IN (%s, 2, NULL))""", (12, 1)),
            (1, """SET n = NULL WHERE (a, "B") IN ((1, 'y'), (9, 'y'))""", ()),
            (1, """SET n = 12::bigint WHERE (a, "B") = (2, %s)""", ("x",)),
            (0, """p SET n = 1 WHERE a = 9 AND "B" = 'x'""", ()),
            (0, """SET n = 1 WHERE a = %s AND "B" = 'x'""", (None,)),
        ):
            done = connection.execute(f"UPDATE shop.pairs {text}".encode(), values or None, prepare=is_prepared)
            assert (done.statusmessage, done.rowcount) == (f"UPDATE {count}", count), text
        assert sorted(tables.rows("pairs")) == [(1, "x", 12), (1, "y", None), (2, "x", 12)]


def test_a_key_is_updated_several_times_in_a_transaction(tables: Written) -> None:
    """Object mappers do so: one call, whose last value stays; other statements find what is set, and a savepoint takes
    later ones back."""
    with tables.server.connect() as connection:
        with connection.transaction():
            connection.execute("INSERT INTO shop.orders VALUES (1, 'a'), (2, 'b')")
            connection.cursor().executemany(
                "UPDATE shop.orders SET name = %s WHERE id = %s", [("first", 1), ("second", 1), ("third", 2)]
            )
            connection.execute("SAVEPOINT s")
            connection.execute("UPDATE shop.orders SET name = 'lost' WHERE id IN (1, 2)")
            connection.execute("ROLLBACK TO s")
            connection.execute("DELETE FROM shop.orders WHERE id = 2")
            connection.execute("INSERT INTO shop.orders VALUES (2, 'new')")
            connection.execute("UPDATE shop.orders SET name = 'newer' WHERE id = 2")
        assert sorted(tables.rows("orders")) == [(1, "second"), (2, "newer")]
        assert len(tables.calls) == 1

        connection.execute("BEGIN")
        assert connection.execute("UPDATE shop.orders SET name = 'z' WHERE id IN (1, 9)").statusmessage == "UPDATE 2"
        with pytest.raises(psycopg.errors.NoDataFound, match="2 rows are to be deleted or updated, and 1 of them are"):
            connection.execute("COMMIT")
        assert sorted(tables.rows("orders")) == [(1, "second"), (2, "newer")]


def test_an_upsert_that_sets_some_columns_keeps_the_others_of_rows_that_are_there(tables: Written) -> None:
    """A row that is not there is inserted as it is given, with all that the statement does not set."""
    upsert = "INSERT INTO shop.wide VALUES (%s, %s, %s) ON CONFLICT (id) DO UPDATE SET"
    with tables.server.connect() as connection:
        connection.execute("DELETE FROM shop.wide WHERE id IN (1, 2)")
        connection.execute("INSERT INTO shop.wide VALUES (1, 'a', 10)")
        done = connection.execute(f"{upsert} y = EXCLUDED.y".encode(), (1, "lost", 11))
        assert done.statusmessage == "INSERT 0 1"
        connection.execute(f"{upsert} y = EXCLUDED.y".encode(), (2, "b", 20))
        assert sorted(tables.rows("wide")) == [(1, "a", 11), (2, "b", 20)]
        connection.execute(f"{upsert} X = EXCLUDED.x, id = EXCLUDED.id".encode(), (1, None, 99))
        connection.execute(f"{upsert} y = EXCLUDED.y, x = EXCLUDED.x".encode(), (2, "c", 21))
        assert sorted(tables.rows("wide")) == [(1, None, 11), (2, "c", 21)]
        with pytest.raises(psycopg.errors.FeatureNotSupported, match="beside the primary key, and this sets none"):
            connection.execute(f"{upsert} id = EXCLUDED.id".encode(), (1, "z", 1))


def test_statements_that_set_different_columns_are_one_call(tables: Written) -> None:
    with tables.server.connect() as connection:
        connection.execute("DELETE FROM shop.wide WHERE id IN (1, 2)")
        connection.execute("INSERT INTO shop.wide VALUES (1, 'a', 1), (2, 'b', 2)")
        tables.calls.clear()
        with connection.transaction():
            connection.execute("UPDATE shop.wide SET x = 'A' WHERE id = 1")
            connection.execute("UPDATE shop.wide SET y = 11 WHERE id IN (1, 2)")
            connection.execute("UPDATE shop.wide SET y = NULL, x = 'B' WHERE id = 2")
            connection.execute("UPDATE shop.wide SET y = 12 WHERE id = 1")
    assert (sorted(tables.rows("wide")), len(tables.calls)) == ([(1, "A", 12), (2, "B", None)], 1)


def test_statements_that_a_savepoint_takes_back_count_no_more(tables: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    """Upserts alone may be more than the sections of a call; with an UPDATE among them they may not."""
    monkeypatch.setattr(writes, "MIXED_SECTIONS", 3)
    upsert = "INSERT INTO shop.orders VALUES (%s, 'x') ON CONFLICT (id) DO UPDATE SET name = EXCLUDED.name"
    with tables.server.connect() as connection, connection.transaction():
        connection.execute(upsert.encode(), [0])
        connection.execute("SAVEPOINT s")
        connection.execute("UPDATE shop.orders SET name = 'y' WHERE id = 0")
        connection.execute("ROLLBACK TO s")
        for number in range(1, 6):
            connection.execute(upsert.encode(), [number])
    assert sorted(tables.rows("orders")) == [(number, "x") for number in range(6)]


def test_a_long_value_is_not_repeated_for_many_keys(tables: Written) -> None:
    """A message of 100 KB would become hundreds of megabytes of rows."""
    keys = ", ".join(map(str, range(5000)))
    with tables.server.connect() as connection:
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="UPDATE has 500018890 characters of values"):
            connection.execute(f"UPDATE shop.orders SET name = '{'x' * 100_000}' WHERE id IN ({keys})".encode())
        with pytest.raises(psycopg.errors.ProgramLimitExceeded, match="at most 4 MiB of rows"):
            connection.execute(f"UPDATE shop.orders SET name = '{'x' * 1000}' WHERE id IN ({keys})".encode())
        assert connection.execute("UPDATE shop.orders SET name = 'x' WHERE id = 1").statusmessage == "UPDATE 0"


@pytest.mark.parametrize(("text", "sqlstate"), [
    ("UPDATE shop.orders SET name = 'x'", "0A000"),
    ("UPDATE shop.orders SET name = 'x' WHERE name = 'y'", "0A000"),
    ("UPDATE shop.orders SET name = name || 'x' WHERE id = 1", "0A000"),
    ("UPDATE shop.orders SET name = upper('x') WHERE id = 1", "0A000"),
    ("UPDATE shop.orders SET name = (SELECT 'x') WHERE id = 1", "0A000"),
    ("UPDATE shop.orders SET (name) = ('x') WHERE id = 1", "0A000"),
    ("UPDATE shop.orders SET id = 2 WHERE id = 1", "0A000"),
    ("UPDATE shop.orders SET name = 'x' FROM s.a WHERE id = 1", "0A000"),
    ("UPDATE shop.orders SET name = 'x' WHERE id = 1 RETURNING id", "0A000"),
    ("UPDATE shop.orders SET name = 'x' WHERE id IN (SELECT 1)", "0A000"),
    ("UPDATE shop.orders SET name = 'x' WHERE id = 1 OR id = 2", "0A000"),
    ("UPDATE shop.pairs SET n = 1 WHERE a = 1", "0A000"),
    ("UPDATE shop.plain SET name = 'x' WHERE id = 1", "0A000"),
    ("UPDATE shop.pairs SET n = 1 WHERE a IN (1, '01') AND \"B\" = 'x'", "23505"),
    ("UPDATE shop.orders SET name = 'x', NAME = 'y' WHERE id = 1", "42701"),
    ("UPDATE shop.orders SET nope = 'x' WHERE id = 1", "42703"),
    ("UPDATE shop.orders SET name = 1 WHERE id = 1", "42804"),
    ("UPDATE shop.pairs SET n = 'x' WHERE a = 1 AND \"B\" = 'x'", "22P02"),
    ("UPDATE shop.orders SET name = 'x' WHERE other.id = 1", "42P01"),
    ("UPDATE shop.nothing SET name = 'x' WHERE id = 1", "42P01"),
    ("UPDATE shop.orders name = 'x' WHERE id = 1", "42601"),
])  # fmt: skip
def test_what_is_more_than_a_call_by_the_primary_key_is_refused(tables: Written, text: str, sqlstate: str) -> None:
    with tables.server.connect() as connection:
        with pytest.raises(psycopg.Error) as failed:
            connection.execute(text.encode())
        assert failed.value.sqlstate == sqlstate, str(failed.value)
    assert tables.calls == [] or sqlstate in ("22P02", "23505")
    assert sorted(tables.rows("pairs")) == ROWS


def test_an_error_has_its_position() -> None:
    for text, wrong in (
        ("UPDATE t SET a = b WHERE id = 1", "b WHERE"),
        ("UPDATE t SET (a, b) = (1, 2) WHERE id = 1", "(a, b)"),
        ("UPDATE t SET a = 1 WHERE id > 1", ">"),
    ):
        (statement,) = split(text, POSTGRES)
        with pytest.raises(WireError) as failed:
            parse(statement)
        assert failed.value.position == text.index(wrong) + 1, text
