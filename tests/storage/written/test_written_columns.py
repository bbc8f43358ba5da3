"""Columns that are added to written tables: the later table begins with the rows of the one before it, whoever dies."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.storage.dying_appends import MomentsUntilDeath, die_around
from tests.storage.ingestion_samples import errors, oks
from tests.storage.written.written_tables import SPEC, Writer, rows
from tidemark_persist import DIFF, ERROR, TIME, NotReadable, open_shard
from tidemark_protocol.plan.ingestion import WrittenSource
from tidemark_protocol.plan.successors import newest, number, spec_name, successor
from tidemark_protocol.types import BIGINT, Column
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.ingester import Ingester
from tidemark_replica.storage.written import source
from tidemark_replica.storage.written.inbox import WriteAnswer
from tidemark_replica.storage.written.refusal import WriteNotPossible, WriteRefused

VIP = Column("vip", BIGINT)


def with_column(spec: WrittenSource, name: str, *columns: Column) -> WrittenSource:
    """The spec with a later table of this name."""
    known = {table.name: table for table in spec.tables}
    last = known[newest(known)[name]]
    now = replace(
        last,
        name=successor(name, known),
        columns=(*last.columns, *columns),
        added=(*last.added, *(column.name for column in columns)),
    )
    return replace(spec, tables=(*spec.tables, now))


def without_tables(spec: WrittenSource, *names: str) -> WrittenSource:
    return replace(spec, tables=tuple(table for table in spec.tables if table.name not in names))


def edit(writer: Writer, spec: WrittenSource) -> None:
    """The ingestion ends, and begins with another spec."""
    writer.spec = spec
    writer.restart()


def upper(root: Path, table: str) -> int:
    return int(open_shard(f"{root}/{table}").state().upper)


def test_a_later_table_begins_with_the_rows_of_the_one_before_it(tmp_path: Path) -> None:
    """At no time is it readable without them. Both take what is written then."""
    writer = Writer(tmp_path)
    writer.call("keyed", b"id,name\n1,a\n2,b\n")
    writer.call("plain", b"id\n1\n")
    edit(writer, with_column(writer.spec, "keyed", VIP))
    assert (upper(tmp_path, "keyed.2"), upper(tmp_path, "keyed")) == (0, writer.now + 1)
    first = writer.tick()
    assert oks(tmp_path, "keyed.2") == [(1, "a", None, None, None), (2, "b", None, None, None)]
    with pytest.raises(NotReadable):
        oks(tmp_path, "keyed.2", first - 1)

    writer.call("keyed", b"id,vip\n1,7\n3,8\n", "upsert")
    writer.call("keyed", b"id,name\n2,B\n", "upsert")
    assert oks(tmp_path, "keyed.2") == [(1, None, None, None, 7), (2, "B", None, None, None), (3, None, None, None, 8)]
    assert oks(tmp_path, "keyed") == [(1, None, None, None), (2, "B", None, None), (3, None, None, None)]
    with pytest.raises(WriteRefused, match="DUPLICATE_KEY"):
        writer.call("keyed", b"id\n2\n")

    edit(writer, without_tables(writer.spec, "keyed"))
    writer.call("keyed", b"id\n1\n", "delete")
    assert oks(tmp_path, "keyed.2") == [(2, "B", None, None, None), (3, None, None, None, 8)]


def test_an_update_of_the_new_column_alone_changes_nothing_of_the_table_before(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.call("keyed", b"id,name\n1,a\n")
    edit(writer, with_column(writer.spec, "keyed", VIP))
    writer.tick()
    before = open_shard(f"{tmp_path}/keyed").size().rows
    writer.call("keyed", b"id,name,vip\n1,a,3\n", "upsert")
    assert oks(tmp_path, "keyed.2") == [(1, "a", None, None, 3)]
    assert open_shard(f"{tmp_path}/keyed").size().rows == before


def test_an_update_leaves_the_new_column_as_it_is(tmp_path: Path) -> None:
    """It sets the name, and its rows were made before the column came."""
    writer = Writer(tmp_path)
    edit(writer, with_column(writer.spec, "keyed", VIP))
    writer.tick()
    writer.call("keyed", b"id,name,vip\n1,a,7\n2,b,8\n")
    call = writer.put_parts("keyed", [("delete", b"id,name\n2,\n"), ("update", b"id,name\n1,A\n")])
    writer.tick()
    assert call.answer(0) is not None
    assert oks(tmp_path, "keyed.2") == [(1, "A", None, None, 7)]
    assert oks(tmp_path, "keyed") == [(1, "A", None, None)]


def test_a_key_of_before_is_known(tmp_path: Path) -> None:
    """Also that of a delete by the whole row, which has not the new column: it means the rows with NULL in it."""
    writer = Writer(tmp_path)
    body = b"id,name,price,at\n1,a,,\n"
    first = writer.call("plain", b"id,name\n1,a\n1,a\n2,b\n", key="k")
    gone = writer.call("plain", body, "delete", key="d")
    edit(writer, with_column(writer.spec, "plain", VIP))
    writer.tick()
    assert writer.call("plain", b"id,name\n1,a\n1,a\n2,b\n", key="k") == replace(first, repeated=True)
    assert writer.call("plain", body, "delete", key="d") == WriteAnswer(gone.time, 1, repeated=True)
    writer.call("plain", b"id,name,vip\n1,a,5\n")
    assert writer.call("plain", body, "delete").rows == 1
    assert oks(tmp_path, "plain.2") == [(1, "a", None, None, 5), (2, "b", None, None, None)]
    with pytest.raises(WriteRefused, match="MALFORMED"):
        writer.call("plain", b"id,name,price\n1,a,\n", "delete")


def test_several_columns_that_come_one_after_the_other_begin_at_once(tmp_path: Path) -> None:
    """The table between has not begun, as the replica was away."""
    writer = Writer(tmp_path)
    writer.call("log", b"id\n1\n")
    twice = with_column(with_column(writer.spec, "log", VIP), "log", replace(VIP, name="b"))
    edit(writer, twice)
    writer.tick()
    assert oks(tmp_path, "log.2") == [(1, *[None] * 4)]
    assert oks(tmp_path, "log.3") == [(1, *[None] * 5)]
    assert upper(tmp_path, "log") == upper(tmp_path, "log.2") == upper(tmp_path, "log.3") == writer.now + 1


def test_an_empty_table_has_an_empty_one_after_it(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    edit(writer, with_column(writer.spec, "log", VIP))
    writer.tick()
    assert oks(tmp_path, "log.2") == []
    writer.restart()
    assert writer.call("log", rows({"id": 1, "vip": 2}), format="jsonl").rows == 1
    assert oks(tmp_path, "log.2") == [(1, None, None, None, 2)]


def test_errors_of_the_table_before_are_errors(tmp_path: Path) -> None:
    """Another program has written one."""
    writer = Writer(tmp_path)
    writer.call("log", b"id\n1\n")
    [shard] = [shard for table, shard in writer.ingester.table_shards() if table.table.name == "log"]
    columns = {field.name: pa.nulls(1, field.type) for field in shard.schema}
    bad = pa.table({**columns, ERROR: ["bad"], DIFF: [1], TIME: [writer.now + 1]})
    shard.compare_and_append(bad, expected_upper=writer.now + 1, new_upper=writer.now + 2, term=writer.term)
    edit(writer, with_column(writer.spec, "log", VIP))
    writer.now += 100
    writer.tick()
    assert errors(tmp_path, "log.2") == {"bad": 1}
    assert oks(tmp_path, "log.2") == [(1, *[None] * 4)]


def test_a_table_whose_rows_are_gone_does_not_begin_empty(tmp_path: Path) -> None:
    """It is stopped. The other tables go on, also one that begins; calls that it has are answered as before."""
    writer = Writer(tmp_path)
    first = writer.call("keyed", b"id\n1\n", key="k")
    writer.call("plain", b"id\n1\n")
    spec = with_column(with_column(writer.spec, "keyed", VIP), "plain", VIP)
    edit(writer, without_tables(with_column(spec, "keyed", replace(VIP, name="b")), "keyed"))
    writer.tick()
    assert oks(tmp_path, "plain.2") == [(1, *[None] * 4)]
    for _ in range(2):
        with pytest.raises(WriteNotPossible, match=r"^RowsGone: table keyed\.3 begins with the rows of a table that"):
            writer.call("keyed", b"id\n2\n")
        assert writer.call("keyed", b"id\n1\n", key="k") == replace(first, repeated=True)
        writer.call("plain", b"id,vip\n2,3\n")
        assert (upper(tmp_path, "keyed.2"), upper(tmp_path, "keyed.3")) == (0, 0)
        assert upper(tmp_path, "plain.2") == upper(tmp_path, "log") == writer.now + 1
        stopped = writer.ingester._source.stop_reasons()
        assert {name: text.partition(":")[0] for name, text in stopped.items()} == {
            "keyed.2": "RowsGone",
            "keyed.3": "RowsGone",
        }
        assert not writer.ingester._source.retries()
        writer.restart()
    edit(writer, without_tables(writer.spec, "keyed.2", "keyed.3"))
    writer.tick()
    assert writer.ingester._source.stop_reasons() == {}


def test_a_copy_that_is_not_wanted_any_more_ends(tmp_path: Path) -> None:
    writer = Writer(tmp_path)
    writer.call("keyed", b"id\n1\n")
    edit(writer, with_column(writer.spec, "keyed", VIP))
    writer.ingester._source.interrupt()
    with pytest.raises(SourceUnusable, match="not ingested any more"):
        writer.tick()
    assert upper(tmp_path, "keyed.2") == 0


@pytest.mark.parametrize("at", ["before the binding", "after the binding", "between the tables"])
def test_crash_in_the_tick_in_which_a_table_begins(tmp_path: Path, at: str, monkeypatch: pytest.MonkeyPatch) -> None:
    writer = Writer(tmp_path)
    writer.call("keyed", b"id,name\n1,a\n")
    writer.call("plain", b"id\n1\n")
    edit(writer, with_column(with_column(writer.spec, "keyed", VIP), "plain", VIP))
    append, left = Ingester._append, {"before the binding": 0, "after the binding": 1, "between the tables": 6}[at]

    def append_or_die(*given: Any) -> None:
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        append(*given)

    monkeypatch.setattr(Ingester, "_append", append_or_die)
    with pytest.raises(KeyboardInterrupt):
        writer.tick()
    began = writer.now
    monkeypatch.setattr(Ingester, "_append", append)
    writer.restart()
    first = 0 if at == "before the binding" else began + 1
    assert (upper(tmp_path, "keyed.2"), upper(tmp_path, "plain.2")) == (first, first)
    writer.tick()
    assert oks(tmp_path, "keyed.2") == [(1, "a", None, None, None)]
    assert oks(tmp_path, "plain.2") == [(1, *[None] * 4)]
    begins = [open_shard(f"{tmp_path}/{name}").state().since for name in ("keyed.2", "plain.2")]
    assert begins == [writer.now if first == 0 else began] * 2


Row = tuple[Any, ...]
"""id, name and the values of the added columns."""


@dataclass
class Model:
    """The rows that the tables should hold, and calls at random. `width`: how many columns were added."""

    draw: random.Random
    keyed: dict[int, Row] = field(default_factory=dict)
    plain: Counter[Row] = field(default_factory=Counter)
    width: dict[str, int] = field(default_factory=lambda: {"keyed": 0, "plain": 0})

    def add_column(self, table: str) -> None:
        self.width[table] += 1
        if table == "keyed":
            self.keyed = {id: (*row, None) for id, row in self.keyed.items()}
        else:
            self.plain = Counter({(*row, None): n for row, n in self.plain.items()})

    def call(self) -> tuple[str, str, bytes]:
        """The table, the operation and the csv; it has some of the added columns, as older clients do."""
        table = self.draw.choice(["keyed", "plain"])
        operation = self.draw.choice(["insert", "upsert", "delete"] if table == "keyed" else ["insert", "delete"])
        known = self.draw.randrange(self.width[table] + 1)
        header = ",".join(["id", "name", "price", "at", *(f"c{i}" for i in range(known))])
        lines = []
        for _ in range(self.draw.choice([1, 1, 2, 5, 30])):
            values = [self.draw.choice(["", "1", "2"]) for _ in range(known)]
            lines.append(",".join([str(self.draw.randrange(40)), self.draw.choice("ab"), "", "", *values]))
        return table, operation, "\n".join([header, *lines, ""]).encode()

    def apply(self, table: str, operation: str, body: bytes) -> int | None:
        """The number of rows that the call writes or deletes; None where it is refused."""
        cells = [line.split(",") for line in body.decode().splitlines()[1:]]
        given = [(int(c[0]), c[1], *(int(v) if v else None for v in c[4:])) for c in cells]
        found = [(*row, *[None] * (2 + self.width[table] - len(row))) for row in given]
        if table == "plain":
            change = Counter(found)
            if operation == "delete":
                change &= self.plain
                self.plain -= change
            else:
                self.plain += change
            return change.total()
        ids = {row[0] for row in found}
        there = ids & self.keyed.keys()
        if len(ids) < len(found) or (operation == "insert" and there):
            return None
        if operation == "delete":
            self.keyed = {id: row for id, row in self.keyed.items() if id not in ids}
            return len(there)
        self.keyed |= {row[0]: row for row in found}
        return len(found)

    def rows(self) -> dict[str, list[Row]]:
        return {"keyed": list(self.keyed.values()), "plain": list(self.plain.elements())}


@dataclass
class History:
    """An ingester that dies at random appends, and clients that repeat their calls with the same keys."""

    writer: Writer
    moments: random.Random
    alive: MomentsUntilDeath

    def surely(self, step: Any) -> Any:
        """The result of the step, once the process lives to its end."""
        while True:
            if self.alive.left <= 0:
                self.alive.left = self.moments.randrange(2, 60)
            try:
                return step()
            except KeyboardInterrupt:
                self.restart()

    def restart(self) -> None:
        while self.alive.left <= 0:
            self.alive.left = self.moments.randrange(2, 60)
            try:
                self.writer.restart()
            except KeyboardInterrupt:
                self.alive.left = 0

    def answer(self, call: tuple[str, str, bytes], key: str) -> WriteAnswer | None:
        """None: it is refused."""

        def step() -> WriteAnswer | None:
            table, operation, body = call
            pending = self.writer.put(table, body, operation, key=key)
            try:
                while (answer := pending.answer(0)) is None:
                    self.writer.tick()
            except WriteRefused:
                return None
            return answer

        found: WriteAnswer | None = self.surely(step)
        return found

    def edit(self, spec: WrittenSource) -> None:
        self.writer.spec = spec
        self.surely(self.writer.restart)


def check(root: Path, spec: WrittenSource, wanted: dict[int, dict[str, list[Row]]]) -> None:
    """Each table has, at each time at which it can be read, the rows of then without the columns of later."""
    for table in spec.tables:
        shard = open_shard(f"{root}/{table.name}")
        now, width = shard.state(), 2 + len(table.added)
        for time, known in wanted.items():
            if now.since <= time < now.upper:
                expected = sorted(((r + (None,) * 9)[:width] for r in known[spec_name(table.name)]), key=repr)
                found = sorted(((*row[:2], *row[4:]) for row in oks(root, table.name, time)), key=repr)
                assert found == expected, (table.name, time)


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(2, 10))])
def test_crash_random_histories_with_added_columns_are_those_of_a_model(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tables before go at random, once the later one has begun. Half of the histories divide every call on disk."""
    if seed % 2:
        monkeypatch.setattr(source, "SHARE_BYTES", 200)
    model = Model(random.Random(seed))
    writer = Writer(tmp_path, WrittenSource(SPEC.tables[:2]))
    history = History(writer, random.Random(seed + 1000), die_around(monkeypatch, 9))
    wanted: dict[int, dict[str, list[Row]]] = {}
    answered: dict[str, tuple[tuple[str, str, bytes], WriteAnswer]] = {}
    for step in range(14 if seed < 2 else 24):
        if step % 6 == 4:
            table = history.moments.choice(["keyed", "plain"])
            column = Column(f"c{model.width[table]}", BIGINT)
            history.edit(with_column(writer.spec, table, column))
            model.add_column(table)
        begun = {name for name in (t.name for t in writer.spec.tables) if upper(tmp_path, name)}
        earlier = {name for name in begun if newest(begun)[spec_name(name)] != name}
        if earlier and history.moments.random() < 0.3:
            history.edit(without_tables(writer.spec, min(earlier, key=number)))
        call, key = model.call(), f"c{step}"
        answer, expected = history.answer(call, key), model.apply(*call)
        assert (None if answer is None else answer.rows) == expected, step
        if answer is not None:
            answered[key] = call, answer
        key, (call, first) = history.moments.choice([*answered.items(), ("", ((), None))][: max(len(answered), 1)])
        if key:
            assert history.answer(call, key) == replace(first, repeated=True)
        wanted[writer.now] = model.rows()
        check(tmp_path, writer.spec, {writer.now: wanted[writer.now]})
    check(tmp_path, writer.spec, wanted)
    assert any(number(table.name) > 1 for table in writer.spec.tables)
