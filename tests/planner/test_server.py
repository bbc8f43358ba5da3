"""The planner's process: plans over gRPC, limits, and its own end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.bounds import BOUND
from tests.planner.catalogue import CATALOGUE, one_view
from tidemark_planner.catalyst import Catalyst
from tidemark_planner.server import REPLACE_ME, PlannerService
from tidemark_protocol.codec import decode, encode
from tidemark_protocol.pb import planner_pb2, planner_pb2_grpc
from tidemark_protocol.planning import Planned, PlannedPeek, PlanQueryRequest, Refused

pytestmark = pytest.mark.spark


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

    def plan(self, request: Any) -> bytes:
        answer = self.stub.Plan(planner_pb2.PlanRequest(request=encode(request)), timeout=BOUND)
        return bytes(answer.outcome)

    def jvm(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return next(int(c) for c in children if "java" in Path(f"/proc/{c}/cmdline").read_text())

    def close(self) -> None:
        self._channel.close()
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait(timeout=BOUND)


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


def test_crash_of_the_jvm_ends_the_process_so_that_it_is_replaced(planner: Process) -> None:
    """A planner without its JVM answers once that it has none, and is gone, with all that Spark keeps in folders."""
    assert list(planner.temporary.glob("tidemark-planner-*/blockmgr-*"))
    os.kill(planner.jvm(), signal.SIGKILL)
    answer = decode(planner.plan(one_view("SELECT k FROM s.t")), Refused)

    assert answer.diagnostics[0].code == "TOO_LARGE"
    assert planner.process.wait(timeout=BOUND) == REPLACE_ME
    assert list(planner.temporary.iterdir()) == []


def test_a_plan_beyond_its_time_is_answered_and_ends_the_service(catalyst: Catalyst) -> None:
    """TIMEOUT for the plan that took too long; who asks next is told to come back."""
    service = PlannerService(catalyst, plan_seconds=0.001)
    server = grpc.server(ThreadPoolExecutor(2))
    planner_pb2_grpc.add_PlannerServicer_to_server(service, server)
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    try:
        with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
            stub = planner_pb2_grpc.PlannerStub(channel)
            request = planner_pb2.PlanRequest(request=encode(one_view("SELECT k FROM s.t")))
            first = decode(stub.Plan(request).outcome, Refused)
            with pytest.raises(grpc.RpcError) as refusal:
                stub.Plan(request)
    finally:
        server.stop(grace=None).wait()
        service.finish()  # the session is shared with other tests: let the plan end first

    assert first.diagnostics[0].code == "TIMEOUT"
    assert service.ended.is_set()
    assert refusal.value.code() is grpc.StatusCode.UNAVAILABLE
