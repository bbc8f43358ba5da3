"""Second moments: variances, covariances and correlations, from exact sums of values and products.

    stddev, var     [k, nan, +inf, -inf]           digits of x and of x * x
    covar           [k, x not finite, y not ...]   digits of x, y and x * y, of pairs (a struct) without NULLs
    corr            the same                       and of x * x and y * y

As in Spark, a NaN or an infinity makes the result NaN. The sample variance of one value is NULL. A correlation is NULL
where one side does not vary, that is, where its exact variance is 0, whatever the other side holds.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.numbers import MAX_ROWS, floats
from tidemark_replica.arrangement.numbers.variances import Sums, covariance
from tidemark_replica.arrangement.rows.nested_columns import fields
from tidemark_replica.arrangement.rows.updates import Array, Bools, Ints
from tidemark_replica.kernels.reduce.aggregates import (
    NEGATIVE,
    TOO_MANY,
    Accumulator,
    AggregateValues,
    Floating,
    FloatState,
    FloatSum,
    Split,
    as_doubles,
    nullable,
    split_values,
)


@dataclass(frozen=True)
class Variance:
    """var_pop, var_samp, and their roots; negative only if some multiplicity is."""

    sample: bool
    root: bool
    type: pa.DataType = pa.float64()
    width: int = 4

    @property
    def splits(self) -> tuple[Split, ...]:
        return split_values, lambda column: floats.split_products(as_doubles(column), as_doubles(column))

    def contributions(self, column: Array, weights: Ints) -> list[Ints]:
        return FloatSum(average=False).contributions(column, weights)

    def read(self, rows: Ints, state: Sequence[Ints], floating: Floating) -> AggregateValues:
        special = (state[1] != 0) | (state[2] != 0) | (state[3] != 0)
        result, valid = _moment(rows, state[0], self.sample, floating, (0, 0, 1))
        negative, result = valid & ~special & (result < 0), np.maximum(result, 0)
        result = np.where(special, np.nan, np.sqrt(result) if self.root else result)
        return AggregateValues(nullable(result, valid), ((TOO_MANY, rows > MAX_ROWS), (NEGATIVE, negative)))


@dataclass(frozen=True)
class Covariance:
    """covar_pop and covar_samp of pairs."""

    sample: bool
    type: pa.DataType = pa.float64()
    width: int = 3

    @property
    def splits(self) -> tuple[Split, ...]:
        return _split_field(0), _split_field(1), _split_product(0, 1)

    def contributions(self, column: Array, weights: Ints) -> list[Ints]:
        finite = (np.isfinite(as_doubles(f)) for f in fields(column))
        return [weights, *(np.where(f, 0, weights) for f in finite)]

    def read(self, rows: Ints, state: Sequence[Ints], floating: Floating) -> AggregateValues:
        result, valid = _moment(rows, state[0], self.sample, floating, (0, 1, 2))
        special = (state[1] != 0) | (state[2] != 0)
        return AggregateValues(nullable(np.where(special, np.nan, result), valid), ((TOO_MANY, rows > MAX_ROWS),))


@dataclass(frozen=True)
class Correlation:
    """corr of pairs."""

    type: pa.DataType = pa.float64()
    width: int = 5
    """Two of the columns only make a row of state wide enough for its digits."""

    @property
    def splits(self) -> tuple[Split, ...]:
        return (
            _split_field(0),
            _split_field(1),
            _split_product(0, 1),
            _split_product(0, 0),
            _split_product(1, 1),
        )

    def contributions(self, column: Array, weights: Ints) -> list[Ints]:
        nothing = np.zeros_like(weights)
        return [*Covariance(sample=False).contributions(column, weights), nothing, nothing]

    def read(self, rows: Ints, state: Sequence[Ints], floating: Floating) -> AggregateValues:
        moments = ((0, 1, 2), (0, 0, 3), (1, 1, 4))
        (both, several), (x, _), (y, _) = (_moment(rows, state[0], True, floating, m) for m in moments)
        (special_x, special_y) = (state[i] != 0 for i in (1, 2))
        special = special_x | special_y
        flat = (~special_x & (x == 0)) | (~special_y & (y == 0))
        failures = ((TOO_MANY, rows > MAX_ROWS), (NEGATIVE, several & ~special & ((x < 0) | (y < 0))))
        roots = np.sqrt(np.where(x > 0, x, 1)) * np.sqrt(np.where(y > 0, y, 1))
        result = np.where(special, np.nan, both / np.where(flat, 1, roots))
        return AggregateValues(nullable(result, several & ~flat), failures)


def moment_of(function: str) -> Accumulator | None:
    """The accumulator of a function of doubles, or of pairs of doubles; None for other functions."""
    return _MOMENTS.get(function)


_MOMENTS: dict[str, Accumulator] = {
    "var_pop": Variance(sample=False, root=False),
    "var_samp": Variance(sample=True, root=False),
    "stddev_pop": Variance(sample=False, root=True),
    "stddev_samp": Variance(sample=True, root=True),
    "covar_pop": Covariance(sample=False),
    "covar_samp": Covariance(sample=True),
    "corr": Correlation(),
}


def _split_field(field: int) -> Split:
    """The function that splits the values of one field of a pair."""
    return lambda column: split_values(fields(column)[field])


def _split_product(one: int, other: int) -> Split:
    """The function that splits the products of two fields of a pair."""
    return lambda column: floats.split_products(as_doubles(fields(column)[one]), as_doubles(fields(column)[other]))


def _moment(
    rows: Ints, counts: Ints, sample: bool, floating: Floating, of: tuple[int, int, int]
) -> tuple[floats.Doubles, Bools]:
    """The covariance of two splits, given the split of their products, and a mask of the states that have one."""
    valid = counts > (1 if sample else 0)
    sums = [floating[i] for i in of]
    if any(s is None for s in sums):
        return np.zeros(len(counts)), valid
    n = np.where(valid & (rows <= MAX_ROWS), counts, 2)
    return covariance(n, n - 1 if sample else n, *(_sums(s) for s in sums if s is not None)), valid


def _sums(state: FloatState) -> Sums:
    return Sums(state.first, list(state.digits))
