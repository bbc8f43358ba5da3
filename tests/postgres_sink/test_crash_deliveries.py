"""Delivering processes are killed with SIGKILL wherever they are, and so is the database: a reader that polls all the
time sees only rows that the view had at the time beside them, later and later times, and the last one in the end."""

from __future__ import annotations

import random
import select
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from time import sleep

import psycopg
import pytest

from tests.postgres.databases import Database
from tests.postgres_sink.views import Row, View, progress_and_rows, sink_to
from tests.waiting import BOUND
from tidemark_protocol.plan import codec
from tidemark_protocol.plan.sinks.postgres import PostgresSink
from tidemark_replica.sinks.postgres.progress import WrittenByLater

pytestmark = [pytest.mark.postgres, pytest.mark.broad]


@contextmanager
def delivering_process(view: View, sink: PostgresSink, term: int) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is killed at the end of the block."""
    command = [sys.executable, "-m", "tests.postgres_sink.publishing_process", str(view.folder)]
    with subprocess.Popen([*command, codec.encode(sink).decode(), str(term)], stdout=subprocess.PIPE) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_delivery(process: subprocess.Popen[bytes]) -> None:
    """Wait until the process has said something: the time that it delivered, or why it could not."""
    assert process.stdout is not None
    select.select([process.stdout], [], [], BOUND)


class Reader:
    """Polls the table in a thread of its own; `seen`: each new time with its rows."""

    def __init__(self, database: Database, sink: PostgresSink) -> None:
        self._database, self._sink, self._end = database, sink, threading.Event()
        self.seen: list[tuple[int, Counter[Row]]] = []
        self.polls = 0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.wait(0.005):
            with suppress(psycopg.Error):  # the database is being killed
                time, rows = progress_and_rows(self._database, self._sink)
                self.polls += 1
                if time is not None and (not self.seen or self.seen[-1] != (time, rows)):
                    self.seen.append((time, rows))


def kill_again_and_again(database: Database, folder: Path, seed: int, kills: int) -> None:
    """A view that changes all the time, two processes that deliver it with rising terms, and kills of both and of the
    database."""
    draw, view, sink = random.Random(seed), View(folder, seed=seed, keys=3_000), sink_to(database)
    view.step(3_000)
    with Reader(database, sink) as reader:
        for number in range(kills):
            terms = number // 2, number // 2 + number % 2
            with delivering_process(view, sink, terms[0]) as one, delivering_process(view, sink, terms[1]):
                if number % 4:
                    wait_for_delivery(one)
                else:  # also before the first delivery
                    sleep(draw.random())
                for _ in range(draw.randrange(1, 6)):
                    view.step(draw.choice((0, 3, 800)))
                    sleep(draw.random() * 0.2)
                    if draw.random() < 0.05:
                        view.forget_before(view.upper - 1)
                if draw.random() < 0.3:
                    database.server.kill()
                    database.server.start()
        view.deliver(sink, term=kills)
        view.step(3)
        with pytest.raises(WrittenByLater):
            view.deliver(sink, term=0)
        view.deliver(sink, term=kills)
        sleep(0.2)
    assert progress_and_rows(database, sink) == (view.upper - 1, view.rows())
    times = [time for time, _ in reader.seen]
    assert times == sorted(set(times)), "one time has two contents, or the table went back"
    for time, rows in reader.seen:
        assert rows == view.rows(time), time
    assert len(times) > kills // 3, "hardly anything was delivered between the kills"


def test_crash_a_reader_sees_only_times_of_the_view(database: Database, tmp_path: Path) -> None:
    kill_again_and_again(database, tmp_path, seed=1, kills=3)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_crash_a_hundred_kills(database: Database, tmp_path: Path) -> None:
    """Each round kills two processes, and one in four the database."""
    kill_again_and_again(database, tmp_path, seed=2, kills=60)
