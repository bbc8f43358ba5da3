"""Times, and the CPU time of this process with all its descendants (the JVM, its Python workers)."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
CPU_RESOLUTION_MS = 1000 / _TICKS_PER_SECOND


@dataclass(frozen=True)
class Cost:
    """Milliseconds by the clock, and of CPU; on a busy machine only the latter say what an action takes."""

    wall: float
    cpu: float


def measured(action: Callable[[], Result]) -> tuple[Cost, Result]:
    """(what it cost, what the action returned)"""
    others, own, begin = descendants_cpu_ms(), _own_cpu_ms(), time.perf_counter()
    result = action()
    wall, own = (time.perf_counter() - begin) * 1e3, _own_cpu_ms() - own
    return Cost(wall, own + descendants_cpu_ms() - others), result


def wall_p50(costs: Sequence[Cost]) -> float:
    """The median by the clock."""
    return p50([cost.wall for cost in costs])


def cpu_mean(costs: Sequence[Cost]) -> float:
    """The mean of CPU time: single costs are too coarse for a median."""
    return statistics.fmean(cost.cpu for cost in costs)


def p50(samples: Sequence[float]) -> float:
    """The median."""
    return statistics.median(samples)


def p95(samples: Sequence[float]) -> float:
    """The least sample that at most a twentieth of the samples exceeds."""
    return sorted(samples)[math.ceil(0.95 * len(samples)) - 1]


def _own_cpu_ms() -> float:
    """CPU milliseconds of this process and of children that have ended."""
    spent = os.times()
    return (time.process_time() + spent.children_user + spent.children_system) * 1e3


def descendants_cpu_ms() -> float:
    """CPU milliseconds of all that this process has started and that lives; Linux only, by CPU_RESOLUTION_MS.

    Finding them takes some milliseconds of this process's own time, which costs leave out.
    """
    children: dict[int, list[tuple[int, int]]] = {}
    for process in filter(str.isdigit, os.listdir("/proc")):
        if fields := _read(Path(f"/proc/{process}/stat")).rpartition(")")[2].split():
            children.setdefault(int(fields[1]), []).append((int(process), sum(map(int, fields[11:15]))))
    return _ticks_below(os.getpid(), children) / _TICKS_PER_SECOND * 1e3


def _ticks_below(process: int, children: Mapping[int, Sequence[tuple[int, int]]]) -> int:
    """In user and in kernel mode, of those that live, and of children of theirs that have ended.

    By their parents: what a thread lists as its children is another's as soon as the thread ends, and missed.
    """
    return sum(ticks + _ticks_below(child, children) for child, ticks in children.get(process, ()))


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""  # the process, or the thread, has ended
