"""Faults on demand, inside Spark's workers: a stage that raises, dies or hangs at a chosen point, so many times.

reading        the first batch of a shard has been read
index          the first batch of an imported index has been read
feedback       a round of a loop has begun to read what the one before fed back
before report  everything was read and written, but nobody was told
after report   the report is there, the task is not done
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.waiting import BOUND
from tidemark_replica.arrangement.rows.updates import Updates
from tidemark_replica.render.plan.pipeline import Drain, IndexSource, LoopVariable, Pipeline, Source
from tidemark_replica.render.task.jvm_input_slots import StageFeed
from tidemark_replica.render.task.stage import Stage

HANG_SECONDS = 2 * BOUND
_PLACES = {Source: "reading", IndexSource: "index", LoopVariable: "feedback"}


@dataclass(frozen=True)
class Fault:
    """A fault: its kind, place and number of times. Each time leaves a file in `folder`, with the pid. Nothing happens
    before there is the folder."""

    folder: Path
    where: str
    how: str
    times: int

    def strike(self, where: str) -> None:
        """Happen, if it is the place and it has not happened often enough."""
        if where == self.where and self.folder.is_dir() and self._claim():
            if self.how == "raise":
                raise RuntimeError("a planted fault")
            if self.how == "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            deadline = time.monotonic() + HANG_SECONDS
            while time.monotonic() < deadline and not self._go.exists():
                time.sleep(0.05)

    def end(self) -> None:
        """A hanging process goes on."""
        self._go.touch()

    @property
    def _go(self) -> Path:
        return self.folder.with_suffix(".end")

    @property
    def strikes(self) -> int:
        return len(list(self.folder.iterdir()))

    def _claim(self) -> bool:
        for number in range(self.times):
            try:
                claim = os.open(self.folder / str(number), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
            except FileExistsError:
                continue
            os.write(claim, str(os.getpid()).encode())
            os.close(claim)
            return True
        return False


class FaultyStage(Stage):
    """A stage in which the fault strikes."""

    fault: Fault

    def evaluate(self, tree: Pipeline) -> Iterator[Updates]:
        for batch in super().evaluate(tree):
            yield batch
            if type(tree) in _PLACES:
                self.fault.strike(_PLACES[type(tree)])
        if isinstance(tree, Drain):
            self.fault.strike("before report")


def run_faulty(fault: Fault, name: str, tree: Pipeline, feed: StageFeed, rows: Iterable[Any]) -> Iterator[Updates]:
    """In the place of `stage.run_stage`."""
    stage = FaultyStage.in_task(feed, rows)
    stage.fault = fault
    yield from stage.evaluate(tree)
    stage.report(name)
    if isinstance(tree, Drain):
        fault.strike("after report")
