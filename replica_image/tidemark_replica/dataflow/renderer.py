"""Rendering for the command loop: builds dataflows, finds indexes, frees state.

The steps of a rendered dataflow are planned, run and committed (`render/stepped_dataflow.py`).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Executor
from functools import cached_property
from pathlib import Path

from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.errors import PlanNotAllowed
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.arrangement.store import ArrangementStore
from tidemark_replica.errors import DataflowRefused
from tidemark_replica.render.build import build
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.errors import NotRendered
from tidemark_replica.render.execution.background_merges import merge_pool
from tidemark_replica.render.execution.executor_affinity import ExecutorAffinity
from tidemark_replica.render.index import IndexTrace
from tidemark_replica.render.step_worker.pool import StepWorkers
from tidemark_replica.spark.session import SparkHolder


class Renderer:
    """Holds the Spark session, the arrangement store and the indexes of the replica."""

    def __init__(
        self,
        spark: SparkHolder,
        scratch: Path,
        *,
        arrow: bool = True,
        workers: StepWorkers | None = None,
        merges: Executor | None = None,
        limit_bytes: int | None = None,
    ) -> None:
        """The caller closes `merges`. `limit_bytes` bounds all arrangements together."""
        self._merges = merges or merge_pool()
        self._spark, self._scratch, self._arrow, self._workers = spark, scratch / "dataflows", arrow, workers
        self._store = ArrangementStore(scratch / "arrangements", limit_bytes=limit_bytes, waits_for_disk=False)
        self.open_batches = BatchCache(self._store.directory)
        """Batches that peeks have open."""
        self._lock = threading.Lock()
        self._indexes: dict[GlobalId, IndexTrace] = {}

    def render(self, description: DataflowDescription) -> RenderedDataflow:
        """Runs on a pool; starts Spark if needed. Raises DataflowRefused where the dataflow cannot be rendered."""
        try:
            check_dataflow(description)
            session, began = self._spark.get(), time.monotonic()
            with self._lock:
                imported = {i.id: self._indexes[i.id] for i in description.index_imports if i.id in self._indexes}
            rendered = build(
                description,
                session,
                self._store,
                self._scratch,
                imported,
                merges=self._merges,
                arrow=self._arrow,
                workers=self._workers,
                affinity=self._homes,
            )
        except (PlanNotAllowed, NotRendered) as error:
            raise DataflowRefused(str(error)) from error
        rendered.build_seconds = time.monotonic() - began
        with self._lock:
            self._indexes.update(rendered.indexes)
        return rendered

    @cached_property
    def _homes(self) -> ExecutorAffinity | None:
        """The executors on which steps run again, once Spark has started."""
        return ExecutorAffinity.of(self._spark.get())

    def arrangements(self) -> tuple[Manifest, ...]:
        """The manifests of all dataflows; callable from any thread."""
        return self._store.arrangements()

    def set_scratch_space(self, scarce: bool, full: bool) -> None:
        """Whether free space in scratch is scarce, and whether it is exhausted; callable from any thread."""
        self._store.set_scratch_space(scarce=scarce, full=full)

    def find(self, id: GlobalId) -> IndexTrace | None:
        """The index, while its dataflow is installed."""
        with self._lock:
            return self._indexes.get(id)

    def free(self, rendered: RenderedDataflow) -> None:
        """Runs on a pool while no step runs: frees the dataflow's arrangements and files. A newer index of the same id
        stays."""
        with self._lock:
            for id, index in rendered.indexes.items():
                if self._indexes.get(id) is index:
                    del self._indexes[id]
        rendered.drop()

    def remove_later(self, removal: Callable[[], None]) -> None:
        """Runs `removal` in the background; callable from any thread."""
        self._store.remove_later(removal)

    def sweep(self) -> int:
        """Removes files of failed and cancelled steps; called only while no step runs. Returns the number of files."""
        return self._store.sweep(())

    def close(self) -> None:
        """Ends the step workers, then closes the store whose files they read."""
        if self._workers is not None:
            self._workers.close()
        self._store.close()
