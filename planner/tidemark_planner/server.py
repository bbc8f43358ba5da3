"""The planner's gRPC service: one plan at a time, within a bounded time and a bounded heap.

A plan that takes longer than the limit is answered with TIMEOUT, and then the process ends itself: the JVM may be in
any state. The same holds when the JVM is gone, or failed in a way that is no answer about the SQL. Whoever started
the process starts it again; it holds no state.
"""

from __future__ import annotations

import logging
import os
import resource
import shutil
import subprocess
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, TimeoutError
from pathlib import Path
from typing import Any

import grpc
from pyspark import SparkContext

from tidemark_planner.catalyst import HEAP, Catalyst
from tidemark_planner.one_shot import plan_query
from tidemark_planner.plan import plan
from tidemark_protocol.codec import MAX_PLAN_BYTES, decode, encode
from tidemark_protocol.errors import MalformedPlan
from tidemark_protocol.pb import planner_pb2, planner_pb2_grpc
from tidemark_protocol.planning import Catalogue, Diagnostic, PlanQueryRequest, PlanRequest, Refused, ViewRequest
from tidemark_protocol.tls.folder import CertificateFolder
from tidemark_protocol.tls.identities import OPERATOR
from tidemark_protocol.tls.server import OnlyFrom, server_credentials

PLAN_SECONDS = 5.0
_WAITING_AT_MOST = 16
# Less than a caller's patience beyond PLAN_SECONDS: who has waited this long is told to come back.
_TURN_SECONDS = 2.5
_GROWTH_BYTES = 2 << 30
_LAST_WORDS_SECONDS = 2.0
# The exit status of a planner that must be replaced.
REPLACE_ME = 70
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_PLAN_BYTES + 4096),
    ("grpc.max_send_message_length", MAX_PLAN_BYTES + 4096),
)
# Loads every part of the way before the first caller waits for it.
_WARM_UP_SQL = """
WITH c AS (SELECT * FROM VALUES (1, 2.5, 'a', DATE '2020-01-01') AS t(i, m, s, d))
SELECT a.s, sum(b.m * 2) AS m FROM c a JOIN c b ON a.i = b.i
WHERE a.d < '2021-01-01' AND 10 / b.i > 1 GROUP BY a.s HAVING count(*) > 0
"""
_WARM_UP = PlanRequest("warm-up", (ViewRequest("v", _WARM_UP_SQL),), (), Catalogue(()), "warm-up/")
log = logging.getLogger(__name__)


class PlannerService(planner_pb2_grpc.PlannerServicer):
    """Plan and PlanQuery. `ended` is set once the process has to be replaced."""

    def __init__(self, catalyst: Catalyst, plan_seconds: float = PLAN_SECONDS) -> None:
        self._catalyst = catalyst
        self._plan_seconds = plan_seconds
        # The JVM is used by this one thread alone.
        self._planning = ThreadPoolExecutor(max_workers=1, thread_name_prefix="plan")
        self._turn = threading.Lock()
        self.ended = threading.Event()

    def Plan(self, request: Any, context: Any) -> Any:
        asked = _decoded(request.request, PlanRequest, context)
        outcome = self._in_turn(lambda: encode(plan(self._catalyst, asked)), context)
        return planner_pb2.PlanResponse(outcome=outcome)

    def PlanQuery(self, request: Any, context: Any) -> Any:
        asked = _decoded(request.request, PlanQueryRequest, context)
        outcome = self._in_turn(lambda: encode(plan_query(self._catalyst, asked)), context)
        return planner_pb2.PlanQueryResponse(outcome=outcome)

    def finish(self) -> None:
        """Wait for the plan that is running; there will be no other."""
        self._planning.shutdown(wait=True)

    def _in_turn(self, act: Callable[[], bytes], context: Any) -> bytes:
        """One plan at a time; a caller that waits too long is sent away, for its text is not to blame."""
        if not self._turn.acquire(timeout=_TURN_SECONDS):
            context.abort(grpc.StatusCode.UNAVAILABLE, "the planner is busy; ask again")
        try:
            if self.ended.is_set():
                context.abort(grpc.StatusCode.UNAVAILABLE, "the planner is being replaced; ask again")
            return self._within_limits(act)
        finally:
            self._turn.release()

    def _within_limits(self, act: Callable[[], bytes]) -> bytes:
        try:
            return self._planning.submit(act).result(timeout=self._plan_seconds)
        except TimeoutError:
            return self._end("TIMEOUT", f"planning took longer than {self._plan_seconds:g} s: simplify the SQL")
        except RecursionError:
            return _refused("TOO_LARGE", "the query is nested too deeply to be planned")
        except MemoryError:
            return self._end("TOO_LARGE", "planning took more memory than the planner has")
        except Exception as error:
            log.exception("planning failed")
            if _jvm_has_ended():
                return self._end("TOO_LARGE", f"planning took more memory than the planner has ({HEAP})")
            return self._end("INTERNAL", f"planning failed: {type(error).__name__}: {str(error)[:500]}")

    def _end(self, code: str, message: str) -> bytes:
        log.error("%s; this process ends so that a fresh one can take over", message)
        self.ended.set()
        return _refused(code, message)


def serve(
    listen: str,
    plan_seconds: float = PLAN_SECONDS,
    stopped: threading.Event | None = None,
    tls: CertificateFolder | None = None,
    scratch: Path | None = None,
) -> int:
    """Serve until `stopped` (0) or until the process has to be replaced (REPLACE_ME). Raises CertificateUnreadable."""
    credentials = None if tls is None else server_credentials(tls)
    catalyst = Catalyst.start(scratch)
    plan(catalyst, _WARM_UP)
    limit_memory()
    service = PlannerService(catalyst, plan_seconds)
    server = grpc.server(
        ThreadPoolExecutor(_WAITING_AT_MOST),
        interceptors=[] if credentials is None else [OnlyFrom(OPERATOR)],
        options=_OPTIONS,
        maximum_concurrent_rpcs=_WAITING_AT_MOST,
    )
    planner_pb2_grpc.add_PlannerServicer_to_server(service, server)  # type: ignore[no-untyped-call]
    if credentials is None:
        server.add_insecure_port(listen)
    else:
        server.add_secure_port(listen, credentials)
    server.start()
    log.info("planning at %s", listen)
    stop = stopped or threading.Event()
    while not stop.wait(timeout=0.2) and not service.ended.is_set():
        pass
    server.stop(grace=_LAST_WORDS_SECONDS).wait()
    return REPLACE_ME if service.ended.is_set() else 0


def limit_memory() -> None:
    """From here on this process may grow by twice the JVM's heap, and no more: plans are read from there into it.

    The JVM has started by then, and is not held by the limit.
    """
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + _GROWTH_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _jvm() -> subprocess.Popen[bytes] | None:
    """The JVM's process, where this process started it."""
    return getattr(SparkContext._gateway, "proc", None)


def _jvm_has_ended() -> bool:
    """Whether the JVM is gone; it ends itself when its heap is full."""
    process = _jvm()
    try:
        return process is not None and process.wait(timeout=_LAST_WORDS_SECONDS) is not None
    except subprocess.TimeoutExpired:
        return False


def end_process(status: int, leave: Path | None = None) -> None:
    """End at once, with the JVM, whatever its threads are doing; and with the folder in which that kept its files."""
    process = _jvm()
    if process is not None:
        process.kill()
        process.wait()
    if leave is not None:
        shutil.rmtree(leave, ignore_errors=True)
    logging.shutdown()
    os._exit(status)


def _decoded(data: bytes, kind: Any, context: Any) -> Any:
    try:
        return decode(data, kind)
    except MalformedPlan as error:
        return context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"the request cannot be understood: {error}")


def _refused(code: str, message: str) -> bytes:
    return encode(Refused((Diagnostic(code, message),)))
