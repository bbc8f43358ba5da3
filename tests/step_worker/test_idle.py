"""A step worker that has nothing to do keeps no files that are gone: neither their blocks on disk nor their maps."""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

import pyarrow as pa

from tests.arrangement.histories import A
from tests.arrangement.spines.batches import LARGE, arranged, is_mapped, remove
from tests.step_worker.rows import all_of, children
from tests.waiting import BOUND, until
from tidemark_replica.arrangement.step import StepId
from tidemark_replica.render.plan.pipeline import Drain, IndexSource
from tidemark_replica.render.step_worker.pool import StepWorkers
from tidemark_replica.render.step_worker.work_ticket import PickledStage, WorkTicket
from tidemark_replica.render.task.description import StepDescription

SOON = """
import sys
from tidemark_replica.arrangement.batches import batch_cache
from tidemark_replica.render.step_worker.__main__ import main
from tidemark_replica.render.step_worker.worker_members import MemberRunner
batch_cache.CHECK_SECONDS = 0.05
main(MemberRunner(), int(sys.argv[1]))
"""


def test_an_idle_worker_lets_go_of_merged_batches(tmp_path: Path) -> None:
    """It has read a batch in a step, the last one that there is for it."""
    store, before = tmp_path / "store", children()
    manifest = arranged(store, 2, LARGE)
    description = StepDescription(StepId("s1"), 1, 2, 2, False, store, {}, {A: manifest})
    (tmp_path / "s1").mkdir()
    description.write(tmp_path / "s1" / "d.json")
    tree = pickle.dumps(Drain(IndexSource(A, (pa.int64(),))))
    workers = StepWorkers(command=(sys.executable, "-c", SOON), member_seconds=BOUND)
    try:
        assert all_of(workers, [WorkTicket(PickledStage("stage", "tree", tree), tmp_path / "s1" / "d.json")]) == [None]
        (worker,) = children() - before
        assert is_mapped(store, worker)
        remove(store, manifest.batches)
        until(lambda: not is_mapped(store, worker))
        assert worker in children()
    finally:
        workers.close()
