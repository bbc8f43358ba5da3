"""Where a dataflow's fragments have run, so that a variant that quietly became another one is seen.

    with in_jobs() as jobs:
        ...                         jobs: each fragment that was a Spark job, and its number of tasks

What is in none of them ran in a step worker, or had nothing to say.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.checked_patches import CheckedPatches
from tidemark_replica.kernels.temporal import TemporalSpec
from tidemark_replica.render.execution.runner import FragmentRun
from tidemark_replica.render.execution.step_shape import FragmentShape, FragmentShapes
from tidemark_replica.render.plan.jvm_frames import nodes_of
from tidemark_replica.render.plan.pipeline import ContinualTaskKernel, DeltaKernel, Kernel, LoopInTask, ReadSpool


@dataclass(frozen=True)
class Job:
    """A fragment that was run by Spark."""

    work: FragmentRun
    tasks: int

    @property
    def needs_catalyst(self) -> bool:
        """No step worker can run it."""
        return bool(self.work.prepared.fragment.stage.inputs)

    def shapes(self, tasks: int) -> set[int]:
        """In how many tasks it may be where it is worth so many: in one, if it has an operator that is in one place;
        in either, if one stream is grouped several times, which may be by columns that have nothing in common.
        """
        found = {tasks}
        for node in nodes_of(self.work.prepared.fragment.stage):
            match node:
                case LoopInTask() | ContinualTaskKernel() | Kernel(TemporalSpec()):
                    return {1}
                case DeltaKernel() if not self.work.single_time:
                    return {1}
                case ReadSpool():
                    found = {1, tasks}
        return found


@contextmanager
def in_jobs() -> Iterator[list[Job]]:
    """The jobs of all dataflows that step in the block."""
    jobs: list[Job] = []
    shape_of = FragmentShapes.of

    def of(shapes: FragmentShapes, work: FragmentRun) -> FragmentShape:
        shape = shape_of(shapes, work)
        jobs.append(Job(work, shape.tasks))
        return shape

    with CheckedPatches.context() as patch:
        patch.setattr(FragmentShapes, "of", of)
        yield jobs


def check_workers(jobs: list[Job], max_rows: float) -> None:
    """Raise if one of them, of at most so many updates, could have run in a step worker."""
    for job in jobs:
        rows = math.inf if job.work.rows is None else job.work.rows
        assert job.needs_catalyst or rows > max_rows, f"{job.work.label}: {rows} updates, and not in a worker"
