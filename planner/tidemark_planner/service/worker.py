"""`python -m tidemark_planner.service.worker SOCKET SCRATCH`: a JVM, and one plan at a time for the planner's server.

    a request            ─► plan within bounded memory ─► the outcome, and whether this process can plan again
    standard input ends: the server's process is gone ─► this process ends at once, with its JVM
    its JVM ends                                      ─► this process ends, once the request under way is answered

A worker holds no state between requests. The server enforces the time limit (worker_pool.py): only the end of the
process stops Catalyst.
"""

from __future__ import annotations

import contextlib
import logging
import os
import resource
import shutil
import signal
import socket
import subprocess
import sys
import threading
from pathlib import Path
from typing import NoReturn

from pyspark import SparkContext

from tidemark_planner.catalyst.analyser import HEAP, Catalyst
from tidemark_planner.planning.dataflow import plan
from tidemark_planner.planning.one_shot import plan_query
from tidemark_planner.service import worker_protocol
from tidemark_planner.service.worker_protocol import JVM_ENDED, MALFORMED, PLAN, READY, REUSABLE, SPENT, refused_outcome
from tidemark_protocol.errors import MalformedPlan
from tidemark_protocol.messages.planning import Catalogue, PlanQueryRequest, PlanRequest, ViewRequest
from tidemark_protocol.plan.codec import decode, encode

PLANNING_BYTES = 512 << 20
"""The memory that planning may add to this process. The largest plan that can be sent takes half of it."""
JVM_EXIT_SECONDS = 2.0
MAX_ERROR_CHARACTERS = 500
EXIT_FAILED = 1
EXIT_HEAP_FULL = 3
"""The exit status of a JVM with -XX:+ExitOnOutOfMemoryError."""
# Planning this loads the classes that planning needs, before the first caller waits for them.
_WARM_UP_SQL = """
WITH c AS (SELECT * FROM VALUES (1, 2.5, 'a', DATE '2020-01-01') AS t(i, m, s, d))
SELECT a.s, sum(b.m * 2) AS m FROM c a JOIN c b ON a.i = b.i
WHERE a.d < '2021-01-01' AND 10 / b.i > 1 GROUP BY a.s HAVING count(*) > 0
"""
_WARM_UP = PlanRequest("warm-up", (ViewRequest("v", _WARM_UP_SQL),), (), Catalogue(()), "warm-up/")
LOG = logging.getLogger(__name__)


def main(server: socket.socket, scratch: Path) -> None:
    """Plan for the server until it closes its socket; never returns."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    planning = threading.Lock()
    threading.Thread(target=_end_with_server, args=(scratch,), daemon=True).start()
    try:
        catalyst = Catalyst.start(scratch)
        plan(catalyst, _WARM_UP)
        threading.Thread(target=_end_with_jvm, args=(planning, scratch), daemon=True).start()
        limit_memory()
        _serve(server, catalyst, planning)
        _end(scratch, 0)
    except Exception:
        LOG.exception("a worker of the planner failed and ends")
        _end(scratch, EXIT_FAILED)


def _serve(server: socket.socket, catalyst: Catalyst, planning: threading.Lock) -> None:
    """Answer requests until the server closes the socket."""
    with contextlib.suppress(EOFError, ConnectionError):
        worker_protocol.send(server, READY)
        while True:
            request = worker_protocol.receive(server)
            with planning:
                worker_protocol.send(server, answer(catalyst, request))


def answer(catalyst: Catalyst, request: bytes) -> bytes:
    """The answer to a request: a byte that says whether this worker can plan again, then the outcome."""
    try:
        return REUSABLE + _outcome(catalyst, request)
    except MalformedPlan as error:
        return MALFORMED + str(error)[:MAX_ERROR_CHARACTERS].encode(errors="replace")
    except RecursionError:
        return REUSABLE + refused_outcome(
            "TOO_LARGE", "the query is nested too deeply to be planned: split it into several views"
        )
    except MemoryError:
        return SPENT + refused_outcome("TOO_LARGE", "planning took more memory than the planner has: simplify the SQL")
    except Exception as error:
        LOG.exception("planning failed")
        status = _jvm_exit_status()
        if status == EXIT_HEAP_FULL:
            return SPENT + refused_outcome(
                "TOO_LARGE", f"planning took more memory than the planner has ({HEAP}): simplify the SQL"
            )
        if status is not None:
            return JVM_ENDED + f"its JVM ended with {exit_reason(status)}".encode()
        return SPENT + refused_outcome(
            "INTERNAL", f"planning failed: {type(error).__name__}: {str(error)[:MAX_ERROR_CHARACTERS]}"
        )


def _outcome(catalyst: Catalyst, request: bytes) -> bytes:
    if request[:1] == PLAN:
        return encode(plan(catalyst, decode(request[1:], PlanRequest)))
    return encode(plan_query(catalyst, decode(request[1:], PlanQueryRequest)))


def limit_memory() -> None:
    """Limit this process to its present memory and PLANNING_BYTES more: plans are read into it from the JVM.

    The JVM has started before and is not limited by this. The chart's limit holds two workers at their limits.
    """
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + PLANNING_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _jvm() -> subprocess.Popen[bytes] | None:
    """The JVM's process; None before this process has started it."""
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    return process


def _jvm_exit_status() -> int | None:
    """The JVM's exit status; None while it runs. The JVM ends itself when its heap is full."""
    process = _jvm()
    try:
        return None if process is None else process.wait(timeout=JVM_EXIT_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def exit_reason(status: int) -> str:
    """The end of a process, by its exit status of `subprocess`: negative for a signal."""
    return f"signal {-status}" if status < 0 else f"exit status {status}"


def _end_with_jvm(planning: threading.Lock, scratch: Path) -> None:
    process = _jvm()
    assert process is not None, "this process has started the JVM"
    status = process.wait()
    with planning:
        LOG.error("the JVM of a worker of the planner ended with %s", exit_reason(status))
        _end(scratch, EXIT_FAILED)


def _end_with_server(scratch: Path) -> None:
    while sys.stdin.buffer.read(1):
        pass
    _end(scratch, 0)


def _end(scratch: Path, status: int) -> NoReturn:
    """End this process and its JVM at once, and remove the folder of their files."""
    for child in _children():  # the JVM, also while pyspark is still starting it
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    shutil.rmtree(scratch, ignore_errors=True)
    logging.shutdown()
    os._exit(status)


def _children() -> list[int]:
    """The pids of the children of all threads of this process."""
    files = Path("/proc/self/task").glob("*/children")
    return [int(child) for of_thread in files for child in of_thread.read_text().split()]


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]))
