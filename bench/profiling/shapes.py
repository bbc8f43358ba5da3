"""In which shape steps are profiled: where they run, and how large they are.

task      one Spark task, as where Catalyst has a part in a step
driver    the worker beside the driver, as small steps run in a replica
tasks     several Spark tasks with exchanges, as large steps run
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass

from tidemark_replica.render.execution.step_shape import ExchangePolicy
from tidemark_replica.render.step_worker.pool import StepWorkers

TASK, DRIVER, TASKS = "task", "driver", "tasks"
SHAPES: Mapping[str, str] = {
    TASK: "one Spark task",
    DRIVER: "the worker beside the driver",
    TASKS: "several Spark tasks",
}
_ALWAYS, _NEVER = 1, 1 << 62
_WORKER = (sys.executable, "-m", "bench.profiling.worker")


@dataclass(frozen=True)
class Steps:
    """The deltas and their rows. Deltas of the warm-up come before, and do not count."""

    timed: int
    rows: int
    warm_up: int

    @property
    def all(self) -> int:
        return self.warm_up + self.timed


@contextmanager
def workers(shape: str) -> Iterator[StepWorkers | None]:
    """The step workers of the shape, if it does not run in Spark; they record their times."""
    if shape != DRIVER:
        yield None
        return
    made = StepWorkers(command=_WORKER)
    try:
        yield made
    finally:
        made.close()


def exchange_policy(shape: str, cores: int) -> ExchangePolicy:
    """Every step runs in the shape's number of tasks, whatever it reads."""
    return ExchangePolicy(cores, _ALWAYS if shape == TASKS else _NEVER)
