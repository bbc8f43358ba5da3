"""Which imported indexes an input is, and by which columns it is met."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.expr import ColumnRef, ScalarExpr
from tidemark_protocol.plan.lir import ArrangeBy, Get, Plan
from tidemark_replica.render.plan.fragments import ImportedIndex, Scope


def index_of(scope: Scope, plan: Plan) -> ImportedIndex | None:
    """The imported index that a plan is, if it is one and nothing else."""
    get = _get(plan)
    return None if get is None else scope.imported.get(GlobalId(get.id))


def indexes_of(scope: Scope, plan: Plan) -> list[ImportedIndex]:
    """All imported indexes of the collection whose index a plan is; they are one dataflow's, and complete together."""
    get = _get(plan)
    imports = scope.description.index_imports
    collections = {i.on for i in imports if get is not None and i.id == get.id}
    return [scope.imported[i.id] for i in imports if i.on in collections]


def columns_of(key: Sequence[ScalarExpr]) -> tuple[int, ...] | None:
    """The key's column positions, if it is columns only."""
    columns = tuple(k.index for k in key if isinstance(k, ColumnRef))
    return columns if len(columns) == len(key) else None


def _get(plan: Plan) -> Get | None:
    while isinstance(plan, ArrangeBy):
        plan = plan.input
    return plan if isinstance(plan, Get) else None
