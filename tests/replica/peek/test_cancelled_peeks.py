"""A cancelled peek releases its files at once.

Were that left to Python's collector, it would happen on any thread, in the middle of whatever that thread is at: one
that changes the store already would wait for itself, for ever.
"""

from __future__ import annotations

import gc
import logging
import queue
import time
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.harness import INDEX
from tests.oracle.histories import random_history
from tests.oracle.plans import GET_T
from tests.oracle.tables import T
from tests.oracle.variants.in_process import in_process
from tests.waiting import BOUND
from tidemark_protocol.ids import Time
from tidemark_protocol.messages.commands import IndexTarget, Peek
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.events.jobs import Failed, JobCancelled, Jobs, Outcome
from tidemark_replica.events.mailbox import LoopCall, Mailbox
from tidemark_replica.peek.peek_reader import AnswerLimits, PeekReader
from tidemark_replica.peek.result_stash import ResultStash

HISTORY = random_history({"t": T}, 8, times=4, changes=6)


@pytest.fixture(autouse=True)
def no_collector(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """Nor a log that keeps what it is told of a failure: at DEBUG that is where it happened, frames and all."""
    caplog.set_level(logging.INFO, "tidemark_replica.events.jobs")
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def outcome_of(mailbox: Mailbox) -> None:
    event = mailbox.take(time.monotonic() + BOUND)
    assert isinstance(event, LoopCall)
    event.run()


def test_a_cancelled_peek_holds_no_file_of_its_index(tmp_path: Path) -> None:
    """It is cancelled with some of the index read and some not."""
    with in_process(tmp_path, {"t": T}, HISTORY) as of:
        exporter = of.build(of.describe(GET_T))
        of.step(exporter, HISTORY.last + 1).release()
        index = exporter.indexes[INDEX]
        every = MapFilterProject.identity(T.schema)
        peek = Peek("u", IndexTarget(INDEX), Time(HISTORY.last), every, Finishing(), index.columns)
        read = PeekReader(
            lambda: None, lambda id: index, BatchCache(of.store.directory), ResultStash(tmp_path / "stash")
        )
        mailbox, ended = Mailbox(), queue.Queue[Outcome[Any]]()
        jobs = Jobs(mailbox, "peek", 1)
        jobs.submit("peek", lambda: read(peek, AnswerLimits(1 << 20), lambda: True), ended.put)
        outcome_of(mailbox)
        outcome = ended.get(timeout=BOUND)
        assert isinstance(outcome, Failed)
        assert isinstance(outcome.error, JobCancelled)
        assert [*of.store.directory.glob("*/*")]
        exporter.drop()
        assert not [*of.store.directory.glob("*/*")]


def test_a_failed_job_keeps_no_frames_of_its_work() -> None:
    """Its error says what happened; the frames in which it happened are gone."""

    class Worked:
        pass

    alive: list[weakref.ref[Worked]] = []

    def fail() -> None:
        worked = Worked()
        alive.append(weakref.ref(worked))
        raise ValueError(f"in the midst of {type(worked).__name__}")

    mailbox, ended = Mailbox(), queue.Queue[Outcome[Any]]()
    Jobs(mailbox, "t", 1).submit("t", fail, ended.put)
    outcome_of(mailbox)
    outcome = ended.get(timeout=BOUND)
    assert isinstance(outcome, Failed)
    assert str(outcome.error) == "in the midst of Worked"
    assert alive[0]() is None
