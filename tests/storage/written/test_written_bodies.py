"""The bodies of calls: each format gives the same rows; what is malformed is refused, whatever it is."""

from __future__ import annotations

import io
import json
import math
import random
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.storage.written.written_tables import KEYED
from tests.waiting import BOUND
from tidemark_protocol.plan.ingestion import Option, WrittenSource, WrittenTable
from tidemark_protocol.types import Column, SqlType
from tidemark_replica.storage.written import decode as decoding
from tidemark_replica.storage.written import receive
from tidemark_replica.storage.written.receive import Receiver, WriteHeader
from tidemark_replica.storage.written.refusal import WriteNotPossible, WriteRefused
from tidemark_replica.storage.written.spool import WriteSpool
from tidemark_replica.values.arrow_types import arrow_schema

TYPES = {
    "b": "boolean",
    "t": "tinyint",
    "n": "bigint",
    "f": "float",
    "d": "double",
    "p": "decimal(9,2)",
    "s": "string",
    "y": "date",
    "at": "timestamp",
}
TABLE = WrittenTable("t", tuple(Column(name, SqlType.parse(type)) for name, type in TYPES.items()))
NOON = datetime(2026, 1, 31, 12, 0, 0, 500_000, tzinfo=UTC)
ROW = {
    "b": True,
    "t": -128,
    "n": 2**63 - 1,
    "f": 0.5,
    "d": -1e300,
    "p": Decimal("-1234567.89"),
    "s": 'a,"\n',
    "y": date(2026, 1, 31),
    "at": NOON,
}
NOTHING = dict.fromkeys(TYPES)


def decoded(format: str, body: bytes, table: WrittenTable = TABLE) -> list[dict[str, Any]]:
    return [row for batch in decoding.decode(format, io.BytesIO(body), table, frozenset()) for row in batch.to_pylist()]


def refusal(format: str, body: bytes, table: WrittenTable = TABLE) -> str:
    with pytest.raises(WriteRefused) as refused:
        decoded(format, body, table)
    return str(refused.value)


CSV = b'b,t,n,f,d,p,s,y,at\nTrue,-128,+9223372036854775807,0.5,-1e300,-1234567.89,"a,""\n",2026-01-31,%s\n,,,,,,,,\n'
OBJECT = b"""{"b": true, "t": -128, "n": 9223372036854775807, "f": 0.5, "d": -1e300, "p": -1234567.89,
    "s": "a,\\"\\n", "y": "2026-01-31", "at": "%s"}"""


@pytest.mark.parametrize(
    "at", [b"2026-01-31T12:00:00.5Z", b"2026-01-31 12:00:00.500000", b"2026-01-31T14:30:00.5+02:30"]
)
def test_formats_agree(at: bytes) -> None:
    parquet = io.BytesIO()
    schema = arrow_schema(TABLE.columns)
    pq.write_table(pa.Table.from_pylist([ROW, NOTHING], schema=schema), parquet)
    line = OBJECT.replace(b"\n", b" ") % at
    assert decoded("csv", CSV % at) == [ROW, NOTHING]
    assert decoded("jsonl", line + b"\n\n{}\n") == [ROW, NOTHING]
    assert decoded("json", b"[%s, {}]" % (OBJECT % at)) == [ROW, NOTHING]
    assert decoded("parquet", parquet.getvalue()) == [ROW, NOTHING]


def test_an_empty_text_is_none_and_a_quoted_one_is_text() -> None:
    assert decoded("csv", b's,n\n"",1\n,2\n') == [NOTHING | {"s": "", "n": 1}, NOTHING | {"n": 2}]


@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
@pytest.mark.parametrize("header", [b"s", b'"s"', b"\xef\xbb\xbfs"])
def test_an_empty_line_is_a_row_where_csv_has_one_column(header: bytes, end: bytes) -> None:
    body = end.join([header, b"", b"a", b"", b'""', b""])
    assert [row["s"] for row in decoded("csv", body)] == [None, "a", None, ""]
    assert decoded("csv", end.join([b"s,n", b"", b"a,1", b""])) == [NOTHING | {"s": "a", "n": 1}]


def test_numbers_that_json_cannot_write_are_texts() -> None:
    rows = decoded("jsonl", b'{"d": "NaN", "f": "-Infinity"}\n') + decoded("csv", b"d,f\nnan,-inf\n")
    assert all(math.isnan(row["d"]) and row["f"] == -math.inf for row in rows)


@pytest.mark.parametrize(
    ("type", "texts", "values"),
    [
        ("boolean", ["1", "yes"], [1, "true"]),
        ("tinyint", ["128", "1.0", " 1", "1e2", "0x1"], [128, True, "1", Decimal("1.0")]),
        ("bigint", ["9223372036854775808", "1_000"], [2**63, 1.0]),
        ("float", ["1e39", "x"], [1e39, "1.0"]),
        ("double", ["1e999", "1.5.1", ""], [10**400, "infinit"]),
        (
            "decimal(9,2)",
            ["1.234", "12345678.9", "1e9", "1e-99"],
            [Decimal("0.001"), 10**7, "NaN", 1e300, "1e-999999999"],
        ),
        ("string", [], [1, ["a"], {"a": 1}, "\ud800"]),
        ("date", ["2026-02-30", "20260131", "31.1.2026", "0000-01-01"], [20260131, "2026-1-1", "2026-01-31T00:00"]),
        ("timestamp", ["2026-01-31T25:00", "2026-01-31T12:00:00.1234567", "12:00"], [0, "2026-13-01", "x"]),
        ("timestamp", ["0000-01-01", "0001-01-01T00:00+00:01"], ["0000-12-31T23:59", "9999-12-31T23:59:59-00:01"]),
    ],
)
def test_what_is_not_of_the_type_is_refused_with_its_row(type: str, texts: list[str], values: list[Any]) -> None:
    table = WrittenTable("t", (Column("c", SqlType.parse(type)), Column("x", SqlType("string"))))
    for text in filter(None, texts):
        assert "MALFORMED: row 2: " in refusal("csv", f"c,x\n,\n{text},\n".encode(), table), text
    for value in values:
        line = json.dumps({"c": value}, default=float)
        assert "MALFORMED: row 2: " in refusal("jsonl", f"{{}}\n{line}\n".encode(), table), value


@pytest.mark.parametrize(
    ("format", "body", "code"),
    [
        ("csv", b"", "MALFORMED"),
        ("csv", b"\nn\n1\n", "MALFORMED"),
        ("csv", b"\r\nn\r\n1\r\n", "MALFORMED"),
        ("csv", b"%s,n\n" % (b"s" * 200_000), "MALFORMED"),
        ("csv", b"n,n\n1,2\n", "MALFORMED"),
        ("csv", b"n\n1,2\n", "MALFORMED"),
        ("csv", b"n,q\n1,2\n", "UNKNOWN_FIELD"),
        ("csv", b"s\n\xff\xfe\n", "MALFORMED"),
        ("jsonl", b"[1]\n", "MALFORMED"),
        ("jsonl", b'{"n": 1, "n": 2}\n', "MALFORMED"),
        ("jsonl", b'{"n": NaN}\n', "MALFORMED"),
        ("jsonl", b'{"q": 1}\n', "UNKNOWN_FIELD"),
        ("jsonl", b'{"n": %s}\n' % (b"1" * 5000), "MALFORMED"),
        ("json", b"[" * 100_000, "MALFORMED"),
        ("json", b"7", "MALFORMED"),
        ("parquet", b"PAR1 no PAR1", "MALFORMED"),
        ("parquet", b"", "MALFORMED"),
        ("avro", b"", "BAD_REQUEST"),
    ],
)
def test_malformed_bodies_are_refused(format: str, body: bytes, code: str) -> None:
    assert refusal(format, body).startswith(f"{code}: ")


def test_parquet_of_other_types_is_refused_and_narrower_ones_are_taken() -> None:
    def parquet(**columns: pa.Array) -> bytes:
        out = io.BytesIO()
        pq.write_table(pa.table(columns), out)
        return out.getvalue()

    assert decoded("parquet", parquet(n=pa.array([1], pa.int8())))[0]["n"] == 1
    assert decoded("parquet", parquet(at=pa.array([0], pa.timestamp("ms"))))[0]["at"].timestamp() == 0
    assert decoded("parquet", parquet(s=pa.array(["a"]).dictionary_encode()))[0]["s"] == "a"
    for columns in ({"n": pa.array(["1"])}, {"s": pa.array([1])}, {"t": pa.array([300])}, {"n": pa.array([1.0])}):
        assert refusal("parquet", parquet(**columns)).startswith("MALFORMED: column ")
    assert decoded("parquet", parquet(f=pa.array([0.1, math.inf, -3e38, None])))[1]["f"] == math.inf
    assert decoded("parquet", parquet(f=pa.array([0.5], pa.float16())))[0]["f"] == 0.5
    text = refusal("parquet", parquet(f=pa.array([1e39])))
    assert text == "MALFORMED: column f: a number is beyond float"
    text = refusal("parquet", parquet(at=pa.array([1], pa.timestamp("ns"))))
    assert text.startswith("MALFORMED: column at: ")
    for days in (-719_162, 2_932_896):  # the first and the last day of Python's years
        beyond = days + (1 if days > 0 else -1)
        for name, type, factor in (("y", pa.date32(), 1), ("at", pa.timestamp("s"), 86_400)):
            assert decoded("parquet", parquet(**{name: pa.array([days * factor], type)}))[0][name].day in (1, 31)
            text = refusal("parquet", parquet(**{name: pa.array([beyond * factor], type)}))
            assert text.startswith(f"MALFORMED: column {name}: ")
            assert "not of the years 0001 to 9999" in text


def test_pointers_lead_into_objects_and_other_members_are_left_out() -> None:
    columns = (Column("id", SqlType("bigint")), Column("who", SqlType("string")), Column("x~/", SqlType("bigint")))
    pointers = (Option("id", "/items/1/id"), Option("who", "/a~1b/~0"))
    table = WrittenTable("t", columns, pointers=pointers, unknown_fields="ignore")
    body = b'{"items": [7, {"id": 5}], "a/b": {"~": "me"}, "x~/": 3, "more": {}}\n{"items": 1, "a/b": []}\n'
    nothing = {"id": None, "who": None, "x~/": None}
    assert decoded("jsonl", body, table) == [{"id": 5, "who": "me", "x~/": 3}, nothing]
    refusing = WrittenTable("t", columns, pointers=pointers)
    assert refusal("jsonl", body, refusing).startswith("UNKNOWN_FIELD: row 1 has 'more'")


def mutated(draw: random.Random, body: bytes) -> bytes:
    """The body with some bytes changed, left out, doubled or put in."""
    data = bytearray(body)
    for _ in range(draw.randrange(1, 6)):
        at = draw.randrange(len(data) + 1)
        match draw.randrange(4):
            case 0:
                data[at : at + 1] = bytes([draw.randrange(256)])
            case 1:
                del data[at : at + draw.randrange(1, 9)]
            case 2:
                data[at:at] = data[at : at + draw.randrange(1, 40)]
            case _:
                data[at:at] = draw.choice([b'"', b"\n", b"\0", b"{", b"1e400", struct.pack("<i", -1), b"\xf0\x9f"])
    return bytes(data)


def seeds() -> Iterator[tuple[str, bytes]]:
    parquet = io.BytesIO()
    pq.write_table(pa.Table.from_pylist([ROW] * 3, schema=arrow_schema(TABLE.columns)), parquet)
    yield "parquet", parquet.getvalue()
    yield "csv", CSV % b"2026-01-31T12:00:00.5Z"
    yield "jsonl", OBJECT.replace(b"\n", b" ") % b"2026-01-31" + b"\n{}\n"
    yield "json", b"[%s]" % (OBJECT % b"2026-01-31")


@pytest.mark.parametrize("format", ["csv", "jsonl", "json", "parquet"])
def test_any_bytes_are_rows_or_refused(tmp_path: Path, format: str) -> None:
    """Through the receiver, which leaves nothing in the spool of what it refused."""
    draw, body = random.Random(7), dict(seeds())[format]
    spool = WriteSpool(tmp_path)
    receiver = Receiver(WrittenSource((TABLE,)), spool)
    outcomes = {True: 0, False: 0}
    for number in range(400):
        try:
            received = receiver.receive(WriteHeader("t", "insert", format, f"k{number}"), [mutated(draw, body)])
        except WriteRefused:
            outcomes[False] += 1
        else:
            outcomes[True] += 1
            assert sum(batch.num_rows for batch in received.batches()) == received.rows
            received.file.close()
        assert spool.used_bytes == 0
    assert outcomes[False] > 50


def test_bodies_are_bounded(tmp_path: Path) -> None:
    """By the DataSource, and by the room of the process."""
    receiver = Receiver(WrittenSource((KEYED,), max_transaction_bytes=1000), spool := WriteSpool(tmp_path, limit=3000))
    header = WriteHeader("keyed", "insert", "csv", "k")
    with pytest.raises(WriteRefused, match="TOO_LARGE: the body has more than 1000 bytes"):
        receiver.receive(header, [b"id\n", b"1\n" * 600])
    narrow = b"id,name,price,at\n" + b"".join(b"%d,,,\n" % n for n in range(100, 210))
    assert receiver.receive(header, [narrow]).rows == 110
    with pytest.raises(WriteNotPossible, match="calls that wait for their tick use"):  # noqa: PT012
        for _ in range(10):
            receiver.receive(header, [narrow])
    assert 0 < spool.used_bytes <= 3000


@pytest.mark.parametrize("format", ["json", "jsonl"])
def test_documents_and_lines_have_at_most_4_mib(format: str) -> None:
    assert decoded(format, b'{"s": "%s"}\n' % (b"x" * ((4 << 20) - 20)))
    assert refusal(format, b'{"s": "%s"}\n' % (b"x" * (4 << 20))).startswith("TOO_LARGE: ")


def test_two_bodies_of_json_are_decoded_at_a_time(tmp_path: Path) -> None:
    receiver = Receiver(WrittenSource((TABLE,)), WriteSpool(tmp_path))
    with ThreadPoolExecutor(2) as pool:
        with receive.JSON_TURNS, receive.JSON_TURNS:
            waiting = pool.submit(receiver.receive, WriteHeader("t", "insert", "jsonl", "a"), [b"{}\n"])
            assert pool.submit(receiver.receive, WriteHeader("t", "insert", "csv", "b"), [b"n\n1\n"]).result().rows == 1
            with pytest.raises(TimeoutError):
                waiting.result(0.5)
        assert waiting.result(BOUND).rows == 1
    with pytest.raises(WriteRefused):
        receiver.receive(WriteHeader("t", "insert", "json", "c"), [b"7"])
    assert receive.JSON_TURNS.acquire(blocking=False)
    assert receive.JSON_TURNS.acquire(blocking=False)
    receive.JSON_TURNS.release(2)
