"""Scan pushdown: a source knows the conditions of the filter above it, so that it need not read the other rows.

    Compute(d > DATE '1998-01-01' AND f(x))          Compute(... the same ...)
      Source t                              ──>        Source t, conditions: d > 10227

The filter stays: a source leaves out only rows that it can easily tell are dropped (`tidemark_persist.files.pruning`).
A row is dropped if one predicate is false or NULL, whatever other predicates fail, so each predicate that compares a
column with a literal is a condition of its own. Parts of a predicate are not: NULL AND a failing part fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

import pyarrow as pa

from tidemark_persist import Condition, condition
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal, ScalarExpr
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_replica.render.plan.pipeline import Source
from tidemark_replica.values.literals import literal_value

_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def push_down(source: Source, mfp: MapFilterProject) -> Source:
    """The source with the conditions of a MapFilterProject that alone reads it."""
    return replace(source, conditions=tuple(conditions_of(source.names, source.types, mfp.predicates)))


def conditions_of(
    names: Sequence[str], types: Sequence[pa.DataType], predicates: Iterable[ScalarExpr]
) -> Iterator[Condition]:
    """The conditions of a shard's columns (names, types) that rows must meet to pass all predicates."""
    for predicate in predicates:
        if not isinstance(predicate, Call):
            continue
        match predicate.function, predicate.arguments:
            case operator, (ColumnRef() as column, Literal() as literal) if operator in _MIRRORED:
                yield from _condition(names, types, column, operator, literal)
            case operator, (Literal() as literal, ColumnRef() as column) if operator in _MIRRORED:
                yield from _condition(names, types, column, _MIRRORED[operator], literal)


def _condition(
    names: Sequence[str], types: Sequence[pa.DataType], column: ColumnRef, operator: str, literal: Literal
) -> Iterator[Condition]:
    """The condition of a shard's column (not a computed one) and a non-NULL literal of its type."""
    if column.index >= len(names) or literal.type != column.type or literal.value is None:
        return
    try:
        found = condition(names[column.index], types[column.index], operator, literal_value(literal))
    except (ValueError, OverflowError):  # a date of Spark's that Python does not have
        return
    if found is not None:
        yield found
