"""Grouping sets: ROLLUP, CUBE and GROUPING SETS, as Spark expands them; and UNPIVOT, which it expands likewise.

    Aggregate keys=[k, x, id] [sum(m)]                    each row once per grouping set, the columns of other sets
      Expand [[m, k, x, 0], [m, k, NULL, 1], ...]         NULL, with the set's number: grouping() reads its bits

The rows below become an object of the dataflow with the columns that are read: computed once, read once per set. As in
Spark, an empty input has no groups, not even for the empty set.
"""

from __future__ import annotations

from typing import Any

from tidemark_planner.catalyst.json_tree import CatalystNode, parse_tree, walk
from tidemark_planner.expressions.expression import lower_expression
from tidemark_planner.hir.nodes import Project, Union, project
from tidemark_planner.hir.nodes import columns as all_columns
from tidemark_planner.lower.base import Context, Lowered, attributes_of
from tidemark_planner.lower.cte import share
from tidemark_protocol.plan.expr import columns_of, map_columns


def lower_expand(node: CatalystNode, context: Context, reader: CatalystNode | None = None) -> Lowered:
    """The expanded rows with the columns that `reader` reads; None: with all columns (UNPIVOT)."""
    attributes, names = attributes_of(node.expressions("output"))
    read = set(attributes) if reader is None else _attributes_read(reader)
    kept = [at for at, attribute in enumerate(attributes) if attribute in read]
    below = context.lower(node.children[0])
    sets = [tuple(lower_expression(parse_tree(row[at]), below.columns) for at in kept) for row in _projections(node)]
    used = sorted({c for exprs in sets for e in exprs for c in columns_of(e)})
    narrow = Project(below.hir, tuple(all_columns(below.hir)[c] for c in used))
    rows = share(narrow, context) if len(sets) > 1 else narrow
    made = tuple(project(rows, tuple(map_columns(e, used.index) for e in exprs)) for exprs in sets)
    return Lowered(
        made[0] if len(made) == 1 else Union(made),
        tuple(attributes[at] for at in kept),
        tuple(names[at] for at in kept),
    )


def _projections(node: CatalystNode) -> list[list[Any]]:
    """One list of expressions per grouping set."""
    return list(node.fields["projections"])


def _attributes_read(reader: CatalystNode) -> set[int]:
    fields = (*reader.expressions("groupingExpressions"), *reader.expressions("aggregateExpressions"))
    trees = [n for field in fields for n in walk(field)]
    filters = [n for tree in trees if (only := tree.expression("filter")) is not None for n in walk(only)]
    return {n.expr_id for n in (*trees, *filters) if n.kind == "AttributeReference"}
