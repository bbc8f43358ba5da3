"""Accumulable aggregates: what each row contributes to a group's state, and how the state is read.

    count(x), any   [k]                     k: rows where x is not NULL (and the filter is true)
    sum, avg        [k, digits ...]         integers and decimals: exact digits (`numbers`)
    sum, avg        [k, nan, +inf, -inf]    floats; their digits are sparse, in slots of their own
    stddev, covar   in `moments.py`

Results are Spark's in ANSI mode: sum(integers) is a bigint, sum(decimal(p,s)) a decimal(p+10,s), and overflow is an
error. avg(decimal) is that of `numbers.averages`. avg(integers) is the exact sum, as a double, over the count; Spark
adds up doubles, which is the same while sums stay below 2^53. Float sums are correctly rounded; Spark's depend on the
order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import pyarrow as pa

from tidemark_replica.arrangement.numbers import MAX_ROWS, averages, digits, floats, small
from tidemark_replica.arrangement.rows.columns import fixed, validity
from tidemark_replica.arrangement.rows.updates import Array, Bools, Ints

NEGATIVE = "NEGATIVE_MULTIPLICITY"
NOT_EMPTY = "ACCUMULATION_NOT_ZERO"
TOO_MANY = "TOO_MANY_ROWS"
OVERFLOW = "ARITHMETIC_OVERFLOW"
OUT_OF_RANGE = "NUMERIC_VALUE_OUT_OF_RANGE"

ANY = "any"
"""The function that is true if any row passes the filter."""


@dataclass(frozen=True)
class ColumnAggregate:
    """`function` (count, sum, avg, a variance, any) over a column of the input; no argument: over the rows."""

    function: str
    argument: int | None
    expression: str
    """The SQL text that error rows show."""
    filter: int | None = None
    """A boolean column; rows where it is not true do not count."""


@dataclass(frozen=True, slots=True)
class FloatState:
    """Digits of floats, or of their products, in many states; row i is digit position `first` + i (numbers.floats)."""

    first: int
    digits: Ints


Split = Callable[[Array], floats.SplitDoubles]
Floating = Sequence[FloatState | None]
"""The digits of each split of an accumulator; None: all are zero."""


@dataclass(frozen=True, slots=True)
class AggregateValues:
    """An aggregate's values in many states, and (code, mask of states) of its failures."""

    values: Array
    failures: tuple[tuple[str, Bools], ...] = ()


class Accumulator(Protocol):
    """The state of one aggregate: its columns, its contributions, and its value."""

    @property
    def width(self) -> int:
        """The number of int64 columns. The first, if any, counts the rows that contribute."""

    @property
    def splits(self) -> tuple[Split, ...]:
        """The digits of every value that it keeps in slots of their own."""

    @property
    def type(self) -> pa.DataType:
        """The type of the result."""

    def contributions(self, column: Array, weights: Ints) -> list[Ints]:
        """The contribution of each row to each column. `weights`: diffs, 0 for rows that do not count."""

    def read(self, rows: Ints, state: Sequence[Ints], floating: Floating) -> AggregateValues:
        """The values in states with `rows` rows and columns `state`."""


@dataclass(frozen=True)
class CountRows:
    """count(*): the group's row count, which every state has."""

    width: int = 0
    splits: tuple[Split, ...] = ()
    type: pa.DataType = pa.int64()

    def contributions(self, column: Array, weights: Ints) -> list[Ints]:
        return []

    def read(self, rows: Ints, state: Sequence[Ints], floating: Floating) -> AggregateValues:
        return AggregateValues(pa.array(rows))


@dataclass(frozen=True)
class CountValues:
    """count(x), or count(*) with a filter."""

    width: int = 1
    splits: tuple[Split, ...] = ()
    type: pa.DataType = pa.int64()

    def contributions(self, column: Array, weights: Ints) -> list[Ints]:
        return [weights]

    def read(self, rows: Ints, state: Sequence[Ints], floating: Floating) -> AggregateValues:
        return AggregateValues(pa.array(state[0]))


@dataclass(frozen=True)
class AnyRow:
    """Whether any row passes the filter."""

    width: int = 1
    splits: tuple[Split, ...] = ()
    type: pa.DataType = pa.bool_()

    def contributions(self, column: Array, weights: Ints) -> list[Ints]:
        return [weights]

    def read(self, rows: Ints, state: Sequence[Ints], floating: Floating) -> AggregateValues:
        return AggregateValues(pa.array(state[0] > 0))


@dataclass(frozen=True)
class IntegerSum:
    """sum and avg of integers."""

    average: bool
    type: pa.DataType
    width: int = 3
    splits: tuple[Split, ...] = ()

    def contributions(self, column: Array, weights: Ints) -> list[Ints]:
        return [weights, *(d * weights for d in digits.of_int64(fixed(column).astype(np.int64)))]

    def read(self, rows: Ints, state: Sequence[Ints], floating: Floating) -> AggregateValues:
        counts, valid = state[0], state[0] != 0
        crowded = (TOO_MANY, rows > MAX_ROWS)
        if self.average:
            total = floats.to_double(state[1:], 0)
            return AggregateValues(nullable(total / np.where(valid, counts, 1), valid), (crowded,))
        if (sums := small.total(np.asarray(state[1:]))) is not None:
            return AggregateValues(nullable(sums, valid), (crowded,))
        value, fits = digits.to_int64(digits.carry(state[1:], 3))
        return AggregateValues(nullable(value, valid), (crowded, (OVERFLOW, ~fits)))


@dataclass(frozen=True)
class DecimalSum:
    """sum and avg of decimal(precision, scale)."""

    average: bool
    type: pa.DataType
    precision: int
    scale: int
    splits: tuple[Split, ...] = ()

    @property
    def width(self) -> int:
        return 1 + digits.decimal_digits(self.precision)

    def contributions(self, column: Array, weights: Ints) -> list[Ints]:
        return [weights, *(d * weights for d in digits.of_decimal(column))]

    def read(self, rows: Ints, state: Sequence[Ints], floating: Floating) -> AggregateValues:
        crowded = rows > MAX_ROWS
        if (reading := self._small(crowded, state)) is not None:
            return reading
        counts, valid = state[0], state[0] != 0
        carried = digits.carry(state[1:], 5)
        values, fits = digits.to_decimal(carried, min(self.precision + 10, 38), self.scale, valid)
        failures = ((TOO_MANY, crowded), (OVERFLOW, ~fits))
        if not self.average:
            return AggregateValues(values, failures)
        valid = valid & ~crowded & (counts > 0)
        values, fits = averages.decimal_average(
            carried, counts, self.scale, self.type.precision, self.type.scale, valid
        )
        return AggregateValues(values, (*failures, (OUT_OF_RANGE, ~fits)))

    def _small(self, crowded: Bools, state: Sequence[Ints]) -> AggregateValues | None:
        """The values if no sum needs more than 64 bits, else None."""
        total, counts = small.total(np.asarray(state[1:])), state[0]
        if total is None:
            return None
        if not self.average:
            made = small.decimals(total, min(self.precision + 10, 38), self.scale, counts != 0)
        else:
            valid = ~crowded & (counts > 0)
            found = small.averages(total, counts, self.scale, self.type.precision, self.type.scale, valid)
            if found is None:
                return None
            made = found
        values, fits = made
        failures = [] if fits is None else [(OUT_OF_RANGE if self.average else OVERFLOW, ~fits)]
        return AggregateValues(values, ((TOO_MANY, crowded), *failures))


def as_doubles(column: Array) -> floats.Doubles:
    """A float column's values as doubles, a copy."""
    with np.errstate(invalid="ignore"):  # a signalling NaN, perhaps under a NULL
        return np.asarray(fixed(column).astype(np.float64))


def split_values(column: Array) -> floats.SplitDoubles:
    """The digits of a float column's values."""
    return floats.split(as_doubles(column))


@dataclass(frozen=True)
class FloatSum:
    """sum and avg of floats and doubles."""

    average: bool
    type: pa.DataType = pa.float64()
    width: int = 4
    splits: tuple[Split, ...] = (split_values,)

    def contributions(self, column: Array, weights: Ints) -> list[Ints]:
        values = as_doubles(column)
        specials = np.isnan(values), values == np.inf, values == -np.inf
        return [weights, *(np.where(s, weights, 0) for s in specials)]

    def read(self, rows: Ints, state: Sequence[Ints], floating: Floating) -> AggregateValues:
        counts, valid = state[0], state[0] != 0
        finite = np.zeros(len(counts))
        if (found := floating[0]) is not None:
            finite = floats.to_double(list(found.digits), 32 * found.first + floats.LEAST_EXPONENT)
        total = floats.with_specials(finite, *state[1:])
        if self.average:
            total = total / np.where(valid, counts, 1)
        return AggregateValues(nullable(total, valid), ((TOO_MANY, rows > MAX_ROWS),))


def weights_of(aggregate: ColumnAggregate, columns: Sequence[Array], diffs: Ints) -> Ints:
    """The rows' diffs, 0 where the argument is NULL or the filter not true."""
    weights = diffs
    if aggregate.argument is not None:
        valid = validity(columns[aggregate.argument])
        weights = weights if valid is None else np.where(valid, weights, 0)
    if aggregate.filter is not None:
        mask = columns[aggregate.filter]
        passed, valid = fixed(mask) != 0, validity(mask)
        weights = np.where(passed if valid is None else passed & valid, weights, 0)
    return weights


def nullable(values: np.ndarray, valid: Bools) -> Array:
    return pa.array(values) if valid.all() else pa.array(values, mask=~valid)
