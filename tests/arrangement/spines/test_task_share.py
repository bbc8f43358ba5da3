"""A step in several tasks, each with a range of hashes: one run of the spine, and no other contents."""

from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from tests.arrangement.histories import A, Driver, contents, updates
from tidemark_replica.arrangement.batches.batch import BatchRef
from tidemark_replica.arrangement.rows.hashing import key_hashes
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.task_share import TaskShare, share_indices
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.arrangement.spines.spine import levels_of, plan_merges
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.kernels.arrange import arrange

TYPES = [pa.int64()]


def hydrated(folder: Path, tasks: int, rows: int) -> Driver:
    """An arrangement written by so many tasks in one step, in chunks, so that each wrote several batches."""
    driver = Driver(folder, Manifest.empty(A, Layout.of_rows(TYPES, [0]), 0), chunk_rows=64, merging=False)
    values = np.arange(rows)
    of = share_indices(key_hashes([pa.array(values)], rows), tasks)
    contexts = [driver.context(0, 1, hydration=True, share=TaskShare(i, tasks)) for i in range(tasks)]
    for i, context in enumerate(contexts):
        list(arrange(context, A, [updates(TYPES, [((int(v),), 0, 1) for v in values[of == i]])]))
    contexts[0].writer.written[A] = [ref for context in contexts for ref in context.writer.written[A]]
    driver.commit(contexts[0])
    return driver


@pytest.mark.parametrize("tasks", [2, 5])
def test_agree_batches_of_several_tasks_are_levels_of_one_spine(tasks: int, tmp_path: Path) -> None:
    """Reads as one task's; each level has one batch of every task; merging ends."""
    several, one = hydrated(tmp_path / "several", tasks, 700), hydrated(tmp_path / "one", 1, 700)
    manifest = several.manifests[A]
    levels = levels_of(manifest.batches)
    by_file = [[b.file for b in level] for level in levels]
    assert sorted(f for level in by_file for f in level) == sorted(b.file for b in manifest.batches)
    assert len(levels[0]) == tasks
    for level in levels:
        assert all(a.last_hash < b.first_hash for a, b in pairwise(level))
    several.merging = True
    several.manifests = {A: several.merged(manifest)}
    assert plan_merges(several.manifests[A]) == ()
    read = [contents(Trace(d.manifests[A], d.cache).rows_at(0)) for d in (several, one)]
    assert read[0] == read[1]
    assert len(read[0]) == 700


def test_a_small_step_leaves_the_batches_of_several_tasks_side_by_side(tmp_path: Path) -> None:
    """Eight files of a hydration are one level: some new rows do not make all of them be rewritten."""
    driver = hydrated(tmp_path, 8, 300)
    before = driver.manifests[A].batches
    assert [len(level) for level in levels_of(before)] == [8]
    driver.merging = True
    context = driver.context(1, 2)
    list(arrange(context, A, [updates(TYPES, [((v,), 1, -1) for v in range(30)])]))
    driver.commit(context)
    assert driver.manifests[A].batches[: len(before)] == before
    assert len(driver.manifests[A].batches) == len(before) + 1


def test_batches_of_different_steps_are_never_one_level() -> None:
    """They may hold updates of one row each, by chance side by side: the newer must stay the newer."""

    def batch(file: str, step: int, first: int, last: int) -> BatchRef:
        return BatchRef(file, step, step + 1, step, 10, 0, step, step, 80, first, last)

    spine = [batch("a", 0, 0, 4), batch("b", 0, 5, 9), batch("c", 1, 10, 12), batch("d", 1, 11, 13)]
    assert [[b.file for b in level] for level in levels_of(spine)] == [["a", "b"], ["c"], ["d"]]
