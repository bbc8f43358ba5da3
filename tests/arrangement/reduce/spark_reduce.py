"""A reduce run inside Spark's Python workers, beside the same aggregation in Spark SQL."""

import gc
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa

from tests.arrangement.histories import unscaled
from tidemark_replica.arrangement.batches.batch_cache import BatchCache
from tidemark_replica.arrangement.rows.updates import make_updates, update_schema
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.step import BatchWriter, StepContext, StepId
from tidemark_replica.kernels.reduce.accumulate import AccumulatorLayout
from tidemark_replica.kernels.reduce.aggregates import ColumnAggregate
from tidemark_replica.kernels.reduce.reduce import ReduceSpec, reduce

TYPES = (
    pa.int64(),
    pa.int32(),
    pa.decimal128(15, 2),
    pa.decimal128(38, 36),
    pa.decimal128(38, 10),
    pa.float64(),
    pa.float32(),
)
_ARGUMENTS = range(1, len(TYPES))
SHAPE = AccumulatorLayout(
    TYPES,
    (0,),
    (
        ColumnAggregate("count", None, "count(*)"),
        *(ColumnAggregate(f, c, f"{f}(c{c})") for f in ("count", "sum", "avg") for c in _ARGUMENTS),
    ),
)
SQL = (
    "SELECT c0, count(*), "
    + ", ".join(f"{f}(c{c})" for f in ("count", "sum", "avg") for c in _ARGUMENTS)
    + " FROM t GROUP BY c0"
)


def inputs() -> pa.Table:
    """Groups of 1 to 60 rows whose averages meet ties at up to 38 digits; float sums are exact in any order."""
    rng = np.random.default_rng(11)
    rows = []
    for group in range(60):
        size = group + 1
        for _ in range(size):
            rows.append(
                (
                    group,
                    None if rng.integers(0, 9) == 0 else int(rng.integers(-(2**31), 2**31)),
                    unscaled(int(rng.integers(-(10**14), 10**14)), 2),
                    unscaled(int(rng.integers(-(10**6), 10**6)), 36),
                    None if rng.integers(0, 9) == 0 else unscaled(int(rng.integers(-(10**18), 10**18)), 10),
                    float(rng.integers(-1000, 1000)) / 8,
                    float(rng.integers(-1000, 1000)) / 4,
                )
            )
    rows += [(60, None, None, None, None, None, None), (None, 7, Decimal("0.05"), None, None, float("nan"), -0.0)]
    columns = [pa.array(c, t) for c, t in zip(zip(*rows, strict=True), TYPES, strict=True)]
    return pa.Table.from_arrays(columns, names=[f"c{i}" for i in range(len(TYPES))])


def run_in_workers(frame, directory: Path) -> tuple[pa.Table, int]:
    """The reduce's output rows over the frame (as one hydration step), and what is frozen in the worker."""
    state = Manifest.empty(ArrangementId("state"), SHAPE.layout, 5).to_json()

    def kernel(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        manifest = Manifest.from_json(state)
        writer = BatchWriter(directory, StepId("s1"))
        context = StepContext(5, 6, True, {manifest.arrangement: manifest}, BatchCache(directory), writer)
        updates = (as_updates(b) for b in batches)
        for out in reduce(context, ReduceSpec(manifest.arrangement, SHAPE), updates):
            frozen = pa.array(np.full(out.num_rows, gc.get_freeze_count()))
            yield out.append_column("frozen", frozen)

    output = update_schema(SHAPE.output_types).append(pa.field("frozen", pa.int64()))
    from pyspark.sql.pandas.types import from_arrow_schema

    result = frame.coalesce(1).mapInArrow(kernel, from_arrow_schema(output)).toArrow()
    assert list(directory.glob("state/*.arrow"))
    assert result["__diff"].to_pylist() == [1] * result.num_rows
    assert result["__error"].null_count == result.num_rows
    return result.select(range(len(SHAPE.output_types))), result["frozen"][0].as_py()


def as_updates(batch: pa.RecordBatch) -> pa.RecordBatch:
    assert tuple(batch.schema.types) == TYPES
    n = batch.num_rows
    return make_updates(batch.columns, np.full(n, 5), np.ones(n, np.int64))
