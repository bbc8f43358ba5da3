"""Written tables: a call is one transaction at one time, once, whoever dies; refused calls change nothing."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.storage.dying_appends import die_around
from tests.storage.ingestion_samples import oks
from tests.storage.written.written_tables import SPEC, Writer, rows
from tidemark_persist import DIFF, open_shard
from tidemark_protocol.plan.ingestion import WrittenSource, WrittenTable
from tidemark_protocol.types import Column, SqlType
from tidemark_replica.storage.keyed_rows.scan import Sought
from tidemark_replica.storage.written import inbox, keys, source, transaction
from tidemark_replica.storage.written.inbox import PendingWrite, WriteAnswer
from tidemark_replica.storage.written.inspect import tables_of
from tidemark_replica.storage.written.refusal import WriteRefused, WriteUnknown


def pairs(root: Path, table: str, as_of: int | None = None) -> list[tuple[Any, Any]]:
    """The first two columns of the rows."""
    return sorted((row[0], row[1]) for row in oks(root, table, as_of))


def test_a_call_is_at_one_time_and_answered_when_it_is_in_the_table(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    pending = writer.put("plain", b'id,name\n1,a\n2,\n3,""\n')
    assert pending.answer(0) is None

    time = writer.tick()
    assert pending.answer(0) == WriteAnswer(time, 3)
    assert pairs(tmp_path, "plain") == [(1, "a"), (2, None), (3, "")]
    assert pairs(tmp_path, "plain", time - 1) == []
    assert writer.spool.used_bytes == 0


def test_insert_upsert_and_delete_by_key(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.call("keyed", rows({"id": 1, "name": "a"}, {"id": 2, "name": "b"}), format="jsonl")
    writer.call("keyed", rows({"id": 2, "name": "B"}, {"id": 3, "name": "c"}), "upsert", "jsonl")
    writer.call("keyed", b"id\n1\n", "delete")
    assert pairs(tmp_path, "keyed") == [(2, "B"), (3, "c")]


def test_a_row_is_deleted_by_its_key_without_its_columns_that_are_not_null(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.call("named", b'id,name\n1,""\n2,b\n')
    writer.call("named", b"id\n2\n", "delete")
    assert pairs(tmp_path, "named") == [(1, "")]
    [table] = [each for each in tables_of(SPEC) if each.name == "named"]
    assert [each.name for each in table.columns if not each.nullable] == ["id", "name"]


@pytest.mark.parametrize(
    ("table", "body", "operation", "code"),
    [
        ("keyed", b"id,name\n1,x\n", "insert", "DUPLICATE_KEY"),
        ("keyed", b"id,name\n7,x\n7,y\n", "insert", "KEY_TWICE"),
        ("keyed", b"id,name\n7,x\n7,y\n", "upsert", "KEY_TWICE"),
        ("keyed", b"id,name\n,x\n", "insert", "KEY_NULL"),
        ("named", b"id,name\n2,b\n3,\n", "insert", "COLUMN_NULL"),
        ("named", b"id\n1\n", "upsert", "COLUMN_NULL"),
        ("named", b"id,name\n,x\n", "delete", "KEY_NULL"),
        ("plain", b"id,name\n1,a\n", "delete", "MALFORMED"),
        ("plain", b"id,name\n1,a\n", "upsert", "NO_PRIMARY_KEY"),
        ("log", b"id,name,price,at\n1,a,,\n", "delete", "APPEND_ONLY"),
        ("none", b"id\n1\n", "insert", "NO_SUCH_TABLE"),
    ],
)
def test_a_refused_call_changes_nothing(tmp_path: Path, table: str, body: bytes, operation: str, code: str) -> None:
    writer = Writer(tmp_path)
    writer.call("keyed", b"id,name\n1,a\n")
    writer.call("plain", b"id,name\n1,a\n")
    writer.call("named", b"id,name\n1,a\n")
    with pytest.raises(WriteRefused) as refused:
        writer.call(table, body, operation)
    assert refused.value.code == code
    assert pairs(tmp_path, "keyed") == pairs(tmp_path, "plain") == pairs(tmp_path, "named") == [(1, "a")]
    assert writer.spool.used_bytes == 0


@pytest.mark.parametrize("is_large", [False, True])
def test_a_delete_takes_what_is_there_and_says_how_much(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    """A repeated call has the number of the first one, also after a restart. One that must find all is refused."""
    writer = Writer(tmp_path)
    writer.call("keyed", b"id,name\n1,a\n2,b\n3,\n")
    writer.call("plain", b"id,name\n1,a\n1,a\n2,\n")
    if is_large:
        monkeypatch.setattr(source, "SHARE_BYTES", 8)
    for must_find in (3, 1):
        with pytest.raises(WriteRefused, match=rf"ROWS_MISSING: {must_find} rows are to be .*, and 2 of them are"):
            writer.call("keyed", b"id\n1\n3\n9\n", "delete", must_find=must_find)
    assert pairs(tmp_path, "keyed") == [(1, "a"), (2, "b"), (3, None)]
    assert writer.call("keyed", b"id\n9\n", "delete").rows == 0
    for repeated in (False, True):
        answer = writer.call("keyed", b"id\n1\n3\n9\n", "delete", key="once", must_find=3 if repeated else 2)
        assert (answer.rows, answer.repeated) == (2, repeated)
        writer.restart()
    assert pairs(tmp_path, "keyed") == [(2, "b")]
    rows = b"id,name,price,at\n1,a,,\n1,a,,\n1,a,,\n2,,,\n2,b,,\n"
    assert writer.call("plain", rows, "delete").rows == 3
    assert writer.call("plain", rows, "delete").rows == 0
    assert (pairs(tmp_path, "plain"), writer.spool.used_bytes) == ([], 0)


def test_an_adopted_tables_keys_of_several_rows_are_neither_deleted_nor_replaced(tmp_path: Path) -> None:
    """The adopted table has key 1 in two rows, and key 3 in one row of multiplicity two."""
    before = tuple(replace(table, primary_key=()) for table in SPEC.tables)
    writer = Writer(tmp_path, WrittenSource(before))
    writer.call("keyed", b"id,name\n1,a\n1,b\n2,c\n3,d\n3,d\n")
    had = pairs(tmp_path, "keyed")
    writer.spec = SPEC
    writer.restart()
    for body, operation, code in (
        (b"id\n1\n9\n", "delete", "KEY_NOT_UNIQUE"),
        (b"id\n3\n", "delete", "KEY_NOT_UNIQUE"),
        (b"id,name\n3,e\n", "upsert", "KEY_NOT_UNIQUE"),
        (b"id,name\n1,e\n", "update", "KEY_NOT_UNIQUE"),
        (b"id,name\n1,e\n", "insert", "DUPLICATE_KEY"),
    ):
        call = put(writer, "keyed", [(operation, body)], f"{operation} {body!r:.100}".replace("\\", ""))
        writer.tick()
        assert outcome(call) == code
        assert pairs(tmp_path, "keyed") == had
    writer.call("keyed", b"id,name\n2,C\n4,e\n", "upsert")
    writer.call("keyed", b"id\n2\n", "delete")
    assert pairs(tmp_path, "keyed") == [(1, "a"), (1, "b"), (3, "d"), (3, "d"), (4, "e")]


def test_calls_of_one_tick_see_each_other_in_order(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    calls = [
        writer.put("keyed", b"id,name\n1,a\n"),
        writer.put("keyed", b"id,name\n1,b\n", "upsert"),
        writer.put("keyed", b"id,name\n1,c\n"),
        writer.put("keyed", b"id\n1\n", "delete"),
        writer.put("keyed", b"id,name\n1,d\n"),
    ]
    writer.tick()
    outcomes = [outcome(call) for call in calls]
    assert outcomes == [1, 1, "DUPLICATE_KEY", 1, 1]
    assert pairs(tmp_path, "keyed") == [(1, "d")]


def outcome(call: PendingWrite) -> int | str:
    """The number of rows, or the refusal's code."""
    try:
        answer = call.answer(0)
    except WriteRefused as refusal:
        return refusal.code
    assert answer is not None
    return answer.rows


def test_a_key_is_used_once(tmp_path: Path) -> None:
    """In one tick, at later ticks, and in another process; with another body it is refused."""
    writer = Writer(tmp_path)
    first = [writer.put("plain", b"id\n1\n", key="k") for _ in range(2)]
    time = writer.tick()
    assert [call.answer(0) for call in first] == [WriteAnswer(time, 1), WriteAnswer(time, 1, repeated=True)]
    assert writer.call("plain", b"id\n1\n", key="k") == WriteAnswer(time, 1, repeated=True)
    writer.restart()
    assert writer.call("plain", b"id\n1\n", key="k") == WriteAnswer(time, 1, repeated=True)
    for table, body in (("plain", b"id\n2\n"), ("log", b"id\n1\n")):
        with pytest.raises(WriteRefused, match="KEY_REUSED"):
            writer.call(table, body, key="k")
    assert pairs(tmp_path, "plain") == [(1, None)]


def test_keys_are_kept_for_a_day_and_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keys, "KEYS_MAX", 3)
    writer = Writer(tmp_path)
    for number in range(5):
        writer.call("plain", b"id\n1\n", key=f"b{number}")
    writer.tick()

    def live() -> set[str]:
        remap = open_shard(f"{tmp_path}/remap")
        return {row["entry"] for row in remap.snapshot(remap.state().upper - 1).to_pylist() if row[DIFF] > 0}

    assert live() == {"key/b2", "key/b3", "key/b4"}
    writer.now += keys.KEPT_MS
    writer.tick()
    assert live() == set()


def test_calls_whose_ingestion_ends_are_unknown(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    waiting = writer.put("plain", b"id\n1\n")
    writer.inbox.close()
    with pytest.raises(WriteUnknown, match="repeat the call with the same key"):
        waiting.answer(0)
    assert writer.spool.used_bytes == 0


def test_a_call_whose_client_is_gone_is_not_written(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.put("plain", b"id\n1\n").abandon()
    writer.tick()
    assert pairs(tmp_path, "plain") == []


def test_a_key_of_a_year_that_python_has_not_is_refused_and_stops_no_other_call(tmp_path: Path) -> None:
    spec = WrittenSource((WrittenTable("days", (Column("day", SqlType("date")),), ("day",)),))
    writer = Writer(tmp_path, spec)
    with pytest.raises(WriteRefused, match="MALFORMED: row 1: '0000-01-01' is no date for column day"):
        writer.put("days", b"day\n0000-01-01\n")
    assert writer.call("days", b"day\n2026-01-31\n").rows == 1


@pytest.mark.parametrize(
    "days", [pa.array([-800_000, 3_000_000], pa.date32()), pa.array([-(10**17), 10**18], pa.timestamp("us", "UTC"))]
)
def test_what_a_table_has_of_years_that_python_has_not_is_sought_and_named(days: pa.Array) -> None:
    batch = pa.record_batch({"day": days})
    sought = Sought([batch.slice(1), batch], ["day"])
    integers = days.view(pa.int32() if pa.types.is_date32(days.type) else pa.int64()).to_pylist()
    assert [(each.operator, each.value) for each in sought.conditions()] == [(">=", integers[0]), ("<=", integers[1])]

    name = "date" if pa.types.is_date32(days.type) else "timestamp"
    table = WrittenTable("days", (Column("day", SqlType(name)),), ("day",))
    rows, before = pa.Table.from_batches([batch]), pa.table({"day": days, DIFF: pa.array([1, 0])})
    with pytest.raises(WriteRefused, match="DUPLICATE_KEY: the row with day = "):
        transaction.updates_of(table, "insert", rows, before.slice(0, 1))


def test_a_call_that_fails_each_time_ends_and_the_others_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = transaction.updates_of

    def failing(spec: WrittenTable, operation: str, rows: pa.Table, before: pa.Table, sets: Any = None) -> pa.Table:
        if 13 in rows.column("id").to_pylist():
            raise OverflowError("13")
        return computed(spec, operation, rows, before, sets)

    monkeypatch.setattr(transaction, "updates_of", failing)
    writer = Writer(tmp_path)
    first, bad, last = (writer.put("plain", b"id\n%d\n" % number) for number in (1, 13, 2))
    failures = 0
    for _ in range(10):
        try:
            writer.tick()
        except OverflowError:
            failures += 1
            writer.begin_again()
    assert failures == inbox.TAKES_MAX
    with pytest.raises(WriteUnknown, match="failed 3 times with this call"):
        bad.answer(0)
    assert [outcome(first), outcome(last)] == [1, 1]
    assert pairs(tmp_path, "plain") == [(1, None), (2, None)]
    assert writer.spool.used_bytes == 0


def test_a_taken_call_whose_client_is_gone_ends_where_the_ingestion_begins_again(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    gone, waited_for = writer.put("plain", b"id\n1\n"), writer.put("plain", b"id\n2\n")
    assert writer.inbox.take(1000, 10) == [gone, waited_for]
    gone.abandon()
    writer.begin_again()
    with pytest.raises(WriteUnknown, match="the client is gone"):
        gone.answer(0)
    writer.tick()
    assert outcome(waited_for) == 1
    assert pairs(tmp_path, "plain") == [(2, None)]


Part = tuple[str, bytes]
"""An operation and its csv."""


class Model:
    """The rows that the tables should hold, and calls at random."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.keyed: dict[int, str] = {}
        self.plain: Counter[tuple[int, str]] = Counter()

    def call(self) -> tuple[str, list[Part]]:
        table = self.random.choice(["keyed", "plain"])
        return table, [self._part(table) for _ in range(self.random.choice([1, 1, 2, 6]))]

    def _part(self, table: str) -> Part:
        draw = self.random
        operation = draw.choice(["insert", "upsert", "update", "delete"] if table == "keyed" else ["insert", "delete"])
        count = draw.choice([1, 1, 2, 5, 40])
        lines = [(draw.randrange(60), draw.choice("abc")) for _ in range(count)]
        body = "id,name,price,at\n" + "".join(f"{id},{name},,\n" for id, name in lines)
        return operation, body.encode()

    def apply(self, table: str, parts: list[Part]) -> int | None:
        """The numbers of rows that the call writes, updates and deletes; None where it is refused, and nothing of it is
        done."""
        keyed, plain = dict(self.keyed), Counter(self.plain)
        counts = [self._apply(table, operation, body) for operation, body in parts]
        if None in counts:
            self.keyed, self.plain = keyed, plain
            return None
        return sum(count for count in counts if count is not None)

    def _apply(self, table: str, operation: str, body: bytes) -> int | None:
        lines = [line.split(",") for line in body.decode().splitlines()[1:]]
        found = [(int(id), name) for id, name, *_ in lines]
        if table == "plain":
            change = Counter(found)
            if operation == "insert":
                self.plain += change
                return change.total()
            gone = change & self.plain
            self.plain -= gone
            return gone.total()
        if operation == "update" and len({id for id, _ in found}) == len(found):
            changed = [(id, name) for id, name in found if id in self.keyed]
            self.keyed |= changed
            return len(changed)
        ids = {id for id, _ in found}
        there = ids & self.keyed.keys()
        if len(ids) < len(found) or (operation == "insert" and there):
            return None
        if operation == "delete":
            self.keyed = {id: name for id, name in self.keyed.items() if id not in ids}
            return len(there)
        self.keyed |= found
        return len(found)


@pytest.mark.parametrize("seed", range(6))
def test_crash_random_histories_are_those_of_a_model(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process dies at random appends; clients repeat their calls with the same key. Half of the histories divide
    every call on disk."""
    if seed % 2:
        monkeypatch.setattr(source, "SHARE_BYTES", 200)
    model, moments = Model(seed), random.Random(seed + 1000)
    alive = die_around(monkeypatch, 9)
    writer = Writer(tmp_path)
    wanted: dict[int, tuple[list[Any], list[Any]]] = {}
    for number in range(15):
        calls = [(*model.call(), f"c{number}-{i}") for i in range(moments.randrange(1, 4))]
        answers: dict[str, int | str] = {}
        while len(answers) < len(calls):
            if alive.left <= 0:
                alive.left = moments.randrange(2, 90)
            try:
                pending = [put(writer, table, parts, key) for table, parts, key in calls]
                writer.tick()
                while any(call.answer(0) is None for call in pending if not refused(call)):
                    writer.tick()
                answers = {call.write.key: outcome(call) for call in pending}
            except KeyboardInterrupt:
                while alive.left <= 0:
                    alive.left = moments.randrange(2, 90)
                    try:
                        writer.restart()
                    except KeyboardInterrupt:
                        alive.left = 0
        expected = [model.apply(table, parts) for table, parts, _ in calls]
        assert [a if isinstance(a := answers[k], int) else None for *_, k in calls] == expected, (number, answers)
        keyed, plain = sorted(model.keyed.items()), sorted(model.plain.elements())
        wanted[writer.now] = keyed, plain
        assert (pairs(tmp_path, "keyed"), pairs(tmp_path, "plain")) == (keyed, plain)
    for time, (keyed, plain) in wanted.items():
        assert (pairs(tmp_path, "keyed", time), pairs(tmp_path, "plain", time)) == (keyed, plain)


def put(writer: Writer, table: str, parts: list[Part], key: str) -> PendingWrite:
    """Put the parts, as a call of one operation where there is one alone."""
    if len(parts) > 1 or parts[0][0] == "update":
        return writer.put_parts(table, parts, key)
    [(operation, body)] = parts
    return writer.put(table, body, operation, key=key)


def refused(call: PendingWrite) -> bool:
    try:
        call.answer(0)
    except WriteRefused:
        return True
    return False
