"""The rows of a selection (selection.py), computed by Arrow in the operator.

    rows of the relation ──map, filter, project──► columns of the plan ──order, offset, limit──► Arrow IPC stream

The answer is that of a replica, row for row in the same order: NULL where the order key says, ties by all columns.
Arrow takes 50 MB, so this module is imported when somebody asks.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from tidemark_operator.introspection.relations import Row
from tidemark_protocol.messages.planning import Finishing, PlannedPeek
from tidemark_protocol.messages.responses import PeekRows
from tidemark_protocol.plan.expr import ColumnRef, Literal, ScalarExpr
from tidemark_protocol.plan.map_filter_project import MapFilterProject
from tidemark_protocol.plan.reductions import OrderKey
from tidemark_protocol.types import BIGINT, BOOLEAN, INT, STRING, Column, SqlType

Values = Any
"""One value for each row, as an Arrow array; or an Arrow scalar, for all rows."""
_ARROW = {STRING: pa.string(), BIGINT: pa.int64(), INT: pa.int32(), BOOLEAN: pa.bool_()}
_OF_TWO = {
    "=": pc.equal,
    "<": pc.less,
    "<=": pc.less_equal,
    ">": pc.greater,
    ">=": pc.greater_equal,
    "and": pc.and_kleene,
    "or": pc.or_kleene,
}
_OF_ONE = {"not": pc.invert, "is_null": pc.is_null, "is_not_null": pc.is_valid}
_OF_PATTERN = {
    "startswith": pc.starts_with,
    "endswith": pc.ends_with,
    "contains": pc.match_substring,
    "like": pc.match_like,
}


def select(rows: Sequence[Row], columns: Sequence[Column], peek: PlannedPeek) -> PeekRows:
    """The answer to a plan for which `is_selection` holds. `rows`: those of the relation, with its `columns`."""
    made = [pa.array([row[at] for row in rows], _ARROW[column.type]) for at, column in enumerate(columns)]
    kept = _finished(_projected(made, len(rows), peek.mfp), peek.finishing)
    shown = peek.columns[: peek.finishing.shown]
    answer = pa.Table.from_arrays(kept.columns, schema=pa.schema([(c.name, _ARROW[c.type]) for c in shown]))
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, answer.schema) as writer:
        writer.write_table(answer)
    return PeekRows(sink.getvalue().to_pybytes(), answer.num_rows)


def _projected(columns: list[Values], count: int, mfp: MapFilterProject) -> pa.Table:
    for expression in mfp.expressions:
        columns.append(_value(expression, columns))
    kept = reduce(pc.and_kleene, [_value(predicate, columns) for predicate in mfp.predicates], pa.scalar(True))
    at = pc.indices_nonzero(_array(kept, count))
    projection = range(len(columns)) if mfp.projection is None else mfp.projection
    shown = [_array(columns[n], len(at)) if _is_scalar(columns[n]) else columns[n].take(at) for n in projection]
    return pa.table(shown, names=[str(n) for n, _ in enumerate(projection)])


def _is_scalar(values: Values) -> bool:
    return isinstance(values, pa.Scalar)


def _array(values: Values, count: int) -> Values:
    return pa.repeat(values, count) if _is_scalar(values) else values


def _value(expression: ScalarExpr, columns: Sequence[Values]) -> Values:
    if isinstance(expression, ColumnRef):
        return columns[expression.index]
    if isinstance(expression, Literal):
        return pa.scalar(_python(expression.value, expression.type), _ARROW[expression.type])
    name, (first, *others) = expression.function, expression.arguments
    if name in _OF_PATTERN:
        pattern = others[0]
        assert isinstance(pattern, Literal)
        return _OF_PATTERN[name](_value(first, columns), pattern.value)
    values = [_value(argument, columns) for argument in expression.arguments]
    if name in _OF_ONE:
        return _OF_ONE[name](*values)
    if name == "in":
        return reduce(pc.or_kleene, [pc.equal(values[0], value) for value in values[1:]])
    if name == "<=>":
        both = pc.and_(pc.is_null(values[0]), pc.is_null(values[1]))
        return pc.or_(pc.fill_null(pc.equal(*values), False), both)
    return reduce(_OF_TWO[name], values)


def _python(value: str | None, of: SqlType) -> str | int | bool | None:
    if value is None or of == STRING:
        return value
    return value == "true" if of == BOOLEAN else int(value)


def _finished(rows: pa.Table, finishing: Finishing) -> pa.Table:
    if finishing.order:
        rows = rows.take(_sorted_indices(rows, finishing.order))
    rows = rows.slice(finishing.offset, finishing.limit)
    return rows if finishing.shown is None else rows.select(list(range(finishing.shown)))


def _sorted_indices(rows: pa.Table, order: Sequence[OrderKey]) -> Values:
    named = {key.column for key in order}
    keys: list[tuple[Values, str]] = []
    for key in (*order, *(OrderKey(at) for at in range(rows.num_columns) if at not in named)):
        values = rows.column(key.column)
        keys.append((pc.is_null(values).cast(pa.int8()), "ascending" if key.nulls_last else "descending"))
        sortable = values.cast(pa.int8()) if pa.types.is_boolean(values.type) else values
        keys.append((sortable, "descending" if key.descending else "ascending"))
    names = [str(n) for n, _ in enumerate(keys)]
    by = [(name, direction) for name, (_, direction) in zip(names, keys, strict=True)]
    return pc.sort_indices(pa.table([values for values, _ in keys], names=names), sort_keys=by)
