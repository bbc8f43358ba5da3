"""Relations of the operator as tables: each tick has one document's rows, whoever dies; no document, no tick."""

from __future__ import annotations

import json
import random
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.storage.dying_appends import die_after
from tests.storage.ingestion_samples import description, oks
from tests.waiting import until
from tidemark_persist import ShardWriters, open_shard
from tidemark_protocol.ids import GlobalId, Time, WriterTerm
from tidemark_protocol.messages.commands import RunIngestion
from tidemark_protocol.messages.responses import IngestionStatus, ShardFrontiers
from tidemark_protocol.plan.ingestion import IntrospectionSource, IntrospectionTable
from tidemark_protocol.types import BIGINT, BOOLEAN, STRING, Column
from tidemark_replica.storage.clock import ControllerClock
from tidemark_replica.storage.errors import SourceUnusable
from tidemark_replica.storage.ingester import Ingester
from tidemark_replica.storage.ingestion_threads import IngestionThreads
from tidemark_replica.storage.introspection import contents
from tidemark_replica.storage.introspection.contents import REPLACE, ContentsSlot, RelationContents, receive
from tidemark_replica.storage.introspection.source import IntrospectionIngestion, tables_of
from tidemark_replica.storage.written.receive import WriteHeader
from tidemark_replica.storage.written.refusal import WriteRefused

LAGS = IntrospectionTable("lags", (Column("name", STRING), Column("lag_ms", BIGINT)))
STATES = IntrospectionTable("states", (Column("name", STRING), Column("ready", BOOLEAN)))
SPEC = IntrospectionSource((LAGS, STATES))
HEADER = WriteHeader("", REPLACE, "json", "")
TICK_MS = 100
Rows = Sequence[tuple[Any, ...]]


def body(relations: Mapping[str, Rows], spec: IntrospectionSource = SPEC) -> list[bytes]:
    """A document with these rows, in two pieces."""
    columns = {t.name: [c.name for c in t.columns] for t in spec.tables}
    found = {r: {n: [row[i] for row in rows] for i, n in enumerate(columns[r])} for r, rows in relations.items()}
    text = json.dumps({"relations": found}).encode()
    return [text[:7], text[7:]]


class Fed:
    """An ingester with its slot. `restart`: another process goes on, and what waited is lost."""

    def __init__(self, root: Path, spec: IntrospectionSource = SPEC) -> None:
        self.root, self.spec, self.term, self.now = root, spec, 0, 1000
        self.restart()

    def restart(self) -> None:
        self.term += 1
        self.slot = ContentsSlot(TICK_MS)
        self.source = IntrospectionIngestion(self.slot)
        found = description(self.root, self.spec, tables_of(self.spec))
        self.ingester = Ingester(found, WriterTerm(self.term), self.source, ShardWriters())
        self.ingester.recover()

    def tick(self, relations: Mapping[str, Rows]) -> int:
        self.now += TICK_MS
        self.slot.put(receive(self.spec, HEADER, body(relations, self.spec)))
        assert self.source.reason_to_wait() is None
        assert self.ingester.tick(Time(self.now))
        return self.now


def sorted_rows(rows: Rows) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def drawn(draw: random.Random) -> dict[str, Rows]:
    """Few different rows, so that they come again, twice in one document, and go."""
    lags = [(draw.choice(["a", "b", None, "ü"]), draw.choice([0, 1, None, 2**62])) for _ in range(draw.randrange(5))]
    states = [(draw.choice("ab"), draw.choice([True, False, None])) for _ in range(draw.randrange(4))]
    return {"lags": lags, "states": states}


@pytest.mark.parametrize("seed", range(4))
def test_oracle_each_tick_has_the_rows_of_one_document(tmp_path: Path, seed: int) -> None:
    """The rows are of all tables together, at every tick, over restarts."""
    draw, fed, history = random.Random(seed), Fed(tmp_path), dict[int, dict[str, Rows]]()
    for _ in range(12):
        rows = drawn(draw)
        history[fed.tick(rows)] = rows
        if draw.random() < 0.3:
            fed.restart()
    for at, rows in history.items():
        for table in ("lags", "states"):
            assert oks(tmp_path, table, at) == sorted_rows(rows[table]), (table, at)


@pytest.mark.parametrize("died_after", range(1, 9))
def test_crash_after_any_append_nothing_is_lost_or_doubled(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, died_after: int
) -> None:
    """Each tick makes three appends; the process dies after the n-th, and the next one gets other documents."""
    draw, fed = random.Random(died_after), Fed(tmp_path)
    sent = dict[int, dict[str, Rows]]()

    def tick_again_and_again() -> None:
        while True:
            rows = drawn(draw)
            sent[fed.now + TICK_MS] = rows
            fed.tick(rows)

    die_after(monkeypatch, died_after)
    with pytest.raises(KeyboardInterrupt):
        tick_again_and_again()
    monkeypatch.undo()
    fed.restart()
    for _ in range(2):
        rows = drawn(draw)
        sent[fed.tick(rows)] = rows
    for at, rows in sent.items():
        for table in ("lags", "states"):
            assert oks(tmp_path, table, at) == sorted_rows(rows[table]), (table, at)


def test_an_equal_document_moves_the_uppers_alone(tmp_path: Path) -> None:
    fed, rows = Fed(tmp_path), {"lags": [("a", 1), ("a", 1)], "states": []}
    first = fed.tick(rows)
    changes = fed.source.counters()["changes"]
    fed.restart()
    last = fed.tick(rows)
    assert open_shard(f"{tmp_path}/lags").state().upper == last + 1 > first + 1
    assert (changes, fed.source.counters()["changes"]) == (1, 0)
    assert open_shard(f"{tmp_path}/lags").listen(first + 1, last + 1) == []
    assert oks(tmp_path, "lags") == [("a", 1), ("a", 1)]


def test_without_a_document_there_is_no_tick(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """First quietly, then with a reason; a document that waited for long is not of this moment."""
    fed = Fed(tmp_path)
    at = fed.tick({"lags": [("a", 1)], "states": []})
    assert fed.source.reason_to_wait() == ""
    with pytest.raises(SourceUnusable):
        fed.ingester.tick(Time(at + TICK_MS))
    assert open_shard(f"{tmp_path}/lags").state().upper == at + 1

    fed.slot.put(receive(SPEC, HEADER, body({"lags": [], "states": []})))
    assert fed.source.reason_to_wait() is None
    monkeypatch.setattr(contents, "monotonic", lambda: time.monotonic() + contents.PATIENCE_SECONDS + 1)
    assert fed.source.reason_to_wait() == contents.NO_WORD
    assert fed.slot.take(Time(at + TICK_MS)) is None


def test_an_obstacle_is_said_until_there_are_rows(tmp_path: Path) -> None:
    fed = Fed(tmp_path)
    fed.tick({"lags": [("a", 1)], "states": []})
    fed.slot.put(receive(SPEC, HEADER, [json.dumps({"obstacle": "TooManyRows: many"}).encode()]))
    assert fed.source.reason_to_wait() == "TooManyRows: many"
    fed.tick({"lags": [], "states": [("a", None)]})
    assert (oks(tmp_path, "lags"), oks(tmp_path, "states"), fed.source.reason_to_wait()) == ([], [("a", None)], "")


def test_the_newest_document_counts() -> None:
    slot = ContentsSlot(TICK_MS)
    for lag in (1, 2):
        slot.put(receive(SPEC, HEADER, body({"lags": [("a", lag)], "states": []})))
    assert lag_of(slot, 1000) == 2
    assert slot.take(Time(1100)) is None


def made(term: int, moment: int, lag: int) -> RelationContents:
    found = json.loads(b"".join(body({"lags": [("a", lag)], "states": []})))
    return receive(SPEC, HEADER, [json.dumps({"term": term, "moment": moment} | found).encode()])


def lag_of(slot: ContentsSlot, time: int) -> int | None:
    taken = slot.take(Time(time))
    return None if taken is None else taken.tables["lags"].to_pylist()[0]["lag_ms"]


def test_a_document_of_before_does_not_count() -> None:
    """A call that was overtaken, and one of an operator that led before, whatever its clock says."""
    slot = ContentsSlot(TICK_MS)
    slot.put(made(2, 5000, lag=1))
    slot.put(made(2, 4900, lag=2))
    slot.put(made(1, 9000, lag=3))
    assert lag_of(slot, 5000) == 1
    for term, moment in ((2, 5000), (2, 4900), (1, 9000)):
        slot.put(made(term, moment, lag=4))
    slot.put(receive(SPEC, HEADER, [json.dumps({"term": 1, "moment": 9000, "obstacle": "A: b"}).encode()]))
    assert (lag_of(slot, 5100), slot.reason_to_wait()) == (None, "")
    slot.put(made(3, 100, lag=5))
    assert lag_of(slot, 5100) == 5


def test_documents_count_again_where_a_clock_was_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    slot = ContentsSlot(TICK_MS)
    slot.put(made(2, 5000, lag=1))
    assert lag_of(slot, 5000) == 1
    monkeypatch.setattr(contents, "monotonic", lambda: time.monotonic() + contents.PATIENCE_SECONDS + 1)
    slot.put(made(2, 1000, lag=2))
    assert lag_of(slot, 5100) == 2


@pytest.mark.parametrize("restarts", [False, True])
def test_a_second_document_in_a_tick_does_not_wait_for_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, restarts: bool
) -> None:
    """Or each tick would have the moment of the one before, for good: the operator's next document comes just after
    the next tick. Also where it was bound before the process began, and where a document came late."""
    fed, clock = Fed(tmp_path), [0]
    monkeypatch.setattr(contents, "wall_clock_ms", lambda: clock[0])

    def comes(at: int) -> None:
        clock[0] = at
        fed.slot.put(made(1, at, at))

    comes(1150)
    assert fed.ingester.tick(Time(1100))
    if restarts:
        fed.restart()
    comes(1180)
    assert fed.source.reason_to_wait() == ""
    comes(1250)
    assert fed.ingester.tick(Time(1200))
    comes(1350)
    assert fed.ingester.tick(Time(1400))  # the thread was busy
    comes(1450)
    assert fed.source.reason_to_wait() == ""
    comes(1550)
    assert fed.ingester.tick(Time(1500))
    held = {at: oks(tmp_path, "lags", at)[0][1] for at in (1100, 1200, 1400, 1500)}
    assert held == {1100: 1150, 1200: 1250, 1400: 1350, 1500: 1550}


def test_columns_of_another_version_of_the_operator() -> None:
    """One that the table lacks is left out, one that the operator lacks is NULL; a second table has the same rows."""
    sent = {"lags": {"name": ["a"], "new": [True]}}
    spec = IntrospectionSource((LAGS, IntrospectionTable("lags.2", (Column("name", STRING), Column("new", BOOLEAN)))))
    found = receive(spec, HEADER, [json.dumps({"relations": sent}).encode()]).tables
    assert found["lags"].to_pylist() == [{"name": "a", "lag_ms": None}]
    assert found["lags.2"].to_pylist() == [{"name": "a", "new": True}]


@pytest.mark.parametrize(
    "text",
    [
        b"{",
        b"[]",
        b"{}",
        b'{"relations": {"lags": {}}}',
        b'{"relations": {"lags": {"name": ["a"], "lag_ms": [1, 2]}, "states": {}}}',
        b'{"relations": {"lags": {"name": [1]}, "states": {}}}',
        b'{"relations": {"lags": {"lag_ms": [9223372036854775808]}, "states": {}}}',
        b"{" + b" " * contents.DOCUMENT_BYTES_MAX,
    ],
)
def test_what_is_no_document_is_refused(text: bytes) -> None:
    with pytest.raises(WriteRefused):
        receive(SPEC, HEADER, [text])


def test_calls_of_clients_are_refused() -> None:
    for header in (WriteHeader("lags", "insert", "json", "k"), WriteHeader("lags", REPLACE, "json", "k")):
        with pytest.raises(WriteRefused, match="BAD_REQUEST"):
            receive(SPEC, header, [b"[]"])


def test_a_document_is_bound_as_soon_as_it_comes(tmp_path: Path) -> None:
    """By the ingestion's thread, which ticks once for each; without one it stands still."""
    manager = IngestionThreads(None, ShardWriters(), tmp_path / "cache")
    now = Time(int(time.time() * 1000))
    of = description(tmp_path, SPEC, manager.inspect(SPEC))
    states, uppers = list[str](), {"lags": 0}
    manager.run(RunIngestion(of, WriterTerm(1), now, 600_000), ControllerClock(now, 600_000))

    def upper() -> int:
        for each in manager.poll():
            if isinstance(each, IngestionStatus):
                states.append(each.state)
            elif isinstance(each, ShardFrontiers):
                uppers[each.id] = each.upper.encode()
        return uppers["lags"]

    try:
        before = 0
        for lag in range(3):
            until(lambda: manager.is_alive(of.id))

            def bound(lag: int = lag, before: int = before) -> bool:
                """A document that comes in a tick that is bound is dropped, so it is sent again. So is the one before,
                which may be bound again, at the tick of this one."""
                answer = manager.write(GlobalId(of.id), HEADER, body({"lags": [("a", lag)], "states": []})).answer(0)
                assert answer is not None
                assert answer.rows == 1
                return upper() > before and oks(tmp_path, "lags") == [("a", lag)]

            until(bound)
            before = upper()
    finally:
        manager.close()
    assert states[-1] == "running"
