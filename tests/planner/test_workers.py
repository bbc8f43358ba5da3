"""The pool of workers with processes that end, hang and die, without a JVM: other requests are answered."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.waiting import BOUND, until
from tidemark_planner.service import worker_pool
from tidemark_planner.service.worker_pool import (
    FIRST_STARTS,
    GROW_AFTER_SECONDS,
    IDLE_SECONDS,
    SHORT_PLAN_SECONDS,
    START_PAUSE_SECONDS,
    NoIdleWorker,
    WorkerPool,
)
from tidemark_planner.service.worker_process import PlanLimits, Worker, WorkerEnded, WorkerTimeout, adopt_orphans
from tidemark_planner.service.worker_protocol import SPENT

# answers with its pid and that of a child of its own; what it is asked may be to hang, before it answers or in the
# midst of that, to answer what nobody may, to compute for ever, to rest before it answers, or to die
PROGRAM = """
import os, socket, subprocess, sys, time
from tidemark_planner.service.worker_protocol import receive, send
asks = socket.socket(fileno=int(sys.argv[-2]))
open(sys.argv[-1] + '/file', 'w').close()
child = subprocess.Popen(["sleep", "3600"])
send(asks, b"ready")
while True:
    asked = receive(asks)
    if asked == b"stammer":
        asks.sendall(bytes(7) + b"9half")
    if asked == b"boast":
        asks.sendall(b"9" * 8)
    if asked in (b"hang", b"stammer", b"boast"):
        time.sleep(3600)
    if asked == b"die":
        os._exit(3)
    while asked == b"compute":
        pass
    if asked == b"rest":
        time.sleep(2)
    send(asks, asked + b" %d %d" % (os.getpid(), child.pid))
"""
COMMAND = (sys.executable, "-c", PROGRAM)
FAILS = (sys.executable, "-c", "raise SystemExit(4)")
TURN = BOUND


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture(autouse=True, scope="module")
def orphans() -> None:
    """Adopt orphans, as the planner's process does."""
    adopt_orphans()


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Callable[..., WorkerPool]]:
    """Makes pools whose first worker is ready."""
    all_made = []

    def make(most: int = 2, clock: Callable[[], float] | None = None) -> WorkerPool:
        numbers = itertools.count()
        start = lambda: Worker(tmp_path / str(next(numbers)), COMMAND)  # noqa: E731
        all_made.append(workers := WorkerPool(start, most, **({"clock": clock} if clock else {})))
        workers.begin()
        assert workers.ready.wait(BOUND)
        return workers

    yield make
    for workers in all_made:
        workers.close()


def limits(cpu_seconds: float = BOUND, seconds: float = BOUND) -> PlanLimits:
    return PlanLimits(cpu_seconds, time.monotonic() + seconds)


def ask(workers: WorkerPool, question: bytes = b"", cpu_seconds: float = BOUND, seconds: float = BOUND) -> list[int]:
    """The pids of the worker that answered and of its child."""
    return [int(pid) for pid in workers.ask(question, limits(cpu_seconds, seconds), TURN).split()[-2:]]


def are_gone(*pids: int) -> bool:
    """Whether no process, and no zombie, is left."""
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_others_are_answered_while_one_takes_long(made: Callable[..., WorkerPool]) -> None:
    """The pool starts a second worker, which stays."""
    workers = made()
    first = ask(workers)
    with ThreadPoolExecutor(1) as asks:
        slow = asks.submit(ask, workers, b"hang")
        until(lambda: not workers._idle)
        second = ask(workers, cpu_seconds=SHORT_PLAN_SECONDS)
        assert second[0] != first[0]
        assert ask(workers, cpu_seconds=SHORT_PLAN_SECONDS) == second
        with pytest.raises(NoIdleWorker):  # what may take as long as the first has one worker less
            workers.ask(b"", limits(), 0.1)
        assert not slow.done()
        workers.close()


@pytest.mark.parametrize(
    ("question", "raised"),
    [
        (b"hang", WorkerTimeout),
        (b"stammer", WorkerTimeout),
        (b"boast", WorkerEnded),
        (b"die", WorkerEnded),
        (SPENT, None),
    ],
)
def test_crash_a_useless_worker_is_replaced(
    made: Callable[..., WorkerPool], tmp_path: Path, question: bytes, raised: type[Exception] | None
) -> None:
    """The files and the children of a spent worker go with it."""
    workers = made(most=1)
    first = ask(workers)
    if raised is None:
        ask(workers, question)
    else:
        with pytest.raises(raised):
            ask(workers, question, seconds=1.0 if raised is WorkerTimeout else BOUND)

    second = ask(workers)
    assert second[0] != first[0]
    assert are_gone(*first)
    assert [folder.name for folder in tmp_path.iterdir()] == ["1"]


def test_a_request_that_waits_too_long_learns_that_all_workers_are_busy(made: Callable[..., WorkerPool]) -> None:
    """The pool does not exceed its size, and kills no worker for a waiting request."""
    workers = made(most=1)
    with ThreadPoolExecutor(1) as asks:
        slow = asks.submit(ask, workers, b"hang")
        until(lambda: not workers._idle)
        with pytest.raises(NoIdleWorker):
            workers.ask(b"", limits(), 1.5)
        assert not slow.done()
        assert len(workers._workers) == 1
        workers.close()


def test_unneeded_workers_end_but_one(made: Callable[..., WorkerPool]) -> None:
    """The worker that was used last stays."""
    clock = Clock()
    workers = made(clock=clock)
    with workers._changed:
        workers._start_worker()
    until(lambda: len(workers._idle) == 2)
    used = ask(workers)
    clock.now = IDLE_SECONDS - 1
    workers.maintain()
    assert ask(workers) == used
    assert len(workers._idle) == 2
    clock.now = IDLE_SECONDS
    for _ in range(2):
        workers.maintain()
        assert [worker.pid for _, worker in workers._idle] == used[:1]
    clock.now = 3 * IDLE_SECONDS
    workers.maintain()
    assert ask(workers) == used


def test_a_plan_is_bounded_by_its_processor_time(made: Callable[..., WorkerPool]) -> None:
    """A worker that gets no processor for longer than that is waited for; one that uses it up is replaced."""
    workers = made(most=1)
    first = ask(workers)
    assert ask(workers, b"rest", cpu_seconds=1.0) == first
    with pytest.raises(WorkerTimeout, match="took more than 1 s of processor time: simplify the SQL"):
        ask(workers, b"compute", cpu_seconds=1.0)
    assert ask(workers) != first
    with pytest.raises(WorkerTimeout, match=r"got 0\.\d s of processor time within 1 s and did not end: the machine"):
        ask(workers, b"hang", seconds=1.0)


def test_crash_a_worker_that_cannot_be_started_is_started_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pool that was ready never fails: who asks meanwhile is told why there is no worker."""
    monkeypatch.setattr(worker_pool, "MAX_START_PAUSE_SECONDS", 0.1)
    starts: Iterator[tuple[str, ...]] = iter([COMMAND, *[FAILS] * (FIRST_STARTS + 1), COMMAND])
    folder = itertools.count()
    workers = WorkerPool(lambda: Worker(tmp_path / str(next(folder)), next(starts)), 2)
    workers.begin()
    with pytest.raises(WorkerEnded, match="exit status 3"):
        ask(workers, b"die")
    until(lambda: workers._start_failure)
    with pytest.raises(NoIdleWorker, match="exit status 4"):
        workers.ask(b"", limits(), 0.0)

    def is_answered() -> bool:
        workers.maintain()
        return bool(workers._idle) and bool(ask(workers))

    until(is_answered)
    assert not workers.failed.is_set()
    workers.close()


@pytest.mark.parametrize("command", [FAILS, ("/is/not/there",)])
def test_a_first_worker_that_cannot_be_started_is_told_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: tuple[str, ...]
) -> None:
    """The pool never becomes ready. It fails after FIRST_STARTS attempts, and the planner's process is restarted."""
    monkeypatch.setattr(worker_pool, "MAX_START_PAUSE_SECONDS", 0.1)
    begun = itertools.count()
    workers = WorkerPool(lambda: Worker(tmp_path / str(next(begun)), command), 2)
    workers.begin()

    def has_failed() -> bool:
        workers.maintain()
        return workers.failed.is_set()

    until(has_failed)
    assert not workers.ready.is_set()
    assert next(begun) >= FIRST_STARTS


def test_crash_workers_that_die_while_they_are_asked_nothing_are_replaced(made: Callable[..., WorkerPool]) -> None:
    """The next request gets a new worker, whether the death was noticed before or not."""
    workers = made(most=1)
    pids = ask(workers)
    for look in (workers.maintain, lambda: None):
        os.kill(pids[0], signal.SIGKILL)
        until(lambda: any(worker.has_ended for _, worker in workers._idle))
        look()
        before, pids = pids, ask(workers)
        assert are_gone(*before)
        assert pids[0] != before[0]
    assert not workers.failed.is_set()


def test_crash_a_worker_that_dies_before_its_first_plan_is_replaced_after_a_pause(
    made: Callable[..., WorkerPool],
) -> None:
    """It counts as one that could not be started: workers that die at once are not started without a pause."""
    clock = Clock()
    workers = made(most=1, clock=clock)
    first = next(iter(workers._workers))
    os.killpg(first.pid, signal.SIGKILL)
    until(lambda: first.has_ended)
    workers.maintain()
    assert workers._workers == set()
    workers.maintain()
    assert workers._workers == set()
    clock.now = START_PAUSE_SECONDS
    workers.maintain()
    assert ask(workers)[0] != first.pid


def test_a_request_that_left_gets_no_worker(made: Callable[..., WorkerPool]) -> None:
    """A request that is not wanted any more gets no worker."""
    workers = made(most=1)
    ask(workers)
    with pytest.raises(NoIdleWorker):
        workers.ask(b"hang", limits(), TURN, lambda: False)
    ask(workers)


def test_no_worker_is_started_while_one_starts_or_beyond_the_callers_share(tmp_path: Path) -> None:
    """The pool starts no worker while one is starting, or for a long plan that may not have it."""
    begun, folder = [], itertools.count()

    def start(command: Sequence[str] = (sys.executable, "-c", "import time; time.sleep(3600)")) -> Worker:
        begun.append(Worker(tmp_path / str(next(folder)), COMMAND if not begun else command))
        return begun[-1]

    workers = WorkerPool(start, 3)
    workers.begin()
    ask(workers)
    with ThreadPoolExecutor(2) as asks:
        asks.submit(ask, workers, b"hang")
        until(lambda: not workers._idle)
        with pytest.raises(NoIdleWorker):  # another one is begun for it, and never there
            workers.ask(b"", limits(), GROW_AFTER_SECONDS + 0.5)
        with pytest.raises(NoIdleWorker):
            workers.ask(b"", limits(SHORT_PLAN_SECONDS), GROW_AFTER_SECONDS + 0.5)
        assert len(begun) == 2
        workers.close()

    begun.clear()
    workers = WorkerPool(lambda: start(COMMAND), 2)
    workers.begin()
    ask(workers)
    with ThreadPoolExecutor(1) as asks:
        asks.submit(ask, workers, b"hang")
        until(lambda: not workers._idle)
        with pytest.raises(NoIdleWorker):  # it may take as long as the first one
            workers.ask(b"", limits(), GROW_AFTER_SECONDS + 0.5)
        assert len(begun) == 1
        workers.close()


def test_crash_a_worker_is_closed_while_it_is_asked(made: Callable[..., WorkerPool]) -> None:
    """The request fails, and the pool starts no other worker."""
    workers = made()
    pids = ask(workers)
    with ThreadPoolExecutor(1) as asks:
        slow = asks.submit(ask, workers, b"hang")
        until(lambda: not workers._idle)
        workers.close()
        with pytest.raises(WorkerEnded):
            slow.result(BOUND)
    assert are_gone(*pids)
    assert workers._workers == set()


def test_many_ask_at_once(made: Callable[..., WorkerPool]) -> None:
    """Each request gets its own answer, and leaves no thread."""
    workers, others = made(), set(threading.enumerate())
    with ThreadPoolExecutor(8) as asks:
        answers = asks.map(lambda number: workers.ask(b"%d" % number, limits(), TURN).split()[0], range(200))
        assert list(answers) == [b"%d" % number for number in range(200)]
    assert len(set(threading.enumerate()) - others) < 50
    assert os.getpid() not in ask(workers)
