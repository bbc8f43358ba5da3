"""Times, and the CPU time of this process with all its descendants (the JVM, its Python workers)."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

Result = TypeVar("Result")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def timed(action: Callable[[], Result]) -> tuple[float, Result]:
    """(milliseconds, what the action returned)"""
    begin = time.perf_counter()
    result = action()
    return (time.perf_counter() - begin) * 1e3, result


def p50(samples: Sequence[float]) -> float:
    """The median."""
    return statistics.median(samples)


def p95(samples: Sequence[float]) -> float:
    """The least sample that at most a twentieth of the samples exceeds."""
    return sorted(samples)[math.ceil(0.95 * len(samples)) - 1]


def cpu_ms() -> float:
    """CPU milliseconds of this process and its descendants so far; Linux only, in steps of 10."""
    return sum(map(_ticks, _with_descendants(os.getpid()))) / _TICKS_PER_SECOND * 1e3


def _with_descendants(process: int) -> Iterator[int]:
    yield process
    for children in Path(f"/proc/{process}/task").glob("*/children"):
        for child in _read(children).split():
            yield from _with_descendants(int(child))


def _ticks(process: int) -> int:
    """In user and in kernel mode, its own and those of children that have ended."""
    fields = _read(Path(f"/proc/{process}/stat")).rpartition(")")[2].split()
    return sum(map(int, fields[11:15]))


def _read(file: Path) -> str:
    try:
        return file.read_text()
    except (FileNotFoundError, ProcessLookupError):
        return ""  # the process, or the thread, has ended
