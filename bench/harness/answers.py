"""Results of one query by several engines, compared before times: a fast wrong answer is none."""

from __future__ import annotations

import math
from decimal import Decimal
from typing import Any

import pyarrow as pa

# Where one engine has decimals and the other doubles, they agree to the last decimal that is shown.
TOLERANCE = 2e-6
# More rows than this are compared as columns, and to the last digit.
MANY = 20_000


class WrongAnswer(Exception):
    """An engine's result is not what another one says."""


def check(what: str, ours: pa.Table, theirs: pa.Table) -> None:
    """Raises WrongAnswer unless both hold the same rows, in any order."""
    if ours.num_rows != theirs.num_rows:
        raise WrongAnswer(f"{what}: {ours.num_rows} rows where there should be {theirs.num_rows}")
    if ours.num_rows > MANY:
        _check_many(what, ours, theirs)
        return
    mine, wanted = _rows(ours), _rows(theirs)
    for got, expected in zip(mine, wanted, strict=True):
        if not (len(got) == len(expected) and all(map(_is_equal, got, expected))):
            raise WrongAnswer(f"{what}: the row {got} should be {expected}")


def _check_many(what: str, ours: pa.Table, theirs: pa.Table) -> None:
    if ours.num_columns != theirs.num_columns:
        raise WrongAnswer(f"{what}: {ours.num_columns} columns where there should be {theirs.num_columns}")
    wanted = theirs.rename_columns(ours.column_names).cast(ours.schema)
    by = [(name, "ascending") for name in ours.column_names]
    if not ours.sort_by(by).combine_chunks().equals(wanted.sort_by(by).combine_chunks()):
        raise WrongAnswer(f"{what}: the rows differ")


def _rows(table: pa.Table) -> list[tuple[Any, ...]]:
    """Sorted by their first columns, which are the group's and tell rows apart."""
    return sorted(zip(*(c.to_pylist() for c in table.columns), strict=True), key=lambda row: tuple(map(_order, row)))


def _order(value: Any) -> tuple[bool, Any]:
    return (value is not None, value if value is not None else 0)


def _is_equal(got: Any, expected: Any) -> bool:
    if isinstance(got, Decimal) and isinstance(expected, float):
        return math.isclose(got, expected, rel_tol=0.0, abs_tol=TOLERANCE)
    return bool(got == expected)
