"""A replica's description arrives as it was sent; of a table it has the owner and the columns."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest

from tests.waiting import BOUND, until
from tidemark_persist import create_or_open
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.messages.responses import DescribedDataflow, DescribedShard, Description
from tidemark_protocol.pb import compute_pb2 as pb
from tidemark_protocol.plan.plan_features import SUPPORTED_FEATURES
from tidemark_protocol.types import BIGINT, Column, SqlType
from tidemark_protocol.wire.describe import description_from_proto, description_to_proto
from tidemark_replica.command_loop import describe
from tidemark_replica.command_loop.describe import Describer, ShardDescriptions
from tidemark_replica.events.mailbox import Mailbox
from tidemark_replica.shards.shards import ShardHandles, unreadable, with_owner


def test_a_table_is_told_with_its_owner_and_its_columns(tmp_path: Path) -> None:
    """Whatever id it is asked about by; and the answer arrives as it was sent."""
    schema = pa.schema([("a", pa.int64()), ("b", pa.list_(pa.field("element", pa.decimal128(15, 2))))])
    create_or_open(str(tmp_path / "t"), schema, shard_id="theirs")
    handles = ShardHandles()

    seen = handles.describe(ShardId("mine"), str(tmp_path / "t"))
    told_of = with_owner(handles.reader(str(tmp_path / "t")), seen)

    decimals = SqlType.array(SqlType("decimal", 15, 2))
    assert (told_of.id, told_of.owner) == ("mine", "theirs")
    assert told_of.columns == (Column("a", BIGINT), Column("b", decimals))
    answer = Description("incarnation", None, 0, (), (), (told_of, seen))
    assert description_from_proto(description_to_proto(answer)) == answer


def test_from_when_on_a_dataflow_reads_is_told_where_it_is_known() -> None:
    """An older replica says nothing about it, which is not that it reads from zero on."""
    known = (None, Frontier.at(0), Frontier.at(9), Frontier.empty())
    dataflows = tuple(DescribedDataflow((GlobalId("i"),), "digest", Time(8), reads_from) for reads_from in known)
    answer = Description("incarnation", None, 0, dataflows, (), ())
    assert description_from_proto(description_to_proto(answer)) == answer


def test_must_say_what_it_understands_of_plans() -> None:
    """All of it: who does not say so is not told of what needs it."""
    mailbox = cast(Mailbox, SimpleNamespace(call=lambda asked: asked()))
    describer = Describer(mailbox, ShardHandles(), lambda: None, lambda: (0, (), ()))
    assert describer(cast(Any, pb.DescribeRequest())).plan_features == SUPPORTED_FEATURES


def test_frontiers_alone_are_told_where_nothing_else_is_asked_for(tmp_path: Path) -> None:
    """By who connects, and asks about all tables at a time; an operator that does not say so is told everything."""
    create_or_open(str(tmp_path / "t"), pa.schema([("a", pa.int64())]), shard_id="t")
    mailbox = cast(Mailbox, SimpleNamespace(call=lambda asked: asked()))
    describer = Describer(mailbox, ShardHandles(), lambda: None, lambda: (0, (), ()))
    refs = [pb.ShardRef(id="t", location=str(tmp_path / "t"))]
    (whole,) = describer(cast(Any, pb.DescribeRequest(shards=refs))).shards
    (alone,) = describer(cast(Any, pb.DescribeRequest(shards=refs, frontiers_alone=True))).shards

    assert (whole.owner, whole.columns) == ("t", (Column("a", BIGINT),))
    assert alone == replace(whole, owner=None, columns=())


class SlowToTell(ShardHandles):
    """Withholds the outcome of the first look, which has read the table, until it is let."""

    def __init__(self) -> None:
        super().__init__()
        self.looks, self.read, self.let = 0, threading.Event(), threading.Event()

    def describe(self, id: ShardId, location: str) -> DescribedShard:
        self.looks += 1
        seen = super().describe(id, location)
        self.read.set()
        self.let.wait(BOUND)
        return seen


def test_must_look_at_a_table_after_it_was_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A strict query asks, and has all that was committed before: a look that is under way is another's. Callers that
    ask meanwhile share the next, whatever they ask for, so that one which hangs is not begun again and again."""
    monkeypatch.setattr(describe, "SHARD_SECONDS", BOUND)
    table = create_or_open(str(tmp_path / "t"), pa.schema([("a", pa.int64())]), shard_id="t")
    handles, asking = SlowToTell(), threading.Semaphore(0)

    def installed(asked: Callable[[], None]) -> None:
        asking.release()  # the looks were asked for
        asked()

    describer = Describer(cast(Mailbox, SimpleNamespace(call=installed)), handles, lambda: None, lambda: (0, (), ()))
    refs = [pb.ShardRef(id="t", location=str(tmp_path / "t"))]
    alone, whole = (cast(Any, pb.DescribeRequest(shards=refs, frontiers_alone=alone)) for alone in (True, False))
    with ThreadPoolExecutor(9) as callers:
        before = callers.submit(describer, alone)
        assert handles.read.wait(BOUND)
        rows = pa.table({"a": [1], "__time": [5], "__diff": [1], "__error": pa.nulls(1, pa.string())})
        table.compare_and_append(rows, expected_upper=0, new_upper=20, term=1)
        after = [callers.submit(describer, request) for request in [alone, whole] * 4]
        assert all(asking.acquire(timeout=BOUND) for _ in (before, *after))
        handles.let.set()
        seen = [shard for asked in (before, *after) for shard in asked.result(BOUND).shards]

    assert [shard.upper for shard in seen] == [Frontier.at(0), *[Frontier.at(20)] * 8]
    assert [shard.owner for shard in seen] == [None, *[None, "t"] * 4]
    assert handles.looks == 2


def test_a_look_behind_another_has_its_own_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes less than it may at a slow store, and both together more: who asked second was told that the table
    cannot be read."""
    known = DescribedShard(ShardId("t"), True, Frontier.at(5), Frontier.at(0), WriterTerm(1))
    gates, begun = (threading.Event(), threading.Event()), threading.Semaphore(0)
    turns = iter(gates)

    def look(id: ShardId, location: str) -> DescribedShard:
        gate = next(turns)
        begun.release()
        assert gate.wait(BOUND)
        return known

    looks, place = ShardDescriptions(look), (ShardId("t"), "/t")
    first = looks.pending_description(place)
    assert begun.acquire(timeout=BOUND)
    second = looks.pending_description(place)

    def its_time_passes(asked: object, seconds: float) -> None:
        monkeypatch.setattr(describe, "wait", wait)
        gates[0].set()
        assert begun.acquire(timeout=BOUND)
        threading.Timer(0.2, gates[1].set).start()

    monkeypatch.setattr(describe, "SHARD_SECONDS", BOUND)
    monkeypatch.setattr(describe, "wait", its_time_passes)
    describe._wait([second])
    assert (first.result.result(BOUND), second.result.done()) == (known, True)


def test_looks_that_hang_are_waited_for_no_longer_than_they_may_take(monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that is under way, and the one behind it."""
    monkeypatch.setattr(describe, "SHARD_SECONDS", 0.1)
    let = threading.Event()
    looks, place = ShardDescriptions(lambda id, location: unreadable(id, str(let.wait(BOUND)))), (ShardId("t"), "/t")
    first = looks.pending_description(place)
    until(lambda: first.began is not None)
    second = looks.pending_description(place)
    try:
        describe._wait([first, second])
        assert not first.result.done()
        assert second.began is None
    finally:
        let.set()


class Panic(BaseException):
    """A panic as a library of Rust raises it: no `Exception`."""


def test_a_look_that_breaks_off_is_told_and_is_not_the_last() -> None:
    """Nobody would look at that table again, and it would be unreadable for as long as the replica lives."""
    known = DescribedShard(ShardId("t"), True, Frontier.at(5), Frontier.at(0), WriterTerm(1))
    reported: list[BaseException | DescribedShard] = [Panic("alice"), known]
    outcomes = iter(reported)

    def look(id: ShardId, location: str) -> DescribedShard:
        outcome = next(outcomes)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    looks, place = ShardDescriptions(look), (ShardId("t"), "/t")
    assert isinstance(looks.pending_description(place).result.exception(BOUND), Panic)
    until(lambda: place not in looks._running)
    assert looks.pending_description(place).result.result(BOUND) == known
