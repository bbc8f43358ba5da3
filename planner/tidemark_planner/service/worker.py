"""`python -m tidemark_planner.service.worker SOCKET SCRATCH`: a JVM, and one plan at a time for the process that
serves.

    a question ─► plan within bounded memory ─► its answer, and whether this process can go on
    standard input ends: who started it is gone ─► it ends, with its JVM, whatever it is at
    its JVM ends                                ─► it ends, once who has asked is answered

A worker of the planner holds no state. The time that a plan may take is for who asks to keep (worker_pool.py): nothing
stops Catalyst but the end of its process.
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
from tidemark_planner.service import framing
from tidemark_planner.service.worker_requests import MALFORMED, ON, OVER, PLAN, READY, refused
from tidemark_protocol.errors import MalformedPlan
from tidemark_protocol.messages.planning import Catalogue, PlanQueryRequest, PlanRequest, ViewRequest
from tidemark_protocol.plan.codec import decode, encode

GROWTH_BYTES = 512 << 20
"""The largest plan that can be sent takes half of it to be made, written and checked."""
LAST_WORDS_SECONDS = 2.0
MOST_WORDS = 500
EXIT_FAILED = 1
EXIT_HEAP_IS_FULL = 3
"""As -XX:+ExitOnOutOfMemoryError has it."""
# Loads every part of the way before the first caller waits for it.
_WARM_UP_SQL = """
WITH c AS (SELECT * FROM VALUES (1, 2.5, 'a', DATE '2020-01-01') AS t(i, m, s, d))
SELECT a.s, sum(b.m * 2) AS m FROM c a JOIN c b ON a.i = b.i
WHERE a.d < '2021-01-01' AND 10 / b.i > 1 GROUP BY a.s HAVING count(*) > 0
"""
_WARM_UP = PlanRequest("warm-up", (ViewRequest("v", _WARM_UP_SQL),), (), Catalogue(()), "warm-up/")
LOG = logging.getLogger(__name__)


def main(asked: socket.socket, scratch: Path) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    planning = threading.Lock()
    threading.Thread(target=_end_with_who_serves, args=(scratch,), daemon=True).start()
    try:
        catalyst = Catalyst.start(scratch)
        plan(catalyst, _WARM_UP)
        threading.Thread(target=_end_with_jvm, args=(planning, scratch), daemon=True).start()
        limit_memory()
        _serve(asked, catalyst, planning)
        _end(scratch, 0)
    except Exception:
        LOG.exception("a worker of the planner ends")
        _end(scratch, EXIT_FAILED)


def _serve(asked: socket.socket, catalyst: Catalyst, planning: threading.Lock) -> None:
    """Until nobody asks any more."""
    with contextlib.suppress(EOFError, ConnectionError):
        framing.send(asked, READY)
        while True:
            question = framing.receive(asked)
            with planning:
                framing.send(asked, answer(catalyst, question))


def answer(catalyst: Catalyst, question: bytes) -> bytes:
    """What comes of it, and before that, in a byte, whether there can be another."""
    try:
        return ON + _outcome(catalyst, question)
    except MalformedPlan as error:
        return MALFORMED + str(error)[:MOST_WORDS].encode(errors="replace")
    except RecursionError:
        return ON + refused("TOO_LARGE", "the query is nested too deeply to be planned")
    except MemoryError:
        return OVER + refused("TOO_LARGE", "planning took more memory than the planner has")
    except Exception as error:
        LOG.exception("planning failed")
        status = _jvm_has_ended()
        if status == EXIT_HEAP_IS_FULL:
            return OVER + refused("TOO_LARGE", f"planning took more memory than the planner has ({HEAP})")
        if status is not None:
            return OVER + refused("INTERNAL", f"planning failed: the JVM ended with exit status {status}")
        return OVER + refused("INTERNAL", f"planning failed: {type(error).__name__}: {str(error)[:MOST_WORDS]}")


def _outcome(catalyst: Catalyst, question: bytes) -> bytes:
    if question[:1] == PLAN:
        return encode(plan(catalyst, decode(question[1:], PlanRequest)))
    return encode(plan_query(catalyst, decode(question[1:], PlanQueryRequest)))


def limit_memory() -> None:
    """From here on this process may grow by so much, and no more: plans are read into it from the JVM. The chart's
    limit holds two workers that are both at their limits.

    The JVM has started by then, and is not held by this one.
    """
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + GROWTH_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _jvm() -> subprocess.Popen[bytes] | None:
    """The JVM's process, once this process has started it."""
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    return process


def _jvm_has_ended() -> int | None:
    """How, if the JVM is gone; it ends itself when its heap is full."""
    process = _jvm()
    try:
        return None if process is None else process.wait(timeout=LAST_WORDS_SECONDS)
    except subprocess.TimeoutExpired:
        return None


def _end_with_jvm(planning: threading.Lock, scratch: Path) -> None:
    process = _jvm()
    assert process is not None, "this process has started it"
    status = process.wait()
    with planning:
        LOG.error("the JVM of a worker of the planner ended with exit status %s", status)
        _end(scratch, EXIT_FAILED)


def _end_with_who_serves(scratch: Path) -> None:
    while sys.stdin.buffer.read(1):
        pass
    _end(scratch, 0)


def _end(scratch: Path, status: int) -> NoReturn:
    """At once, with the JVM, whatever its threads are doing; and with the folder in which that kept its files."""
    for child in _children():  # the JVM, also while it starts, when nobody here knows it yet
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        while True:
            os.waitpid(-1, 0)
    shutil.rmtree(scratch, ignore_errors=True)
    logging.shutdown()
    os._exit(status)


def _children() -> list[int]:
    """Whichever of its threads started them."""
    found = Path("/proc/self/task").glob("*/children")
    return [int(child) for of_thread in found for child in of_thread.read_text().split()]


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), Path(sys.argv[2]))
