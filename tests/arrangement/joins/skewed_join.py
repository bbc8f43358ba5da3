"""A process of its own, whose peak memory is looked at: two or three inputs, all rows of one key.

    python -m tests.arrangement.joins.skewed_join linear|delta ROWS FOLDER     prints the bytes that its peak grew by

The matches are rows x rows (x rows): so many slices are taken, which would be all of a naive join's first chunk.
"""

from __future__ import annotations

import resource
import sys
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.arrangement.histories import Driver
from tests.arrangement.joins.test_delta_join import SHAPES, TYPES, name
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import Updates, make_updates
from tidemark_replica.arrangement.spines.manifest import Manifest
from tidemark_replica.kernels.joins.delta_join import DeltaSpec, delta_join
from tidemark_replica.kernels.joins.join import JoinInput, JoinSide, JoinSpec, join

SLICES = 12
BATCH = 1 << 16


def one_key(rows: int) -> Iterator[Updates]:
    """Rows (7, n) at time 0."""
    for start in range(0, rows, BATCH):
        values = np.arange(start, min(start + BATCH, rows))
        zeros, ones = np.zeros(len(values), np.int64), np.ones(len(values), np.int64)
        yield make_updates([pa.array(zeros + 7), pa.array(values)], zeros, ones)


def joined(kind: str, rows: int, folder: Path, *, hydration: bool) -> Iterator[Any]:
    """The output of a step in which all inputs get their rows."""
    driver = Driver(folder, *(Manifest.empty(name(n, 0), Layout.of_rows(TYPES, [0]), 0) for n in range(3)))
    context = driver.context(0, 1, hydration=hydration)
    if kind == "delta":
        return delta_join(
            context,
            DeltaSpec(SHAPES["three by one key"].paths(frozenset()), TYPES * 3),
            [one_key(rows) for _ in range(3)],
        )
    sides = ((side, batch) for side in JoinSide for batch in one_key(rows))
    return join(context, JoinSpec(JoinInput(name(0, 0), (0, 1)), JoinInput(name(1, 0), (1,))), sides)


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    kind, rows, folder = sys.argv[1], int(sys.argv[2]), Path(sys.argv[3])
    for _ in joined(kind, 1000 if kind == "linear" else 100, folder / "warm", hydration=True):
        pass
    before = peak()
    for hydration in (True, False):
        made = sum(
            part.num_rows for part in islice(joined(kind, rows, folder / str(hydration), hydration=hydration), SLICES)
        )
        assert made > rows, "the join has hardly begun"
    print(peak() - before)
