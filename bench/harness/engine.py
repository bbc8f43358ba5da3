"""One view over shards of its own, stepped as a replica's command loop does it.

ingest ──► shards ──listen──► plan ──► run (a Spark job) ──► commit ──► index
       not timed  └───────────────── a step's time ───────────────┘
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.harness.workload.tpch import Table
from tidemark_persist import DIFF, TIME, FilePart, MaintenancePolicy, Shard, create_or_open, open_shard, write_staged
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.rows.updates import diffs, errors, row_columns
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.arrangement.store import ArrangementStore
from tidemark_replica.render.build import build
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.execution.background_merges import merge_pool
from tidemark_replica.render.execution.executor_affinity import ExecutorAffinity
from tidemark_replica.render.execution.step_shape import ExchangePolicy
from tidemark_replica.render.execution.worker_runner import MAX_ROWS
from tidemark_replica.render.step_worker.pool import StepWorkers
from tidemark_replica.values.arrow_types import arrow_schema

AS_OF = 0
DEFAULT_POLICY = MaintenancePolicy()
TERM = 1


@dataclass(frozen=True)
class StepTimes:
    """Milliseconds of a step: which updates (`listen`), the step (`plan`), Spark (`run`), the new state (`commit`)."""

    listen: float
    plan: float
    run: float
    commit: float

    @property
    def all(self) -> float:
        """From the input's commit to the index's."""
        return self.listen + self.plan + self.run + self.commit


class Source:
    """A shard that holds a table at time 0, and updates from then on."""

    def __init__(self, folder: Path, name: str, table: Table, policy: MaintenancePolicy = DEFAULT_POLICY) -> None:
        self.location, self.schema = folder / name, table.schema
        self._shard: Shard = create_or_open(str(self.location), table.schema, shard_id=name, policy=policy)
        staged = write_staged(str(self.location), map(_at_start, table.batches()))
        self._append([staged] if staged else None)
        self.reader = open_shard(str(self.location))

    def append(self, updates: pa.Table | None) -> None:
        """One tick, and the maintenance that falls due; None: nothing happened in it."""
        self._append(updates)
        for work in self._shard.maintenance_due():
            self._shard.run_maintenance(work)

    def append_all(self, ticks: Sequence[pa.Table], upper: int, ticks_of_a_file: int) -> None:
        """Many ticks up to `upper` in one commit, in files of several ticks as compaction leaves them."""
        pieces = [pa.concat_tables(ticks[at : at + ticks_of_a_file]) for at in range(0, len(ticks), ticks_of_a_file)]
        staged = [write_staged(str(self.location), piece.combine_chunks()) for piece in pieces]
        expected = self._shard.state().upper
        files = [file for file in staged if file is not None]
        self._shard.compare_and_append(files, expected_upper=expected, new_upper=upper, term=TERM)

    def forget(self, before: int) -> None:
        """Allow compaction up to a time."""
        self._shard.downgrade_since(before)

    def _append(self, updates: Any) -> None:
        upper = self._shard.state().upper
        self._shard.compare_and_append(updates, expected_upper=upper, new_upper=upper + 1, term=TERM)


class View:
    """A dataflow whose exports are indexes, over sources that tick together."""

    def __init__(
        self,
        session: Any,
        folder: Path,
        description: DataflowDescription,
        sources: Mapping[str, Source],
        workers: StepWorkers | None = None,
        max_rows: float = MAX_ROWS,
        exchange_policy: ExchangePolicy | None = None,
        affinity: ExecutorAffinity | None = None,
    ) -> None:
        """`workers` run small steps, as in a replica; without them every step is Spark jobs. `exchange_policy` says
        when jobs have several tasks, as in a replica by default. `affinity` prefers an executor for jobs of one task.
        """
        self._sources = {GlobalId(name): source for name, source in sources.items()}
        self._store = ArrangementStore(folder / "arrangements")
        self._cache = BatchCache(self._store.directory)
        self._dataflow: RenderedDataflow = build(
            description,
            session,
            self._store,
            folder / "scratch",
            merges=merge_pool(),
            workers=workers,
            max_rows=max_rows,
            exchange_policy=exchange_policy,
            affinity=affinity,
        )
        self._as_of = description.as_of
        self.jobs, self.cold_reads = 0, 0
        """Spark jobs and opened files of state of the last step."""
        self._indexes = [self._dataflow.indexes[export.id] for export in description.index_exports]

    def hydrate(self) -> StepTimes:
        """The first step: all that the sources hold at the as_of."""
        return self._step(self._as_of + 1, lambda source: source.reader.snapshot_parts(self._as_of))

    def step(self, ticks: int = 1) -> StepTimes:
        """The ticks that were appended last."""
        lower = self._dataflow.frontier.encode()
        return self._step(lower + ticks, lambda source: source.reader.listen(lower, lower + ticks))

    def answer(self, number: int = 0) -> pa.Table:
        """The rows of one export, as its index holds them now, each as often as it is there. Raises ValueError for
        errors and for multiplicities below one."""
        index = self._indexes[number]
        manifest = index.manifest
        found = list(Trace(manifest, self._cache).rows_at(manifest.upper - 1))
        if any(errors(u).null_count < u.num_rows or (diffs(u) < 1).any() for u in found):
            raise ValueError("the view holds errors, or rows that are there less than once")
        schema = arrow_schema(index.columns)
        rows = [
            pa.table(row_columns(u), names=schema.names).take(np.repeat(np.arange(u.num_rows), diffs(u))) for u in found
        ]
        return pa.concat_tables([schema.empty_table(), *(table.cast(schema) for table in rows)])

    @property
    def state(self) -> tuple[int, int]:
        """(rows, bytes) of all arrangements."""
        manifests = self._store.arrangements()
        return sum(m.rows for m in manifests), self._store.bytes

    @property
    def arrangements(self) -> int:
        """The number of arrangements."""
        return len(self._store.arrangements())

    def close(self) -> None:
        """All state goes."""
        self._dataflow.drop()
        self._store.close()

    def _step(self, upper: int, read: Callable[[Source], Sequence[FilePart]]) -> StepTimes:
        marks = [time.perf_counter()]
        inputs = {name: read(source) for name, source in self._sources.items()}
        marks.append(time.perf_counter())
        step = self._dataflow.plan_step(Frontier.at(upper), inputs)
        marks.append(time.perf_counter())
        outcome = self._dataflow.run(step)
        marks.append(time.perf_counter())
        self._dataflow.commit(outcome)
        marks.append(time.perf_counter())
        outcome.release()
        self.jobs, self.cold_reads = outcome.jobs, outcome.cold_reads
        for index in self._indexes:
            self._dataflow.compact(index.id, Frontier.at(upper - 1))
        return StepTimes(*((end - begin) * 1e3 for begin, end in pairwise(marks)))


def _at_start(batch: pa.RecordBatch) -> pa.RecordBatch:
    times, ones = (pa.repeat(pa.scalar(value, pa.int64()), batch.num_rows) for value in (AS_OF, 1))
    return batch.append_column(TIME, times).append_column(DIFF, ones)
