"""Calls of several parts: each part finds what those before it left, and all of them are written or none."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.storage.written.test_written_ingestion import pairs
from tests.storage.written.written_tables import Writer
from tidemark_persist import DIFF, consolidate
from tidemark_persist.files.spill import row_hash
from tidemark_protocol.plan.ingestion import WrittenTable
from tidemark_protocol.types import Column, SqlType
from tidemark_replica.storage.written import receive, transaction
from tidemark_replica.storage.written.inbox import WriteAnswer
from tidemark_replica.storage.written.receive import CallPart, WriteHeader
from tidemark_replica.storage.written.refusal import WriteRefused
from tidemark_replica.storage.written.transaction import updates_of, updates_of_call

COLUMNS = Column("id", SqlType("bigint")), Column("name", SqlType("string")), Column("n", SqlType("bigint"))
TABLES = {"keyed": WrittenTable("t", COLUMNS, ("id",)), "plain": WrittenTable("t", COLUMNS)}
ROWS = pa.schema([("id", pa.int64()), ("name", pa.string()), ("n", pa.int64())])


@pytest.mark.parametrize(
    ("table", "parts", "left"),
    [
        ("keyed", [("delete", "1,"), ("insert", "1,new")], [(1, "new"), (2, "b")]),
        ("keyed", [("insert", "3,c"), ("delete", "3,")], [(1, "a"), (2, "b")]),
        ("keyed", [("insert", "3,c"), ("upsert", "3,C 1,A"), ("delete", "2,")], [(1, "A"), (3, "C")]),
        ("keyed", [("delete", "1,"), ("delete", "1,")], None),
        ("keyed", [("delete", "1,"), ("insert", "2,x")], None),
        ("keyed", [("insert", "3,c"), ("insert", "3,c")], None),
        ("keyed", [("upsert", "1,x"), ("delete", "9,")], None),
        ("keyed", [("update", "1,x"), ("update", "1,y 2,z")], [(1, "y"), (2, "z")]),
        ("keyed", [("update", "1,x 1,y")], None),
        ("keyed", [("update", "1,x"), ("delete", "1,"), ("insert", "1,new"), ("update", "1,y")], [(1, "y"), (2, "b")]),
        ("keyed", [("update", "2,b")], [(1, "a"), (2, "b")]),
        ("keyed", [("update", "1,x 9,y")], None),
        ("keyed", [("delete", "1,"), ("update", "1,x")], None),
        ("plain", [("update", "1,x")], None),
        ("plain", [("insert", "1,a"), ("delete", "1,a 1,a")], [(2, "b")]),
        ("plain", [("delete", "1,a"), ("insert", "1,a 1,a")], [(1, "a"), (1, "a"), (2, "b")]),
        ("plain", [("delete", "1,a 1,a"), ("insert", "1,a")], None),
    ],
)
def test_parts_are_done_one_after_the_other_or_none_is(
    tmp_path: Path, table: str, parts: list[tuple[str, str]], left: list[tuple[int, str]] | None
) -> None:
    """Each row that is to be deleted or updated must be there."""
    writer = Writer(tmp_path)
    writer.call(table, b"id,name,price,at\n1,a,,\n2,b,,\n")
    bodies = [(operation, csv(rows)) for operation, rows in parts]
    found = sum(len(rows.split()) for operation, rows in parts if operation in ("delete", "update"))
    if left is None:
        with pytest.raises(WriteRefused):
            answer_to(writer, table, bodies, found)
        assert pairs(tmp_path, table) == [(1, "a"), (2, "b")]
        return
    for again in ("", " again"):  # a repeated call has the same answer
        answer = answer_to(writer, table, bodies, found)
        assert (answer.rows, answer.repeated) == (sum(len(rows.split()) for _, rows in parts), bool(again))
    assert pairs(tmp_path, table) == left


def answer_to(writer: Writer, table: str, bodies: list[tuple[str, bytes]], found: int) -> WriteAnswer:
    call = writer.put_parts(table, bodies, "key", found)
    writer.tick()
    answer = call.answer(0)
    assert answer is not None
    return answer


def csv(rows: str) -> bytes:
    return "".join(["id,name,price,at\n", *(f"{row},,\n" for row in rows.split())]).encode()


@pytest.mark.parametrize("hashes", [1 << 60, 3])
@pytest.mark.parametrize("name", ["keyed", "plain"])
@pytest.mark.parametrize("seed", range(40))
def test_oracle_keys_taking_turns_are_parts_one_after_the_other(
    seed: int, name: str, hashes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where different keys have one hash."""
    of_rows = row_hash
    monkeypatch.setattr(transaction, "row_hash", lambda rows: of_rows(rows) % np.uint64(hashes))
    draw, table = random.Random(seed), TABLES[name]
    before = with_diff(drawn(draw, 12, unique=name == "keyed"))
    operations = ("insert", "delete", "upsert", "update") if name == "keyed" else ("insert", "delete")
    pieces = [
        (part_of(draw, draw.choice(operations)), drawn(draw, draw.randrange(5), unique=draw.random() < 0.9))
        for _ in range(draw.randrange(2, 9))
    ]
    rows = pa.concat_tables([piece for _, piece in pieces])
    parts = [replace(part, rows=piece.num_rows) for part, piece in pieces]

    found = outcome(table, parts, rows, before)
    assert found == one_after_the_other(table, pieces, before)


def part_of(draw: random.Random, operation: str) -> CallPart:
    sets_some = operation == "update" or (operation == "upsert" and draw.random() < 0.5)
    return CallPart(operation, 0, draw.choice([("name",), ("n",), ("n", "name")]) if sets_some else ())


def outcome(table: WrittenTable, parts: list[CallPart], rows: pa.Table, before: pa.Table) -> list[object] | None:
    """None where it is refused."""
    try:
        updates, written, found = updates_of_call(table, parts, rows, before)
    except WriteRefused:
        return None
    return [shown(updates), written, found]


def one_after_the_other(
    table: WrittenTable, pieces: list[tuple[CallPart, pa.Table]], before: pa.Table
) -> list[object] | None:
    """The model: updates of some columns are done row by row, in Python."""
    now, written, found = before, 0, 0
    try:
        for part, rows in pieces:
            if part.operation in ("upsert", "update") and len(set(rows.column("id").to_pylist())) < rows.num_rows:
                return None
            for change in rows.to_pylist() if part.changed else ():
                there = [row for row in now.to_pylist() if row["id"] == change["id"]]
                kept = [row for row in now.to_pylist() if row["id"] != change["id"]]
                made = [row | {name: change[name] for name in part.changed} for row in there]
                if part.operation == "upsert":
                    made, written = made or [{**change, DIFF: 1}], written + 1
                else:
                    found += len(there)
                now = pa.Table.from_pylist(kept + made, now.schema)
            if part.changed:
                continue
            updates = updates_of(table, part.operation, rows, now)
            now = consolidate(pa.concat_tables([now, updates]))
            if part.operation == "delete":
                found -= sum(updates.column(DIFF).to_pylist())
            else:
                written += rows.num_rows
    except WriteRefused:
        return None
    total = pa.concat_tables([now, before.set_column(3, DIFF, pa.array([-n for n in before.column(DIFF).to_pylist()]))])
    return [shown(consolidate(total)), written, found]


def drawn(draw: random.Random, count: int, unique: bool) -> pa.Table:
    ids = draw.sample(range(20), count) if unique else [draw.randrange(20) for _ in range(count)]
    names, numbers = [draw.choice(["a", "b", None]) for _ in ids], [draw.randrange(2) for _ in ids]
    return pa.table({"id": ids, "name": names, "n": numbers}, schema=ROWS)


def with_diff(rows: pa.Table) -> pa.Table:
    return consolidate(rows.append_column(pa.field(DIFF, pa.int64()), pa.array([1] * rows.num_rows, pa.int64())))


def shown(updates: pa.Table) -> list[str]:
    return sorted(map(str, updates.to_pylist()))


def test_a_column_that_is_not_null_has_a_value_in_rows_that_are_written_alone(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.call("named", b"id,name,price,at\n1,a,,\n")
    with pytest.raises(WriteRefused, match="COLUMN_NULL"):
        writer.put_parts("named", [("delete", csv("1,")), ("upsert", csv("2,"))])
    with pytest.raises(WriteRefused, match="COLUMN_NULL"):
        writer.put_parts("named", [("update", csv("1,"))])
    call = writer.put_parts("named", [("upsert", csv("2,b")), ("delete", csv("1,")), ("update", csv("2,c"))], "", 2)
    writer.tick()
    assert call.answer(0) is not None
    assert pairs(tmp_path, "named") == [(2, "c")]


def test_a_call_of_several_parts_has_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bounds are of bytes, of parts, and of the number of times that it may write one row."""
    writer, row = Writer(tmp_path), csv("1,a")
    often = [(operation, row) for _ in range(transaction.ROUNDS_MAX) for operation in ("upsert", "delete")]
    call = writer.put_parts("keyed", often)
    writer.tick()
    with pytest.raises(WriteRefused, match="TOO_LARGE: a row is written in more than 100 parts"):
        call.answer(0)
    monkeypatch.setattr(receive, "PARTS_MAX", 10)
    with pytest.raises(WriteRefused, match="TOO_LARGE: a call has at most 10 sections"):
        writer.put_parts("keyed", often)
    monkeypatch.setattr(receive, "PARTS_BYTES_MAX", 20)
    with pytest.raises(WriteRefused, match="TOO_LARGE: the body has more than 20 bytes"):
        writer.put_parts("keyed", often[:3])
    monkeypatch.undo()
    for parts, operation in (
        ((CallPart("insert", 2),), ""),
        ((CallPart("insert", 1), CallPart("delete", 0)), ""),
        ((CallPart("insert", 1),), "delete"),
        ((), "update"),
        ((CallPart("update", 1),), ""),
        ((CallPart("update", 1, ("id",)),), ""),
        ((CallPart("update", 1, ("Name",)),), ""),
        ((CallPart("update", 1, ("name", "name")),), ""),
        ((CallPart("upsert", 1, ("id", "name")),), ""),
        ((CallPart("insert", 1, ("name",)),), ""),
    ):
        with pytest.raises(WriteRefused, match="BAD_REQUEST"):
            writer.receiver.receive(WriteHeader("keyed", operation, "csv", "k", parts=parts), [row])
    with pytest.raises(WriteRefused, match="BAD_REQUEST: operation 'replace'"):
        writer.put_parts("keyed", [("insert", row), ("replace", row)])
    assert writer.spool.used_bytes == 0
