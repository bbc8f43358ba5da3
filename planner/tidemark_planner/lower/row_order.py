"""ORDER BY, LIMIT and OFFSET: split off the analysed tree of a query.

    GlobalLimit 3               limit 3
      LocalLimit 3
        Offset 2                offset 2
          Project [name]        shown: name alone (n is only read by the order)
            Sort [n DESC]       order: n descending
              Project [name, n]     <- the rows

A Project above a Sort (`FROM t |> ORDER BY n |> SELECT a + 1 AS x |> LIMIT 3`) keeps the order: at the top of a query
it is computed beside the keys of the order, which are not shown; elsewhere it is computed after the limit.

One order and limit is split off at a time: of `(SELECT ... LIMIT 3) LIMIT 1` the outer one. At the top of a query it
becomes the finishing of the result (planning/result_finishing.py). In a view or a subquery, limit and offset become a
TopK, and an order alone is dropped, since a collection is a multiset.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from tidemark_planner.catalyst.json_tree import CatalystNode
from tidemark_planner.errors import unsupported
from tidemark_planner.expressions.constants import fold_constant
from tidemark_planner.expressions.expression import lower_expression
from tidemark_planner.hir.nodes import Project, top_k
from tidemark_planner.hir.nodes import columns as all_columns
from tidemark_planner.lower.base import Context, Lowered, attributes_of
from tidemark_protocol.plan.expr import ColumnRef, ScalarExpr
from tidemark_protocol.plan.lir import OrderKey

_MAX = (1 << 63) - 1
# The attributes of order keys that are computed beside other outputs have ids far from Spark's.
_FIRST_KEY = 1 << 50


@dataclass(frozen=True)
class AttributeOrder:
    """One key of an ORDER BY, over the attributes of the rows."""

    expression: CatalystNode
    descending: bool
    nulls_last: bool


@dataclass(frozen=True)
class OrderAndLimit:
    """`shown`: ids and names of the columns of the result, where these are fewer than those of the rows."""

    order: tuple[AttributeOrder, ...] = ()
    limit: int | None = None
    offset: int = 0
    shown: tuple[tuple[int, str], ...] | None = None


def split_order_and_limit(tree: CatalystNode) -> tuple[CatalystNode, OrderAndLimit]:
    """The tree of the rows, and the order and limit that were around it."""
    node, found = tree, OrderAndLimit()
    if node.kind == "WithCTE":
        *definitions, query = node.children
        rows, found = split_order_and_limit(query)
        return replace(node, children=(*definitions, rows)), found
    if node.kind == "GlobalLimit":
        found = replace(found, limit=_number(node, "limitExpr", "LIMIT"))
        node = node.children[0]
        node = node.children[0] if node.kind == "LocalLimit" else node
    if node.kind == "Offset":
        found = replace(found, offset=_number(node, "offsetExpr", "OFFSET"))
        node = node.children[0]
    if node.kind == "Project" and node.children[0].kind == "Sort":
        outputs, below = node.expressions("projectList"), node.children[0]
        found = replace(found, shown=tuple(zip(*attributes_of(outputs), strict=True)))
        if _computes(node):
            rows, order = _order_above_project(node, sort_keys(below))
            return rows, replace(found, order=order)
        node = below
    if node.kind == "Sort":
        found = replace(found, order=sort_keys(node))
        node = node.children[0]
    return node, found


def _computes(node: CatalystNode) -> bool:
    return any(o.kind != "AttributeReference" for o in node.expressions("projectList"))


def _limit_below_project(node: CatalystNode) -> CatalystNode | None:
    """A limit above a Project above a Sort, rewritten as the Project above the limited rows; None for other trees."""
    links, at = [], node
    while at.kind in ("GlobalLimit", "LocalLimit", "Offset"):
        links.append(at)
        at = at.children[0]
    if at.kind != "Project" or at.children[0].kind != "Sort" or not _computes(at):
        return None
    limited = at.children[0]
    for link in reversed(links):
        limited = replace(link, children=(limited,))
    return replace(at, children=(limited,))


def _order_above_project(
    project: CatalystNode, keys: tuple[AttributeOrder, ...]
) -> tuple[CatalystNode, tuple[AttributeOrder, ...]]:
    """The Project below its Sort, with the keys of the order among its outputs; and the order by these."""
    names = [{"exprId": {"id": -_FIRST_KEY - n}, "name": f"key {n}"} for n in range(len(keys))]
    made = [CatalystNode("Alias", name, (k.expression,)) for name, k in zip(names, keys, strict=True)]
    fields = {**project.fields, "projectList": [*project.expressions("projectList"), *made]}
    order = (replace(k, expression=CatalystNode("AttributeReference", n, ())) for k, n in zip(keys, names, strict=True))
    return replace(project, fields=fields, children=project.children[0].children), tuple(order)


def lower_limit(node: CatalystNode, context: Context) -> Lowered:
    """A limit or an offset in a view or subquery. Ties in its order are broken by the whole row."""
    if (computed := _limit_below_project(node)) is not None:
        return context.lower(computed)
    rows, ordering = split_order_and_limit(node)
    below = context.lower(rows)
    shown = ordering.shown or tuple(zip(below.attributes, below.names, strict=True))
    exprs, order = append_order_keys(below, all_columns(below.hir), ordering.order)
    kept = top_k(Project(below.hir, exprs), (), order, ordering.limit, ordering.offset)
    outputs = tuple(below.columns[attribute] for attribute, _ in shown)
    return Lowered(Project(kept, outputs), tuple(a for a, _ in shown), tuple(n for _, n in shown))


def lower_sort(node: CatalystNode, context: Context) -> Lowered:
    """An order without a limit does not change a multiset."""
    sort_keys(node)
    return context.lower(node.children[0])


def sort_keys(node: CatalystNode) -> tuple[AttributeOrder, ...]:
    if not node.fields.get("global"):
        unsupported("SORT BY", "write ORDER BY")
    return tuple(map(sort_key, node.expressions("order")))


def sort_key(node: CatalystNode) -> AttributeOrder:
    descending = "Descending" in str(node.fields["direction"])
    return AttributeOrder(node.children[0], descending, "NullsLast" in str(node.fields["nullOrdering"]))


def append_order_keys(
    below: Lowered, exprs: tuple[ScalarExpr, ...] | tuple[ColumnRef, ...], keys: tuple[AttributeOrder, ...]
) -> tuple[tuple[ScalarExpr, ...], tuple[OrderKey, ...]]:
    """The expressions, followed by order keys that are not among them; and the order over all of them."""
    placed: list[ScalarExpr] = list(exprs)
    order = []
    for key in keys:
        expr = below.expression(key.expression)
        if expr not in placed:
            placed.append(expr)
        order.append(OrderKey(placed.index(expr), key.descending, key.nulls_last))
    return tuple(placed), tuple(order)


def _number(node: CatalystNode, field: str, clause: str) -> int:
    written = node.expression(field)
    assert written is not None, "a limit has an expression"
    literal = fold_constant(lower_expression(written, {}))
    if literal is None or literal.value is None:
        unsupported(
            f"{clause} with this expression", "write a number, or a sum, difference or product of numbers", clause
        )
    return min(int(literal.value), _MAX)
