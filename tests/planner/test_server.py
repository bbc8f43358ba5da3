"""The planner's process: plans over gRPC, limits, and how it ends."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.planner.catalogue import CATALOGUE, one_view
from tests.waiting import BOUND, until
from tidemark_planner.service.worker_pool import SHORT_PLAN_SECONDS
from tidemark_protocol.messages.planning import GRACE_SECONDS, Planned, PlannedPeek, PlanQueryRequest, Refused
from tidemark_protocol.pb import planner_pb2, planner_pb2_grpc
from tidemark_protocol.plan.codec import decode, encode

pytestmark = pytest.mark.spark


def _doubling(levels: int) -> str:
    """A query that takes twice as long to plan with each level: subqueries that are not correlated by equality."""
    subqueries = ", ".join(f"(SELECT max(y) FROM s.u WHERE u.k > t.k + {n}) AS c{n}" for n in range(levels))
    return f"SELECT {subqueries} FROM s.t"


SLOW = _doubling(14)
"""A query that takes minutes to plan."""
SLOWER = _doubling(8)
"""A query that takes seconds to plan."""
SHORT = SHORT_PLAN_SECONDS
"""The longest plan that counts as short."""
LARGE = "SELECT * FROM VALUES (sequence(1, 200000000)) AS v(a)"
"""An array that the analyser builds and that exceeds the heap."""


class Process:
    """A planner process and a stub for it."""

    def __init__(self, folder: Path, waits: bool = True, scratch: Path | None = None) -> None:
        address = f"unix://{folder}/planner.sock"
        command = [sys.executable, "-m", "tidemark_planner", "--listen", address, "--plan-timeout", str(BOUND)]
        if scratch:
            command += ["--scratch", str(scratch)]
        self.temporary = folder / "tmp"
        self.temporary.mkdir(exist_ok=True)
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(self.temporary)}
        self.log = folder / "log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, env=environ, stderr=log)
        self._channel = grpc.insecure_channel(address)
        if waits:
            self.await_ready()
        self.stub = planner_pb2_grpc.PlannerStub(self._channel)

    def await_ready(self) -> None:
        """Wait until the planner listens."""
        grpc.channel_ready_future(self._channel).result(timeout=BOUND)

    def plan(self, request: Any, cpu_seconds: float = BOUND) -> bytes:
        """Plan, and retry while all workers are busy."""
        answers = []

        def answered() -> bool:
            try:
                asked = planner_pb2.PlanRequest(request=encode(request), cpu_seconds=cpu_seconds)
                answers.append(bytes(self.stub.Plan(asked, timeout=GRACE_SECONDS + BOUND).outcome))
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.RESOURCE_EXHAUSTED:
                    raise
            return bool(answers)

        until(answered)
        return answers[0]

    def workers(self) -> dict[int, int]:
        """The pids of the workers, and of their JVMs."""
        return {worker: jvm for worker in children(self.process.pid) for jvm in children(worker) if is_java(jvm)}

    def ready_worker(self) -> tuple[int, int] | None:
        """The worker that can plan, by the planner's log, and its JVM; None while another one starts."""
        ready = {int(pid) for pid in re.findall(r"worker (\d+) can plan", self.log.read_text())}
        return next((each for each in self.workers().items() if each[0] in ready), None)

    def close(self) -> None:
        self._channel.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=BOUND)


def is_java(pid: int) -> bool:
    """Not yet, where it is the shell that becomes it: its arguments name java too, and are gone for a moment then."""
    try:
        return Path(f"/proc/{pid}/exe").readlink().name == "java"
    except OSError:  # it has just ended
        return False


def children(pid: int) -> list[int]:
    """The children of all threads of the process."""
    found = list[int]()
    for of_thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, of_thread.read_text().split())
    return found


def are_gone(pids: Iterable[int]) -> bool:
    """Whether no process, and no zombie, is left."""
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def is_at_work(jvm: int) -> bool:
    """Whether the JVM uses a processor for half a second."""
    stat = Path(f"/proc/{jvm}/stat")
    before, _ = ticks(stat), time.sleep(0.5)
    return ticks(stat) - before > 0.1 * os.sysconf("SC_CLK_TCK")


def ticks(stat: Path) -> int:
    fields = stat.read_text().rpartition(")")[2].split()
    return int(fields[11]) + int(fields[12])


@pytest.fixture(scope="module")
def planner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    started = Process(tmp_path_factory.mktemp("planner"))
    yield started
    started.close()


def test_a_plan_a_refusal_and_a_query_over_the_wire(planner: Process) -> None:
    """Each kind of answer arrives over gRPC."""
    planned = decode(planner.plan(one_view("SELECT k FROM s.t WHERE x > 1")), Planned)
    refused = decode(planner.plan(one_view("SELECT zz FROM s.t")), Refused)
    request = encode(PlanQueryRequest("SELECT n FROM live WHERE k = 1", CATALOGUE, "q1/"))
    peek = decode(planner.stub.PlanQuery(planner_pb2.PlanQueryRequest(request=request)).outcome, PlannedPeek)

    assert planned.objects[0].id == "u1/v"
    assert refused.diagnostics[0].view == "v"
    assert peek.relation == "live.live"


def test_the_same_request_gives_the_same_bytes(planner: Process) -> None:
    """Plans are identities, so Spark's expression ids must not show in them."""
    request = one_view("WITH c AS (SELECT k, x FROM s.t) SELECT a.k, b.x FROM c a JOIN c b ON a.x = b.k")

    assert planner.plan(request) == planner.plan(request)


def test_a_malformed_request_is_refused_and_the_planner_goes_on(planner: Process) -> None:
    """Bytes that are not a request are refused, and the planner goes on."""
    with pytest.raises(grpc.RpcError) as refusal:
        planner.stub.Plan(planner_pb2.PlanRequest(request=b'{"@":"Plan'))

    assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    decode(planner.plan(one_view("SELECT k FROM s.t")), Planned)


def test_crash_of_an_idle_worker_is_survived(planner: Process) -> None:
    """The next request waits for a new worker and succeeds; the files of the dead one are removed. Its JVM is killed
    below."""
    ((worker, jvm),) = planner.workers().items()
    (folder,) = planner.temporary.glob("tidemark-planner-*/*")
    assert list(folder.glob("blockmgr-*"))
    os.kill(worker, signal.SIGKILL)
    until(lambda: are_gone([worker, jvm]))

    decode(planner.plan(one_view("SELECT k FROM s.t")), Planned)
    assert worker not in planner.workers()
    assert not folder.exists()


def test_crash_of_a_worker_in_the_midst_of_a_plan_plans_again_in_another_once(planner: Process) -> None:
    """A new worker plans the statement that was under way. A second death is answered with INTERNAL and its reason.
    The first time the JVM is killed, the second time the worker itself."""
    with ThreadPoolExecutor(1) as asks:
        slow = asks.submit(planner.plan, one_view(SLOW))
        ended: list[int] = []
        for killed in ("the JVM", "the worker"):
            until(lambda: (ready := planner.ready_worker()) is not None and is_at_work(ready[1]))
            worker, jvm = planner.ready_worker() or (0, 0)
            assert not slow.done()
            os.kill(worker if killed == "the worker" else jvm, signal.SIGKILL)
            ended += [worker, jvm]
            until(partial(are_gone, ended))
        refused = decode(slow.result(BOUND), Refused)

    assert refused.diagnostics[0].code == "INTERNAL"
    assert refused.diagnostics[0].message.startswith("the planner's worker ended 2 times while it planned this: ")
    assert "signal 9" in refused.diagnostics[0].message
    decode(planner.plan(one_view("SELECT k FROM s.t")), Planned)
    assert are_gone(ended)


@pytest.mark.broad
def test_crash_of_a_jvm_in_the_midst_of_a_plan_is_not_seen_by_its_caller(planner: Process) -> None:
    """A plan that takes a second or more is answered, although the first JVM that planned it was killed."""
    ((worker, jvm),) = planner.workers().items()
    with ThreadPoolExecutor(1) as asks:
        slow = asks.submit(planner.plan, one_view(SLOWER))
        until(lambda: is_at_work(jvm))
        os.kill(jvm, signal.SIGKILL)
        decode(slow.result(BOUND), Planned)

    assert worker not in planner.workers()
    assert are_gone([worker, jvm])


@pytest.mark.broad
def test_crash_of_a_jvm_never_ends_the_planner(tmp_path: Path) -> None:
    """The JVM dies as it starts, or before its first plan: the same process starts another one."""
    planner = Process(tmp_path, waits=False)
    until(planner.workers)
    ((starting, jvm),) = planner.workers().items()
    os.kill(jvm, signal.SIGKILL)
    planner.await_ready()
    ((unused, jvm),) = planner.workers().items()
    assert unused != starting
    (folder,) = planner.temporary.glob("tidemark-planner-*/*")
    os.kill(jvm, signal.SIGKILL)
    until(lambda: are_gone([unused, jvm]))

    decode(planner.plan(one_view("SELECT k FROM s.t")), Planned)
    assert not folder.exists()
    assert planner.process.poll() is None
    planner.close()


@pytest.mark.broad
def test_crash_of_a_jvm_with_a_full_heap_is_blamed_on_the_statement(planner: Process) -> None:
    """The refusal blames the statement, since it would fill any heap."""
    ((worker, jvm),) = planner.workers().items()
    refused = decode(planner.plan(one_view(LARGE)), Refused)

    assert refused.diagnostics[0].code == "TOO_LARGE"
    assert "more memory than the planner has" in refused.diagnostics[0].message
    decode(planner.plan(one_view("SELECT k FROM s.t")), Planned)
    assert are_gone([worker, jvm])


@pytest.mark.broad
def test_a_cancelled_request_is_not_planned(planner: Process) -> None:
    """A cancelled request is not planned; the next one is."""
    with ThreadPoolExecutor(1) as asks:
        first = asks.submit(planner.plan, one_view(SLOW), 2.0)
        until(lambda: is_at_work(next(iter(planner.workers().values()))))
        waits = [planner.stub.Plan.future(planner_pb2.PlanRequest(request=encode(one_view(SLOW)))) for _ in range(4)]
        for each in waits:
            each.cancel()
        assert decode(first.result(BOUND), Refused).diagnostics[0].code == "TIMEOUT"
        decode(planner.plan(one_view("SELECT k FROM s.t"), SHORT), Planned)
        # the JIT may work for a moment more; each cancelled request would take as long as all of this wait
        until(lambda: not any(is_at_work(jvm) for jvm in planner.workers().values()))


@pytest.mark.broad
def test_a_short_plan_on_a_machine_that_is_busy_is_answered(planner: Process) -> None:
    """Its JVM gets no processor for longer than the plan may take of it."""
    jvms = list(planner.workers().values())
    with ThreadPoolExecutor(1) as asks:
        for jvm in jvms:
            os.kill(jvm, signal.SIGSTOP)
        short = asks.submit(planner.plan, one_view("SELECT k + 77 AS k FROM s.t"), 1.0)
        time.sleep(3.0)
        for jvm in jvms:
            os.kill(jvm, signal.SIGCONT)
        decode(short.result(BOUND), Planned)
    assert list(planner.workers().values()) == jvms


@pytest.mark.broad
def test_a_plan_that_takes_long_keeps_no_other_waiting_and_ends_in_time(planner: Process) -> None:
    """Short plans are answered during a long one; past its time the long one is refused, and its worker replaced."""
    with ThreadPoolExecutor(1) as asks:
        slow = asks.submit(planner.plan, one_view(SLOW))
        for number in range(3):
            decode(planner.plan(one_view(f"SELECT k + {number} AS k FROM s.t"), SHORT), Planned)
        assert not slow.done()
        before = planner.workers()
        assert len(before) == 2

        refused = decode(planner.plan(one_view(SLOW), cpu_seconds=1.0), Refused)

        assert (refused.diagnostics[0].code, refused.diagnostics[0].message) == (
            "TIMEOUT",
            "planning took more than 1 s of processor time: simplify the SQL",
        )
        decode(planner.plan(one_view("SELECT k FROM s.t"), SHORT), Planned)
        (ended,) = before.keys() - planner.workers().keys()
        assert are_gone([ended, before[ended]])
        assert not slow.done()
        planner.close()


SLOW_ENDS = (
    pytest.param(signal.SIGTERM, "as it starts", marks=pytest.mark.slow),
    pytest.param(signal.SIGKILL, "idle", marks=pytest.mark.slow),
    pytest.param(signal.SIGTERM, "in the midst of a plan", marks=pytest.mark.slow),
)
ENDS = ((signal.SIGKILL, "as it starts"), (signal.SIGTERM, "idle"), (signal.SIGKILL, "in the midst of a plan"))


@pytest.mark.broad
@pytest.mark.parametrize(("number", "when"), [*ENDS, *SLOW_ENDS])
def test_crash_a_planner_that_ends_leaves_nothing(tmp_path: Path, number: signal.Signals, when: str) -> None:
    """No process and no file is left, however and whenever the planner ends."""
    planner = Process(tmp_path, waits=when != "as it starts")
    until(planner.workers)
    ((worker, jvm),) = planner.workers().items()
    with ThreadPoolExecutor(1) as asks:
        if when == "in the midst of a plan":
            slow = asks.submit(planner.stub.Plan, planner_pb2.PlanRequest(request=encode(one_view(SLOW))))
            until(lambda: is_at_work(jvm))
        planner.process.send_signal(number)

        assert planner.process.wait(BOUND) == (0 if number == signal.SIGTERM else -number)
        until(lambda: are_gone([worker, jvm]))
        until(lambda: not list(planner.temporary.glob("tidemark-planner-*/*")))
        assert [each for each in planner.temporary.iterdir() if not each.name.startswith("tidemark-planner-")] == []
        if when == "in the midst of a plan":
            with pytest.raises(grpc.RpcError):
                slow.result(BOUND)
    planner.close()


@pytest.mark.broad
def test_crash_a_planner_that_was_killed_with_its_workers_starts_again(tmp_path: Path) -> None:
    """The container has run out of memory: the files that the workers left are removed."""
    scratch = tmp_path / "scratch"
    planner = Process(tmp_path, scratch=scratch)
    ((worker, jvm),) = planner.workers().items()
    (left,) = scratch.iterdir()
    for number in (signal.SIGSTOP, signal.SIGKILL):  # so that nobody sees the others end
        for pid in (planner.process.pid, worker, jvm):
            os.kill(pid, number)
    planner.close()
    until(lambda: are_gone([worker, jvm]))
    assert list(left.glob("blockmgr-*"))

    again = Process(tmp_path, scratch=scratch)
    decode(again.plan(one_view("SELECT k FROM s.t")), Planned)
    assert not left.exists()
    assert len(list(scratch.iterdir())) == 1
    again.close()
