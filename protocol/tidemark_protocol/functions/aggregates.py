"""The allow-list of aggregates: how each is kept, its argument and the type of its result.

    sum(decimal(12,2))  ->  decimal(22,2)     accumulable
    max(string)         ->  string            hierarchical
    string_agg(string)  ->  string            basic; rows in `order`, the separator a parameter
    corr(struct(x, y))  ->  double            accumulable; of pairs none of whose values is NULL

The list is short: the planner writes SQL's other aggregates as these and a projection (any_value is min, bool_and
compares two counts, max_by is `first` in an order, a median is a percentile, regressions use variances).

All aggregates but `first` ignore NULL. Of no value, array_agg is an empty array, count is 0, and the others are NULL.
An aggregate that depends on an order (`ordered`) reads the rows of the group in its own order. The planner ends every
order with the argument, so results do not depend on other columns.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemark_protocol.decimals import bounded
from tidemark_protocol.types import BIGINT, DOUBLE, INTERVAL_TYPES, STRING, SqlType

ACCUMULABLE = "accumulable"
HIERARCHICAL = "hierarchical"
BASIC = "basic"
Result = Callable[[SqlType], SqlType | None]


@dataclass(frozen=True)
class AggregateFunction:
    """`kind`: how it is kept. `parameters`: the types of its constant arguments. `of_rows`: it may have no argument.

    `distinct`: whether DISTINCT changes the result; where not, it is not allowed in plans.
    """

    name: str
    kind: str
    result: Result
    parameters: tuple[SqlType, ...] = ()
    ordered: bool = False
    distinct: bool = True
    of_rows: bool = False
    never_null: bool = False


def _count(argument: SqlType) -> SqlType | None:
    return BIGINT


def _sum(argument: SqlType) -> SqlType | None:
    if argument.is_decimal:
        return bounded(argument.precision + 10, argument.scale)
    if argument.is_integral:
        return BIGINT
    return DOUBLE if argument.is_floating else None


def _average(argument: SqlType) -> SqlType | None:
    if argument.is_decimal:
        return bounded(argument.precision + 4, argument.scale + 4)
    return DOUBLE if argument.is_numeric else None


def _non_interval_type(argument: SqlType) -> SqlType | None:
    """The type of the argument, as that of the result; None of an interval, which the aggregate does not take."""
    return None if argument.name in INTERVAL_TYPES else argument


def _double(argument: SqlType) -> SqlType | None:
    return DOUBLE if argument == DOUBLE else None


def _of_pair(argument: SqlType) -> SqlType | None:
    return DOUBLE if argument.is_struct and [t for _, t in argument.fields] == [DOUBLE, DOUBLE] else None


def _list(argument: SqlType) -> SqlType | None:
    return None if argument.name in INTERVAL_TYPES else SqlType.array(argument)


def _integral_type(argument: SqlType) -> SqlType | None:
    """The type of the argument, as that of the result; None of other than integers, which the aggregate does not
    take."""
    return argument if argument.is_integral else None


def _text(argument: SqlType) -> SqlType | None:
    return STRING if argument == STRING else None


_ENTRIES = (
    AggregateFunction("count", ACCUMULABLE, _count, of_rows=True, never_null=True),
    AggregateFunction("sum", ACCUMULABLE, _sum),
    AggregateFunction("avg", ACCUMULABLE, _average),
    *(AggregateFunction(n, ACCUMULABLE, _double) for n in ("stddev_samp", "stddev_pop", "var_samp", "var_pop")),
    *(AggregateFunction(n, ACCUMULABLE, _of_pair) for n in ("covar_samp", "covar_pop", "corr")),
    *(AggregateFunction(n, HIERARCHICAL, _non_interval_type, distinct=False) for n in ("min", "max")),
    AggregateFunction("first", BASIC, _non_interval_type, ordered=True, distinct=False),
    AggregateFunction("string_agg", BASIC, _text, (STRING,), ordered=True),
    AggregateFunction("array_agg", BASIC, _list, ordered=True, never_null=True),
    AggregateFunction("mode", BASIC, _non_interval_type, ordered=True),
    AggregateFunction("percentile_cont", BASIC, _double, (DOUBLE,), ordered=True),
    AggregateFunction("percentile_disc", BASIC, _non_interval_type, (DOUBLE,), ordered=True),
    *(AggregateFunction(n, BASIC, _double) for n in ("skewness", "kurtosis")),
    *(AggregateFunction(n, BASIC, _integral_type) for n in ("bit_and", "bit_or", "bit_xor")),
)
AGGREGATES: dict[str, AggregateFunction] = {f.name: f for f in _ENTRIES}


def result_type(function: str, argument: SqlType | None) -> SqlType | None:
    """The type of the aggregate's result; None where there is no such aggregate.

    `argument` None: over the row itself.
    """
    entry = AGGREGATES.get(function)
    if entry is None or (argument is None and not entry.of_rows):
        return None
    return BIGINT if argument is None else entry.result(argument)
