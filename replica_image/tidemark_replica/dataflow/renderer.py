"""Rendering as the command loop uses it: dataflows are built, indexes are found again, leftovers swept away.

The dataflow itself is `render.contract.SteppedDataflow`: steps that are planned, run and committed.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
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
from tidemark_replica.render import IndexTrace, NotRendered, RenderedDataflow, build
from tidemark_replica.render.execution.executor_affinity import Homes
from tidemark_replica.render.execution.merge_queue import MergeQueue
from tidemark_replica.render.step_worker.pool import StepWorkers
from tidemark_replica.spark.session import SparkHolder


class Renderer:
    """One per replica: its session, its arrangement store, and which indexes there are."""

    def __init__(
        self,
        spark: SparkHolder,
        scratch: Path,
        *,
        arrow: bool = True,
        workers: StepWorkers | None = None,
        merges: MergeQueue | None = None,
        limit_bytes: int | None = None,
    ) -> None:
        """`merges`: closed by whoever gives it. `limit_bytes`: of arrangements, all together."""
        self._merges = merges or MergeQueue()
        self._spark, self._scratch, self._arrow, self._workers = spark, scratch / "dataflows", arrow, workers
        self._store = ArrangementStore(scratch / "arrangements", limit_bytes=limit_bytes, waits_for_disk=False)
        self.open_batches = BatchCache(self._store.directory)
        """Of peeks."""
        self._lock = threading.Lock()
        self._indexes: dict[GlobalId, IndexTrace] = {}

    def render(self, description: DataflowDescription) -> RenderedDataflow:
        """On a pool: starts Spark if need be. Raises DataflowRefused for what cannot be rendered here."""
        try:
            check_dataflow(description)
            session = self._spark.get()
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
                homes=self._homes,
            )
        except (PlanNotAllowed, NotRendered) as error:
            raise DataflowRefused(str(error)) from error
        with self._lock:
            self._indexes.update(rendered.indexes)
        return rendered

    @cached_property
    def _homes(self) -> Homes | None:
        """Of the dataflows, once Spark has started."""
        return Homes.of(self._spark.get())

    def arrangements(self) -> tuple[Manifest, ...]:
        """Of all dataflows, as they are now; from any thread."""
        return self._store.arrangements()

    def set_scratch_space(self, scarce: bool, full: bool) -> None:
        """How much of scratch is left; from any thread."""
        self._store.tell_room(scarce=scarce, full=full)

    def find(self, id: GlobalId) -> IndexTrace | None:
        """The index, while its dataflow is here."""
        with self._lock:
            return self._indexes.get(id)

    def free(self, rendered: RenderedDataflow) -> None:
        """On a pool, once no step runs: its arrangements and files go. An index made anew under its id stays."""
        with self._lock:
            for id, index in rendered.indexes.items():
                if self._indexes.get(id) is index:
                    del self._indexes[id]
        rendered.drop()

    def remove_later(self, removal: Callable[[], None]) -> None:
        """Files that only the caller knows of go when the disk comes to it; from any thread."""
        self._store.soon(removal)

    def sweep(self) -> int:
        """Removes what failed and cancelled attempts left behind; only while no step runs."""
        return self._store.sweep(())

    def close(self) -> None:
        """Also the step workers end, before the files that they read."""
        if self._workers is not None:
            self._workers.close()
        self._store.close()
