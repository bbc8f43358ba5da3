"""The accumulator of each aggregate function, by the type of its argument."""

from collections.abc import Sequence

import pyarrow as pa

from tidemark_protocol.functions.aggregates import result_type
from tidemark_replica.arrangement.errors import UnsupportedType
from tidemark_replica.kernels.reduce.aggregates import (
    ANY,
    Accumulator,
    AnyRow,
    ColumnAggregate,
    CountRows,
    CountValues,
    DecimalSum,
    FloatSum,
    IntegerSum,
)
from tidemark_replica.kernels.reduce.moments import moment_of
from tidemark_replica.values.arrow_types import arrow_type, sql_type


def accumulator(aggregate: ColumnAggregate, types: Sequence[pa.DataType]) -> Accumulator:
    """Return the accumulator of an aggregate over columns of `types`. Raises UnsupportedType."""
    if aggregate.function == ANY:
        return AnyRow()
    argument = None if aggregate.argument is None else types[aggregate.argument]
    result = result_type(aggregate.function, None if argument is None else sql_type(argument))
    moment = moment_of(aggregate.function)
    if result is None or (moment is None and aggregate.function not in ("count", "sum", "avg")):
        raise UnsupportedType(f"{aggregate.expression}: no accumulable {aggregate.function} of {argument}")
    if moment is not None:
        return moment
    if aggregate.function == "count":
        whole_rows = aggregate.argument is None and aggregate.filter is None
        return CountRows() if whole_rows else CountValues()
    average = aggregate.function == "avg"
    if argument is not None and pa.types.is_decimal(argument):
        return DecimalSum(average, arrow_type(result), argument.precision, argument.scale)
    if pa.types.is_floating(argument):
        return FloatSum(average)
    return IntegerSum(average, arrow_type(result))
