"""Repeats rows by their multiplicity in pieces, so that a million copies of a row are never in memory at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

ROWS_MAX = 65_536
R = TypeVar("R")


def repeated(rows: R, counts: Any, rows_max: int = ROWS_MAX) -> Iterator[R]:
    """Each row of a table or batch as often as its count, in pieces of at most `rows_max` rows."""
    ends = np.cumsum(counts)
    taken: Any = rows
    for start in range(0, int(ends[-1]) if len(ends) else 0, rows_max):
        wanted = np.arange(start, min(start + rows_max, int(ends[-1])))
        yield taken.take(pa.array(np.searchsorted(ends, wanted, "right")))
