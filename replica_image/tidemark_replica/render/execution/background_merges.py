"""Background merges: large merges of a dataflow, one at a time beside its steps, as Spark jobs, committed between two
steps.

    loop thread   begin ──────────────────────────────────────── settle: the manifest with the result in their place
                    │ pins the batches, marks them as busy          ▲
    pool            └──> order.json ──> job ──> result.json ────────┘ not swept until then

Steps continue meanwhile: they read the old batches, and merge none of them. If the job fails, or the process dies, one
file is left to be swept, and nothing else has changed; the merge is tried again later.

While scratch space is scarce, large merges wait; when it is used up, only small ones run, which free space.
"""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Iterable
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from tidemark_replica.arrangement.batches.batch import BatchRef, batches_from_json
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.errors import ArrangementError
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.spines.merge_policy import background_merge, bytes_of
from tidemark_replica.arrangement.spines.spine import Merge, apply
from tidemark_replica.arrangement.step import LITTLE_BYTES, MUCH_BYTES, BatchWriter, StepId, merge
from tidemark_replica.arrangement.store import ArrangementStore
from tidemark_replica.render.task.description import PROPERTY

LOG = logging.getLogger(__name__)
PAUSE_SECONDS = 10.0
THREADS = 1
"""Merges at a time. A merge takes a task slot of Spark, which steps need too."""
_POLL_SECONDS = 0.05


def merge_pool() -> ThreadPoolExecutor:
    """The pool of a replica: first come, first served."""
    return ThreadPoolExecutor(THREADS, "merges")


class BackgroundMerges:
    """The background merges of one dataflow. All methods but `_run` are called on the command loop's thread.

    `pool`: of the replica, whose dataflows have at most one merge each, waiting or running.
    """

    def __init__(self, session: Any, store: ArrangementStore, folder: Path, pool: Executor) -> None:
        self._session, self._store, self._folder, self._pool = session, store, folder, pool
        self._tag = f"tidemark-{folder.name}-merges"
        self._pins = ExitStack()
        self._merge: Merge | None = None
        self._result: Future[BatchRef | None] | None = None
        self._number, self._not_before, self._closed = 0, 0.0, False
        self._plan: Any = None

    def begin(self, arrangements: Iterable[ArrangementId]) -> None:
        """Start the first merge that is due in these arrangements, unless one is running."""
        if self._merge is not None or self._closed or time.monotonic() < self._not_before:
            return
        most_bytes = self._store.merge_bytes_limit
        for arrangement in arrangements:
            found = background_merge(self._store.current(arrangement), most_bytes)
            if found is not None:
                self._start(found)
                return

    def settle(self) -> None:
        """Commit the merge if it has ended: its result replaces the merged batches."""
        if self._merge is None or self._result is None or not self._result.done():
            return
        try:
            if not self._commit(self._merge, self._result):
                self._not_before = time.monotonic() + PAUSE_SECONDS
        finally:
            self._release()

    def join(self) -> None:
        """Wait until no merge runs. The result is still to be settled."""
        if self._result is not None and not self._result.done():
            wait([self._result])

    def close(self) -> None:
        """Stop: withdraw a waiting merge, cancel a running one, and wait for its end."""
        self._closed = True
        if self._result is not None and not self._result.cancel():
            while not self._result.done():
                self._session.sparkContext.cancelJobsWithTag(self._tag)  # has no effect before Spark knows the job
                wait([self._result], _POLL_SECONDS)
        self._release()

    def _start(self, found: Merge) -> None:
        self._number += 1
        step = StepId(f"{self._folder.name}-m{self._number}")
        manifest = self._pins.enter_context(self._store.merging(found, step))
        self._merge = found
        try:
            self._result = self._pool.submit(self._run, manifest, found, step)
        except RuntimeError as cause:  # the pool is closed, or the system allows no thread now
            LOG.warning("merging %d batches of %s did not start: %s", len(found.batches), found.arrangement, cause)
            self._not_before = time.monotonic() + PAUSE_SECONDS
            self._release()

    def _commit(self, done: Merge, result: Future[BatchRef | None]) -> bool:
        if result.cancelled():
            return False
        if (error := result.exception()) is not None:
            LOG.warning("merging %d batches of %s failed: %s", len(done.batches), done.arrangement, error)
            return False
        old = self._store.current(done.arrangement)
        try:
            self._store.commit(old, apply(old, done, result.result()))
        except ArrangementError as cause:
            LOG.warning("a merge of %d batches of %s was not committed: %s", len(done.batches), done.arrangement, cause)
            return False
        return True

    def _release(self) -> None:
        self._pins.close()
        result = self._result
        if result is not None and not result.cancelled() and result.exception() is None:
            self._store.discard([batch for batch in (result.result(),) if batch is not None])  # kept if it has users
        self._merge, self._result = None, None

    def _run(self, manifest: Manifest, found: Merge, step: StepId) -> BatchRef | None:
        """Run the merge, on the pool's thread."""
        order = self._folder / f"{step}.json"
        try:
            write_order(order, self._store, manifest, found, step)
            self._job(order)
            return read_result(order)
        finally:
            order.unlink(missing_ok=True)
            _result_of(order).unlink(missing_ok=True)

    def _job(self, order: Path) -> None:
        context = self._session.sparkContext
        if self._plan is None:
            frame = self._session.range(0, 1, 1, 1).mapInArrow(run_merge, "done boolean")
            self._plan = frame._jdf.queryExecution().executedPlan()
        context.setLocalProperty(PROPERTY, str(order))
        context.addJobTag(self._tag)
        try:
            self._plan.execute().count()
        finally:
            context.removeJobTag(self._tag)
            context.setLocalProperty(PROPERTY, None)


def write_order(path: Path, store: ArrangementStore, manifest: Manifest, found: Merge, step: StepId) -> None:
    """Write the order of a merge for a task."""
    value = {
        "store": str(store.directory),
        "step": step,
        "bytes_left": store.bytes_left,
        "manifest": manifest.to_json(),
        "batches": found.batches,
        "since": found.since,
    }
    path.write_text(json.dumps(value))


def read_result(order: Path) -> BatchRef | None:
    """The result of the task; None if everything cancelled."""
    value = json.loads(_result_of(order).read_text())
    return None if value is None else BatchRef(*value)


def run_merge(rows: Iterable[Any]) -> Iterable[Any]:
    """The function that `mapInArrow` calls."""
    from pyspark import TaskContext

    task = TaskContext.get()
    assert task is not None, "a merge runs in a Spark task"
    for _ in rows:
        pass
    run_order(Path(task.getLocalProperty(PROPERTY)))
    return iter(())


def run_order(order: Path) -> None:
    """Carry out the order while its file exists. The result file is complete or absent."""
    value = json.loads(order.read_text())
    store, manifest = Path(value["store"]), Manifest.from_json(value["manifest"])
    found = Merge(manifest.arrangement, batches_from_json(value["batches"]), value["since"])
    writer = _writer(store, StepId(value["step"]), bytes_of(found), value["bytes_left"], order)
    result = merge(found, manifest.layout, BatchCache(store), writer)  # these batches are read for the last time
    draft = _result_of(order).with_suffix(f".{writer.name}.tmp")
    draft.write_text(json.dumps(result))
    draft.replace(_result_of(order))


def _writer(store: Path, step: StepId, size: int, left: int | None, order: Path) -> BatchWriter:
    """The writer of a merge that reads `size` bytes. A small merge frees space, so it may write with none left."""
    if left is None or size > LITTLE_BYTES:
        return BatchWriter(store, step, bytes_left=left, alive_file=order, large=size > MUCH_BYTES)
    return BatchWriter(store, step, bytes_left=max(left, 2 * LITTLE_BYTES), alive_file=order, frees_space=True)


def _result_of(order: Path) -> Path:
    return order.with_suffix(".result")
