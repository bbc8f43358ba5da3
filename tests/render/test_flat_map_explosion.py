"""A row that becomes thousands of millions of rows: made in pieces, and ended by a drop like anything else."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.interruptible_step import Attempt, until
from tests.oracle.harness import harness
from tests.oracle.histories import History
from tests.oracle.tables import T
from tests.render.execution.test_shutdown_fuse import noting
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.expr import ColumnRef
from tidemark_protocol.plan.lir import AccumulableReduce, AggregateExpr, FlatMap, Get, MapFilterProject, Reduce
from tidemark_protocol.types import BIGINT, ColumnType
from tidemark_replica.render.errors import StepCancelled
from tidemark_replica.render.execution import prepare

pytestmark = [pytest.mark.spark, pytest.mark.slow]

HISTORY = History({"t": (((1, 2**31 - 100, "x"), 1, 1),)}, 1, 1)
MEMORY = 1 << 30


def counted() -> Reduce:
    """SELECT a, count(*) FROM t LATERAL VIEW explode(sequence(a, b)) GROUP BY a"""
    rows, value = T.schema, (ColumnType(BIGINT, False),)
    kept = MapFilterProject(rows + value, projection=(0,))
    sequence = FlatMap(Get(GlobalId("t"), rows), "sequence", (ColumnRef(0, BIGINT), ColumnRef(1, BIGINT)), value, kept)
    count = AggregateExpr("count", None, ColumnType(BIGINT, False))
    grouped = (ColumnType(BIGINT), ColumnType(BIGINT, False))
    return Reduce(
        sequence, (ColumnRef(0, BIGINT),), (), AccumulableReduce((count,)), MapFilterProject.identity(grouped)
    )


def seconds_of(pid: int) -> float:
    """The CPU time of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def most_bytes_of(pid: int) -> int:
    """The most memory that a process has had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def test_an_explosion_takes_little_memory_and_ends_when_it_is_dropped(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worker has made millions of rows when it is looked at, and would make two thousand million."""
    notes = tmp_path / "notes"
    notes.mkdir()
    monkeypatch.setattr(prepare, "run_stage", partial(noting, notes))
    with harness(spark, tmp_path / "harness", {"t": T}, HISTORY) as of:
        dataflow = of.build(of.describe(counted()))
        attempt = Attempt(dataflow, dataflow.plan_step(Frontier.at(2), of.inputs(dataflow, 2)))
        until(lambda: list(notes.iterdir()))
        worker = int(next(notes.iterdir()).name)
        began = seconds_of(worker)
        until(lambda: seconds_of(worker) > began + 2)
        assert most_bytes_of(worker) < MEMORY
        assert attempt.cancelled() is StepCancelled
        dataflow.drop()
        until(lambda: not list(notes.iterdir()))
