"""The exchanged shape without Spark: tasks run one after the other, and a shuffle is a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tests.oracle.variants.in_process import ATTEMPTS, InProcessRunner
from tidemark_replica.arrangement.rows.task_share import TaskShare
from tidemark_replica.render.execution.runner import FragmentRun, complete_report
from tidemark_replica.render.plan.exchanged_plan import exchanged_plan
from tidemark_replica.render.plan.jvm_frames import ExchangeFrame, StageFrame, pipelines_of
from tidemark_replica.render.task.description import StageReport
from tidemark_replica.render.task.exchange_io import ExchangeReader
from tidemark_replica.render.task.jvm_input_slots import JvmInputSlots


class InTasks(InProcessRunner):
    """In the place of SparkRunner: what is large runs in several tasks."""

    def run(self, work: FragmentRun) -> StageReport:
        exchange_policy = self.shapes.exchange_policy
        how = {"single_time": work.single_time, "only_step": work.only_step}
        stage = exchanged_plan(work.prepared.fragment.stage, self.shapes.layouts, **how)
        if stage is None or not exchange_policy.is_large(work.input_rows):
            return super().run(work)
        work.on_start(stage, exchange_policy.tasks)
        self._computed(stage, work, exchange_policy.tasks)
        return complete_report(work.description.parent, pipelines_of(stage), work.label, exchange_policy.tasks)

    def _computed(self, frame: StageFrame, work: FragmentRun, tasks: int) -> list[list[Any]]:
        """The rows that each task yields."""
        return [
            self._task(frame, work, TaskShare(n, tasks), fed) for n, fed in enumerate(self._fed(frame, work, tasks))
        ]

    def _task(self, frame: StageFrame, work: FragmentRun, share: TaskShare, rows: Sequence[Any]) -> list[Any]:
        attempt = next(ATTEMPTS)
        slots = ExchangeReader(rows, work.description.parent) if frame.inputs else JvmInputSlots((), ())
        stage = self.stage(work.description, attempt, slots, share)
        stage.count(frame.name, frame.tree)
        yielded = list(stage.evaluate(frame.tree))
        stage.report(frame.name)
        return yielded

    def _fed(self, frame: StageFrame, work: FragmentRun, tasks: int) -> list[list[Any]]:
        """The rows that each task gets."""
        fed: list[list[Any]] = [[] for _ in range(tasks)]
        for input in frame.inputs:
            assert isinstance(input, ExchangeFrame), "nothing here needs Catalyst"
            batches = [b for below in input.inputs for task in self._computed(below, work, tasks) for b in task]
            for batch in batches:
                to = np.asarray(batch.column(0).to_numpy())
                for share in np.unique(to):
                    fed[share].append(batch.filter(pa.array(to == share)))
        return fed
