"""Lists as parameters in PostgreSQL's dialect, `= ANY (%s)`: as psycopg, asyncpg and pgjdbc send them."""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.adapt import PyFormat

from tests.pgwire.frames import Frames
from tests.pgwire.served import Served
from tests.pgwire.sessions.test_parameters import sent
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.messages.backend import BINARY, TEXT
from tidemark_pgwire.statements.binding import bind, parameter_types
from tidemark_pgwire.statements.lexer import POSTGRES, SPARK, significant
from tidemark_pgwire.values.array_parameters import ELEMENTS, KINDS
from tidemark_pgwire.values.parameters import decoded, null_of
from tidemark_planner.dialects.foreign_text import as_spark_text
from tidemark_planner.errors import Refusal
from tidemark_protocol.types import Column, SqlType

COLUMNS = {
    "k": "bigint",
    "s": "string",
    "d": "date",
    "m": "decimal(15,2)",
    "f": "double",
    "b": "boolean",
    "ts": "timestamp_ntz",
    "tz": "timestamp",
}
AT = datetime(2024, 1, 31, 10, 0, 0, 123456)
ONE = UUID("12345678-1234-5678-1234-567812345678")
LISTS: list[tuple[str, list[Any], str]] = [
    ("k", [1, 2], "(1, 2)"),
    ("k", [1, None], "(1, NULL)"),
    ("k", [100_000, -1], "(100000, -1)"),
    ("k", [2**63 - 1, -(2**63)], "(9223372036854775807, -9223372036854775808)"),
    ("s", ["a", "NULL", "", 'a"b\\c,{}', "O'Hara", None], r"""('a', 'NULL', '', 'a"b\\c,{}', 'O\'Hara', NULL)"""),
    ("s", [ONE, None], f"('{ONE}', NULL)"),
    ("d", [date(2024, 2, 29), date(1, 1, 1)], "(CAST('2024-02-29' AS DATE), CAST('0001-01-01' AS DATE))"),
    ("m", [Decimal("1.50"), Decimal("-3")], "(1.50, -3.0)"),
    ("f", [0.1, float("inf")], "(CAST('0.1' AS DOUBLE), CAST('Infinity' AS DOUBLE))"),
    ("f", [float("nan"), 1e300], "(CAST('NaN' AS DOUBLE), CAST('1e+300' AS DOUBLE))"),
    ("b", [True, None], "(TRUE, NULL)"),
    ("ts", [AT, None], "(CAST('2024-01-31 10:00:00.123456' AS TIMESTAMP_NTZ), NULL)"),
    ("tz", [AT.replace(tzinfo=UTC)], "(CAST('2024-01-31 10:00:00.123456' AS TIMESTAMP))"),
]
NUMBERS = struct.pack("!iiIii", 1, 0, 23, 2, 1) + b"\0\0\0\4\0\0\0\7" + b"\0\0\0\4\0\0\0\x08"


def spark_text(sql: str, dialect: str = "postgres") -> str:
    columns = tuple(Column(name, SqlType.parse(of), True) for name, of in COLUMNS.items())
    return as_spark_text(sql, dialect, lambda parts, line, column: columns).text


@pytest.mark.parametrize("format", [PyFormat.AUTO, PyFormat.TEXT, PyFormat.BINARY])
@pytest.mark.parametrize(("column", "values", "spoken"), LISTS, ids=repr)
def test_a_list_of_psycopg_is_a_list_of_spark(column: str, values: list[Any], spoken: str, format: PyFormat) -> None:
    bound = bind(f"SELECT 1 AS x FROM t WHERE {column} = ANY ($1)", POSTGRES, [decoded(*sent(values, format))])

    found = spark_text(bound).partition(f" {column} IN ")[2]
    assert found == spoken


@pytest.mark.parametrize("oid", [1007, 1009, 1016, 1182, 1231, 2951])
def test_an_empty_list_holds_nothing(oid: int) -> None:
    column = {"int[]": "k", "bigint[]": "k", "text[]": "s", "date[]": "d", "numeric[]": "m"}[KINDS[oid]]
    for format, data in ((TEXT, b"{}"), (BINARY, struct.pack("!iiI", 0, 0, ELEMENTS[oid]))):
        for operator, nothing in (("= ANY", "IS NULL AND FALSE"), ("<> ALL", "IS NULL OR TRUE")):
            bound = bind(f"SELECT 1 AS x FROM t WHERE {column} {operator} ($1)", POSTGRES, [decoded(oid, format, data)])
            assert spark_text(bound).endswith(f"({column} {nothing})")


@pytest.mark.parametrize("oid", sorted(ELEMENTS))
def test_null_is_an_array_of_its_type(oid: int) -> None:
    """Statements are described by NULLs: of an array of another type they are refused before values are sent."""
    column = {"text[]": "s", "date[]": "d", "timestamp[]": "ts", "timestamptz[]": "tz", "boolean[]": "b"}
    name = column.get(KINDS[oid], "k")
    assert spark_text(bind(f"SELECT {name} = ANY ($1) AS x FROM t", POSTGRES, [null_of(oid)]))
    other = "k" if name == "s" else "s"
    with pytest.raises(Refusal, match="beside an array of"):
        spark_text(bind(f"SELECT {other} = ANY ($1) AS x FROM t", POSTGRES, [null_of(oid)]))
    with pytest.raises(WireError):
        bind("SELECT $1", SPARK, [decoded(oid, TEXT, b"{}")])


@pytest.mark.parametrize(("oid", "format", "data"), [
    (2951, TEXT, b"{a}"), (2951, TEXT, b"12345678-1234-5678-1234-567812345678"), (2951, TEXT, b"{,}"),
    (1007, BINARY, NUMBERS[:-1]), (1007, BINARY, NUMBERS + b"\0"), (1016, BINARY, NUMBERS),
    (1007, BINARY, b""), (1007, BINARY, struct.pack("!iiIiiii", 2, 0, 23, 1, 1, 1, 1)),
    (1007, BINARY, struct.pack("!iiIii", 1, 0, 23, 10_001, 1) + b"\xff" * 40_004),
    (1007, BINARY, struct.pack("!iiIiii", 1, 0, 23, 1, 1, 3) + b"abc"), (1009, TEXT, b"{\xff}"),
    (1182, BINARY, struct.pack("!iiIiiii", 1, 0, 1082, 1, 1, 4, 2**31 - 1)),
    (1185, BINARY, struct.pack("!iiIiiiq", 1, 0, 1184, 1, 1, 8, -(2**63))),
    (1231, BINARY, struct.pack("!iiIiiiHhHH", 1, 0, 1700, 1, 1, 8, 0, 0, 0xC000, 0)), (1017, TEXT, b"{}"),
])  # fmt: skip
def test_what_is_no_array_is_refused(oid: int, format: int, data: bytes) -> None:
    with pytest.raises(WireError):
        decoded(oid, format, data)


@pytest.mark.parametrize("hostile", ["{1}') OR (k = ANY ('{2}", "{1}'; --", "{\\}", '{"}', "{'}", "'{1}'", "{1}\n'"])
def test_no_array_leaves_its_literal(hostile: str) -> None:
    for oid in (1007, 1009, 1182):
        text = bind("SELECT k = ANY ($1) FROM t", POSTGRES, [decoded(oid, TEXT, hostile.encode())])
        kinds = [token.kind for token in significant(text, POSTGRES)]
        assert kinds.count("text") == 1
        assert kinds == [
            token.kind for token in significant(f"SELECT k = ANY (CAST('' AS {KINDS[oid]})) FROM t", POSTGRES)
        ]


def test_casts_tell_the_types_of_arrays() -> None:
    sql = (
        "SELECT $1::int[], $2::bigint[], $3::text[], $4::varchar[], $5::uuid[], $6::date[], $7::numeric[], "
        "$8::timestamp with time zone[], $9::double precision[], $10::timestamp[], $11::text, $12::real[]"
    )
    assert parameter_types(significant(sql, POSTGRES)) == dict(
        enumerate((1007, 1016, 1009, 1015, 2951, 1182, 1231, 1185, 1022, 1115), 1)
    )


@pytest.mark.parametrize("prepare", [False, True])
@pytest.mark.parametrize("placeholder", ["%s", "%b", "%t"])
def test_psycopg_sends_lists(server: Served, prepare: bool, placeholder: str) -> None:
    with server.connect() as connection:
        for values in ([1, 2], ["a", None], [ONE], [date(2024, 2, 29)], [Decimal("1.5")]):
            sql = f"SELECT a FROM s.a WHERE b = ANY ({placeholder})"
            connection.execute(sql.encode(), [values], prepare=prepare)
            column = {int: "k", str: "s", UUID: "s", date: "d", Decimal: "m"}[type(values[0])]
            text, dialect = server.answers.asked[-1]
            assert f"{column} IN (" in spark_text(text.replace("b =", f"{column} ="), dialect)


def test_a_list_in_binary_is_sent_for_a_parameter_that_is_cast(server: Served) -> None:
    """The client is asyncpg, say, which asks for the type first."""
    with Frames(server) as frames:
        frames.send(b"P", b"s\0SELECT a FROM s.a WHERE k = ANY ($1::int[])\0\0\0")
        frames.send(b"D", b"Ss\0")
        frames.send(b"B", b"\0s\0\0\1\0\1\0\1" + struct.pack("!i", len(NUMBERS)) + NUMBERS + b"\0\0")
        frames.send(b"E", b"\0\0\0\0\0")
        frames.send(b"S")
        told = dict(frames.until_ready())
    assert b"E" not in told
    assert told[b"t"] == struct.pack("!HI", 1, 1007)
    assert spark_text(server.answers.asked[-1][0]).endswith("k IN (7, 8)")


def test_a_prepared_statement_has_arrays(server: Served) -> None:
    with server.connect() as connection:
        connection.execute("PREPARE p (bigint[]) AS SELECT a FROM s.a WHERE k = ANY ($1)")
        connection.execute("EXECUTE p ('{1,2}')")
        assert spark_text(server.answers.asked[-1][0]).endswith("k IN (1, 2)")
        with pytest.raises(psycopg.errors.FeatureNotSupported):
            connection.execute("PREPARE q (bytea[]) AS SELECT a FROM s.a WHERE k = ANY ($1)")


@pytest.mark.postgres
@pytest.mark.parametrize("format", [PyFormat.TEXT, PyFormat.BINARY])
@pytest.mark.parametrize(("column", "values", "spoken"), LISTS, ids=repr)
def test_the_literal_of_a_list_is_the_list_to_a_real_postgresql(
    postgres: psycopg.Connection[Any], column: str, values: list[Any], spoken: str, format: PyFormat
) -> None:
    text = bind("SELECT $1", POSTGRES, [decoded(*sent(values, format))])
    found = postgres.execute(text.encode()).fetchone()
    expected = postgres.execute("SELECT %s", [values]).fetchone()
    plain = [str(each) if isinstance(each, UUID) else each for each in values]
    assert repr(found) in (repr(expected), repr((plain,))), text
