"""The merges that steps do: counted, not timed."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import A
from tidemark_replica.arrangement.batches.batch import BatchRef
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.spines.merge_policy import (
    MAX_BATCHES,
    ROWS_PER_ROW,
    STEP_ROWS,
    background_merge,
    merges_in_step,
    rows_of,
)
from tidemark_replica.arrangement.spines.spine import FAN_IN, SMALL_ROWS, Merge, apply

LAYOUT = Layout.of_rows([pa.int64()], [0])


def batch(name: object, rows: int) -> BatchRef:
    return BatchRef(f"{name}.arrow", 0, 1, 0, rows, 0, 0, 0, rows, 0, 0)


def manifest(*sizes: int, name: ArrangementId = A) -> Manifest:
    """Oldest first."""
    refs = tuple(batch(f"{name}{i}", rows) for i, rows in enumerate(sizes))
    return replace(Manifest.empty(name, LAYOUT, 0), upper=1, batches=refs)


def merged(before: Manifest, task: Merge, name: object) -> Manifest:
    return apply(before, task, batch(name, rows_of(task)))


def large_at_most(rows: int) -> int:
    return math.ceil(math.log2(2 + rows / SMALL_ROWS))


@pytest.mark.parametrize("lasting", [0, 7, 500])
def test_no_step_merges_more_than_its_budget_and_batches_stay_few(lasting: int) -> None:
    """Whether merges beside the steps are done at once, or take hundreds of steps each."""
    rng, now = np.random.default_rng(lasting), manifest(1_000_000)
    under_way: tuple[Merge, int] | None = None
    for step in range(4000):
        rows = int(rng.integers(1, 200))
        written = replace(now, batches=(*now.batches, batch(f"s{step}", rows)))
        busy = {b.file for b in under_way[0].batches} if under_way else set()
        tasks = merges_in_step([written], busy, rows)
        assert sum(map(rows_of, tasks)) <= STEP_ROWS + ROWS_PER_ROW * rows
        assert busy.isdisjoint(b.file for t in tasks for b in t.batches)
        now = written
        for i, task in enumerate(tasks):
            now = merged(now, task, f"i{step}.{i}")
        if under_way and step >= under_way[1]:
            now, under_way = merged(now, under_way[0], f"m{step}"), None
        if under_way is None and (found := background_merge(now)):
            under_way = found, step + lasting
        assert len(now.batches) <= 2 * FAN_IN + large_at_most(now.rows) + lasting * 100 // STEP_ROWS
    assert now.rows == sum(b.rows for b in now.batches)


def test_an_arrangement_without_background_merges_is_merged_by_steps() -> None:
    """The last resort: far too many batches."""
    now, most = manifest(), 0
    for step in range(MAX_BATCHES * 40):
        now = replace(now, batches=(*now.batches, batch(step, SMALL_ROWS // 2)))
        for task in merges_in_step([now], (), 0):
            now = merged(now, task, f"m{step}.{task.batches[0].file}")
        most = max(most, len(now.batches))
    assert most <= MAX_BATCHES + FAN_IN


def test_several_arrangements_take_turns() -> None:
    """Each is due at once; a step does one, and as many more as fit."""
    due = [manifest(*[SMALL_ROWS - 1] * FAN_IN, name=ArrangementId(f"a{i}")) for i in range(4)]
    few = merges_in_step(due, (), 0)
    assert len(few) <= 1
    assert len(merges_in_step(due, (), SMALL_ROWS * FAN_IN)) == len(due)


def test_batches_older_than_those_being_merged_wait() -> None:
    """A merge takes neighbours: nothing across the gap."""
    now = manifest(5000, *[10] * FAN_IN, 9000, *[10] * FAN_IN)
    (task,) = merges_in_step([now], {now.batches[FAN_IN + 1].file}, 0)
    assert task.batches == now.batches[FAN_IN + 2 :]
