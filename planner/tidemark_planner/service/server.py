"""The planner's gRPC service: each plan within a bounded time and a bounded heap, a few plans at a time.

A plan that takes longer than it may is answered with TIMEOUT, and its worker is replaced. A worker is also replaced
when its JVM has ended, or when planning failed in a way that says nothing about the SQL (worker_pool.py). A statement
whose worker ended is planned once more by another one, as planning changes nothing; a second end may be its own fault,
and is answered with INTERNAL. The caller
sets how much processor time a plan may take: elapsed time would refuse a trivial statement on a busy machine. The
answer comes by the deadline of the call even if a worker hangs or gets no processor: the plan ends GRACE_SECONDS before
it, since queueing, ending a worker and the answer take time too. The service does not plan for a caller that has gone
by the time a worker is idle.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from tidemark_planner.service.worker_pool import NoIdleWorker, WorkerPool
from tidemark_planner.service.worker_process import PlanLimits, Worker, WorkerEnded, WorkerTimeout
from tidemark_planner.service.worker_protocol import MALFORMED, MAX_MESSAGE_BYTES, PLAN, QUERY, refused_outcome
from tidemark_protocol import tracing
from tidemark_protocol.messages.planning import GRACE_SECONDS
from tidemark_protocol.pb import planner_pb2, planner_pb2_grpc
from tidemark_protocol.tls.folder import CertificateFolder
from tidemark_protocol.tls.identities import OPERATOR
from tidemark_protocol.tls.server import RequireCaller, server_credentials

MAX_PLAN_SECONDS = 30.0
MAX_ELAPSED_SECONDS = 300.0
"""The most time of a plan, also where the call has no deadline."""
MAX_WORKERS = 2
_MAX_CALLS = 16
# Half of GRACE_SECONDS: a caller that waited this long for a worker must try again.
_QUEUE_SECONDS = 2.5
_STOP_GRACE_SECONDS = 2.0
_MAINTENANCE_SECONDS = 0.2
_WORKER_FOLDER = "worker-"
_OPTIONS = (
    ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
    ("grpc.max_send_message_length", MAX_MESSAGE_BYTES),
)
LOG = logging.getLogger(__name__)


class PlannerService(planner_pb2_grpc.PlannerServicer):
    """The calls Plan and PlanQuery. `plan_seconds`: the most processor time of any plan, whatever the call allows."""

    def __init__(self, workers: WorkerPool, plan_seconds: float = MAX_PLAN_SECONDS) -> None:
        self._workers, self._plan_seconds = workers, plan_seconds

    def Plan(self, request: Any, context: Any) -> Any:
        return planner_pb2.PlanResponse(outcome=self._outcome(PLAN + request.request, request.cpu_seconds, context))

    def PlanQuery(self, request: Any, context: Any) -> Any:
        with tracing.span("plan", tracing.from_metadata(context.invocation_metadata()), tracing.SERVER):
            outcome = self._outcome(QUERY + request.request, request.cpu_seconds, context)
        return planner_pb2.PlanQueryResponse(outcome=outcome)

    def _outcome(self, request: bytes, cpu_seconds: float, context: Any) -> bytes:
        left = context.time_remaining()
        seconds = MAX_ELAPSED_SECONDS if left is None else min(MAX_ELAPSED_SECONDS, max(1.0, left - GRACE_SECONDS))
        limits = PlanLimits(min(cpu_seconds or seconds, self._plan_seconds), time.monotonic() + seconds)
        try:
            answer = self._ask(request, limits, context)
        except NoIdleWorker as error:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, _no_worker(str(error)))
        except WorkerTimeout as error:
            LOG.error("a plan %s: its worker is replaced", error)
            return refused_outcome("TIMEOUT", f"planning {error}")
        except WorkerEnded as error:
            LOG.error("a second worker ended while it planned the same statement: %s", error)
            return refused_outcome(
                "INTERNAL",
                f"the planner's worker ended 2 times while it planned this: {error}. Try again, or simplify the SQL",
            )
        if answer[:1] == MALFORMED:
            reason = answer[1:].decode(errors="replace")
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"the request cannot be decoded: {reason}")
        return answer[1:]

    def _ask(self, request: bytes, limits: PlanLimits, context: Any) -> bytes:
        """The answer of a worker, or of a second one if the first ended. Raises as WorkerPool.ask."""
        try:
            return self._workers.ask(request, limits, _QUEUE_SECONDS, context.is_active)
        except WorkerEnded as error:
            LOG.error("a worker ended while it planned: another one plans the statement: %s", error)
        return self._workers.ask(request, limits, limits.seconds_left, context.is_active)


def _no_worker(start_failure: str) -> str:
    if start_failure:
        return f"the planner has no worker, since its last one could not be started ({start_failure}): try again later"
    return "all workers of the planner are busy or starting: try again later"


def serve(
    listen: str,
    scratch: Path,
    plan_seconds: float = MAX_PLAN_SECONDS,
    stopped: threading.Event | None = None,
    tls: CertificateFolder | None = None,
) -> int:
    """Serve until `stopped` is set (returns 0). Returns 1 if no worker can be started from the beginning.

    `listen`: unix:///path or host:port. `scratch`: the folder of the workers' folders; those that an earlier process
    left there are removed.

    Raises:
        CertificateUnreadable: `tls` has no valid certificate.
    """
    credentials = None if tls is None else server_credentials(tls)
    workers = WorkerPool(lambda: Worker(_new_folder(scratch)), MAX_WORKERS)
    stop = stopped or threading.Event()
    try:
        _remove_worker_folders(scratch)
        workers.begin()
        while not (stop.is_set() or workers.failed.is_set()):
            workers.maintain()
            if workers.ready.wait(_MAINTENANCE_SECONDS):
                _serve_calls(workers, listen, credentials, plan_seconds, stop)
        return 0 if stop.is_set() else 1
    finally:
        workers.close()


def _new_folder(scratch: Path) -> Path:
    """A folder whose name was never used: a worker that is still ending removes its own folder, and no other's."""
    return scratch / f"{_WORKER_FOLDER}{secrets.token_hex(8)}"


def _remove_worker_folders(scratch: Path) -> None:
    """Remove the folders of workers that were killed together with their server."""
    for folder in scratch.glob(f"{_WORKER_FOLDER}*"):
        shutil.rmtree(folder, ignore_errors=True)


def _serve_calls(
    workers: WorkerPool, listen: str, credentials: Any, plan_seconds: float, stop: threading.Event
) -> None:
    server = grpc.server(
        ThreadPoolExecutor(_MAX_CALLS),
        interceptors=[] if credentials is None else [RequireCaller(OPERATOR)],
        options=_OPTIONS,
        maximum_concurrent_rpcs=_MAX_CALLS,
    )
    planner_pb2_grpc.add_PlannerServicer_to_server(PlannerService(workers, plan_seconds), server)  # type: ignore[no-untyped-call]
    if credentials is None:
        server.add_insecure_port(listen)
    else:
        server.add_secure_port(listen, credentials)
    server.start()
    LOG.info("planning at %s", listen)
    while not stop.wait(_MAINTENANCE_SECONDS):
        workers.maintain()
    server.stop(grace=_STOP_GRACE_SECONDS).wait()
