"""Running small fragments in a step worker, and all others as Spark jobs.

                       no input from Catalyst?   few updates?   no loss of workers?
    FragmentRun ──> WorkerRunner ─── yes ──────────── yes ────────────── yes ─────> step worker
                       └──────────── no ───────────── no ─────────────── no ──────> Spark, always at hydration

Both run the same tree over the same description and return the same reports. A worker runs one attempt and sends its
report with the answer; attempts of a Spark task leave reports in files. A worker that dies leaves files that no report
names, and the fragment runs again as a Spark job. A dataflow that has lost MAX_LOSSES workers within LOSS_SECONDS
runs in Spark until the losses are older: a step may also have been slow because the machine was busy.
"""

from __future__ import annotations

import logging
import pickle
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable

from tidemark_replica.render.errors import StepCancelled, StepFailed
from tidemark_replica.render.execution.runner import FragmentRun
from tidemark_replica.render.execution.spark_runner import SparkRunner
from tidemark_replica.render.plan.fragments import Fragment
from tidemark_replica.render.step_worker.pool import StepWorkers
from tidemark_replica.render.step_worker.work_ticket import (
    MemberCancelled,
    MemberFailed,
    NoWorker,
    PickledStage,
    WorkerLost,
    WorkTicket,
)
from tidemark_replica.render.task.description import StageReport

LOG = logging.getLogger(__name__)
MAX_ROWS = 10_000
MAX_LOSSES = 2
LOSS_SECONDS = 3600.0
"""Seconds for which the loss of a worker counts."""


class WorkerRunner:
    """Runs the fragments of one dataflow; see `runner.Runner`."""

    def __init__(
        self,
        spark: SparkRunner,
        workers: StepWorkers,
        name: str,
        fragments: Iterable[Fragment],
        *,
        max_rows: float = MAX_ROWS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`name`: unique to the dataflow. Runs with more than `max_rows` updates go to Spark."""
        self._spark, self._workers, self._max_rows = spark, workers, max_rows
        own = [f.stage for f in fragments if not f.stage.inputs]
        self._trees = {s.name: PickledStage(s.name, f"{name}/{s.name}", pickle.dumps(s.tree)) for s in own}
        self._clock, self._name = clock, name
        self._lost: deque[float] = deque(maxlen=MAX_LOSSES)
        self._lock = threading.Lock()
        self._ticket: WorkTicket | None = None
        if self._trees:
            workers.start()

    @property
    def jobs(self) -> int:
        return self._spark.jobs

    def begin(self) -> None:
        self._spark.begin()

    def run(self, work: FragmentRun) -> StageReport:
        stage = work.prepared.fragment.stage.name
        rows = float("inf") if work.rows is None else work.rows
        if stage not in self._trees or rows > self._max_rows or self._kills_workers:
            return self._spark.run(work)
        try:
            return self._run(WorkTicket(self._trees[stage], work.description), work)
        except WorkerLost:
            self._lost.append(self._clock())
            if self._kills_workers:
                LOG.warning(
                    "step workers died while they ran steps of %s: its steps run as Spark jobs for a while", self._name
                )
            return self._spark.run(work)
        except NoWorker:
            return self._spark.run(work)

    def end(self) -> None:
        self._spark.end()

    def cancel(self) -> None:
        self._spark.cancel()
        with self._lock:
            ticket = self._ticket
        if ticket is not None:
            ticket.cancel()

    def close(self) -> None:
        self._spark.close()
        self.cancel()

    @property
    def _kills_workers(self) -> bool:
        return len(self._lost) == MAX_LOSSES and self._clock() - self._lost[0] < LOSS_SECONDS

    def _run(self, ticket: WorkTicket, work: FragmentRun) -> StageReport:
        with self._lock:
            self._ticket = ticket
        try:
            if self._spark.cancelled:  # a cancel from now on finds the ticket
                raise StepCancelled(f"{work.label} was cancelled")
            return self._workers.run(ticket)
        except MemberCancelled as cause:
            raise StepCancelled(f"{work.label} was cancelled") from cause
        except MemberFailed as cause:
            raise StepFailed(f"{work.label} failed: {cause.public_text}") from cause
        finally:
            with self._lock:
                self._ticket = None
