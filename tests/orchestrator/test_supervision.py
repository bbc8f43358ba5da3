"""Supervision of real child processes: started, restarted, adopted, reaped, with everything they started.

The children are tiny programs; time is ours to say, so a back-off of a minute costs nothing.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.waiting import until
from tidemark_operator.orchestrator.interface import Phase
from tidemark_operator.orchestrator.local import supervised_process
from tidemark_operator.orchestrator.local.process_record import MAX_LOG_BYTES, Home
from tidemark_operator.orchestrator.local.supervised_process import HEALTHY_AFTER_MS, Child, Shape, backoff_ms
from tidemark_operator.process_liveness import ProcessId, identify, is_running, session_members

SLEEP = "import time; time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); print('up', flush=True); {SLEEP}"
# a worker in a process group of its own, as Spark's Python daemon is
WITH_WORKER = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', '{SLEEP}'], process_group=0); {SLEEP}"
Supervised = Callable[[], Child]


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    home = Home(tmp_path / "home")
    yield home
    if record := home.record():
        for pid in session_members(record.process):
            os.kill(pid, signal.SIGKILL)


def shape(home: Home, program: str) -> Shape:
    return Shape((sys.executable, "-S", "-c", program), {"PATH": os.environ["PATH"]}, home.path / "socket")


def now() -> int:
    return int(time.time() * 1000)


def steps(child: Child, holds: Callable[[], bool], ahead_ms: int = 0) -> None:
    """Steps, with the clock ahead of the real one, until something holds."""

    def stepped() -> bool:
        child.step(now() + ahead_ms)
        return holds()

    until(stepped)


def running(child: Child) -> Callable[[], bool]:
    return lambda: child.observe().phase is Phase.RUNNING


def start(home: Home, program: str) -> tuple[Child, ProcessId]:
    child = Child(home, grace_ms=0)
    child.want(shape(home, program))
    steps(child, running(child))
    record = home.record()
    assert record is not None
    return child, record.process


def test_crash_a_killed_child_is_started_again_after_a_back_off(home: Home) -> None:
    """With another incarnation, and counted."""
    child, first = start(home, SLEEP)
    os.kill(first.pid, signal.SIGKILL)
    steps(child, lambda: child.observe().phase is Phase.BACKING_OFF)
    observed = child.observe()
    assert observed.restarts == 1
    assert observed.last_exit is not None
    assert observed.last_exit.reason == "Killed"

    steps(child, running(child), ahead_ms=backoff_ms(1))

    record = home.record()
    assert record is not None
    assert record.process != first
    assert child.observe().restarts == 1


def test_crash_a_child_that_ends_while_it_is_looked_at_is_reaped(home: Home, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between asking the system how it ended and whether it runs: it stays no zombie, and how it ended is known."""
    started, process = start(home, SLEEP)

    def ends_now(asked: ProcessId) -> bool:
        os.kill(asked.pid, signal.SIGKILL)
        until(lambda: identify(asked.pid) is None)
        return is_running(asked)

    monkeypatch.setattr(supervised_process, "is_running", ends_now)
    started.step(now())

    assert not Path(f"/proc/{process.pid}").exists()
    observed = started.observe()
    assert observed.last_exit is not None
    assert observed.last_exit.reason == "Killed"


def test_the_back_off_doubles_up_to_a_minute() -> None:
    """And the first start does not wait."""
    assert [backoff_ms(n) for n in (0, 1, 2, 3, 7, 50)] == [0, 1000, 2000, 4000, 60_000, 60_000]


def test_a_minute_of_health_forgives_earlier_failures(home: Home) -> None:
    """The next failure waits for one second again."""
    child, process = start(home, SLEEP)
    os.kill(process.pid, signal.SIGKILL)
    steps(child, lambda: child.observe().restarts == 1)
    steps(child, running(child), ahead_ms=5000)
    assert home.attempts().failures == 1

    child.step(now() + HEALTHY_AFTER_MS + 10_000)

    assert home.attempts().failures == 0
    assert home.attempts().restarts == 1


def test_crash_the_next_operator_adopts_running_processes(home: Home) -> None:
    """Same process, no second one; unclaimed, it is left alone."""
    _, process = start(home, SLEEP)

    adopted = Child(home, grace_ms=0)
    adopted.step(now())
    assert is_running(process)
    adopted.want(shape(home, SLEEP))
    adopted.step(now())

    assert adopted.observe().phase is Phase.RUNNING
    assert home.record() is not None
    assert home.record().process == process  # type: ignore[union-attr]


def test_crash_an_operator_that_died_before_it_remembered_the_child(home: Home) -> None:
    """The child holds a lock: a second one for the same home gives up, and the first is found."""
    _, process = start(home, SLEEP)
    record = (home.path / "process.json").read_bytes()
    home.forget_process()

    second = Child(home, grace_ms=0)
    second.want(shape(home, SLEEP))
    steps(second, lambda: second.observe().last_exit is not None)
    assert home.attempts().failures == 0
    (home.path / "process.json").write_bytes(record)

    second.step(now())
    assert second.observe().incarnation == f"{process.pid}-{process.start_time}"


def test_another_shape_replaces_the_process(home: Home) -> None:
    """Without counting as a failure."""
    child, first = start(home, SLEEP)
    child.want(shape(home, SLEEP + "; pass"))

    steps(child, lambda: not is_running(first))
    steps(child, running(child), ahead_ms=2000)

    assert home.attempts().failures == 0
    assert not is_running(first)


def test_dropped_nothing_is_left_of_the_child(home: Home) -> None:
    """Not its workers either, though they are in another process group, nor its folder."""
    child, process = start(home, WITH_WORKER)
    steps(child, lambda: len(session_members(process)) == 2)
    members = session_members(process)
    child.want(None)

    steps(child, lambda: child.is_gone)
    child.remove()

    assert [identify(pid) for pid in members] == [None, None]
    assert not home.path.exists()


def test_a_child_that_ignores_sigterm_is_killed(home: Home) -> None:
    """After the grace."""
    child, process = start(home, STUBBORN)
    steps(child, lambda: home.log.read_text() == "up\n")
    child.want(None)

    steps(child, lambda: child.is_gone)

    assert not is_running(process)


def test_a_pid_that_belongs_to_another_is_left_alone() -> None:
    """Pids are used again; a start time tells."""
    own = identify(os.getpid())
    assert own is not None
    earlier = ProcessId(own.pid, own.start_time - 1)

    assert is_running(own)
    assert not is_running(earlier)
    assert session_members(earlier) == []


def test_a_program_that_does_not_start_is_a_crash(home: Home) -> None:
    """And what it said is in the log."""
    child = Child(home)
    child.want(shape(home, "raise SystemExit('no Java found')"))

    steps(child, lambda: child.observe().restarts == 1)

    last = child.observe().last_exit
    assert last is not None
    assert (last.reason, last.code) == ("Crashed", 1)
    assert "no Java found" in home.log.read_text()


def test_logs_are_bounded(home: Home) -> None:
    """The newest part is kept, and the child goes on writing."""
    home.create()
    home.log.write_bytes(b"a" * MAX_LOG_BYTES + b"the end")

    home.bound_log()

    assert home.log.stat().st_size == 0
    kept = (home.path / "log.1").read_bytes()
    assert len(kept) == MAX_LOG_BYTES
    assert kept.endswith(b"the end")


def test_scratch_dies_with_its_process(home: Home) -> None:
    """Arrangements of an earlier incarnation are of no use to the next."""
    child, process = start(home, SLEEP)
    (home.scratch / "batch").write_text("x")
    os.kill(process.pid, signal.SIGKILL)

    steps(child, lambda: child.observe().phase is Phase.BACKING_OFF)

    assert list(home.scratch.iterdir()) == []
