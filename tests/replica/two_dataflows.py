"""Two copies of a table as indexes, one of which fails: the other must not notice."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, SimpleNamespace

from tests.replica.plans import copies
from tests.replica.tables import Table
from tests.replica.worker_loop import Loop
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.responses import Failure, FailureKind
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.rows.updates import diffs, row_columns
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.dataflow.dataflow_driver import DataflowDriver
from tidemark_replica.dataflow.installed_dataflow import InstalledDataflow
from tidemark_replica.dataflow.renderer import Renderer
from tidemark_replica.spark.session import SparkHolder

LOSER, OTHER = GlobalId("loser/index"), GlobalId("other/index")


class TwoDataflows:
    """Two copies of a table as indexes, each with its driver, on one command loop, without Spark's jobs."""

    def __init__(
        self,
        folder: Path,
        table: Table,
        once_by: str | None = None,
        step_rows: Mapping[GlobalId, int] = MappingProxyType({}),
    ) -> None:
        """`once_by`: the loser has one time only, and its dataflow this name. `step_rows`: bounds of steps."""
        self.loop = loop = Loop()
        session = SimpleNamespace(sparkContext=SimpleNamespace(defaultParallelism=1, master="local"))
        self.renderer = Renderer(SparkHolder(lambda: session), folder / "scratch")
        self.context = around = loop.driver_context(self.renderer, session, folder)
        loser = copies(once_by or "copy-loser", 6, source=table.metadata, index=LOSER, until=7 if once_by else None)
        descriptions = {LOSER: loser, OTHER: copies("copy-other", 6, source=table.metadata, index=OTHER)}
        self.installed = {id: InstalledDataflow(d, {}) for id, d in descriptions.items()}
        self._drivers = {
            id: DataflowDriver(d, replace(around, step_rows=step_rows.get(id)), _refused)
            for id, d in self.installed.items()
        }
        self._folder = folder

    def reach(self, time: int, *ids: GlobalId) -> None:
        self.loop.run_until(lambda: all(self.installed[id].processed >= Frontier.at(time) for id in ids), self.advance)

    def schedule(self, id: GlobalId) -> None:
        self._drivers[id].retry_now()

    def drop(self, id: GlobalId) -> None:
        """To the end: nothing of it is found any more."""
        self._drivers[id].stop()
        self.loop.run_until(lambda: self.renderer.find(id) is None)

    def step_folders(self) -> list[Path]:
        """The folders that steps have left on disk."""
        return list(self._folder.glob("scratch/dataflows/*/steps/*"))

    def failed(self, id: GlobalId) -> list[Failure]:
        failures = [each for each in self.loop.said if isinstance(each, Failure)]
        return [each for each in failures if each.id == id and each.kind == FailureKind.STEP]

    def wait_for_failure(self) -> None:
        self.loop.run_until(lambda: self.failed(LOSER), self.advance)

    def rows(self, id: GlobalId, time: int) -> dict[tuple[object, ...], int]:
        """The rows of the index."""
        index = self.renderer.find(id)
        assert index is not None
        found: dict[tuple[object, ...], int] = {}
        for batch in Trace(index.manifest, BatchCache(index.store.directory)).rows_at(time):
            for *row, diff in zip(*(c.to_pylist() for c in row_columns(batch)), diffs(batch), strict=True):
                found[tuple(row)] = found.get(tuple(row), 0) + int(diff)
        return {row: count for row, count in found.items() if count}

    def end(self) -> None:
        for driver in self._drivers.values():
            driver.stop()
        self.loop.run_until(lambda: not any(driver.is_stepping for driver in self._drivers.values()))
        self.loop.jobs.shutdown()
        self.renderer.close()

    def advance(self) -> None:
        for driver in self._drivers.values():
            driver.advance()


def _refused(why: str) -> None:
    raise AssertionError(why)
