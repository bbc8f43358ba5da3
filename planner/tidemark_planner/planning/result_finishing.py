"""The finishing of a query that is read once: order, limit, offset, and the columns shown.

SELECT name FROM t ORDER BY n DESC LIMIT 3      rows (name, __order1), finishing: by c1 descending, 3, shown 1

A dataflow keeps the first rows alone, of which the finishing makes the answer.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_planner.hir.nodes import Hir, Project, top_k
from tidemark_planner.lower import Lowered
from tidemark_planner.lower.row_order import OrderAndLimit, append_order_keys
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.plan.expr import ScalarExpr

MOST_FIRST_ROWS = 100_000
"""A limit above this is left to the finishing."""


@dataclass(frozen=True)
class FinishedQuery:
    """`hir`: the rows, with the shown columns first, then columns that only the order reads; `names`: the names of all
    of them.
    """

    hir: Hir
    names: tuple[str, ...]
    finishing: Finishing


def finish_query(lowered: Lowered, ordering: OrderAndLimit) -> FinishedQuery:
    """The rows and the finishing of a query whose order and limit have been split off."""
    columns = lowered.columns
    shown = ordering.shown or tuple(zip(lowered.attributes, lowered.names, strict=True))
    outputs: tuple[ScalarExpr, ...] = tuple(columns[attribute] for attribute, _ in shown)
    exprs, order = append_order_keys(lowered, outputs, ordering.order)
    hidden = range(len(outputs), len(exprs))
    names = (*(name for _, name in shown), *(f"__order{at}" for at in hidden))
    finishing = Finishing(order, ordering.limit, ordering.offset, len(outputs) if hidden else None)
    return FinishedQuery(Project(lowered.hir, exprs), names, finishing)


def first_rows(query: FinishedQuery) -> Hir:
    """The rows that the finishing may show: of a query with an order and a limit the first ones, else all."""
    end = query.finishing
    last = None if end.limit is None else end.limit + end.offset
    if not end.order or not last or last > MOST_FIRST_ROWS:
        return query.hir
    return top_k(query.hir, (), end.order, last)
