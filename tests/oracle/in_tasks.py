"""The exchanged shape without Spark: tasks run one after the other, and a shuffle is a list."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from tests.oracle.in_process import ATTEMPTS, InProcessRunner
from tidemark_replica.arrangement.rows.task_share import Share
from tidemark_replica.render.execution.runner import Work, believed
from tidemark_replica.render.plan.exchanged_plan import exchanged
from tidemark_replica.render.plan.jvm_frames import ExchangeFrame, StageFrame, pipelines_of
from tidemark_replica.render.task.description import Report
from tidemark_replica.render.task.exchange_io import Dealt
from tidemark_replica.render.task.jvm_input_slots import Slots


class InTasks(InProcessRunner):
    """In the place of SparkRunner: what is large runs in several tasks."""

    def run(self, work: Work) -> Report:
        exchanging = self.shapes.exchanging
        stage = exchanged(work.prepared.fragment.stage, self.shapes.layouts, at_once=work.at_once)
        if stage is None or not exchanging.is_large(work.reads):
            return super().run(work)
        work.begins(stage, exchanging.tasks)
        self._computed(stage, work, exchanging.tasks)
        return believed(work.description.parent, pipelines_of(stage), work.what, exchanging.tasks)

    def _computed(self, frame: StageFrame, work: Work, tasks: int) -> list[list[Any]]:
        """What each task yields."""
        return [self._task(frame, work, Share(n, tasks), fed) for n, fed in enumerate(self._fed(frame, work, tasks))]

    def _task(self, frame: StageFrame, work: Work, share: Share, rows: Sequence[Any]) -> list[Any]:
        attempt = next(ATTEMPTS)
        slots = Dealt(rows, work.description.parent) if frame.inputs else Slots((), ())
        stage = self.stage(work.description, attempt, slots, share)
        stage.count(frame.name, frame.tree)
        yielded = list(stage.evaluate(frame.tree))
        stage.report(frame.name)
        return yielded

    def _fed(self, frame: StageFrame, work: Work, tasks: int) -> list[list[Any]]:
        """What each task is given."""
        fed: list[list[Any]] = [[] for _ in range(tasks)]
        for input in frame.inputs:
            assert isinstance(input, ExchangeFrame), "nothing here needs Catalyst"
            batches = [b for below in input.inputs for task in self._computed(below, work, tasks) for b in task]
            for batch in batches:
                to = np.asarray(batch.column(0).to_numpy())
                for share in np.unique(to):
                    fed[share].append(batch.filter(pa.array(to == share)))
        return fed
