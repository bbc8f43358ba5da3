"""A replica with one dataflow, without Spark's jobs, in the test's own thread."""

from __future__ import annotations

import itertools
import os
import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.replica.worker_loop import Loop
from tidemark_persist import Shard
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import WriterTerm
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_replica.dataflow.dataflow_driver import DataflowDriver
from tidemark_replica.dataflow.installed_dataflow import InstalledDataflow
from tidemark_replica.dataflow.renderer import Renderer
from tidemark_replica.sinks.sink_progress import AppendAttempt
from tidemark_replica.sinks.table import materialized_view
from tidemark_replica.sinks.table.materialized_view import AppendOutcome
from tidemark_replica.spark.session import SparkHolder


class OneView:
    """`id`: of the first export; `steps`: how many that did anything it has been asked for."""

    def __init__(self, folder: Path, dataflow: DataflowDescription, term: int = 1) -> None:
        self.loop, self.folder, self.refusals = Loop(), folder, list[str]()
        session = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1, master="local"))
        self.renderer = Renderer(SparkHolder(lambda: session), folder / "scratch")
        around = self.loop.driver_context(self.renderer, session, folder)
        self.installed = InstalledDataflow(dataflow, {})
        self.id = next(iter(self.installed.exports))
        self.driver = DataflowDriver(self.installed, around, self._refuse)
        for export in self.installed.exports.values():
            export.scheduled = True
            export.allow_writes(WriterTerm(term))
            self.driver.allow_writes(export)

    @property
    def write(self) -> Frontier:
        return min(map(self.driver.write_frontier, self.installed.exports))

    @property
    def steps(self) -> int:
        return self.driver._cost_status._steps

    def reach(self, upper: Frontier) -> None:
        self.loop.run_until(lambda: self.write >= upper, self.driver.advance)

    def end(self) -> None:
        self.driver.stop()
        self.loop.run_until(lambda: not self.driver.is_stepping)
        self.loop.jobs.shutdown()
        self.renderer.close()

    def end_after(self, advances: int) -> None:
        """Stops like a process that dies: its append may still land."""
        left = itertools.count(advances, -1)
        self.loop.run_until(lambda: next(left) <= 0, self.driver.advance)
        self.driver.stop()

    def _refuse(self, why: str) -> None:
        self.refusals.append(why)
        self.installed.refusal = why


def files_below(folder: Path) -> list[Path]:
    """All but the lock of the store, which a replica keeps. A folder may go while it is read."""
    return [Path(at, name) for at, _, names in os.walk(folder) for name in names if name != ".lock"]


def lose_replies(monkeypatch: pytest.MonkeyPatch, rng: random.Random) -> None:
    """Some appends fail, before or after they have landed."""
    append_to = materialized_view.append_to

    def failing(shard: Shard, append: AppendAttempt, *others: Any) -> AppendOutcome:
        fails, landed = append.expected_upper > 0 and rng.random() < 0.2, rng.random() < 0.5
        outcome = append_to(shard, append, *others) if landed or not fails else None
        if fails:
            raise OSError("the reply was lost")
        assert outcome is not None
        return outcome

    monkeypatch.setattr(materialized_view, "append_to", failing)
