"""Results of one query by several engines, compared before times: a fast wrong answer is none."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

# Where one engine has decimals and the other doubles, they agree to the last decimal that is shown.
TOLERANCE = 2e-6


class WrongAnswer(Exception):
    """An engine's result is not what another one says."""


def check(what: str, ours: pa.Table, theirs: pa.Table) -> None:
    """Raises WrongAnswer unless both hold the same rows, in any order."""
    mine, wanted = _rows(ours), _rows(theirs)
    if len(mine) != len(wanted):
        raise WrongAnswer(f"{what}: {len(mine)} rows where there should be {len(wanted)}")
    for got, expected in zip(mine, wanted, strict=True):
        if not (len(got) == len(expected) and all(map(_same, got, expected))):
            raise WrongAnswer(f"{what}: the row {got} should be {expected}")


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Sorted by their first columns, which are the group's and tell rows apart."""
    return sorted(zip(*(c.to_pylist() for c in table.columns), strict=True), key=lambda row: tuple(map(_order, row)))


def _order(value: Any) -> tuple[bool, Any]:
    return (value is not None, value if value is not None else 0)


def _same(got: Any, expected: Any) -> bool:
    if isinstance(got, Decimal) and isinstance(expected, float):
        return math.isclose(got, expected, rel_tol=0.0, abs_tol=TOLERANCE)
    return bool(got == expected)
