"""The allow-list of aggregates and the types of their results.

sum(decimal(12,2))  ->  decimal(22,2)        avg(int)  ->  double        count(anything)  ->  bigint
"""

from __future__ import annotations

from tidemark_protocol.decimals import bounded
from tidemark_protocol.types import BIGINT, DOUBLE, SqlType

HIERARCHICAL = frozenset({"min", "max"})


def result_type(function: str, argument: SqlType | None) -> SqlType | None:
    """The type of the aggregate's result; None: there is no such aggregate. `argument` None: of the row itself."""
    if function == "count":
        return BIGINT
    if argument is None:
        return None
    if function == "sum":
        return _sum(argument)
    if function == "avg":
        return _average(argument)
    return argument if function in HIERARCHICAL else None


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
