"""Top-k and min/max of one large group: the cost of a step of 100 rows must not follow the group's size.

Lines of `python -m bench.parts.kernels`, by CPU time.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tidemark_protocol.plan.reductions import OrderKey
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import make_updates
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.spines.spine import apply, plan_merges
from tidemark_replica.arrangement.step import BatchWriter, StepContext, StepId, merge
from tidemark_replica.kernels.ranking.extremes import Extreme, ExtremesShape, ExtremesSpec, SortedValue, extremes
from tidemark_replica.kernels.ranking.ranking import Ranking
from tidemark_replica.kernels.ranking.state import RankingStateSpec
from tidemark_replica.kernels.ranking.top_k import TopKSpec, top_k

TYPES = (pa.int64(), pa.decimal128(15, 2), pa.string())
FIRST_TEN = Ranking(TYPES, (0,), (OrderKey(1, descending=True),), 0, 10)
EXTREMES = ExtremesShape(
    TYPES, (0,), (Extreme(SortedValue(1, False), "min(price)"), Extreme(SortedValue(1, True), "max(price)"))
)
FIRST = ArrangementId("first")
DELTA = 100


def measure(steps: int, sizes: Mapping[str, int]) -> dict[str, Any]:
    """Medians in milliseconds of CPU by the size of the group, and the ratio of the largest to the smallest."""
    states = {ArrangementId(f"extreme{i}"): EXTREMES.ranking(v).layout for i, v in enumerate(EXTREMES.values)}
    made: dict[str, Any] = {}
    for name, kernel, spec, layouts in (
        ("top_10", top_k, TopKSpec(RankingStateSpec(FIRST), FIRST_TEN), {FIRST: FIRST_TEN.layout}),
        ("min_max", extremes, ExtremesSpec(EXTREMES, tuple(RankingStateSpec(a) for a in states)), states),
    ):
        found = {label: _steps(kernel, spec, layouts, rows, steps) for label, rows in sizes.items()}
        times = [f[f"{DELTA}_rows_ms_p50"] for f in found.values()]
        made[name] = {**found, f"group_ratio_{DELTA}_rows": round(times[-1] / times[0], 2)}
    return made


def _rows(rng: np.random.Generator, rows: int, at: int) -> Any:
    """Rows of the one group: random prices and a word."""
    words = np.column_stack([rng.integers(100, 10_000_000_000, rows), np.zeros(rows, np.int64)])
    price = pa.Array.from_buffers(TYPES[1], rows, [None, pa.py_buffer(words)])
    flags = pa.array(["A", "N", "R", "a longer flag"]).take(pa.array(rng.integers(0, 4, rows)))
    key = pa.array(np.zeros(rows, np.int64))
    return make_updates([key, price, flags], np.full(rows, at), np.ones(rows, np.int64))


def _steps(
    kernel: Callable[[StepContext, Any, Iterable[Any]], Iterator[Any]],
    spec: Any,
    layouts: Mapping[Any, Layout],
    rows: int,
    steps: int,
) -> dict[str, float]:
    rng = np.random.default_rng(1)
    took = []
    with tempfile.TemporaryDirectory() as scratch:
        directory = Path(scratch)
        cache = BatchCache(directory)
        manifests = {a: Manifest.empty(a, layout, 0) for a, layout in layouts.items()}
        for now in range(steps + 1):
            writer = BatchWriter(directory, StepId(f"s{now}"))
            context = StepContext(now, now + 1, now == 0, manifests, cache, writer)
            sizes = [min(1 << 18, rows - at) for at in range(0, rows, 1 << 18)] if now == 0 else [DELTA]
            chunks = [_rows(rng, size, now) for size in sizes]
            begin = time.process_time()
            for _ in kernel(context, spec, chunks):
                pass
            took.append((time.process_time() - begin) * 1e3)
            manifests = {a: _committed(m, context, directory) for a, m in manifests.items()}
    return {
        "hydration_cpu_s": round(took[0] / 1e3, 2),
        f"{DELTA}_rows_ms_p50": round(statistics.median(took[3:]), 3),
    }


def _committed(manifest: Manifest, context: StepContext, directory: Path) -> Manifest:
    refs = context.writer.written.get(manifest.arrangement, [])
    manifest = manifest.append(refs, context.lower, context.upper).allow_compaction(context.upper - 1)
    for task in plan_merges(manifest):
        writer = BatchWriter(directory, StepId(f"m{context.lower}"))
        manifest = apply(manifest, task, merge(task, manifest.layout, context.cache, writer))
    return manifest
