"""Repeats rows by their multiplicity in pieces, so that a million copies of a row are never in memory at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

ROWS_MAX = 65_536
R = TypeVar("R")


def repeated(rows: R, counts: Any) -> Iterator[R]:
    """Each row of a table or batch as often as its count, in pieces of at most ROWS_MAX rows."""
    ends = np.cumsum(counts)
    taken: Any = rows
    for start in range(0, int(ends[-1]) if len(ends) else 0, ROWS_MAX):
        wanted = np.arange(start, min(start + ROWS_MAX, int(ends[-1])))
        yield taken.take(pa.array(np.searchsorted(ends, wanted, "right")))
