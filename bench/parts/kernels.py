"""The time of a kernel's step, by the size of the delta and of the state: `python -m bench.parts.kernels [--json]`.

A join on (bigint, string) with a lineitem-like side of 1M and of 5M rows, then sum and count by (date, string), both in
this process and without Spark. The cost of a step should follow its delta: `state_ratio` is the time at 5M over 1M.
Then top-10 and min/max of one group (`heads.py`): `group_ratio` is the time at 1M over that at 100k.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench.parts import heads
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import make_updates
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.spines.spine import apply, plan_merges
from tidemark_replica.arrangement.step import BatchWriter, StepContext, StepId, merge
from tidemark_replica.kernels.joins.join import JoinInput, JoinSide, JoinSpec, join
from tidemark_replica.kernels.reduce.accumulate import AccumulatorLayout
from tidemark_replica.kernels.reduce.aggregates import ColumnAggregate
from tidemark_replica.kernels.reduce.reduce import ReduceSpec, reduce

ORDERS, ITEMS, SUMS = ArrangementId("orders"), ArrangementId("items"), ArrangementId("sums")
ORDER_TYPES = (pa.int64(), pa.string(), pa.int32())
ITEM_TYPES = (pa.int64(), pa.string(), pa.decimal128(15, 2), pa.date32(), pa.string())
SHAPE = AccumulatorLayout(
    (pa.date32(), pa.string(), pa.decimal128(15, 2)),
    (0, 1),
    (
        ColumnAggregate("count", None, "count(*)"),
        ColumnAggregate("sum", 2, "sum(price)"),
        ColumnAggregate("avg", 2, "avg(price)"),
    ),
)
JOIN = JoinSpec(JoinInput(ORDERS, ()), JoinInput(ITEMS, (3, 4, 2)))
REDUCE = ReduceSpec(SUMS, SHAPE)
PER_ORDER = 10


def names(keys: np.ndarray) -> pa.Array:
    return pa.array(np.char.add("Customer#", np.char.zfill(keys.astype(str), 12)))


def items(rng: np.random.Generator, keys: np.ndarray, times: np.ndarray) -> Any:
    n = len(keys)
    prices = np.column_stack([rng.integers(100, 10_000_000, n), np.zeros(n, np.int64)])
    price = pa.Array.from_buffers(pa.decimal128(15, 2), n, [None, pa.py_buffer(prices)])
    dates = pa.array(rng.integers(8000, 10000, n).astype(np.int32)).cast(pa.date32())
    flags = pa.array(["A", "N", "R", "a longer flag"]).take(pa.array(rng.integers(0, 4, n)))
    return make_updates([pa.array(keys), names(keys), price, dates, flags], times, np.ones(n, np.int64))


def orders(rng: np.random.Generator, orders_in_all: int, rows: int, time: int) -> Any:
    keys = rng.integers(0, orders_in_all, rows)
    ones, days = np.ones(rows, np.int64), pa.array(keys.astype(np.int32))
    return make_updates([pa.array(keys), names(keys), days], np.full(rows, time), ones)


class Pipeline:
    """The join and the reduce, stepped and committed as a driver would."""

    def __init__(self, directory: Path) -> None:
        layouts = {ORDERS: Layout.of_rows(ORDER_TYPES, (0, 1)), ITEMS: Layout.of_rows(ITEM_TYPES, (0, 1))}
        layouts[SUMS] = SHAPE.layout
        self.manifests = {a: Manifest.empty(a, layout, 0) for a, layout in layouts.items()}
        self.directory, self.cache, self.time = directory, BatchCache(directory), 0

    def step(self, stream: Callable[[int], Iterator[tuple[JoinSide, Any]]]) -> float:
        """One step, with its commit and its merges; the milliseconds that the kernels took."""
        now = self.time
        writer = BatchWriter(self.directory, StepId(f"s{now}"))
        context = StepContext(now, now + 1, now == 0, self.manifests, self.cache, writer)
        chunks = list(stream(now))
        begin = time.perf_counter()
        joined = join(context, JOIN, chunks)
        for _ in reduce(context, REDUCE, joined):
            pass
        took = (time.perf_counter() - begin) * 1e3
        self.manifests = {a: self._committed(m, context) for a, m in self.manifests.items()}
        self.time += 1
        return took

    def _committed(self, manifest: Manifest, context: StepContext) -> Manifest:
        refs = context.writer.written.get(manifest.arrangement, [])
        manifest = manifest.append(refs, context.lower, context.upper).allow_compaction(context.upper - 1)
        for task in plan_merges(manifest):
            writer = BatchWriter(self.directory, StepId(f"m{self.time}"))
            manifest = apply(manifest, task, merge(task, manifest.layout, self.cache, writer))
        return manifest


def measure(state_rows: int, deltas: list[int], steps: int) -> dict[str, float]:
    rng = np.random.default_rng(1)
    in_all = state_rows // PER_ORDER
    with tempfile.TemporaryDirectory() as scratch:
        pipeline = Pipeline(Path(scratch))

        def snapshot(now: int) -> Iterator[tuple[JoinSide, Any]]:
            for begin in range(0, state_rows, 1 << 18):
                keys = np.arange(begin, min(begin + (1 << 18), state_rows)) % in_all
                yield JoinSide.RIGHT, items(rng, keys, np.full(len(keys), now))
            yield JoinSide.LEFT, orders(rng, in_all, in_all, now)

        begin = time.perf_counter()
        pipeline.step(snapshot)
        figures = {"hydration_rows_per_s": round(state_rows / (time.perf_counter() - begin))}
        for rows in deltas:
            took = []
            for _ in range(steps):
                took.append(pipeline.step(lambda now, n=rows: iter([(JoinSide.LEFT, orders(rng, in_all, n, now))])))
            figures[f"{rows}_rows_ms_p50"] = round(statistics.median(took[3:]), 3)
            figures[f"{rows}_rows_ms_p95"] = round(statistics.quantiles(took[3:], n=20)[-1], 3)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print one JSON object only")
    parser.add_argument("--steps", type=int, default=40)
    arguments = parser.parse_args()
    deltas, sizes = [100, 10_000], {"1M": 1_000_000, "5M": 5_000_000}
    figures: dict[str, Any] = {label: measure(rows, deltas, arguments.steps) for label, rows in sizes.items()}
    for rows in deltas:
        ratio = figures["5M"][f"{rows}_rows_ms_p50"] / figures["1M"][f"{rows}_rows_ms_p50"]
        figures[f"state_ratio_{rows}_rows"] = round(ratio, 2)
    figures |= heads.measure(arguments.steps, {"100k": 100_000, "1M": 1_000_000})
    if not arguments.json:
        for name, value in figures.items():
            print(name, value)
    print(json.dumps({"bench": "kernels", "figures": figures, "context": {"steps": arguments.steps}}))


if __name__ == "__main__":
    main()
