"""Members of step workers: each ends on its own, whatever happens to its neighbours or to the process."""

from __future__ import annotations

import errno
import os
import pickle
import signal
import socket
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tests.oracle.variants.faults import Fault
from tests.step_worker.faulty_worker import command
from tests.step_worker.rows import ROWS, TREE, Rows, all_of, children, lives, report, written
from tests.waiting import BOUND, until
from tidemark_replica.render.plan.pipeline import nodes_of
from tidemark_replica.render.step_worker import pool, worker_process
from tidemark_replica.render.step_worker.pool import StepWorkers
from tidemark_replica.render.step_worker.work_ticket import (
    MemberCancelled,
    MemberFailed,
    NoWorker,
    StepWorkerError,
    WorkerLost,
    WorkTicket,
)

FORGETFUL = """
import sys
from tidemark_replica.render.step_worker import worker_members
from tidemark_replica.render.step_worker.__main__ import main
worker_members.MAX_TREES = 2
main(worker_members.MemberRunner(), int(sys.argv[1]))
"""
# as many as a replica's threads run at a time
FEW = 4


class Clock:
    """The one by which workers are patient: the real time, until some is skipped."""

    def __init__(self) -> None:
        self._ahead, self.looks = 0.0, 0

    def monotonic(self) -> float:
        self.looks += 1
        return time.monotonic() + self._ahead

    def outlast(self, member_seconds: float) -> None:
        """The present wait ends without success; a later one has its whole time."""
        looks = self.looks
        until(lambda: self.looks > looks + 1)  # the first may be that with which the waiting began
        self._ahead += 2 * member_seconds


@pytest.fixture
def rows(tmp_path: Path) -> Rows:
    return Rows(tmp_path)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(pool, "time", made)
    return made


@pytest.fixture(scope="module")
def workers() -> Iterator[StepWorkers]:
    made = StepWorkers(member_seconds=BOUND)
    yield made
    made.close()


def faulty(rows: Rows, how: str, times: int = 1) -> tuple[StepWorkers, Fault]:
    """Workers in which a member meets a fault while it reads."""
    fault = Fault(rows.folder / "fault", "reading", how, times)
    return StepWorkers(command=command(fault), member_seconds=BOUND), fault


def begin_members(workers: StepWorkers, *tickets: WorkTicket) -> list[type[StepWorkerError] | None]:
    """Tickets on their way: the list has how they ended, once all have."""
    ended: list[type[StepWorkerError] | None] = []
    threading.Thread(target=lambda: ended.extend(all_of(workers, list(tickets)))).start()
    return ended


def threads(pid: int) -> int:
    """The number of threads that are still there of a process that has ended, and that nobody has waited for."""
    return len(list(Path(f"/proc/{pid}/task").iterdir()))


def test_many_members_run_in_one_process(workers: StepWorkers, rows: Rows) -> None:
    """Tickets of many threads; each has its own report, and the process has learnt the tree once."""
    tickets = [rows.ticket() for _ in range(20)]
    assert all_of(workers, tickets) == [None] * 20
    assert [written(t) for t in tickets] == [ROWS] * 20
    assert workers.started == 1


def test_a_member_tells_how_long_its_operators_were_at_work(workers: StepWorkers, rows: Rows) -> None:
    """The member tells them as a Spark task does: a time for every node of the tree."""
    ticket = rows.ticket()
    assert all_of(workers, [ticket]) == [None]
    times = report(ticket).spent.stages[ticket.member.stage]
    assert len(times) == len(list(nodes_of(TREE)))
    assert sum(times) > 0


def test_a_member_that_fails_leaves_its_neighbours_alone(workers: StepWorkers, rows: Rows) -> None:
    """Its failure is its own; the process lives on."""
    broken = rows.ticket(key="broken", tree=pickle.dumps("no pipeline"))
    good = [rows.ticket() for _ in range(5)]
    assert all_of(workers, [*good[:3], broken, *good[3:]]) == [None, None, None, MemberFailed, None, None]
    assert workers.started == 1


def test_a_member_that_meets_a_value_does_not_tell_it(workers: StepWorkers, rows: Rows) -> None:
    """A file has texts where numbers should be, and Arrow quotes them: that is for the log."""
    with pytest.raises(MemberFailed, match="Failed to parse string: 'alice'") as caught:
        workers.run(rows.ticket(of=["alice"]))
    assert caught.value.public_text.startswith(
        "ArrowInvalid: unexpected error in tidemark_replica/render/task/stage_inputs.py, line "
    )
    assert "alice" not in caught.value.public_text


def test_crash_a_killed_process_loses_one_member_and_is_replaced(rows: Rows) -> None:
    """The one that it was at is told; those behind it are run by the next process."""
    workers, fault = faulty(rows, "kill")
    try:
        ended = all_of(workers, [rows.ticket() for _ in range(8)])
    finally:
        workers.close()
    assert fault.strikes == 1
    assert sorted(ended, key=str) == [WorkerLost, *[None] * 7]
    assert workers.started == 2


def test_crash_a_process_that_hangs_is_bounded(rows: Rows, clock: Clock) -> None:
    """A member that does not end takes its process with it; the others go on."""
    workers, fault = faulty(rows, "hang")
    try:
        ended = begin_members(workers, *(rows.ticket() for _ in range(3)))
        until(lambda: fault.strikes)
        clock.outlast(BOUND)
        until(lambda: ended)
    finally:
        workers.close()
    assert sorted(ended, key=str) == [WorkerLost, None, None]


def test_crash_a_stopped_process_is_bounded(rows: Rows, clock: Clock) -> None:
    """One that takes no members and says nothing, too."""
    others, workers = children(), StepWorkers(member_seconds=BOUND)
    try:
        assert all_of(workers, [rows.ticket()]) == [None]
        (pid,) = children() - others
        os.kill(pid, signal.SIGSTOP)
        ended = begin_members(workers, rows.ticket())
        clock.outlast(BOUND)
        until(lambda: ended)
        assert ended == [WorkerLost]
        assert all_of(workers, [rows.ticket()]) == [None]
    finally:
        workers.close()


def test_crash_a_stopped_process_ends_the_transfer_of_a_large_member(
    rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The member does not fit into the connection's buffer, and the process reads nothing."""
    monkeypatch.setattr(worker_process, "TRANSFER_SECONDS", 1)
    process = worker_process.WorkerProcess()
    try:
        os.kill(process.pid, signal.SIGSTOP)
        with pytest.raises(worker_process.WorkerGone, match="could not be sent a member"):
            process.send(replace(rows.ticket().member, description="x" * (4 << 20)))
    finally:
        process.kill()


def test_another_process_comes_when_tickets_wait_long(rows: Rows) -> None:
    """And not before: for a few dataflows one is enough. The first is stopped meanwhile, so that they do wait."""
    others, workers = children(), StepWorkers(2, member_seconds=BOUND)
    many: list[type[StepWorkerError] | None] = []
    try:
        assert all_of(workers, [rows.ticket()]) == [None]
        (first,) = children() - others
        assert workers.started == 1
        tickets = [rows.ticket() for _ in range(FEW)]
        os.kill(first, signal.SIGSTOP)
        waiting = threading.Thread(target=lambda: many.extend(all_of(workers, tickets)))
        waiting.start()
        until(lambda: workers.started == 2)
        os.kill(first, signal.SIGCONT)
        waiting.join(BOUND)
        assert many == [None] * len(tickets)
        assert all_of(workers, [rows.ticket() for _ in range(FEW)]) == [None] * FEW
        assert workers.started == 2
    finally:
        workers.close()


def test_a_cancelled_member_ends_soon_running_or_not(rows: Rows) -> None:
    """The running one takes the process with it, if it does not look; the waiting one has never begun."""
    workers, fault = faulty(rows, "hang")
    running, waiting = rows.ticket(), rows.ticket()
    try:
        ended = begin_members(workers, running)
        until(lambda: fault.strikes)
        waiting.cancel()
        assert all_of(workers, [waiting]) == [MemberCancelled]
        running.cancel()
        until(lambda: ended)
    finally:
        workers.close()
    assert ended == [MemberCancelled]
    assert not Path(waiting.member.description).exists()


def test_trees_that_were_forgotten_are_sent_again(monkeypatch: pytest.MonkeyPatch, rows: Rows) -> None:
    """A process keeps so many trees, and the driver knows which."""
    monkeypatch.setattr(worker_process, "MAX_TREES", 2)
    command = (sys.executable, "-c", FORGETFUL)
    workers = StepWorkers(command=command, member_seconds=BOUND)
    try:
        tickets = [rows.ticket(key=key) for key in "abcabbcc"]
        assert [end for ticket in tickets for end in all_of(workers, [ticket])] == [None] * len(tickets)
    finally:
        workers.close()
    assert workers.started == 1


def test_a_process_that_has_grown_is_replaced(rows: Rows) -> None:
    """Between two members, so nobody notices."""
    workers = StepWorkers(member_seconds=BOUND, max_bytes=1)
    try:
        for _ in range(2):
            assert all_of(workers, [rows.ticket()]) == [None]
    finally:
        workers.close()
    assert workers.started > 1


def test_crash_a_process_that_died_idle_costs_no_ticket_more_than_its_place(rows: Rows) -> None:
    """A cancelled ticket does not find it out; the next one has not been run, and is nobody's fault."""
    others, workers = children(), StepWorkers(member_seconds=BOUND)
    try:
        assert all_of(workers, [rows.ticket()]) == [None]
        (pid,) = children() - others
        os.kill(pid, signal.SIGKILL)
        until(lambda: not lives(pid) and threads(pid) == 1)  # the last one to end closes its files
        cancelled = rows.ticket()
        cancelled.cancel()
        assert all_of(workers, [cancelled]) == [MemberCancelled]
        until(lambda: not workers._waiting)
        assert all_of(workers, [rows.ticket()]) == [NoWorker]
        assert all_of(workers, [rows.ticket()]) == [None]
    finally:
        workers.close()


@pytest.mark.parametrize(("what", "error"), [("kind", WorkerLost), ("bytes", WorkerLost), ("at once", NoWorker)])
def test_crash_a_process_that_is_not_understood_is_replaced(
    what: str, error: type[StepWorkerError], rows: Rows
) -> None:
    """Nobody waits for ever for a thread that has ended of it."""
    workers = StepWorkers(
        command=(sys.executable, "-m", "tests.step_worker.malformed_worker", what), member_seconds=BOUND
    )
    try:
        assert all_of(workers, [rows.ticket()]) == [error]
        assert all_of(workers, [rows.ticket()]) == [error]
    finally:
        workers.close()


def test_where_no_more_files_can_be_opened_tickets_fail_at_once(monkeypatch: pytest.MonkeyPatch, rows: Rows) -> None:
    """The effect is that of a missing program; afterwards there is a process again."""
    workers = StepWorkers(member_seconds=BOUND)
    try:
        with monkeypatch.context() as patch:
            patch.setattr(socket, "socketpair", too_many_files)
            assert all_of(workers, [rows.ticket()]) == [NoWorker]
        until(lambda: all_of(workers, [rows.ticket()]) == [None])
    finally:
        workers.close()


def too_many_files(*_: object, **__: object) -> None:
    raise OSError(errno.EMFILE, "Too many open files")


def test_where_no_process_can_be_started_tickets_fail_at_once(rows: Rows) -> None:
    """Whoever has them turns to Spark; nothing waits for a process that does not come."""
    workers = StepWorkers(command=("/no/such/program",))
    try:
        assert all_of(workers, [rows.ticket(), rows.ticket()]) == [NoWorker, NoWorker]
    finally:
        workers.close()
    assert workers.started == 0


def test_closed_workers_leave_no_process(rows: Rows) -> None:
    """Also the one that is in the middle of a member; who waits for it is told."""
    others = children()
    workers, fault = faulty(rows, "hang")
    ended = begin_members(workers, rows.ticket())
    until(lambda: fault.strikes)
    workers.close()
    until(lambda: ended)
    assert ended == [WorkerLost]
    assert children() == others
    with pytest.raises(NoWorker):
        workers.run(rows.ticket())


def test_a_report_names_its_attempt(workers: StepWorkers, rows: Rows) -> None:
    """Two attempts of one stage never write to each other's files."""
    tickets = [rows.ticket(), rows.ticket()]
    all_of(workers, tickets)
    assert [report(t).attempt for t in tickets] == [t.member.number for t in tickets]
    assert tickets[0].member.number != tickets[1].member.number
