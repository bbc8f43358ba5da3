"""Run by test_more_state_than_memory.py, in a process of its own: Spark hydrates more state than its workers may hold.

    python -m tests.render.execution.hydrates FOLDER ROWS MEGABYTES

    t (k, 400 letters) ──┐ exchange by k                    exchange by row
    u (k, 400 letters) ──┴──────────────> join ─> (k, v) ──────────────────> distinct ─> index by k, sink

Each of the four arrangements is as large as an input. The hydration is exchanged among two tasks; what it leaves is
merged beside the steps, which go on. The driver, which only compares, has no limit.
"""

from __future__ import annotations

import os
import resource
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.oracle.harness import INDEX, DataflowHarness
from tests.oracle.histories import History, Table
from tests.oracle.plans import distinct, joined, project
from tests.render.execution.limited_worker import MEGABYTES
from tidemark_persist import FilePart, StagedFile, Time, write_staged
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.lir import Get, refs
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.rows.updates import diffs, errors, row_columns
from tidemark_replica.arrangement.spines.trace import Trace
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.spark.session import start_spark
from tidemark_replica.spark.settings import SETTINGS

CHUNK, WIDTH = 1 << 16, 400
WIDE = Table((("k", "bigint"), ("v", "string")), ((), ()))
TABLES = {"t": WIDE, "u": WIDE}
SCATTER = 0x9E3779B97F4A7C15 >> 4 | 1


def keys(begin: int, end: int) -> Any:
    """All different, in no order."""
    return (np.arange(begin, end, dtype=np.uint64) * np.uint64(SCATTER) >> np.uint64(1)).astype(np.int64)


def texts(of: Any) -> Any:
    return pc.utf8_lpad(pa.array(of).cast(pa.string()), WIDTH, "x")


def updates(begin: int, end: int, time: int, diff: int) -> Iterator[Any]:
    """Rows by number."""
    for first in range(begin, end, CHUNK):
        k = keys(first, min(first + CHUNK, end))
        same = (pa.array(np.full(len(k), value)) for value in (time, diff))
        yield pa.record_batch([pa.array(k), texts(k), *same], names=["k", "v", "__time", "__diff"])


class Wide(DataflowHarness):
    """Both tables hold rows 0 to `rows`; at time 2 half of them go, and as many others come."""

    def __init__(self, session: Any, folder: Path, rows: int) -> None:
        self.rows = rows
        self._staged: dict[str, list[StagedFile]] = {}
        super().__init__(session, folder, TABLES, History({}, 1, 2))

    def parts(self, table: str, lower: int, upper: int) -> list[FilePart]:
        where, bounds = str(self.folder / table), (Time(lower), Time(upper))
        found = [f for f in self._staged[table] if f.max_time >= lower and f.min_time < upper]
        return [FilePart(where, f.path, *bounds, f.rows, f.size) for f in found]

    def _write(self, name: str, table: Table) -> None:
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        rows, where = self.rows, str(self.folder / name)
        changed = chain(updates(0, rows // 2, 2, -1), updates(rows, rows + rows // 2, 2, 1))
        written = (write_staged(where, batches) for batches in (updates(0, rows, 0, 1), changed))
        self._staged[name] = [file for file in written if file is not None]


def check(dataflow: RenderedDataflow, of: Wide, time: int, begin: int) -> None:
    """The index holds the rows from number `begin` on, each once."""
    manifest = dataflow.indexes[INDEX].manifest
    found = []
    for batch in Trace(manifest, BatchCache(of.store.directory)).rows_at(time):
        k, v = row_columns(batch)
        assert errors(batch).null_count == batch.num_rows
        assert (diffs(batch) == 1).all()
        assert v.equals(texts(k))
        found.append(k.to_numpy())
    alive_file = keys(begin, begin + of.rows)
    assert np.array_equal(np.sort(np.concatenate(found)), np.sort(alive_file)), f"other rows at {time}"


def limit_of(batches: Iterator[Any]) -> Iterator[Any]:
    """The limit that the system gives the worker."""
    for _ in batches:
        yield pa.record_batch([pa.array([resource.getrlimit(resource.RLIMIT_DATA)[1]])], names=["limit"])


def shape_of(dataflow: RenderedDataflow) -> list[list[int]]:
    """The rows of the batches of each arrangement."""
    return [[batch.rows for batch in manifest.batches] for manifest in dataflow.arrangements()]


def merge(dataflow: RenderedDataflow) -> None:
    """Whatever is due beside the steps, one after the other."""
    before = None
    while (now := shape_of(dataflow)) != before:
        before = now
        dataflow._merge()
        dataflow._background_merges.join()
        dataflow._background_merges.settle()


def main(folder: Path, rows: int, megabytes: int) -> None:
    os.environ[MEGABYTES] = str(megabytes)
    SETTINGS["spark.python.daemon.module"] = "tests.render.execution.limited_worker"
    session = start_spark("local[2]", "1g", folder / "spark")
    (row,) = session.range(0, 1, 1, 1).mapInArrow(limit_of, "limit long").collect()
    assert row.limit == megabytes << 20
    of = Wide(session, folder, rows)
    get = {name: Get(GlobalId(name), WIDE.schema) for name in TABLES}
    both = project(joined(get["t"], get["u"]), 0, 3)
    dataflow = of.build(of.describe(distinct(both, *refs(both.schema))))
    hydrated = of.step(dataflow, 2)
    assert hydrated.folder is not None
    assert any(hydrated.folder.glob("*.1.*.report")), "the hydration was not divided among two tasks"
    hydrated.release()
    state = of.store.bytes
    print(f"hydrated {state >> 20} MiB: {shape_of(dataflow)}", flush=True)
    check(dataflow, of, 1, 0)
    of.step(dataflow, 3).release()
    stepped, before = of.store.bytes, shape_of(dataflow)
    print(f"stepped, {stepped >> 20} MiB: {before}", flush=True)
    dataflow.compact(INDEX, Frontier.at(2))
    merge(dataflow)
    print(f"merged, {of.store.bytes >> 20} MiB: {shape_of(dataflow)}", flush=True)
    check(dataflow, of, 2, rows // 2)
    merged = sum(sum(batches) for batches in before) - sum(sum(batches) for batches in shape_of(dataflow))
    dataflow.drop()
    of.close()
    session.stop()
    print(state >> 20, stepped >> 20, merged)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
