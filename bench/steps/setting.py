"""Under which every part of `bench.step` runs: one session, one planner, one step worker, one folder."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bench.harness.context import progress
from bench.harness.measure import Engine, Rounds, measure
from bench.harness.query import planner
from bench.harness.workload.queries import Query
from bench.harness.workload.tpch_history import TpchHistory
from tidemark_replica.render.step_worker.pool import StepWorkers
from tidemark_replica.spark.session import SparkHolder, start_spark


@dataclass(frozen=True)
class Options:
    """`lines` of the two states, and of the database that plans and peers run on; all sizes are rows of lineitem."""

    state_lines: Sequence[int] = ()
    lines: int = 0
    recompute_lines: Sequence[int] = ()
    steps: int = 0
    delta_rows: int = 0
    large_steps: int = 0
    large_rows: int = 0
    shape_rows: Sequence[int] = ()
    exchange_rows: Sequence[int] = ()
    together: Sequence[int] = ()
    """The numbers of dataflows that step at once."""
    spark_memory: str = "1g"
    peers: str = ""
    warm_up: int = 5
    """Deltas before those that are timed."""


@dataclass(frozen=True)
class Setting:
    """The setting of all parts: steps as one Spark task, and as a replica runs them, small ones beside the driver."""

    task: Engine
    driver: Engine
    folder: Path
    options: Options

    def measure(self, histories: Sequence[TpchHistory], queries: Sequence[Query], steps: int | None = None) -> Rounds:
        """All queries on all histories, side by side, as a replica takes steps."""
        return measure([self.driver], histories, queries, steps or self.options.steps, self.options.warm_up)

    @contextmanager
    def histories(
        self, lines: Iterable[int], queries: Sequence[Query], sizes: Sequence[int]
    ) -> Iterator[list[TpchHistory]]:
        """One for each size, in a folder of their own that goes with them."""
        with tempfile.TemporaryDirectory(dir=self.folder) as home:
            made = []
            for size in lines:
                progress(f"{size} lines: data, shards, DuckDB")
                made.append(TpchHistory(Path(home), size, queries, sizes))
            yield made
            for history in made:
                history.close()


@contextmanager
def setting(options: Options, master: str = "local[2]") -> Iterator[Setting]:
    """A session and a planner for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
        folder = Path(scratch)
        spark, workers = SparkHolder(lambda: start_spark(master, "1g", folder)), StepWorkers()
        try:
            with planner(folder) as plan:
                task = Engine(spark.get(), plan)
                yield Setting(task, replace(task, workers=workers), folder, options)
        finally:
            workers.close()
            spark.stop()
