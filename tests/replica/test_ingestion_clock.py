"""The controller's clock, as an ingestion knows it."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.protocol.samples import INGESTION
from tests.replica.loop import Loop
from tidemark_protocol.commands import RunIngestion
from tidemark_protocol.ids import Time, WriterTerm
from tidemark_replica.ingestions import Ingestions
from tidemark_replica.storage.clock import ControllerClock


class SlowSpark:
    """Starts when it is told to."""

    def __init__(self) -> None:
        self.may_start = threading.Event()

    def get(self) -> None:
        self.may_start.wait(30)


class Recorder:
    def __init__(self) -> None:
        self.clocks: list[ControllerClock] = []

    def run(self, command: RunIngestion, clock: ControllerClock) -> None:
        self.clocks.append(clock)


def test_the_clock_goes_on_while_spark_starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """On a busy machine that takes longer than a clock may be ahead: the source would wait for ever."""
    loop, spark, manager = Loop(), SlowSpark(), Recorder()
    ingestions = Ingestions(spark, loop.jobs, tmp_path)  # type: ignore[arg-type]
    monkeypatch.setattr(ingestions, "_new_manager", lambda session: manager)
    ingestions.run(RunIngestion(INGESTION, WriterTerm(1), Time(1_000), 30_000))
    told = time.monotonic()
    spark.may_start.set()
    loop.run_until(lambda: manager.clocks)

    assert manager.clocks[0].received <= told
    assert manager.clocks[0].controller_now == 1_000
