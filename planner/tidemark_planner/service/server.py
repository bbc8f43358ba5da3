"""The planner's gRPC service: each plan within a bounded time and a bounded heap, a few at a time.

A plan that takes longer than it may is answered with TIMEOUT, and the worker that is at it is replaced, as is one whose
JVM is gone, or that failed in a way that is no answer about the SQL (worker_pool.py). How long a plan may take says who
asks, by the deadline of the call: what is left of it, less GRACE_SECONDS for a turn, the worker's end and the answer.
What nobody waits for any more when its turn comes, is not planned.
"""

from __future__ import annotations

import logging
import secrets
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc

from tidemark_planner.service.framing import MOST_BYTES
from tidemark_planner.service.worker_pool import Busy, Workers
from tidemark_planner.service.worker_process import TookTooLong, Worker, WorkerGone
from tidemark_planner.service.worker_requests import MALFORMED, PLAN, QUERY, refused
from tidemark_protocol.messages.planning import GRACE_SECONDS
from tidemark_protocol.pb import planner_pb2, planner_pb2_grpc
from tidemark_protocol.tls.folder import CertificateFolder
from tidemark_protocol.tls.identities import OPERATOR
from tidemark_protocol.tls.server import OnlyFrom, server_credentials

MOST_SECONDS = 30.0
MOST_WORKERS = 2
_WAITING_AT_MOST = 16
# Half of what a call has beyond the time of its plan: who has waited this long is told to come back.
_TURN_SECONDS = 2.5
_LAST_WORDS_SECONDS = 2.0
_LOOK_SECONDS = 0.2
_WORKER = "worker-"
_OPTIONS = (
    ("grpc.max_receive_message_length", MOST_BYTES),
    ("grpc.max_send_message_length", MOST_BYTES),
)
LOG = logging.getLogger(__name__)


class PlannerService(planner_pb2_grpc.PlannerServicer):
    """Plan and PlanQuery. `plan_seconds`: that a plan may take at most, whoever asks."""

    def __init__(self, workers: Workers, plan_seconds: float = MOST_SECONDS) -> None:
        self._workers, self._plan_seconds = workers, plan_seconds

    def Plan(self, request: Any, context: Any) -> Any:
        return planner_pb2.PlanResponse(outcome=self._outcome(PLAN + request.request, context))

    def PlanQuery(self, request: Any, context: Any) -> Any:
        return planner_pb2.PlanQueryResponse(outcome=self._outcome(QUERY + request.request, context))

    def _outcome(self, question: bytes, context: Any) -> bytes:
        left = context.time_remaining()
        seconds = self._plan_seconds if left is None else min(self._plan_seconds, max(1.0, left - GRACE_SECONDS))
        try:
            answer = self._workers.ask(question, seconds, _TURN_SECONDS, context.is_active)
        except Busy:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "all its workers are at other plans, or start")
        except TookTooLong:
            LOG.error("a plan took longer than %.1f s: its process is replaced", seconds)
            return refused("TIMEOUT", f"planning took longer than {seconds:.0f} s: simplify the SQL")
        except WorkerGone as error:
            LOG.error("a process that planned is replaced: %s", error)
            return refused("INTERNAL", f"the process that planned it is gone: {error}")
        if answer[:1] == MALFORMED:
            said = answer[1:].decode(errors="replace")
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, f"the request cannot be understood: {said}")
        return answer[1:]


def serve(
    listen: str,
    scratch: Path,
    plan_seconds: float = MOST_SECONDS,
    stopped: threading.Event | None = None,
    tls: CertificateFolder | None = None,
) -> int:
    """Until `stopped` (0), or until there is no worker and none can be started (1). Raises CertificateUnreadable.
    What workers of an earlier process have left in `scratch` goes."""
    credentials = None if tls is None else server_credentials(tls)
    workers = Workers(lambda: Worker(_folder_in(scratch)), MOST_WORKERS)
    stop = stopped or threading.Event()
    try:
        _clear(scratch)
        workers.begin()
        while not (stop.is_set() or workers.failed.is_set()):
            if workers.ready.wait(_LOOK_SECONDS):
                _answer(workers, listen, credentials, plan_seconds, stop)
        return 0 if stop.is_set() else 1
    finally:
        workers.close()


def _folder_in(scratch: Path) -> Path:
    """A name that none had before: a worker that is still ending removes its own folder, and no other's."""
    return scratch / f"{_WORKER}{secrets.token_hex(8)}"


def _clear(scratch: Path) -> None:
    """Folders of workers that were killed with who served: nobody was left to remove them."""
    for left in scratch.glob(f"{_WORKER}*"):
        shutil.rmtree(left, ignore_errors=True)


def _answer(workers: Workers, listen: str, credentials: Any, plan_seconds: float, stop: threading.Event) -> None:
    server = grpc.server(
        ThreadPoolExecutor(_WAITING_AT_MOST),
        interceptors=[] if credentials is None else [OnlyFrom(OPERATOR)],
        options=_OPTIONS,
        maximum_concurrent_rpcs=_WAITING_AT_MOST,
    )
    planner_pb2_grpc.add_PlannerServicer_to_server(PlannerService(workers, plan_seconds), server)  # type: ignore[no-untyped-call]
    if credentials is None:
        server.add_insecure_port(listen)
    else:
        server.add_secure_port(listen, credentials)
    server.start()
    LOG.info("planning at %s", listen)
    while not stop.wait(_LOOK_SECONDS) and not workers.failed.is_set():
        workers.tidy()
    server.stop(grace=_LAST_WORDS_SECONDS).wait()
