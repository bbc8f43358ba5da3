"""The priority of Spark: its JVM and its Python workers yield the processors to the process that serves.

    peeks, frontiers, small steps    this process and its step workers     priority 0
    hydrations, queries, large steps the JVM and its Python workers        priority SPARK_NICENESS

An aggregate over a table takes a second of a processor, a lookup a millisecond. With one priority, ten clients with
aggregates delayed each lookup by what their Spark tasks took. On Linux a niceness belongs to a thread, and a process
inherits that of the thread that starts it.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

SPARK_NICENESS = 5
"""A third of the processor that a thread of priority 0 gets, where both want it; all of it where nobody else does."""
T = TypeVar("T")


def at_low_priority(start: Callable[[], T]) -> T:
    """The result of `start`, called on a thread of low priority. The processes that it starts inherit the priority."""
    with ThreadPoolExecutor(1, "start Spark", initializer=_lower_priority) as thread:
        return thread.submit(start).result()


def _lower_priority() -> None:
    thread = threading.get_native_id()
    os.setpriority(os.PRIO_PROCESS, thread, os.getpriority(os.PRIO_PROCESS, thread) + SPARK_NICENESS)
