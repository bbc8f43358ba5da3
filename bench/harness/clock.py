"""Times, and the CPU time of this process with all its descendants (the JVM, its Python workers)."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from bench.harness.processes import TICKS_PER_SECOND, Descendants

Result = TypeVar("Result")
CPU_RESOLUTION_MS = 1000 / TICKS_PER_SECOND
_DESCENDANTS = Descendants()


@dataclass(frozen=True)
class Cost:
    """Milliseconds by the clock, and of CPU; on a busy machine only the latter say what an action takes."""

    wall: float
    cpu: float


def measured(action: Callable[[], Result]) -> tuple[Cost, Result]:
    """(the cost, the action's result)"""
    others, own, begin = descendants_cpu_ms(), time.process_time(), time.perf_counter()
    result = action()
    wall, own = (time.perf_counter() - begin) * 1e3, (time.process_time() - own) * 1e3
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


def descendants_cpu_ms() -> float:
    """CPU milliseconds of all that this process has started, ended or not, by CPU_RESOLUTION_MS.

    Finding them takes some milliseconds of this process's own time, which costs leave out.
    """
    return _DESCENDANTS.cpu_ms()
