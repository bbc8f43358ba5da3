"""Rows of two engines, compared."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from decimal import Decimal
from typing import Any


def alike(found: Mapping[Any, int], expected: Mapping[Any, int]) -> bool:
    """Whether rows are equal but for the last digits of fractions: DuckDB's averages and quotients are floats."""
    left, right = (sorted(Counter(rows).elements(), key=_order) for rows in (found, expected))
    return len(left) == len(right) and all(map(_alike, left, right))


def _order(row: tuple[Any, ...]) -> Any:
    exact = [value for value in row if not isinstance(value, float | Decimal)]
    return repr(exact), [float(value) for value in row if isinstance(value, float | Decimal)]


def _alike(one: tuple[Any, ...], other: tuple[Any, ...]) -> bool:
    for a, b in zip(one, other, strict=True):
        if isinstance(a, float | Decimal) and isinstance(b, int | float | Decimal):
            if not math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-6):
                return False
        elif a != b:
            return False
    return True
