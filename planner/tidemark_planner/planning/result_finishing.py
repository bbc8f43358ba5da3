"""What is done at the end to the rows of a query that is read once: order, limit, offset, and the columns shown.

SELECT name FROM t ORDER BY n DESC LIMIT 3      rows (name, __order1), finishing: by c1 descending, 3, shown 1
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_planner.hir.nodes import Hir, Project
from tidemark_planner.lower import Lowered
from tidemark_planner.lower.row_order import Trimmings, with_order
from tidemark_protocol.messages.planning import Finishing
from tidemark_protocol.plan.expr import ScalarExpr


@dataclass(frozen=True)
class Finished:
    """The rows with the columns shown first, then those that are only ordered by; their names; the end."""

    hir: Hir
    names: tuple[str, ...]
    finishing: Finishing


def finished(lowered: Lowered, trimmings: Trimmings) -> Finished:
    columns = lowered.columns
    shown = trimmings.shown or tuple(zip(lowered.attributes, lowered.names, strict=True))
    outputs: tuple[ScalarExpr, ...] = tuple(columns[attribute] for attribute, _ in shown)
    exprs, order = with_order(lowered, outputs, trimmings.order)
    hidden = range(len(outputs), len(exprs))
    names = (*(name for _, name in shown), *(f"__order{at}" for at in hidden))
    finishing = Finishing(order, trimmings.limit, trimmings.offset, len(outputs) if hidden else None)
    return Finished(Project(lowered.hir, exprs), names, finishing)
