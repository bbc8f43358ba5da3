"""Parameters: what psycopg sends in either format is bound as a literal that means the same, and never as more."""

from __future__ import annotations

import random
import struct
from datetime import date
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.adapt import PyFormat, Transformer

from tests.pgwire.frames import Frames
from tests.pgwire.served import Served
from tidemark_pgwire.errors import WireError
from tidemark_pgwire.messages.backend import BINARY, TEXT
from tidemark_pgwire.statements.binding import bind, parameter_count, parameter_types
from tidemark_pgwire.statements.lexer import POSTGRES, SPARK, significant, split
from tidemark_pgwire.values.parameters import RECEIVED, decoded, null_of

VALUES = [
    *(True, False, 0, 1, -1, 32767, -32768, 40000, -(2**31), 2**31 - 1, 2**31, -(2**63), 2**63 - 1),
    *(0.0, -0.5, 1e300, 5e-324, Decimal("0"), Decimal("-1.50"), Decimal("12345678901234567890.123"), Decimal("1E+3")),
    *(Decimal("0.0001"), Decimal("10000"), Decimal(10**37), date(2024, 2, 29), date(1, 1, 1)),
    *(
        "",
        "a",
        "O'Hara",
        "''",
        "\\",
        "\\'",
        "'; DROP TABLE t; --",
        "$1",
        "/*",
        "é😀",
        "\n",
        "a\\'b",
        'x"y',
        "%s",
        "NULL",
    ),
    UUID("12345678-1234-5678-1234-567812345678"),
]
HOSTILE = (
    "'",
    '"',
    "\\",
    ";",
    "--",
    "/*",
    "*/",
    "$1",
    "$$",
    "$a$",
    "`",
    "\n",
    "E'",
    "U&'",
    "a",
    "é",
    " ",
    "0",
    "CAST(",
)


def sent(value: Any, format: PyFormat) -> tuple[int, int, bytes | None]:
    """The oid, format and bytes that psycopg sends."""
    transformer = Transformer(None)
    (data,) = transformer.dump_sequence([value], [format])
    if isinstance(value, bytes) and format != PyFormat.BINARY:  # libpq's text depends on the process's last connection
        data = b"\\x" + value.hex().encode()
    return transformer.types[0] if transformer.types else 0, int(transformer.formats[0]), bytes(data or b"")


@pytest.mark.postgres
@pytest.mark.parametrize("value", VALUES, ids=repr)
@pytest.mark.parametrize("format", [PyFormat.TEXT, PyFormat.BINARY])
def test_a_literal_is_the_value_to_a_real_postgresql(
    postgres: psycopg.Connection[Any], value: Any, format: PyFormat
) -> None:
    parameter = decoded(*sent(value, format))
    text = bind("SELECT $1", POSTGRES, [parameter])
    found = postgres.execute(text.encode()).fetchone()
    expected = postgres.execute("SELECT %s", [value]).fetchone()
    assert expected is not None
    assert found in (expected, (str(value),)), text


@pytest.mark.postgres
def test_no_text_leaves_its_literal(postgres: psycopg.Connection[Any]) -> None:
    """A real PostgreSQL gives back each text, whatever it holds; Spark's literal is read by Spark's rules."""
    choice = random.Random(20261126)
    for _ in range(2000):
        value = "".join(choice.choice(HOSTILE) for _ in range(choice.randrange(1, 8)))
        for oid in (0, 25):
            parameter = decoded(oid, TEXT, value.encode())
            text = bind("SELECT $1 AS a /* $2 */ -- $3", POSTGRES, [parameter])
            assert len(split(text, POSTGRES)) == 1
            assert postgres.execute(text.encode()).fetchone() == (value,), text
        spark = bind("SELECT $1 AS a", SPARK, [parameter])
        assert [token.kind for token in significant(spark, SPARK)] == ["word", "text", "word", "word"], spark


@pytest.mark.parametrize(
    ("oid", "format", "data"),
    [
        (23, TEXT, b"1); DROP TABLE t; --"),
        (23, TEXT, b"2147483648"),
        (21, TEXT, b"1_0"),
        (20, TEXT, "١".encode()),
        (701, TEXT, b"1e"),
        (701, TEXT, b"0x1p3"),
        (1700, TEXT, b"NaN"),
        (1700, TEXT, b"1_0"),
        (1700, TEXT, b"1e99"),
        (1082, TEXT, b"2024-02-30"),
        (1082, TEXT, b"today"),
        (16, TEXT, b"maybe"),
        (25, TEXT, b"\xff"),
        (25, TEXT, b"a\0b"),
        (0, BINARY, b"a\0b"),
        (23, BINARY, b"\0"),
        (20, BINARY, b"\0" * 9),
        (1700, BINARY, struct.pack("!HhHHH", 1, 0, 0, 0, 10_000)),
        (1700, BINARY, struct.pack("!HhHHH", 2, 0, 0, 0, 1)),
        (1700, BINARY, struct.pack("!HhHH", 0, 0, 0xC000, 0)),
        (1700, BINARY, struct.pack("!HhHHH", 1, 30_000, 0, 0, 1)),
        (1082, BINARY, struct.pack("!i", 2**31 - 1)),
        (1114, BINARY, struct.pack("!q", 2**63 - 1)),
        (2950, BINARY, b"\0" * 15),
        (17, TEXT, b"\\xzz"),
        (600, TEXT, b"(1,2)"),
    ],
)
def test_what_is_no_value_of_its_type_is_refused(oid: int, format: int, data: bytes) -> None:
    with pytest.raises(WireError):
        decoded(oid, format, data)


@pytest.mark.parametrize(
    ("sql", "bound"),
    [
        ("SELECT '$1', $1", "SELECT '$1',  CAST('7' AS int) "),
        ('SELECT "$1" + $1', "SELECT \"$1\" +  CAST('7' AS int) "),
        ("SELECT $a$ $1 $a$ || $1 -- $1", "SELECT $a$ $1 $a$ ||  CAST('7' AS int)  -- $1"),
        ("SELECT E'\\'$1' || $1", "SELECT E'\\'$1' ||  CAST('7' AS int) "),
        ("SELECT /* /* $1 */ $1 */ $1", "SELECT /* /* $1 */ $1 */  CAST('7' AS int) "),
        ("SELECT a$1, x.$1", "SELECT a$1, x. CAST('7' AS int) "),
        ("SELECT 1 LIMIT $1 OFFSET $1", "SELECT 1 LIMIT  7  OFFSET  7 "),
        ("SELECT 1 ORDER BY $1", "SELECT 1 ORDER BY  CAST('7' AS int) "),
    ],
)
def test_parameters_are_found_where_postgresql_finds_them(sql: str, bound: str) -> None:
    assert bind(sql, POSTGRES, [decoded(23, TEXT, b"7")]) == bound
    assert parameter_count(significant(sql, POSTGRES)) == 1


def test_a_long_value_in_many_places_is_refused_before_it_is_written_out() -> None:
    """A message of a mebibyte would become a statement of a hundred gibibytes."""
    value = decoded(25, TEXT, b"a" * (1 << 20))
    assert len(bind("SELECT $1, $1", POSTGRES, [value])) > 2 << 20
    with pytest.raises(WireError, match="more than 8388608 characters") as refused:
        bind(f"SELECT {', '.join(['$1'] * 100_000)}", POSTGRES, [value])
    assert refused.value.sqlstate == "54000"


@pytest.mark.parametrize("sql", ["SELECT 'a'\n$1", "SELECT $1 'a'", "SELECT $1 $1", "SELECT 'a' /* */ $1"])
def test_a_literal_never_joins_a_text(sql: str) -> None:
    with pytest.raises(WireError, match="syntax error"):
        bind(sql, POSTGRES, [decoded(0, TEXT, b"b")])


@pytest.mark.parametrize("sql", ["SELECT $0", "SELECT $2", "SELECT $99999", "SELECT $" + "1" * 5000, "SELECT $1, $2"])
def test_each_parameter_has_a_value(sql: str) -> None:
    with pytest.raises(WireError, match="there is no parameter"):
        bind(sql, POSTGRES, [decoded(23, TEXT, b"7")])


@pytest.mark.parametrize("sql", ["SELECT 'a", 'SELECT "a', "SELECT /* a", "SELECT $$a$", "SELECT E'a\\'"])
def test_a_text_that_does_not_end_is_refused(sql: str) -> None:
    with pytest.raises(WireError, match="unterminated"):
        split(sql, POSTGRES)


@pytest.mark.parametrize("oid", sorted(RECEIVED | {0}))
def test_null_has_the_type_of_its_parameter(oid: int) -> None:
    """Statements are described by NULLs."""
    text = bind("SELECT $1", SPARK, [decoded(oid, TEXT, None)])
    assert text == "SELECT  NULL "
    assert "NULL" in bind("SELECT $1", POSTGRES, [null_of(oid)])


def test_parameters_whose_place_tells_their_type() -> None:
    found = parameter_types(
        significant("SELECT $2::bigint, a::int = $1, $3::numeric(3, 1), $1::int LIMIT $4", POSTGRES)
    )
    assert found == {2: 20, 3: 1700, 4: 20}


def test_a_number_is_sent_for_a_parameter_that_is_cast(server: Served) -> None:
    """The client is asyncpg, say, which sends a number where the server says that it wants one."""
    with Frames(server) as frames:
        frames.send(b"P", b"s\0SELECT a FROM s.a WHERE a > $1::int AND b > $2\0\0\0")
        frames.send(b"D", b"Ss\0")
        frames.send(b"B", b"\0s\0\0\1\0\1\0\2\0\0\0\4\0\0\0\7\xff\xff\xff\xff\0\0")
        frames.send(b"E", b"\0\0\0\0\0")
        frames.send(b"S")
        told = dict(frames.until_ready())
    assert b"E" not in told
    assert told[b"t"] == struct.pack("!HII", 2, 23, 25)


def test_a_limit_is_digits(server: Served) -> None:
    with server.connect() as connection:
        connection.execute("SELECT a FROM s.a LIMIT %s", [5])
        with pytest.raises(psycopg.Error):
            connection.execute("SELECT a FROM s.a LIMIT %s", ["5; SELECT 1"])
        connection.execute("SELECT a FROM s.a LIMIT %s", [None])
    assert [sql for sql, _ in server.answers.asked] == [
        "SELECT a FROM s.a LIMIT  5 ",
        f"SELECT a FROM s.a LIMIT  {2**31 - 1} ",
    ]


def test_a_statement_is_described_before_its_values_are_known(server: Served) -> None:
    """Clients such as asyncpg and JDBC do so: the types of parameters, then the columns, with nothing read."""
    server.answers.read.clear()
    with Frames(server) as frames:
        frames.send(b"P", b"s\0SELECT a FROM s.a WHERE a = $1 AND b = $2 LIMIT $3\0\0\x01\0\0\0\x17")
        frames.send(b"D", b"Ss\0")
        frames.send(b"S")
        described = dict(frames.until_ready())
        assert described[b"t"] == struct.pack("!HIII", 3, 23, 25, 20)
        assert described[b"T"] == struct.pack("!H", 1) + b"a\0" + struct.pack("!IhIhih", 0, 0, 20, 8, -1, 0)
        assert server.answers.read == []
        frames.send(b"B", b"\0s\0\0\0\0\x03\0\0\0\x011\0\0\0\x01x\0\0\0\x017\0\x01\0\x01")
        frames.send(b"E", b"\0\0\0\0\0")
        frames.send(b"S")
        assert [body[-8:] for kind, body in frames.until_ready() if kind == b"D"][2] == struct.pack("!q", 3)
    assert server.answers.asked[-1][0].endswith("a =  CAST('1' AS int)  AND b =  'x'  LIMIT  7 ")
