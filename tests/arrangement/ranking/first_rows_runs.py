"""Random histories of groups, two of them with one hash, and steps of a kernel over them."""

import json
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.arrangement.histories import Driver, colliding, contents, pool, updates
from tidemark_replica.arrangement.spines.manifest import Manifest

LAST = 12


CUTS = ((1000, [2, LAST]), (5, [2, 3, 7, LAST]), (2, list(range(2, LAST + 1))))
"""Chunks of so many rows, and steps that begin and end at these times."""


def random_history(rng: np.random.Generator, types: list[pa.DataType], *, least: int = -2) -> list[tuple]:
    """Rows of two groups whose keys have one hash, and of one that has another."""
    second = colliding(pa.array([1, 2]))
    keys = [(1, second[0]), (2, second[1]), (3, None)]
    pools = [pool(t) for t in types[2:]]
    rows = [(*keys[rng.integers(3)], *(p[rng.integers(len(p))] for p in pools)) for _ in range(12)]
    return [(rows[rng.integers(12)], int(rng.integers(0, LAST)), int(rng.integers(least, 4))) for _ in range(60)]


def run(
    tmp_path: Path,
    kernel: Any,
    spec: Any,
    types: list[pa.DataType],
    layouts: dict,
    rows: list[tuple],
    cuts: list[int],
    rng: np.random.Generator,
    chunk_rows: int,
) -> Counter:
    """All steps of a history: what came out."""
    manifests = [Manifest.empty(a, layout, cuts[0]) for a, layout in layouts.items()]
    driver = Driver(tmp_path / f"{spec.__class__.__name__}{chunk_rows}", *manifests, chunk_rows=chunk_rows)
    result: Counter = Counter()
    for lower, upper in pairwise(cuts):
        step = [(r, max(t, cuts[0]), d) for r, t, d in rows if lower <= max(t, cuts[0]) < upper]
        context = driver.context(lower, upper, hydration=lower == cuts[0])
        for (row, error, time), diff in contents(kernel(context, spec, [updates(types, step)])).items():
            result[row, None if error is None else json.loads(error)["code"], time] += diff
        driver.commit(context, compact=bool(rng.integers(0, 3)))
    return Counter({k: d for k, d in result.items() if d})
