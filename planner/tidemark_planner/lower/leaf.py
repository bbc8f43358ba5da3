"""Leaves: declared relations, inline tables, and the single row of a SELECT without FROM."""

from __future__ import annotations

from tidemark_planner.catalyst.json_tree import CatalystNode
from tidemark_planner.catalyst.spark_types import type_of
from tidemark_planner.errors import CatalystFailed, unsupported
from tidemark_planner.expressions.literals import literal_from
from tidemark_planner.hir.nodes import Values, scan
from tidemark_planner.lower.base import Context, Lowered, attributes_of
from tidemark_protocol.types import INTERVAL_TYPES, ColumnType


def lower_view(node: CatalystNode, context: Context) -> Lowered:
    """A declared relation: Spark wraps its leaf in a View that carries the name. Raises CatalystFailed."""
    name = node.fields["desc"]["identifier"]["table"]
    known = context.leaves.get(name)
    if known is None:
        raise CatalystFailed(f"the analysed plan reads {name}, which was not declared")
    output = node.children[0]
    while output.kind != "LogicalRDD":
        output = output.children[0]
    schema = tuple(ColumnType(c.type, c.nullable) for c in known.columns)
    attributes, names = attributes_of(output.expressions("output"))
    return Lowered(scan(known.id, schema, known.keys, known.monotonic), attributes, names)


def lower_one_row(node: CatalystNode, context: Context) -> Lowered:
    return Lowered(Values(((),), ()), (), ())


def lower_inline(node: CatalystNode, context: Context) -> Lowered:
    """VALUES: Spark has evaluated the rows; they are read as texts."""
    output = node.expressions("output")
    types = [type_of(o.fields["dataType"]) for o in output]
    if any(of.name in INTERVAL_TYPES for of in types):
        unsupported("a column of intervals in VALUES", "write the interval where it is added or compared")
    rows = tuple(
        tuple(literal_from(value, of) for value, of in zip(row, types, strict=True))
        for row in context.inline_rows(output[0].expr_id, types)
    )
    nullable = [any(row[at].value is None for row in rows) for at in range(len(types))]
    schema = tuple(ColumnType(of, n) for of, n in zip(types, nullable, strict=True))
    return Lowered(Values(rows, schema), *attributes_of(output))
