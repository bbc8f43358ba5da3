"""Spark yields to what serves: a lookup does not wait for the aggregates of others."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tidemark_replica.spark.priority import SPARK_NICENESS, at_low_priority

NICENESS = "import os; print(os.getpriority(os.PRIO_PROCESS, 0))"


def test_processes_that_are_started_yield_and_this_one_does_not() -> None:
    """The niceness is that of one thread, which is gone afterwards."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    started = at_low_priority(lambda: subprocess.run([sys.executable, "-c", NICENESS], capture_output=True, check=True))

    assert int(started.stdout) == min(own + SPARK_NICENESS, 19)
    assert os.getpriority(os.PRIO_PROCESS, 0) == own


def test_an_error_of_the_start_is_the_callers() -> None:
    def fails() -> None:
        raise ValueError("no JVM")

    with pytest.raises(ValueError, match="no JVM"):
        at_low_priority(fails)
