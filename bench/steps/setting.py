"""Under which every part of `bench.step` runs: one session, one planner, one folder, and the options."""

from __future__ import annotations

import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.harness.context import progress
from bench.harness.measure import Rounds, measure
from bench.harness.queries import Query
from bench.harness.query import Planner, planner
from bench.harness.world import World
from tidemark_replica.spark_session import SparkHolder, start_spark

WARM_UP = 5


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
    spark_memory: str = "1g"
    peers: str = ""


@dataclass(frozen=True)
class Setting:
    """What parts share."""

    session: Any
    plan: Planner
    folder: Path
    options: Options

    def measure(self, worlds: Sequence[World], queries: Sequence[Query], steps: int | None = None) -> Rounds:
        """All queries on all worlds, side by side."""
        return measure(self.session, self.plan, worlds, queries, steps or self.options.steps, WARM_UP)

    @contextmanager
    def worlds(self, lines: Iterable[int], queries: Sequence[Query], sizes: Sequence[int]) -> Iterator[list[World]]:
        """One for each size, in a folder of their own that goes with them."""
        with tempfile.TemporaryDirectory(dir=self.folder) as home:
            made = []
            for size in lines:
                progress(f"{size} lines: data, shards, DuckDB")
                made.append(World(Path(home), size, queries, sizes))
            yield made
            for world in made:
                world.close()


@contextmanager
def setting(options: Options) -> Iterator[Setting]:
    """A session and a planner for as long as the block lasts."""
    with tempfile.TemporaryDirectory(prefix="tidemark-bench-") as scratch:
        folder = Path(scratch)
        spark = SparkHolder(lambda: start_spark("local[2]", "1g", folder))
        try:
            with planner(folder) as plan:
                yield Setting(spark.get(), plan, folder, options)
        finally:
            spark.stop()
