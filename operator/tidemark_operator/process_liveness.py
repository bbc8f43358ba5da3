"""Identity and liveness of a process: its pid and its start time. The kernel reuses a pid alone.

    /proc/<pid>/stat    field 6: session, 22: start time in ticks since boot

Each child leads a session of its own. Spark's JVM stays in that session. Python workers change their process group but
not their session. A replica is therefore gone when its session is empty.
"""

from __future__ import annotations

import contextlib
import os
import signal
from dataclasses import dataclass
from pathlib import Path

_PROC = Path("/proc")


@dataclass(frozen=True)
class ProcessId:
    """`start_time`: in clock ticks since boot."""

    pid: int
    start_time: int


@dataclass(frozen=True)
class _Stat:
    state: str
    session: int
    start_time: int


def _stat(pid: int) -> _Stat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_text()
    except OSError:
        return None
    # the second field is the program's name in parentheses; the name may hold any character
    fields = text.rpartition(")")[2].split()
    return _Stat(fields[0], int(fields[3]), int(fields[19]))


def identify(pid: int) -> ProcessId | None:
    """The process that has this pid now. None: no process has it, or a zombie does."""
    stat = _stat(pid)
    return None if stat is None or stat.state in "ZX" else ProcessId(pid, stat.start_time)


def is_running(process: ProcessId) -> bool:
    """Whether exactly this process runs; a later process with the same pid does not count."""
    return identify(process.pid) == process


def session_members(process: ProcessId) -> list[int]:
    """Pids of the session that `process` leads or led. The list is empty once another process has its pid."""
    leader = _stat(process.pid)
    if leader is not None and leader.start_time != process.start_time:
        return []
    pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    stats = ((pid, _stat(pid)) for pid in pids)
    return [pid for pid, stat in stats if stat is not None and stat.session == process.pid and stat.state not in "ZX"]


def signal_session(process: ProcessId, number: signal.Signals) -> None:
    """Send the signal to every process that is left in the session."""
    for pid in session_members(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
