"""The cost of a MERGE of 1% of a Delta table for a `delta` source, with the change data feed and without it.

    python -m bench.ingest [--rows 10000000] [--json] [--quick]

`delta_feed_ratio`: from the binding to staged files, over Spark's reading of the same change data (its rows written to
nowhere). `delta_files_ratio`: the same without the feed, over Spark's reading of the files that the MERGE touched.
`kafka_...`: of topics (bench/parts/kafka_source.py), with a tenth of the rows; `avro_...`: of files
(bench/parts/avro_files.py), with as many.
`postgres_...`: of a PostgreSQL source (bench/parts/postgres_source.py), by default with lineitem of scale factor 1.
`freshness_...`, `fast_freshness_...`: of a view over a PostgreSQL source (bench/parts/freshness.py).
Sides take turns; the numbers of updates are compared with what was merged before any time counts.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
from deltalake import DeltaTable as Table
from deltalake import write_deltalake
from pyspark.sql import SparkSession

from bench.harness.answers import WrongAnswer
from bench.harness.clock import Cost, cpu_mean, measured, wall_p50
from bench.harness.context import bench_parser, context, load, progress, report
from bench.parts.avro_files import figures as avro_figures
from bench.parts.freshness import SECONDS
from bench.parts.freshness import figures as freshness_figures
from bench.parts.kafka_source import figures as kafka_figures
from bench.parts.postgres_source import figures as postgres_figures
from tidemark_persist import ShardWriters, Storage
from tidemark_protocol.ids import GlobalId, ShardId, Time, WriterTerm
from tidemark_protocol.plan.dataflow import ShardMetadata
from tidemark_protocol.plan.ingestion import (
    DeltaSource,
    DeltaTable,
    IngestedTable,
    IngestionDescription,
    SourceTable,
)
from tidemark_replica.storage.delta.bindings import binding_rows
from tidemark_replica.storage.delta.commit_log import read_commit
from tidemark_replica.storage.delta.followed_table import FollowedTable
from tidemark_replica.storage.delta.inspect import tables_of
from tidemark_replica.storage.delta.source import DeltaIngestion
from tidemark_replica.storage.ingester import Ingester

FILES = 16
TURNS = 5
MERGED = 100
"""One row in so many."""


def rows_of(ids: np.ndarray, price: float) -> pa.Table:
    texts = pa.array(ids % 1000).cast(pa.string())
    columns = {"id": ids, "customer": ids % 9973, "price": np.full(len(ids), price), "comment": texts}
    return pa.table(columns)


def merged_table(path: str, rows: int, feed: bool) -> Table:
    """A table of FILES files, and a MERGE that updates one row in MERGED in all of them."""
    options = {"delta.enableChangeDataFeed": str(feed).lower()}
    for part in np.array_split(np.arange(rows), FILES):
        write_deltalake(path, rows_of(part, 1.0), mode="append", configuration=options)
    changes = rows_of(np.arange(0, rows, MERGED), 2.0)
    merge = Table(path).merge(changes, "t.id = s.id", source_alias="s", target_alias="t")
    merge.when_matched_update_all().execute()
    return Table(path)


class Followed:
    """An ingester whose table has everything but the MERGE; `stage` stages that, again and again."""

    def __init__(self, root: Path, path: str, version: int) -> None:
        spec = DeltaTable("t", path)
        [found] = tables_of(DeltaSource((spec,)))
        spec = DeltaTable("t", path, (), found.columns)
        shard = ShardMetadata(ShardId("t"), f"{root}/t", found.columns)
        self.table = IngestedTable(GlobalId("t"), SourceTable("t", found.columns), shard)
        self.source = DeltaIngestion(DeltaSource((spec,)))
        description = IngestionDescription(
            GlobalId("s"), "s", DeltaSource((spec,)), 1000, ShardId("remap"), f"{root}/remap", (self.table,)
        )
        ingester = Ingester(description, WriterTerm(1), self.source, ShardWriters())
        ingester.recover()
        [(_, contents)] = ingester.table_shards()
        contents.compare_and_append(None, expected_upper=0, new_upper=Time(1001), term=WriterTerm(1))
        newest = binding_rows([("t", None, FollowedTable(spec).newest())])
        row = newest.to_pylist()[0]
        before = read_commit(Storage.at(path), version - 1)
        assert before is not None
        old = row | {"version": version - 1, "digest": before.digest, "__diff": -1}
        self.binding = pa.Table.from_pylist([old, row], newest.schema)
        self.source.confirm(newest)

    def stage(self) -> int:
        """The number of updates."""
        staged = self.source.stage(self.binding, Time(2000), [self.table])
        return sum(file.rows for file in staged[self.table.id])


def touched(path: str, version: int, feed: bool) -> list[str]:
    """The files that a reader of the MERGE must read."""
    commit = read_commit(Storage.at(path), version)
    assert commit is not None
    actions = commit.changes if feed else (*commit.adds, *commit.removes)
    return [f"{path}/{unquote(action.path)}" for action in actions]


def turns(ours: Callable[[], int], peer: Callable[[], object], updates: int) -> tuple[list[Cost], list[Cost]]:
    """The costs of both sides, after one turn that does not count."""
    own, theirs = list[Cost](), list[Cost]()
    for _ in range(TURNS + 1):
        cost, found = measured(ours)
        if found != updates:
            raise WrongAnswer(f"{found} updates were staged; the MERGE has {updates}")
        own.append(cost)
        theirs.append(measured(peer)[0])
    return own[1:], theirs[1:]


def ratios(session: SparkSession, rows: int, feed: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        path = f"{folder}/up"
        progress(f"{rows} rows, feed {feed}")
        version = merged_table(path, rows, feed).version()
        followed = Followed(Path(folder) / "down", path, version)
        files = touched(path, version, feed)

        def peer() -> None:
            session.read.parquet(*files).write.format("noop").mode("overwrite").save()

        own, theirs = turns(followed.stage, peer, 2 * len(range(0, rows, MERGED)))
    name = "delta_feed" if feed else "delta_files"
    return {
        f"{name}_ratio": round(wall_p50(own) / wall_p50(theirs), 2),
        f"{name}_cpu_ratio": round(cpu_mean(own) / cpu_mean(theirs), 2),
        f"{name}_ms": round(wall_p50(own)),
    }


def main() -> None:
    """Measures and prints."""
    parser = bench_parser(__doc__, "10,000 rows")
    parser.add_argument("--rows", type=int, default=10_000_000)
    arguments = parser.parse_args()
    rows = 10_000 if arguments.quick else arguments.rows
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)  # else its workers are the python3 of PATH
    session = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    try:
        figures = ratios(session, rows, feed=True) | ratios(session, rows, feed=False)
        figures |= kafka_figures(session, rows // 10)
        figures |= avro_figures(session, rows // 10)
    finally:
        session.stop()
    figures |= postgres_figures(6 * rows // 10, rows // 50)
    figures |= freshness_figures(5.0 if arguments.quick else SECONDS)
    report("ingest", figures, {**context(), "rows": rows, "load": load()}, arguments.json)


if __name__ == "__main__":
    main()
