"""`python -m tidemark_planner.worker SOCKET SCRATCH`: a JVM, and one plan at a time for the process that serves.

    a question ─► plan within bounded memory ─► its answer, and whether this process can go on
    standard input ends: who started it is gone ─► it ends, with its JVM, whatever it is at

A worker of the planner holds no state. The time that a plan may take is for who asks to keep (workers.py): nothing
stops Catalyst but the end of its process.
"""

from __future__ import annotations

import logging
import os
import resource
import shutil
import subprocess
import sys
import threading
from multiprocessing.connection import Connection
from pathlib import Path

from pyspark import SparkContext

from tidemark_planner.catalyst import HEAP, Catalyst
from tidemark_planner.one_shot import plan_query
from tidemark_planner.plan import plan
from tidemark_planner.questions import MALFORMED, ON, OVER, PLAN, READY, refused
from tidemark_protocol.codec import decode, encode
from tidemark_protocol.errors import MalformedPlan
from tidemark_protocol.planning import Catalogue, PlanQueryRequest, PlanRequest, ViewRequest

GROWTH_BYTES = 2 << 30
LAST_WORDS_SECONDS = 2.0
# Loads every part of the way before the first caller waits for it.
_WARM_UP_SQL = """
WITH c AS (SELECT * FROM VALUES (1, 2.5, 'a', DATE '2020-01-01') AS t(i, m, s, d))
SELECT a.s, sum(b.m * 2) AS m FROM c a JOIN c b ON a.i = b.i
WHERE a.d < '2021-01-01' AND 10 / b.i > 1 GROUP BY a.s HAVING count(*) > 0
"""
_WARM_UP = PlanRequest("warm-up", (ViewRequest("v", _WARM_UP_SQL),), (), Catalogue(()), "warm-up/")
LOG = logging.getLogger(__name__)


def main(socket: int, scratch: Path) -> None:
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s %(message)s")
    logging.getLogger("py4j").setLevel(logging.WARNING)
    threading.Thread(target=_end_with_who_serves, args=(scratch,), daemon=True).start()
    connection = Connection(socket)
    try:
        scratch.mkdir(parents=True, exist_ok=True)
        catalyst = Catalyst.start(scratch)
        plan(catalyst, _WARM_UP)
        limit_memory()
        connection.send_bytes(READY)
        while True:
            connection.send_bytes(answer(catalyst, connection.recv_bytes()))
    except (EOFError, OSError):
        pass  # nobody asks any more
    finally:
        _end(scratch)


def answer(catalyst: Catalyst, question: bytes) -> bytes:
    """What comes of it, and before that, in a byte, whether there can be another."""
    try:
        return ON + _outcome(catalyst, question)
    except MalformedPlan as error:
        return MALFORMED + str(error).encode()
    except RecursionError:
        return ON + refused("TOO_LARGE", "the query is nested too deeply to be planned")
    except MemoryError:
        return OVER + refused("TOO_LARGE", "planning took more memory than the planner has")
    except Exception as error:
        LOG.exception("planning failed")
        if _jvm_has_ended():
            return OVER + refused("TOO_LARGE", f"planning took more memory than the planner has ({HEAP})")
        return OVER + refused("INTERNAL", f"planning failed: {type(error).__name__}: {str(error)[:500]}")


def _outcome(catalyst: Catalyst, question: bytes) -> bytes:
    if question[:1] == PLAN:
        return encode(plan(catalyst, decode(question[1:], PlanRequest)))
    return encode(plan_query(catalyst, decode(question[1:], PlanQueryRequest)))


def limit_memory() -> None:
    """From here on this process may grow by twice the JVM's heap, and no more: plans are read from there into it.

    The JVM has started by then, and is not held by the limit.
    """
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + GROWTH_BYTES
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))


def _jvm() -> subprocess.Popen[bytes] | None:
    """The JVM's process, once this process has started it."""
    process: subprocess.Popen[bytes] | None = getattr(SparkContext._gateway, "proc", None)
    return process


def _jvm_has_ended() -> bool:
    """Whether the JVM is gone; it ends itself when its heap is full."""
    process = _jvm()
    try:
        return process is not None and process.wait(timeout=LAST_WORDS_SECONDS) is not None
    except subprocess.TimeoutExpired:
        return False


def _end_with_who_serves(scratch: Path) -> None:
    while sys.stdin.buffer.read(1):
        pass
    _end(scratch)


def _end(scratch: Path) -> None:
    """At once, with the JVM, whatever its threads are doing; and with the folder in which that kept its files."""
    process = _jvm()
    if process is not None:
        process.kill()
        process.wait()
    shutil.rmtree(scratch, ignore_errors=True)
    logging.shutdown()
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
