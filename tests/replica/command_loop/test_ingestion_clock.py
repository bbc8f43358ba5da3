"""Ingestions while Spark starts: the controller's clock goes on, and a failed start is tried again; so is any
other failure."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.protocol.samples import INGESTION
from tests.replica.worker_loop import Loop
from tests.waiting import BOUND, until
from tidemark_persist import ShardWriters
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_protocol.messages.commands import RunIngestion
from tidemark_protocol.messages.responses import IngestionStatus, StorageResponse
from tidemark_replica.command_loop.ingestion_commands import IngestionCommands
from tidemark_replica.storage.clock import ControllerClock
from tidemark_replica.storage.ingestion_threads import IngestionThreads


class SlowSpark:
    """Starts when it is told to."""

    def __init__(self) -> None:
        self.may_start = threading.Event()

    def get(self) -> None:
        self.may_start.wait(BOUND)


class Recorder:
    def __init__(self) -> None:
        self.clocks: list[ControllerClock] = []

    def run(self, command: RunIngestion, clock: ControllerClock) -> None:
        self.clocks.append(clock)

    def poll(self) -> list[StorageResponse]:
        return []


def test_the_clock_goes_on_while_spark_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a busy machine that takes longer than a clock may be ahead: the source would wait for ever."""
    loop, spark, manager = Loop(), SlowSpark(), Recorder()
    ingestions = IngestionCommands(spark, loop.jobs, tmp_path)  # type: ignore[arg-type]
    monkeypatch.setattr(ingestions, "_new_manager", lambda session: manager)
    ingestions.run(RunIngestion(INGESTION, WriterTerm(1), Time(1_000), 30_000))
    started = time.monotonic()
    spark.may_start.set()
    loop.run_until(lambda: manager.clocks)

    assert manager.clocks[0].received <= started
    assert manager.clocks[0].controller_now == 1_000


class FailingSpark:
    """Does not start at first."""

    def __init__(self, failures: int) -> None:
        self.failures = failures

    def get(self) -> None:
        self.failures -= 1
        if self.failures >= 0:
            raise OSError("no port is free")


def test_a_source_waits_for_a_spark_that_does_not_start_at_first(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It is told that it failed, and runs as soon as there is a session; nobody has to ask again."""
    loop, manager = Loop(), Recorder()
    ingestions = IngestionCommands(FailingSpark(2), loop.jobs, tmp_path)  # type: ignore[arg-type]
    monkeypatch.setattr(ingestions, "_new_manager", lambda session: manager)
    ingestions.run(RunIngestion(INGESTION, WriterTerm(1), Time(1_000), 30_000))
    responses: list[StorageResponse] = []

    def ran() -> bool:
        responses.extend(ingestions.poll())
        return bool(manager.clocks)

    loop.run_until(ran)
    assert len(manager.clocks) == 1
    assert [s.state for s in responses if isinstance(s, IngestionStatus)] == ["failed", "failed"]


class Panic(BaseException):
    """A panic as a library of Rust raises it: no `Exception`."""


def test_a_source_goes_on_after_a_failure_of_any_type(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It says so, and is tried again: nobody would begin it anew while it is taken to run."""
    tried: list[object] = []

    def panics(manager: IngestionThreads, description: object, inbox: object = None) -> None:
        tried.append(description)
        raise Panic("alice")

    monkeypatch.setattr(IngestionThreads, "source_for", panics)
    manager = IngestionThreads(None, ShardWriters(), tmp_path)
    manager.run(RunIngestion(INGESTION, WriterTerm(1), Time(1_000), 30_000), ControllerClock(Time(1_000), 30_000))
    try:
        until(lambda: len(tried) > 1)
        statuses = [news for news in manager.poll() if isinstance(news, IngestionStatus)]
        assert [(s.state, "alice" in s.message) for s in statuses] == [("failed", False)]
    finally:
        manager.close()
