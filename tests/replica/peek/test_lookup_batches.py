"""Lookups that are read together have the answers that each has by itself."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from tests.oracle.harness import INDEX
from tests.oracle.histories import History, Table, random_history
from tests.oracle.plans import GET_T
from tests.oracle.tables import T
from tests.oracle.variants.in_process import in_process
from tests.waiting import BOUND
from tidemark_protocol.functions.registry import call
from tidemark_protocol.ids import GlobalId, Time
from tidemark_protocol.messages.commands import IndexTarget, Peek
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.messages.responses import PeekRows
from tidemark_protocol.plan.expr import ColumnRef, Literal
from tidemark_protocol.plan.lir import Get, MapFilterProject
from tidemark_protocol.types import BIGINT, BOOLEAN, Column, SqlType
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.events.jobs import Done, Jobs, Outcome
from tidemark_replica.events.mailbox import LoopCall, Mailbox
from tidemark_replica.peek.lookup_batches import LOOKUPS_MAX, LookupBatches, LookupReader
from tidemark_replica.peek.peek_reader import AnswerLimits, PeekReader
from tidemark_replica.peek.result_stash import ResultStash

LIMITS = AnswerLimits(1 << 20)
VALUES = (None, "0", "1", "2", "3", "77")


def key(value: str | None) -> tuple[Literal, ...]:
    return (Literal(value, BIGINT),)


def rows_of(answer: object) -> Counter[tuple[object, ...]]:
    assert isinstance(answer, PeekRows)
    table = pa.ipc.open_stream(answer.data).read_all()
    assert table.num_rows == answer.row_count
    return Counter(map(tuple, (row.values() for row in table.to_pylist())))


class Readers:
    """Both ways to read the index of a random history, at each of its times."""

    def __init__(self, of: Any, index: Any, folder: Path) -> None:
        self.index, batches = index, BatchCache(of.store.directory)
        self.together = LookupReader(lambda id: index, batches)
        self.alone = PeekReader(lambda: None, lambda id: index, batches, ResultStash(folder / "stash"))

    def peek(self, uuid: str, at: int, keys: Sequence[str | None], mfp: MapFilterProject | None = None) -> Peek:
        mfp = MapFilterProject.identity(T.schema) if mfp is None else mfp
        columns = self.index.columns if mfp.projection is None else [self.index.columns[i] for i in mfp.projection]
        target = IndexTarget(GlobalId(INDEX))
        return Peek(uuid, target, Time(at), mfp, Finishing(), tuple(columns), tuple(map(key, keys)))


@pytest.mark.parametrize("seed", range(6))
def test_random_lookups(tmp_path: Path, seed: int) -> None:
    """Keys that are there, that are not, NULL, the same key twice, several keys of one lookup, rows several times."""
    rng, history = np.random.default_rng(seed), random_history({"t": T}, seed, times=5, changes=40)
    kinds = (None, (2, 0), (1,))
    with in_process(tmp_path, {"t": T}, history) as of:
        exporter = of.build(of.describe(GET_T))
        of.step(exporter, history.last + 1).release()
        readers, some = Readers(of, exporter.indexes[INDEX], tmp_path), 0
        for round in range(12):
            mfp = replace(MapFilterProject.identity(T.schema), projection=kinds[round % 3])
            wanted = [rng.choice(len(VALUES), rng.integers(1, 3), replace=False) for _ in range(9)]
            peeks = [
                readers.peek(str(n), history.last, [VALUES[i] for i in keys], mfp) for n, keys in enumerate(wanted)
            ]
            found = readers.together(peeks, LIMITS)
            assert found is not None
            for peek, answer in zip(peeks, found, strict=True):
                expected = rows_of(readers.alone(peek, LIMITS, lambda: False))
                assert rows_of(answer) == expected
                some += expected.total()
        assert some


KEY_TYPES: dict[str, list[Any]] = {
    "string": ["", "a", "a ", "A", "é", "e\u0301", "7"],
    "int": [-(2**31), -1, 0, 7],
    "decimal(12,2)": [Decimal("0.00"), Decimal("-3.10"), Decimal("1.20")],
    "date": [date(1, 1, 1), date(1969, 12, 31), date(2020, 2, 29)],
    "timestamp": [datetime(1969, 12, 31, 23, 59, 59, 999999, UTC), datetime(2020, 1, 1, tzinfo=UTC)],
    "timestamp_ntz": [datetime(1, 1, 1), datetime(2020, 1, 1, 0, 0, 0, 1)],
    "boolean": [True, False],
    "binary": [b"", b"\0", b"a", b"a\0"],
}


@pytest.mark.parametrize("kind", KEY_TYPES)
def test_a_lookup_has_the_rows_that_the_filter_has(tmp_path: Path, kind: str) -> None:
    """For every type of a key whose filter the planner leaves out, NULL rows beside."""
    of_type, values = SqlType.parse(kind), KEY_TYPES[kind]
    assert of_type.is_key_type
    table = Table((("k", kind), ("n", "bigint")), ([*values[1:], None], [1, 2, None]))
    history = random_history({"t": table}, 1, times=4, changes=30)
    whole = MapFilterProject.identity(table.schema)
    with in_process(tmp_path, {"t": table}, history) as of:
        exporter = of.build(of.describe(Get(GlobalId("t"), table.schema)))
        of.step(exporter, history.last + 1).release()
        readers, some = Readers(of, exporter.indexes[INDEX], tmp_path), 0
        for value in values:
            literal = Literal(text_of(value), of_type)
            equal = call("=", (ColumnRef(0, of_type), literal), BOOLEAN)
            peek = replace(readers.peek("1", history.last, [], whole), literals=((literal,),))
            filtered = replace(peek, literals=None, mfp=replace(whole, predicates=(equal,)))
            expected = rows_of(readers.alone(filtered, LIMITS, lambda: False))
            found = readers.together([peek], LIMITS)
            assert found is not None
            assert rows_of(found[0]) == rows_of(readers.alone(peek, LIMITS, lambda: False)) == expected
            some += expected.total()
        assert some


def text_of(value: object) -> str:
    """The value as literals have it."""
    match value:
        case bool():
            return str(value).lower()
        case bytes():
            return value.hex()
        case datetime():
            return value.replace(tzinfo=None).isoformat()
        case _:
            return str(value)


def test_what_is_no_slice_of_the_rows_is_read_one_by_one(tmp_path: Path) -> None:
    """Two names of one key; and many rows, or bytes above the limit of a message."""
    history = random_history({"t": T}, 3, times=4, changes=40)
    with in_process(tmp_path, {"t": T}, history) as of:
        exporter = of.build(of.describe(GET_T))
        of.step(exporter, history.last + 1).release()
        readers = Readers(of, exporter.indexes[INDEX], tmp_path)
        one, two = (readers.peek(uuid, history.last, [uuid]) for uuid in ("1", "01"))
        assert readers.together([one, two], LIMITS) is None
        assert readers.together([one], AnswerLimits(64)) is None
        assert readers.together([one], AnswerLimits(1 << 20, stash_above=64)) is None
        assert readers.together([one], LIMITS) is not None
        assert readers.together([replace(one, finishing=Finishing(shown=0))], LIMITS) is None


def test_the_limit_is_of_the_rows_as_they_are_sent(tmp_path: Path) -> None:
    """A row that is there many times, or a column that is shown many times, is small in the index alone."""
    row = (1, 1, "x" * 4096)
    for copies, projection, fits in ((400, None, False), (400, (0,), True), (1, (2,) * 400, False), (1, (2,), True)):
        folder = tmp_path / f"{copies} {len(projection or ())}"
        folder.mkdir()
        with in_process(folder, {"t": T}, history := History({"t": ((row, 1, copies),)}, 1, 2, 0)) as of:
            exporter = of.build(of.describe(GET_T))
            of.step(exporter, history.last + 1).release()
            readers = Readers(of, exporter.indexes[INDEX], folder)
            mfp = replace(MapFilterProject.identity(T.schema), projection=projection)
            found = readers.together([readers.peek("1", history.last, ["1"], mfp)], LIMITS)
            assert (found is not None) == fits
            assert found is None or found[0].row_count == copies


class Recorded:
    """Readers whose calls a test counts. A lookup of key `held` waits until it may go on."""

    def __init__(self) -> None:
        self.alone, self.together = list[str](), list[list[str]]()
        self.fails = self.refuses = False
        self.held, self.go_on = threading.Event(), threading.Event()

    def one(self, peek: Peek, limits: AnswerLimits, stopped: object) -> PeekRows:
        self.alone.append(peek.uuid)
        return PeekRows(peek.uuid.encode(), 1)

    def many(self, peeks: Sequence[Peek], limits: AnswerLimits) -> list[PeekRows] | None:
        if peeks[0].uuid == "held":
            self.held.set()
            self.go_on.wait(BOUND)
            return [PeekRows(b"held", 1)]
        self.together.append([peek.uuid for peek in peeks])
        if self.fails:
            raise ValueError("of one of them")
        return None if self.refuses else [PeekRows(peek.uuid.encode(), 1) for peek in peeks]


IDENTITY = MapFilterProject.identity(T.schema)


def lookup(uuid: str, at: int = 1, finishing: Finishing = Finishing()) -> Peek:  # noqa: B008
    columns = (Column("k", BIGINT),)
    return Peek(uuid, IndexTarget(GlobalId("i")), Time(at), IDENTITY, finishing, columns, (key("1"),))


def answers_of(recorded: Recorded, peeks: Sequence[Peek], dropped: Sequence[Peek] = ()) -> dict[str, bytes]:
    """The answers of lookups that come while one of the same index at time 1 is read."""
    mailbox, found = Mailbox(), dict[str, bytes]()
    jobs = Jobs(mailbox, "lookup", 1)
    batches = LookupBatches(jobs, recorded.one, recorded.many, mailbox.call)

    def read(peek: Peek) -> None:
        def end(outcome: Outcome[Any]) -> None:
            assert isinstance(outcome, Done)
            assert peek.uuid not in found
            found[peek.uuid] = cast(PeekRows, outcome.value).data

        batches.read(peek, LIMITS, lambda: False, end)

    read(lookup("held"))
    event = mailbox.take(time.monotonic() + BOUND)
    assert isinstance(event, LoopCall)
    event.run()
    assert recorded.held.wait(BOUND)
    for peek in peeks:
        read(peek)
    for peek in dropped:
        batches.forget(peek)
    recorded.go_on.set()
    while len(found) < 1 + len(peeks) - len(dropped) or batches._waiting:
        event = mailbox.take(time.monotonic() + BOUND)
        assert isinstance(event, LoopCall)
        event.run()
    jobs.shutdown()
    assert not batches._waiting
    return found


def test_lookups_that_wait_are_read_together() -> None:
    """Lookups of one index at one time go together, and no more than LOOKUPS_MAX."""
    recorded = Recorded()
    peeks = [lookup(str(n), at=1 + n % 2) for n in range(2 * LOOKUPS_MAX + 6)]
    found = answers_of(recorded, peeks)
    assert found == {uuid: uuid.encode() for uuid in ("held", *(peek.uuid for peek in peeks))}
    assert [len(each) for each in recorded.together] == [LOOKUPS_MAX, LOOKUPS_MAX, 3, 3]
    assert not recorded.alone


def test_lookups_that_come_together_are_read_together() -> None:
    """The first of a frame does not go before the others; one that was dropped meanwhile is not read."""
    recorded, mailbox, found = Recorded(), Mailbox(), list[str]()
    jobs = Jobs(mailbox, "lookup", 1)
    batches = LookupBatches(jobs, recorded.one, recorded.many, mailbox.call)
    peeks = [lookup(uuid) for uuid in "abcd"]
    for peek in peeks:
        batches.read(peek, LIMITS, lambda: False, lambda end, uuid=peek.uuid: found.append(uuid))  # type: ignore[misc]
    batches.forget(peeks[1])
    while len(found) < 3 or batches._waiting:
        event = mailbox.take(time.monotonic() + BOUND)
        assert isinstance(event, LoopCall)
        event.run()
    jobs.shutdown()
    assert recorded.together == [["a", "c", "d"]]
    assert found == ["a", "c", "d"]


@pytest.mark.parametrize("how", ["fails", "refuses"])
def test_lookups_that_cannot_be_read_together_are_read_alone(how: str) -> None:
    recorded = Recorded()
    setattr(recorded, how, True)
    found = answers_of(recorded, [lookup(uuid) for uuid in "abc"])
    assert found == {uuid: uuid.encode() for uuid in ("held", *"abc")}
    assert (recorded.together, recorded.alone) == ([["a", "b", "c"]], ["a", "b", "c"])


def test_an_order_and_a_limit_are_of_one_lookup() -> None:
    recorded = Recorded()
    answers_of(recorded, [lookup(uuid, finishing=Finishing(limit=1)) for uuid in "ab"])
    assert recorded.together == []


def test_a_dropped_lookup_is_not_read_with_others() -> None:
    recorded, peeks = Recorded(), [lookup(uuid) for uuid in "abc"]
    answers_of(recorded, peeks, dropped=[peeks[1]])
    assert recorded.together == [["a", "c"]]
