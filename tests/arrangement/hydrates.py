"""Run by test_memory.py in its own process: an operator hydrates more state than the process's memory limit.

    python -m tests.arrangement.hydrates KERNEL FOLDER ROWS MEGABYTES

The limit is the operating system's, on what is no mapped file (RLIMIT_DATA), counted from where the process begins.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tests.arrangement.histories import A, Driver
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import make_updates
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.arrangement.step import StepContext
from tidemark_replica.kernels.arrange import arrange
from tidemark_replica.kernels.joins.join import JoinInput, JoinSide, JoinSpec, join
from tidemark_replica.kernels.reduce.accumulate import AccumulatorLayout
from tidemark_replica.kernels.reduce.aggregates import ColumnAggregate
from tidemark_replica.kernels.reduce.reduce import ReduceSpec, reduce

CHUNK = 1 << 14
WIDTH = 400
TYPES = (pa.int64(), pa.string())
SHAPE = AccumulatorLayout(TYPES, (0, 1), (ColumnAggregate("count", None, "count(*)"),))
B = ArrangementId("b")


def rows(count: int, seed: int = 1) -> Iterator[Any]:
    """Updates of a number and a wide text, all different."""
    rng = np.random.default_rng(seed)
    for _ in range(0, count, CHUNK):
        keys = pa.array(rng.integers(0, 1 << 60, CHUNK))
        text = pc.utf8_lpad(keys.cast(pa.string()), WIDTH, "x")
        yield make_updates([keys, text], np.zeros(CHUNK, np.int64), np.ones(CHUNK, np.int64))


def arranged(context: StepContext, count: int) -> Iterator[Any]:
    return arrange(context, A, rows(count))


def reduced(context: StepContext, count: int) -> Iterator[Any]:
    """The texts are keys, so state is as wide as the input."""
    return reduce(context, ReduceSpec(A, SHAPE), rows(count))


def joined(context: StepContext, count: int) -> Iterator[Any]:
    """Both sides are kept; hardly any rows meet."""
    left = ((JoinSide.LEFT, batch) for batch in rows(count // 2))
    right = ((JoinSide.RIGHT, batch) for batch in rows(count // 2, seed=2))
    return join(context, JoinSpec(JoinInput(A, (0, 1)), JoinInput(B, (0, 1))), chain(left, right))


LAYOUT = Layout.of_rows(TYPES, (0,))
KERNELS: Mapping[str, tuple[Callable[[StepContext, int], Iterator[Any]], dict[ArrangementId, Layout]]] = {
    "arrange": (arranged, {A: LAYOUT}),
    "reduce": (reduced, {A: SHAPE.layout}),
    "join": (joined, {A: LAYOUT, B: LAYOUT}),
}


def limit_memory(megabytes: int) -> None:
    """From here on, so much more of it."""
    status = Path("/proc/self/status").read_text()
    held = int(status.split("VmData:")[1].split()[0]) << 10
    most = held + (megabytes << 20)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def main(kernel: str, folder: str, count: int, megabytes: int) -> None:
    run, layouts = KERNELS[kernel]
    manifests = [Manifest.empty(name, layout, 0) for name, layout in layouts.items()]
    driver = Driver(Path(folder), *manifests, chunk_rows=CHUNK, merging=False)
    context = driver.context(0, 1, hydration=True)
    limit_memory(megabytes)
    for _ in run(context, count):
        pass
    driver.commit(context)
    print(sum(m.rows for m in driver.manifests.values()), sum(m.bytes for m in driver.manifests.values()) >> 20)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
