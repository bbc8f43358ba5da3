"""Shared arrangements as inputs of joins, and the columns of join keys."""

from __future__ import annotations

from collections.abc import Sequence

from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.expr import ColumnRef, ScalarExpr
from tidemark_protocol.plan.lir import Get, Plan
from tidemark_replica.render.plan.fragments import Scope, SharedArrangement


def index_of(scope: Scope, plan: Plan) -> SharedArrangement | None:
    """The imported index, or the arrangement of a binding or object, that a plan reads, if that is all that it does."""
    if not isinstance(plan, Get):
        return None
    if plan.id in scope.arranged:
        return next((a for a in scope.arranged[plan.id] if a.layout.key == key_columns(plan)), None)
    return scope.imported.get(GlobalId(plan.id))


def indexes_of(scope: Scope, plan: Plan) -> list[SharedArrangement]:
    """All arrangements of the collection that a plan reads by an index, or by a key. One dataflow maintains them, so
    their uppers are equal.
    """
    if isinstance(plan, Get) and plan.id in scope.arranged:
        return list(scope.arranged[plan.id]) if plan.key else []
    imports = scope.description.index_imports
    collections = {i.on for i in imports if isinstance(plan, Get) and i.id == plan.id}
    return [scope.imported[i.id] for i in imports if i.on in collections]


def key_columns(get: Get) -> tuple[int, ...] | None:
    """The columns of the key by which a collection is read; None where it is read by none, or not by columns alone."""
    return None if get.key is None else columns_of(get.key)


def columns_of(key: Sequence[ScalarExpr]) -> tuple[int, ...] | None:
    """The positions of a key's columns; None if some part of the key is not a column."""
    columns = tuple(k.index for k in key if isinstance(k, ColumnRef))
    return columns if len(columns) == len(key) else None
