"""A step's runs, read back as ranges of whole keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import A, Driver
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import make_updates
from tidemark_replica.arrangement.spines import spine
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.arrangement.spines.spine import SMALL_ROWS
from tidemark_replica.arrangement.step_runs import FAN_IN, StepRuns
from tidemark_replica.kernels.arrange import sorted_rows
from tidemark_replica.render.task.in_step_merges import in_step_merges
from tidemark_replica.render.task.timing import OperatorClock

LAYOUT = Layout.of_rows([pa.int64()], ())
ROWS = spine.RANGE_ROWS * 2 // FAN_IN + 1


def test_a_key_longer_than_a_segment_comes_in_one_range(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight chunks of one key become one run of several segments: a reader of groups still sees the group whole."""
    monkeypatch.setattr(spine, "SEGMENT_BYTES", 1)
    driver = Driver(tmp_path, Manifest.empty(A, LAYOUT, 2))
    runs = StepRuns(driver.context(2, 9, hydration=True), A)
    for chunk in range(FAN_IN):
        values = pa.array(np.arange(chunk * ROWS, (chunk + 1) * ROWS))
        rows = make_updates([values], np.full(ROWS, 2), np.ones(ROWS, np.int64))
        runs.add(sorted_rows(rows, LAYOUT))

    assert len(list(runs.segments())) > 1
    assert [part.num_rows for part in runs.consolidated(1 << 16)] == [FAN_IN * ROWS]


def test_the_state_of_a_step_over_several_times_is_written_as_of_its_last(tmp_path: Path) -> None:
    """Rows that are inserted and deleted meanwhile are not written, and no later merge has to move times."""
    driver, written = Driver(tmp_path, Manifest.empty(A, LAYOUT, 5)), []
    for context, commit in (
        (driver.context(5, 9), StepRuns.commit),
        (driver.context(5, 9), StepRuns.commit_state),
    ):
        runs = StepRuns(context, A)
        for time, diff in ((5, 1), (6, -1), (8, 1)):
            runs.add(_rows(time, diff))
        commit(runs)
        written.append(context.writer.written[A])

    read_by_others, own = written
    assert [(b.rows, b.first_time, b.last_time) for b in read_by_others] == [(SMALL_ROWS, t, t) for t in (5, 6, 8)]
    assert [(b.rows, b.first_time, b.last_time, b.lower, b.upper) for b in own] == [(SMALL_ROWS, 8, 8, 5, 9)]
    assert driver.cache.segments(own[0], LAYOUT)[0].rows.column(LAYOUT.weights[0]).to_pylist() == [1] * SMALL_ROWS


def test_a_step_merges_its_own_state_as_of_its_last_time(tmp_path: Path) -> None:
    """The commit moves the since there: a merge that left earlier times would be repeated by the next step."""
    driver = Driver(tmp_path, Manifest.empty(A, LAYOUT, 0))
    for lower, upper in ((0, 3), (3, 6)):
        context = driver.context(lower, upper)
        runs = StepRuns(context, A)
        runs.add(_rows(lower, 1))
        runs.add(_rows(upper - 1, 1))
        runs.commit_state()
        written = {a: tuple(refs) for a, refs in context.writer.written.items()}
        merged = [each.result for each in in_step_merges(context, frozenset(), written, OperatorClock())]
        driver.commit(context)

    assert [(b.rows, b.first_time, b.last_time) for b in merged if b] == [(SMALL_ROWS, 5, 5)]


def _rows(time: int, diff: int) -> Any:
    """Rows of one time, enough to be merged."""
    values = pa.array(np.arange(SMALL_ROWS))
    return sorted_rows(make_updates([values], np.full(SMALL_ROWS, time), np.full(SMALL_ROWS, diff)), LAYOUT)
