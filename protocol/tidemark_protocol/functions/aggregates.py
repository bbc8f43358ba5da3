"""The allow-list of aggregates: how each is kept, what it takes and the type of its result.

    sum(decimal(12,2))  ->  decimal(22,2)     accumulable
    max(string)         ->  string            hierarchical
    string_agg(string)  ->  string            basic; rows in `order`, the separator a parameter
    corr(struct(x, y))  ->  double            accumulable; of pairs none of whose values is NULL

It is short: SQL's other aggregates are these and a projection (any_value is min, bool_and compares two counts, max_by
is a `first` in an order, a median is a percentile, regressions are of variances); the planner writes them so.

NULL arguments are left out by all but `first`; of none, array_agg is an empty array, count 0 and the others NULL.
Functions that depend on an order (`ordered`) take the group's rows in the aggregate's own; the planner ends every order
with the argument, so results never depend on what else is computed.
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
    """`kind`: how it is kept. `parameters`: the types of its constant arguments. `of_rows`: it needs no argument.

    `distinct`: whether equal arguments may be told to count once; where not, it makes no difference.
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


def _same(argument: SqlType) -> SqlType | None:
    return None if argument.name in INTERVAL_TYPES else argument


def _double(argument: SqlType) -> SqlType | None:
    return DOUBLE if argument == DOUBLE else None


def _of_pair(argument: SqlType) -> SqlType | None:
    return DOUBLE if argument.is_struct and [t for _, t in argument.fields] == [DOUBLE, DOUBLE] else None


def _list(argument: SqlType) -> SqlType | None:
    return None if argument.name in INTERVAL_TYPES else SqlType.array(argument)


def _whole(argument: SqlType) -> SqlType | None:
    return argument if argument.is_integral else None


def _text(argument: SqlType) -> SqlType | None:
    return STRING if argument == STRING else None


_ENTRIES = (
    AggregateFunction("count", ACCUMULABLE, _count, of_rows=True, never_null=True),
    AggregateFunction("sum", ACCUMULABLE, _sum),
    AggregateFunction("avg", ACCUMULABLE, _average),
    *(AggregateFunction(n, ACCUMULABLE, _double) for n in ("stddev_samp", "stddev_pop", "var_samp", "var_pop")),
    *(AggregateFunction(n, ACCUMULABLE, _of_pair) for n in ("covar_samp", "covar_pop", "corr")),
    *(AggregateFunction(n, HIERARCHICAL, _same, distinct=False) for n in ("min", "max")),
    AggregateFunction("first", BASIC, _same, ordered=True, distinct=False),
    AggregateFunction("string_agg", BASIC, _text, (STRING,), ordered=True),
    AggregateFunction("array_agg", BASIC, _list, ordered=True, never_null=True),
    AggregateFunction("mode", BASIC, _same, ordered=True),
    *(AggregateFunction(n, BASIC, _double, (DOUBLE,), ordered=True) for n in ("percentile_cont", "percentile_disc")),
    *(AggregateFunction(n, BASIC, _double) for n in ("skewness", "kurtosis")),
    *(AggregateFunction(n, BASIC, _whole) for n in ("bit_and", "bit_or", "bit_xor")),
)
AGGREGATES: dict[str, AggregateFunction] = {f.name: f for f in _ENTRIES}


def result_type(function: str, argument: SqlType | None) -> SqlType | None:
    """The type of the aggregate's result; None: there is no such aggregate. `argument` None: of the row itself."""
    entry = AGGREGATES.get(function)
    if entry is None or (argument is None and not entry.of_rows):
        return None
    return BIGINT if argument is None else entry.result(argument)
