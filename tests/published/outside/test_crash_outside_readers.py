"""Processes that publish a view are killed with SIGKILL at any moment, while DuckDB, delta-rs and Spark read the table
and follow its change data feed: each state that is read is one that the view had at the time that the commit says,
times never go back, and the last one is there at the end. Shard and table are compacted, and unused files deleted."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from deltalake import DeltaTable

from tests.published.outside import publishing_program
from tests.published.outside.marked_view import MarkedView
from tests.published.outside.polling_readers import (
    DeltaRsReader,
    DuckReader,
    FeedFollower,
    PollingReader,
    Spark,
    SparkFeedFollower,
    SparkReader,
)
from tests.storage.delta.spark_writer import SparkWriter
from tests.waiting import until
from tidemark_protocol.ids import Time, WriterTerm

SECONDS = 120


@contextmanager
def publisher(view: MarkedView, table: str, mode: str) -> Iterator[subprocess.Popen[bytes]]:
    """A process that has begun to publish; killed at the end of the block."""
    with subprocess.Popen(
        [sys.executable, "-m", publishing_program.__name__, view.location, table, mode],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"begin\n"
            yield process
        finally:
            process.send_signal(signal.SIGKILL)
            assert process.wait(SECONDS) == -signal.SIGKILL, "it ended by itself"


def read_through_kills(
    view: MarkedView, table: str, readers: Sequence[PollingReader], kills: int, planted: str = ""
) -> None:
    """Kills publishers while the view changes. Sometimes two publish at once; then neither deletes files."""
    done = 0
    while done < kills:
        modes = [planted] if planted else ["keep"] * 2 if done % 4 == 3 else ["clean"]
        with ExitStack() as stack:
            for mode in modes:
                stack.enter_context(publisher(view, table, mode))
            for _ in range(view.random.randrange(3, 10)):
                view.step(view.random.randrange(1, 12))
                time.sleep(view.random.uniform(0.0, 0.3))  # not a wait for anything: the moment of death
            if done % 5 == 2:
                view.maintain()
        done += len(modes)
        assert not any(reader.failures for reader in readers), readers
    last = view.step(5)
    publishing_program.destination(view.location, table).publish(Time(last), WriterTerm(1))
    until(lambda: all(reader.time == last or reader.failures for reader in readers))


def first_published(folder: Path, seed: int) -> tuple[MarkedView, str]:
    view, table = MarkedView(folder, seed), str(folder / "published")
    publishing_program.destination(view.location, table).publish(Time(view.step(40)), WriterTerm(1))
    return view, table


@pytest.mark.parametrize("kills", [3, pytest.param(60, marks=pytest.mark.slow)])
def test_each_state_that_others_read_is_one_that_the_view_had(tmp_path: Path, kills: int) -> None:
    """Spark is among the readers in the slow case."""
    view, table = first_published(tmp_path, kills)
    readers: list[PollingReader] = [of(view, table) for of in (DeltaRsReader, DuckReader, FeedFollower)]
    with ExitStack() as stack:
        if kills > 3:
            spark = Spark(stack.enter_context(SparkWriter(tmp_path / "spark.log")), tmp_path / "read")
            readers += [SparkReader(view, table, spark), SparkFeedFollower(view, table, spark)]
        for reader in readers:
            stack.enter_context(reader.going_on())
        read_through_kills(view, table, readers, kills)
    assert not any(reader.failures for reader in readers), readers
    assert min(reader.reads for reader in readers) > 5, readers
    assert all(reader.folded for reader in readers if isinstance(reader, FeedFollower)), readers
    assert DeltaTable(table).version() > kills, readers


def test_half_a_time_is_found(tmp_path: Path) -> None:
    """A publisher that commits half of a time, and the other half later, is found by each reader."""
    for reading in (DeltaRsReader, DuckReader, FeedFollower):
        folder = tmp_path / reading.__name__
        folder.mkdir()
        view, table = first_published(folder, 1)
        reader = reading(view, table)
        with reader.going_on(), pytest.raises(AssertionError, match=r"has not|of the times|commit says|version"):
            read_through_kills(view, table, [reader], 10, "half")
