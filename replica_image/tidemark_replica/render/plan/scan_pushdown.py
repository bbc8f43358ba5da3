"""A source is told what the filter behind it lets through, so that it need not read the rest.

    Compute(d > DATE '1998-01-01' AND f(x))          Compute(... the same ...)
      Source t                              ──>        Source t, conditions: d > 10227

The filter stays: a source leaves out what is surely dropped, where that is easily seen
(`tidemark_persist.files.pruning`). A row is dropped if one predicate is false or NULL, whatever else fails; so each
predicate that compares a column with a literal is a condition by itself. Within a predicate it is not so: NULL AND
what fails is what fails.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tidemark_persist import Condition, condition
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal, ScalarExpr
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_replica.render.plan.pipeline import Source
from tidemark_replica.values.literals import literal_value

_MIRRORED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def push_down(source: Source, mfp: MapFilterProject) -> Source:
    """The source, for this MapFilterProject alone."""
    found = (each for predicate in mfp.predicates for each in _conditions(source, predicate))
    return replace(source, conditions=tuple(found))


def _conditions(source: Source, predicate: ScalarExpr) -> Iterator[Condition]:
    if not isinstance(predicate, Call):
        return
    match predicate.function, predicate.arguments:
        case operator, (ColumnRef() as column, Literal() as literal) if operator in _MIRRORED:
            yield from _condition(source, column, operator, literal)
        case operator, (Literal() as literal, ColumnRef() as column) if operator in _MIRRORED:
            yield from _condition(source, column, _MIRRORED[operator], literal)


def _condition(source: Source, column: ColumnRef, operator: str, literal: Literal) -> Iterator[Condition]:
    """Of a column of the shard, not a computed one, and a literal of its type that is not NULL."""
    if column.index >= len(source.names) or literal.type != column.type or literal.value is None:
        return
    try:
        value = literal_value(literal)
        found = condition(source.names[column.index], source.types[column.index], operator, value)
    except (ValueError, OverflowError):  # a date of Spark's that Python does not have
        return
    if found is not None:
        yield found
