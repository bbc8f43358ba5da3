"""The planner's process: plans over gRPC, limits, and its own end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.bounds import BOUND, until
from tests.planner.catalogue import CATALOGUE, one_view
from tidemark_planner.workers import SHORT_SECONDS
from tidemark_protocol.codec import decode, encode
from tidemark_protocol.pb import planner_pb2, planner_pb2_grpc
from tidemark_protocol.planning import GRACE_SECONDS, Planned, PlannedPeek, PlanQueryRequest, Refused

pytestmark = pytest.mark.spark
JOINED = "\n".join(
    f"JOIN tpch.lineitem l{i} ON l{i}.l_orderkey = o.o_orderkey AND l{i}.l_linenumber = {i}" for i in range(120)
)
SLOW = f"SELECT o.o_custkey, count(*) AS n FROM tpch.orders o {JOINED} GROUP BY o.o_custkey"
"""Minutes, of any processor."""


class Process:
    """A planner of its own, and a stub that talks to it."""

    def __init__(self, folder: Path) -> None:
        address = f"unix://{folder}/planner.sock"
        command = [sys.executable, "-m", "tidemark_planner", "--listen", address, "--plan-timeout", str(BOUND)]
        self.temporary = folder / "tmp"
        self.temporary.mkdir()
        environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "TMPDIR": str(self.temporary)}
        self.process = subprocess.Popen(command, env=environ)
        self._channel = grpc.insecure_channel(address)
        grpc.channel_ready_future(self._channel).result(timeout=BOUND)
        self.stub = planner_pb2_grpc.PlannerStub(self._channel)

    def plan(self, request: Any, seconds: float = BOUND) -> bytes:
        """Asked again while it is busy."""
        answers = []

        def answered() -> bool:
            try:
                asked = planner_pb2.PlanRequest(request=encode(request))
                answers.append(bytes(self.stub.Plan(asked, timeout=GRACE_SECONDS + seconds).outcome))
            except grpc.RpcError as error:
                if error.code() is not grpc.StatusCode.UNAVAILABLE:
                    raise
            return bool(answers)

        until(answered)
        return answers[0]

    def workers(self) -> dict[int, int]:
        """With their JVMs."""
        return {
            worker: jvm
            for worker in children(self.process.pid)
            for jvm in children(worker)
            if "java" in Path(f"/proc/{jvm}/cmdline").read_text()
        }

    def close(self) -> None:
        self._channel.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=BOUND)


def children(pid: int) -> list[int]:
    """Whichever of its threads started them."""
    found = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(child) for of_thread in found for child in of_thread.read_text().split()]


def are_gone(pids: Iterable[int]) -> bool:
    return not any(Path(f"/proc/{pid}/exe").exists() for pid in pids)


@pytest.fixture(scope="module")
def planner(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Process]:
    started = Process(tmp_path_factory.mktemp("planner"))
    yield started
    started.close()


def test_a_plan_a_refusal_and_a_query_over_the_wire(planner: Process) -> None:
    """The three kinds of answer arrive as what they are."""
    planned = decode(planner.plan(one_view("SELECT k FROM s.t WHERE x > 1")), Planned)
    refused = decode(planner.plan(one_view("SELECT zz FROM s.t")), Refused)
    request = encode(PlanQueryRequest("SELECT n FROM live WHERE k = 1", CATALOGUE, "q1/"))
    peek = decode(planner.stub.PlanQuery(planner_pb2.PlanQueryRequest(request=request)).outcome, PlannedPeek)

    assert planned.objects[0].id == "u1/v"
    assert refused.diagnostics[0].view == "v"
    assert peek.relation == "live.live"


def test_the_same_request_gives_the_same_bytes(planner: Process) -> None:
    """Plans are identities: nothing of Spark's numbering shows in them."""
    request = one_view("WITH c AS (SELECT k, x FROM s.t) SELECT a.k, b.x FROM c a JOIN c b ON a.x = b.k")

    assert planner.plan(request) == planner.plan(request)


def test_a_malformed_request_is_refused_and_the_planner_goes_on(planner: Process) -> None:
    """Bytes that are no request of ours."""
    with pytest.raises(grpc.RpcError) as refusal:
        planner.stub.Plan(planner_pb2.PlanRequest(request=b'{"@":"Plan'))

    assert refusal.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    decode(planner.plan(one_view("SELECT k FROM s.t")), Planned)


def test_crash_of_the_jvm_ends_its_worker_which_is_replaced(planner: Process) -> None:
    """Who asked is told, once; what Spark keeps in folders goes with it."""
    ((worker, jvm),) = planner.workers().items()
    (folder,) = planner.temporary.glob("tidemark-planner-*/*")
    assert list(folder.glob("blockmgr-*"))
    os.kill(jvm, signal.SIGKILL)
    answer = decode(planner.plan(one_view("SELECT k FROM s.t")), Refused)

    assert answer.diagnostics[0].code == "TOO_LARGE"
    decode(planner.plan(one_view("SELECT k FROM s.t")), Planned)
    assert worker not in planner.workers()
    assert not folder.exists()


def test_a_plan_that_takes_long_keeps_nobody_from_theirs_and_ends_in_time(planner: Process) -> None:
    """Others are answered while it is planned; past its time it is refused, and its worker replaced."""
    with ThreadPoolExecutor(1) as asks:
        slow = asks.submit(planner.plan, one_view(SLOW))
        for number in range(3):
            decode(planner.plan(one_view(f"SELECT k + {number} AS k FROM s.t"), SHORT_SECONDS), Planned)
        assert not slow.done()
        before = planner.workers()
        assert len(before) == 2

        refused = decode(planner.plan(one_view(SLOW), seconds=1.0), Refused)

        assert (refused.diagnostics[0].code, refused.diagnostics[0].message) == (
            "TIMEOUT",
            "planning took longer than 1 s: simplify the SQL",
        )
        decode(planner.plan(one_view("SELECT k FROM s.t"), SHORT_SECONDS), Planned)
        (ended,) = before.keys() - planner.workers().keys()
        assert are_gone([ended, before[ended]])
        assert not slow.done()
        planner.close()


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 0), (signal.SIGKILL, -signal.SIGKILL)])
def test_crash_a_planner_that_ends_leaves_nothing(tmp_path: Path, number: int, status: int) -> None:
    """Neither processes nor files of theirs, however it ends."""
    planner = Process(tmp_path)
    ((worker, jvm),) = planner.workers().items()
    planner.process.send_signal(number)

    assert planner.process.wait(BOUND) == status
    until(lambda: are_gone([worker, jvm]))
    until(lambda: not list(planner.temporary.glob("tidemark-planner-*/*")))
    planner.close()
