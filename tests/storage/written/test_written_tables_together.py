"""Calls of several tables: what they write to all of them is there at one time, or nothing is; once, whoever dies."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.storage.dying_appends import die_around
from tests.storage.written.test_written_ingestion import Model, Part, outcome, pairs
from tests.storage.written.written_tables import SPEC, Writer
from tidemark_replica.storage.written import receive, source
from tidemark_replica.storage.written.inbox import PendingWrite
from tidemark_replica.storage.written.receive import WriteHeader
from tidemark_replica.storage.written.refusal import WriteNotPossible, WriteRefused

HEAD = b"id,name,price,at\n"
BODY = HEAD + b"1,,,\n"
State = tuple[list[Any], list[Any]]
Call = list[tuple[str, list[Part]]]


def csv(*rows: str) -> bytes:
    return HEAD + "".join(f"{row},,\n" for row in rows).encode()


def answer_to(writer: Writer, tables: Call, key: str = "", piece: int = 1000) -> tuple[int, int, bool]:
    call = writer.put_tables(tables, key, piece)
    writer.tick()
    answer = call.answer(0)
    assert answer is not None
    return int(answer.time), answer.rows, answer.repeated


@pytest.mark.parametrize("piece", [1, 7, 1000])
def test_tables_have_the_rows_at_one_time(tmp_path: Path, piece: int) -> None:
    writer = Writer(tmp_path)
    writer.call("keyed", csv("1,a", "2,b"))
    tables: Call = [
        ("plain", [("insert", csv("7,p"))]),
        ("keyed", [("insert", csv("3,c")), ("update", csv("1,A")), ("delete", csv("2,"))]),
    ]
    time, rows, repeated = answer_to(writer, tables, "key", piece)
    assert (rows, repeated) == (4, False)
    assert (pairs(tmp_path, "keyed", time - 1), pairs(tmp_path, "plain", time - 1)) == ([(1, "a"), (2, "b")], [])
    assert (pairs(tmp_path, "keyed", time), pairs(tmp_path, "plain", time)) == ([(1, "A"), (3, "c")], [(7, "p")])
    assert answer_to(writer, tables, "key", 3) == (time, 4, True)
    writer.restart()
    assert answer_to(writer, tables, "key") == (time, 4, True)
    others: list[Call] = [
        [("plain", [("insert", csv("8,p"))]), tables[1]],
        [tables[0], ("keyed", [("insert", csv("3,d")), *tables[1][1][1:]])],
        [tables[0], ("keyed", tables[1][1][:1])],
        [tables[0], ("named", tables[1][1])],
        [*tables, ("named", [("insert", csv("1,n"))])],
        tables[::-1],
        tables[:1],
        tables[1:],
    ]
    for other in others:
        with pytest.raises(WriteRefused, match="KEY_REUSED"):
            answer_to(writer, other, "key")
    assert (pairs(tmp_path, "keyed"), pairs(tmp_path, "plain")) == ([(1, "A"), (3, "c")], [(7, "p")])
    assert pairs(tmp_path, "named") == []
    assert writer.spool.used_bytes == 0


def test_a_refusal_of_one_table_is_of_all(tmp_path: Path) -> None:
    """Also of what earlier and later calls of its tick meet."""
    writer = Writer(tmp_path)
    writer.call("keyed", csv("1,a"))
    calls = [
        writer.put_tables([("named", [("insert", csv("1,x"))]), ("keyed", [("insert", csv("1,b"))])]),
        writer.put_tables([("named", [("insert", csv("1,y"))]), ("keyed", [("insert", csv("2,b"))])]),
        writer.put("keyed", csv("2,c"), "upsert"),
    ]
    writer.tick()
    with pytest.raises(WriteRefused, match="DUPLICATE_KEY: table keyed: the row with id"):
        calls[0].answer(0)
    assert [outcome(call) for call in calls[1:]] == [2, 1]
    assert (pairs(tmp_path, "named"), pairs(tmp_path, "keyed")) == ([(1, "y")], [(1, "a"), (2, "c")])


def test_a_stopped_table_refuses_the_call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(tmp_path)
    monkeypatch.setattr(writer.ingester._source, "_stopped", {"named": "it stands still"})
    call = writer.put_tables([("plain", [("insert", csv("1,x"))]), ("named", [("insert", csv("1,x"))])])
    writer.tick()
    with pytest.raises(WriteNotPossible, match="it stands still"):
        call.answer(0)
    assert pairs(tmp_path, "plain") == []


def test_a_refusal_says_which_table_of_several_it_is_of(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for tables, text in (
        ([("plain", [("insert", csv("1,x"))]), ("named", [("insert", csv("1,"))])], "COLUMN_NULL: table named: "),
        ([("plain", [("insert", csv("x,x"))]), ("named", [("insert", csv("1,x"))])], "MALFORMED: table plain: row 1:"),
        ([("plain", [("insert", csv("x,x"))])], "MALFORMED: row 1:"),
    ):
        with pytest.raises(WriteRefused, match=f"^{text}"):
            writer.put_tables(tables)
    assert writer.spool.used_bytes == 0


def test_the_decoded_rows_of_all_tables_have_one_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(receive, "PARTS_BYTES_MAX", 1000)
    monkeypatch.setattr(receive, "DECODED_FACTOR", 3)
    writer = Writer(tmp_path)
    tables: Call = [(name, [("insert", csv(*(f"{id}," for id in range(60))))]) for name in ("plain", "keyed")]
    alone = [writer.put_tables([table]) for table in tables]
    together = sum(call.write.size for call in alone)
    assert all(1500 < call.write.size <= 3000 for call in alone)
    assert together > 3000
    used = writer.spool.used_bytes
    with pytest.raises(WriteRefused, match="TOO_LARGE: table keyed: the rows take more than 3000 bytes"):
        writer.put_tables(tables)
    assert writer.spool.used_bytes == used
    monkeypatch.setattr(receive, "PARTS_BYTES_MAX", together)
    monkeypatch.setattr(receive, "DECODED_FACTOR", 1)
    assert writer.put_tables(tables).write.total_size == together


def test_all_tables_of_a_tick_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tick has calls of a bounded size, in all their tables."""
    writer = Writer(tmp_path)
    monkeypatch.setattr(source, "SHARE_BYTES", 500)
    large = csv(*(f"{id}," for id in range(20)))
    calls = [writer.put_tables([("named", [("insert", csv(f"{id},x"))]), ("plain", [("insert", large)])])
             for id in range(2)]  # fmt: skip
    assert sum(call.write.size for call in calls) < 500 < calls[0].write.total_size
    for answers in ([21, None], [21, 21]):
        writer.tick()
        assert [found.rows if (found := call.answer(0)) else None for call in calls] == answers


def _header(table: str, size: int, operation: str = "insert") -> WriteHeader:
    return WriteHeader(table, operation, "csv", "k", size=size)


@pytest.mark.parametrize(("sizes", "data", "code"), [
    ((22, 22), BODY + HEAD, "BAD_REQUEST"),
    ((22, 22), BODY + BODY + b"x", "BAD_REQUEST"),
    ((22, 0), BODY, "BAD_REQUEST"),
    ((0, 22), BODY, "BAD_REQUEST"),
    ((-1, 22), BODY, "BAD_REQUEST"),
    ((22, receive.PARTS_BYTES_MAX), b"", "TOO_LARGE"),
    ((17, 19), HEAD + HEAD + b"x,", "MALFORMED"),
])  # fmt: skip
def test_bodies_of_other_sizes_are_refused(tmp_path: Path, sizes: tuple[int, int], data: bytes, code: str) -> None:
    writer = Writer(tmp_path)
    first, other = _header("plain", sizes[0]), _header("keyed", sizes[1])
    with pytest.raises(WriteRefused) as refused:
        writer.receiver.receive(replace(first, others=(other,)), [data])
    assert refused.value.code == code
    assert writer.spool.used_bytes == 0


@pytest.mark.parametrize(("limit", "size", "code"), [(100, 50, ""), (100, 51, "TOO_LARGE"), (50, 26, "TOO_LARGE")])
def test_the_bodies_of_all_tables_have_one_bound(tmp_path: Path, limit: int, size: int, code: str) -> None:
    """The bound is that of the source, where it has a smaller one."""
    writer = Writer(tmp_path, replace(SPEC, max_transaction_bytes=limit))
    body = HEAD + b"1," + b"x" * (size - len(BODY)) + b",,\n"
    call = replace(_header("plain", size), others=(_header("keyed", size),))
    try:
        writer.receiver.receive(call, [body * 2]).close()
    except WriteRefused as refused:
        found = refused.code
    else:
        found = ""
    assert (found, writer.spool.used_bytes) == (code, 0)


@pytest.mark.parametrize(("count", "text"), [(16, "NO_SUCH_TABLE: "), (17, "TOO_LARGE: .* 16 tables")])
def test_a_call_has_a_bounded_number_of_tables(tmp_path: Path, count: int, text: str) -> None:
    first, *others = (_header(f"t{number}", 22) for number in range(count))
    with pytest.raises(WriteRefused, match=text):
        Writer(tmp_path).receiver.receive(replace(first, others=tuple(others)), [BODY * count])


def test_the_sections_of_all_tables_have_one_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(tmp_path)
    tables: Call = [(name, [("insert", csv("1,x")), ("delete", csv("1,x"))]) for name in ("plain", "keyed")]
    monkeypatch.setattr(receive, "PARTS_MAX", 3)
    with pytest.raises(WriteRefused, match="TOO_LARGE: a call has at most 3 sections"):
        writer.put_tables(tables)
    monkeypatch.setattr(receive, "PARTS_MAX", 4)
    assert answer_to(writer, tables)[1:] == (4, False)


def test_a_table_is_named_once_and_must_be_there(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    for name, code in (("plain", "BAD_REQUEST"), ("absent", "NO_SUCH_TABLE"), ("log", "APPEND_ONLY")):
        first, other = _header("plain", 22), _header(name, 22, "delete")
        with pytest.raises(WriteRefused) as refused:
            writer.receiver.receive(replace(first, others=(other,)), [BODY * 2])
        assert refused.value.code == code
    assert writer.spool.used_bytes == 0


def test_a_body_that_breaks_off_writes_nothing(tmp_path: Path) -> None:
    def pieces() -> Any:
        yield BODY + HEAD
        raise KeyboardInterrupt

    writer = Writer(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        writer.receiver.receive(replace(_header("plain", 22), others=(_header("keyed", 22),)), pieces())
    assert writer.spool.used_bytes == 0


def _drawn(model: Model) -> Call:
    """A call of one table or of both."""
    first, second = model.call(), model.call()
    return [first, second] if first[0] != second[0] else [first]


def _apply(model: Model, call: Call) -> int | None:
    keyed, plain = dict(model.keyed), model.plain.copy()
    counts = [model.apply(table, parts) for table, parts in call]
    if None in counts:
        model.keyed, model.plain = keyed, plain
        return None
    return sum(count for count in counts if count is not None)


def _state(model: Model) -> State:
    return sorted(model.keyed.items()), sorted(model.plain.elements())


def _refused(call: PendingWrite) -> bool:
    try:
        call.answer(0)
    except WriteRefused:
        return True
    return False


@pytest.mark.parametrize("seed", range(6))
def test_crash_no_time_has_half_of_a_call(tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process dies at random appends; clients repeat their calls with the same key. At each time the tables are as
    some calls left them, each whole."""
    if seed % 2:
        monkeypatch.setattr(source, "SHARE_BYTES", 200)  # a tick has few calls
    model, moments = Model(seed), random.Random(seed + 2000)
    alive = die_around(monkeypatch, 9)
    writer = Writer(tmp_path)
    states, deaths, both = [_state(model)], 0, 0
    ends: list[tuple[int, int]] = []
    for number in range(12):
        calls = [(_drawn(model), f"c{number}-{i}") for i in range(moments.randrange(1, 4))]
        answers: dict[str, int | str] = {}
        while len(answers) < len(calls):
            if alive.left <= 0:
                alive.left = moments.randrange(2, 60)
            try:
                pending = [writer.put_tables(call, key, moments.randrange(1, 99)) for call, key in calls]
                writer.tick()
                while any(each.answer(0) is None for each in pending if not _refused(each)):
                    writer.tick()
                answers = {each.write.key: outcome(each) for each in pending}
            except KeyboardInterrupt:
                deaths += 1
                while alive.left <= 0:
                    alive.left = moments.randrange(2, 60)
                    try:
                        writer.restart()
                    except KeyboardInterrupt:
                        alive.left = 0
        for call, key in calls:
            expected = _apply(model, call)
            assert (found if isinstance(found := answers[key], int) else None) == expected, (number, key, answers)
            states.append(_state(model))
            both += expected is not None and len(call) == 2
        ends.append((writer.now, len(states) - 1))
        assert (pairs(tmp_path, "keyed"), pairs(tmp_path, "plain")) == states[-1]
    assert both > 0
    assert deaths > 0
    at = 0
    for time in range(1000, writer.now + 1, 50):
        found = pairs(tmp_path, "keyed", time), pairs(tmp_path, "plain", time)
        at = next(number for number in range(at, len(states)) if states[number] == found)  # in the order of the calls
        assert at <= next(last for end, last in ends if time <= end)
    assert at <= len(states) - 1
