"""Lookups have threads of their own: none waits until a table or a whole index is read."""

from __future__ import annotations

import threading
import time
from typing import Any, cast

import pytest

from tests.waiting import BOUND
from tidemark_protocol.ids import GlobalId, ShardId, Time
from tidemark_protocol.messages.commands import IndexTarget, Peek, ShardTarget
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.messages.responses import PeekRows
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.map_filter_project import MapFilterProject
from tidemark_protocol.types import BIGINT, BOOLEAN, Column, ColumnType
from tidemark_replica.events.jobs import Jobs
from tidemark_replica.events.mailbox import LoopCall, Mailbox
from tidemark_replica.peek.peek_reader import AnswerLimits
from tidemark_replica.peek.peek_targets import InstalledPeekTargets
from tidemark_replica.process.replica import LOOKUP_THREADS, PEEK_THREADS

COLUMN = Column("k", BIGINT)
WHOLE = MapFilterProject((ColumnType(BIGINT),))
FILTERED = MapFilterProject((ColumnType(BIGINT),), predicates=(Literal("true", BOOLEAN),))
INDEX = IndexTarget(GlobalId("i"))
TABLE = ShardTarget(GlobalId("t"), ShardMetadata(ShardId("t"), "/t", (COLUMN,)))
KEYS = ((Literal("7", BIGINT),),)


@pytest.mark.parametrize(
    ("target", "mfp", "keys"),
    [(TABLE, WHOLE, None), (INDEX, WHOLE, None), (INDEX, FILTERED, KEYS)],
    ids=["a table", "a whole index", "expressions"],
)
def test_a_lookup_is_answered_while_others_are_read(
    target: IndexTarget | ShardTarget, mfp: MapFilterProject, keys: tuple[tuple[Literal, ...], ...] | None
) -> None:
    """However many others there are; and they go on once what they wait for is there."""
    mailbox, go_on, answered = Mailbox(), threading.Event(), list[str]()
    lookups, peeks = Jobs(mailbox, "lookup", LOOKUP_THREADS), Jobs(mailbox, "peek", PEEK_THREADS)

    def read(peek: Peek, limits: AnswerLimits, stopped: object) -> PeekRows:
        if peek.uuid != "lookup":
            go_on.wait(BOUND)
        return PeekRows(b"", 0)

    nobody = cast(Any, None)
    targets = InstalledPeekTargets(nobody, nobody, lookups, peeks, read, lambda *_: [PeekRows(b"", 0)])
    others = [Peek(f"other {n}", target, Time(1), mfp, Finishing(), (COLUMN,), keys) for n in range(PEEK_THREADS + 3)]
    for peek in (*others, Peek("lookup", INDEX, Time(1), WHOLE, Finishing(), (COLUMN,), KEYS)):
        targets.read(peek, AnswerLimits(1024), lambda _, uuid=peek.uuid: answered.append(uuid))
    _run_next(mailbox)
    assert answered == ["lookup"]
    go_on.set()
    for _ in others:
        _run_next(mailbox)
    assert sorted(answered[1:]) == [peek.uuid for peek in others]
    for jobs in (lookups, peeks):
        jobs.shutdown()


def _run_next(mailbox: Mailbox) -> None:
    event = mailbox.take(time.monotonic() + BOUND)
    assert isinstance(event, LoopCall)
    event.run()
