"""The profile of a step: what its instruments count."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bench.harness.tpch import Table
from bench.profiling import spans, stacks
from bench.profiling.plans import lines_changed
from tests.bounds import until

CHECKOUT = Path(__file__).parents[2]
LINES = pa.table(
    {
        "l_orderkey": pa.array(np.arange(40)),
        "l_linenumber": pa.array(np.full(40, 1, np.int32)),
        "l_extendedprice": pa.array(np.arange(40, dtype=np.int16)).cast(pa.decimal128(15, 2)),
    }
)


def test_time_counts_for_the_innermost_label_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """What an operator waits for its input is the input's."""
    now = [1.0]
    monkeypatch.setattr(spans.time, "perf_counter", lambda: now[0])
    clock = spans.Clock()
    clock.enter("reduce")
    now[0] += 0.25
    clock.enter("source")
    now[0] += 2.0
    clock.leave()
    now[0] += 0.5
    clock.leave()
    assert clock.spent == {"reduce": 750.0, "source": 2000.0}


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
