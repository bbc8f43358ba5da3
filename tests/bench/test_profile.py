"""The profile of a step: the counts of its instruments."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.harness.workload.tpch import Table
from bench.profiling import spans, stacks
from bench.profiling.parts import SPARK, WORKER, Call, Run, Spent, StepRecord, parts, shares, tasks
from bench.profiling.plans import lines_changed
from tests.waiting import until

CHECKOUT = Path(__file__).parents[2]
LINES = pa.table(
    {
        "l_orderkey": pa.array(np.arange(40)),
        "l_linenumber": pa.array(np.full(40, 1, np.int32)),
        "l_extendedprice": pa.array(np.arange(40, dtype=np.int16)).cast(pa.decimal128(15, 2)),
    }
)


def test_time_counts_for_the_innermost_label_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time that an operator waits for its input is the input's."""
    now = [1.0]
    monkeypatch.setattr(time, "perf_counter", lambda: now[0])
    clock = spans.Clock()
    clock.enter("reduce")
    now[0] += 0.25
    clock.enter("source")
    now[0] += 2.0
    clock.leave()
    now[0] += 0.5
    clock.leave()
    assert clock.spent == {"reduce": 750.0, "source": 2000.0}


PHASES = {"listen": 1.0, "plan": 2.0, "run": 100.0, "commit": 4.0}
READ, JOIN = "operator Source", "operator Join"


def test_parts_add_up_to_the_step_whatever_ran_at_once() -> None:
    """Two tasks read side by side, one of them for longer, then one joins; before and behind, Spark is at work."""
    read = [Call("reads", 110, 150, {READ: 40.0}), Call("reads", 110, 130, {READ: 18.0})]
    joined = Call("joins", 155, 165, {JOIN: 9.0})
    record = StepRecord(Spent(float, {"describe": 3.0}), [Run(SPARK, 105, 180)])
    found = parts(record, [*read, joined], PHASES)
    assert sum(found.values()) == pytest.approx(sum(PHASES.values()))
    assert found[READ] == pytest.approx(30 + 9), "half of what they did at once, and all that was done alone"
    assert found[JOIN] == 9
    assert found["spark: submit and launch, to the first Python call"] == 5
    assert found["spark: from the last Python call to the driver"] == 15
    assert found["spark: between Python calls, and waiting"] == pytest.approx(55 - 39 - 9)
    assert found["driver: all else"] == 100 - 75 - 3
    assert (record.jobs, tasks([*read, joined])) == (1, 2)


def test_every_job_and_order_of_a_step_has_its_own_calls() -> None:
    """One fragment in the worker, then one in Spark."""
    calls = [Call("one", 12, 18, {READ: 6.0}), Call("two", 40, 44, {READ: 4.0})]
    record = StepRecord(runs=[Run(WORKER, 10, 20), Run(SPARK, 30, 50)])
    found = parts(record, calls, PHASES)
    assert sum(found.values()) == pytest.approx(sum(PHASES.values()))
    assert (found["worker: order, to the call"], found["worker: from the call to the driver"]) == (2, 2)
    assert (found["spark: submit and launch, to the first Python call"], found[READ], record.jobs) == (10, 10, 1)


def test_a_call_that_was_alone_counts_whole() -> None:
    """And three at once a third each."""
    alone, *together = Call("a", 0, 10, {}), *(Call("b", 20, 50, {}) for _ in range(3))
    assert shares([alone, *together]) == pytest.approx([1, 1 / 3, 1 / 3, 1 / 3])


def test_deltas_take_lines_away_and_put_dearer_ones_into_the_same_orders(tmp_path: Path) -> None:
    """Every line goes once; so every delta can be applied after those before it."""
    file = tmp_path / "lineitem.parquet"
    pq.write_table(LINES, file)
    changes = lines_changed(Table(file, LINES.schema), count=4, rows=10)
    gone = pa.concat_tables([delta.retracted for delta in changes])
    come = pa.concat_tables([delta.inserted for delta in changes])
    assert len(set(gone["l_orderkey"].to_pylist())) == gone.num_rows == 20
    assert gone["l_orderkey"].equals(come["l_orderkey"])
    assert come["l_extendedprice"].to_pylist() == [2 * price for price in gone["l_extendedprice"].to_pylist()]


def test_a_thread_that_is_busy_is_seen_in_the_stacks(tmp_path: Path) -> None:
    """The file appears while the process still runs: workers are killed, not asked to end."""
    busy = f"""
from pathlib import Path
from bench.profiling.stacks import sample_this_process

def conspicuous():
    while True:
        sum(range(1000))

sample_this_process(Path({str(tmp_path)!r}))
conspicuous()
"""
    process = subprocess.Popen([sys.executable, "-c", busy], cwd=CHECKOUT)
    try:
        until(lambda: any("conspicuous" in stack for stack in stacks.collected(tmp_path)))
    finally:
        process.kill()
        process.wait()
