"""`python -m tidemark_replica.spark.python_daemon`: Spark's daemon of Python workers, whose workers end with it.

    JVM ── starts ──► daemon ── forks ──► worker ◄── socket ── JVM

A worker of `pyspark.daemon` waits on its socket to the JVM and on nothing of the daemon. If the daemon alone is killed,
as the out-of-memory killer does, its idle workers keep 170 to 320 MB each until the JVM drops them, minutes later. Here
the kernel kills each worker when the daemon ends (`PR_SET_PDEATHSIG`, Linux).

The daemon imports what workers import, so that a worker begins with it: 0.8 s of CPU less for each worker, and one copy
of this memory for all. Nothing that is imported may compute before the fork: Arrow, OpenBLAS and jemalloc prepare their
threads for a fork themselves, a pool of other threads would be missing in the workers.
"""

from __future__ import annotations

import ctypes
import gc
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from pyspark.daemon import manager

_PR_SET_PDEATHSIG = 1
IMPORTED = ("pyspark.worker", "pandas", "tidemark_replica.render.task.stage")
"""Modules that a worker would import at its first task; pandas, by Arrow at its first NumPy array."""


def end_children_with_this_process() -> None:
    """Have the kernel kill each process that this one forks from now on, once this one ends. Linux only.

    The forking thread must live as long as the process: the signal follows the thread.
    """
    daemon, is_daemon, prctl = os.getpid(), True, ctypes.CDLL(None, use_errno=True).prctl

    def in_child() -> None:
        nonlocal is_daemon
        if not is_daemon:
            return  # a worker forked: its children are its own matter
        is_daemon = False
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != daemon:
            os._exit(1)  # the daemon ended between the fork and the call above

    os.register_at_fork(after_in_child=in_child)


@contextmanager
def _printing_to_stderr() -> Iterator[None]:
    """The JVM reads the name of the daemon's socket from its stdout, and nothing else may stand before it."""
    sys.stdout.flush()
    stdout = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(stdout, 1)
        os.close(stdout)


def import_for_workers() -> None:
    """Import the code of all tasks, and hide it from the garbage collector."""
    with _printing_to_stderr():
        for module in IMPORTED:
            import_module(module)
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    if sys.platform == "linux":
        end_children_with_this_process()
    import_for_workers()
    manager()
