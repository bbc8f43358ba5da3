"""Whether a process is the one we started: its pid, and when it began (a pid alone is used again by others).

    /proc/<pid>/stat    field 6: session, 22: start time in ticks since boot

Each child leads a session of its own. Spark's JVM stays in it, and Python workers change their process group but not
their session, so the session is what has to be empty when a replica is gone.
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
    # the second field is the program's name in parentheses, with whatever characters it likes
    fields = text.rpartition(")")[2].split()
    return _Stat(fields[0], int(fields[3]), int(fields[19]))


def identify(pid: int) -> ProcessId | None:
    """The process that has this pid now; None where there is none (a zombie has ended)."""
    stat = _stat(pid)
    return None if stat is None or stat.state in "ZX" else ProcessId(pid, stat.start_time)


def is_running(process: ProcessId) -> bool:
    return identify(process.pid) == process


def session_members(process: ProcessId) -> list[int]:
    """Processes of the session that `process` leads or led. None where its pid belongs to somebody else by now."""
    leader = _stat(process.pid)
    if leader is not None and leader.start_time != process.start_time:
        return []
    pids = [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdigit()]
    stats = ((pid, _stat(pid)) for pid in pids)
    return [pid for pid, stat in stats if stat is not None and stat.session == process.pid and stat.state not in "ZX"]


def signal_session(process: ProcessId, number: signal.Signals) -> None:
    """Sends the signal to every member that is still there."""
    for pid in session_members(process):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
