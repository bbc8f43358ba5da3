"""The CPU time of tests and lanes, with that of every process that they start.

A test's time is what its worker's tree of processes used meanwhile (/proc). The lanes' time is the runner's
account of its children. A process whose parent was killed becomes the runner's child (`adopt_orphans`), and is in the
account when the runner reaps it: without that, the JVM of a replica that a test kills is in no account.
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37
_TIMES = slice(11, 15)
"""utime, stime, cutime and cstime in /proc/PID/stat, counted from the state: those of reaped children are the last."""


def of_tree() -> float:
    """The CPU seconds that this process and its descendants used so far; 0 without /proc."""
    if not Path("/proc/self/stat").exists():
        return 0.0
    ticks = sum(_ticks(pid) for pid in tree_of(os.getpid()))
    return ticks / os.sysconf("SC_CLK_TCK")


def tree_of(pid: int) -> Iterator[int]:
    """The process and its descendants; none are found below it without /proc."""
    yield pid
    for of_thread in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in of_thread.read_text().split():
                yield from tree_of(int(child))


def _ticks(pid: int) -> int:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return sum(map(int, fields[_TIMES]))


def of_children() -> float:
    """The CPU seconds of all reaped children of this process, and of theirs."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def adopt_orphans() -> None:
    """Let processes below this one become its children when their parent dies. Linux alone has that."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def reap_orphans(own: Collection[int]) -> None:
    """Reap the children that have ended, but those of `own`, which their starters wait for. Does nothing where orphans
    were not adopted: all children are then the caller's own."""
    adopted = ctypes.c_int(0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(adopted), 0, 0, 0)
    if not adopted.value:
        return
    for child in _children():
        if child not in own:
            with suppress(ChildProcessError):
                os.waitpid(child, os.WNOHANG)


def _children() -> list[int]:
    children: list[int] = []
    for of_thread in Path("/proc/self/task").glob("*/children"):
        with suppress(OSError):
            children += map(int, of_thread.read_text().split())
    return children
