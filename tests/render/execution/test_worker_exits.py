"""The cause of a Python worker's end, from Spark's error text of the job: real workers that end so."""

from __future__ import annotations

import mmap
import os
import signal
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tidemark_replica.render.errors import OutOfMemory, StepFailed
from tidemark_replica.render.execution.executor_affinity import DataflowAffinity
from tidemark_replica.render.execution.runner import FragmentRun
from tidemark_replica.render.execution.spark_runner import SparkRunner
from tidemark_replica.render.execution.step_shape import FragmentShape

pytestmark = pytest.mark.spark
Batches = Iterator[pa.RecordBatch]


def loses_its_file(batches: Batches) -> Batches:
    """The kernel ends it (SIGBUS)."""
    with tempfile.TemporaryFile() as file:
        file.truncate(2 * mmap.PAGESIZE)
        mapped = mmap.mmap(file.fileno(), 2 * mmap.PAGESIZE)
        file.truncate(0)
        mapped[mmap.PAGESIZE]
    yield from batches


def crashes(batches: Batches) -> Batches:
    os.kill(os.getpid(), signal.SIGSEGV)
    yield from batches


def aborts(batches: Batches) -> Batches:
    """Abort as a library does that finds itself in an impossible state."""
    os.abort()
    yield from batches


def is_killed(batches: Batches) -> Batches:
    """Die as the kernel kills a process that takes too much memory."""
    os.kill(os.getpid(), signal.SIGKILL)
    yield from batches


@pytest.mark.parametrize(
    ("ends", "kind", "message"),
    [
        (loses_its_file, StepFailed, r"^step s failed: a Python worker of Spark could not read on .*SIGBUS"),
        (crashes, StepFailed, r"^step s failed: a Python worker of Spark crashed \(Segmentation fault\)"),
        (aborts, StepFailed, r"^step s failed: a Python worker of Spark crashed \(Aborted\)"),
        (is_killed, OutOfMemory, r"^step s failed: a Python worker of Spark vanished, .* more "),
    ],
)
def test_a_worker_that_ended_is_told_by_how_it_ended(
    spark: Any, ends: Callable[[Batches], Batches], kind: type[StepFailed], message: str
) -> None:
    """Only one that says nothing is taken for one that was killed for its memory. Run as steps are."""
    plan = spark.range(10, numPartitions=1).mapInArrow(ends, "id long")._jdf.queryExecution().executedPlan()
    unused: Any = None
    work = FragmentRun(unused, Path("description"), None, 0, single_time=False, label="step s")
    runner = SparkRunner(spark, "t", unused, DataflowAffinity(None, "h"))
    with pytest.raises(kind, match=message) as raised:
        runner._run(work, FragmentShape(plan, unused, 1))
    assert type(raised.value) is kind
