"""A query over one relation as a peek: the relation, the MapFilterProject over its rows, and the finishing.

    SELECT name, n + 1 FROM totals WHERE k = 7 ORDER BY n DESC LIMIT 3

    relation totals, key literal (7)   mfp: filter, map, project   finishing: order, limit

A peek builds no operators: it reads rows that are arranged or stored. A query that needs more (a join, an aggregate,
several relations) is planned as a dataflow (one_shot.py).
"""

from __future__ import annotations

from dataclasses import replace

from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.errors import refuse
from tidemark_planner.expressions.round_trip import check_round_trip
from tidemark_planner.hir.nodes import Scan
from tidemark_planner.lir.mfp import FilterProject, fuse, mfp_of
from tidemark_planner.planning.assemble import fits_wire
from tidemark_planner.planning.result_finishing import FinishedQuery
from tidemark_planner.rules.push_down import push_down
from tidemark_protocol.check.plan import check_mfp
from tidemark_protocol.errors import PlanNotAllowed
from tidemark_protocol.messages.planning import PlannedPeek, PlanQueryRequest, Relation
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal, ScalarExpr, is_nullable
from tidemark_protocol.plan.lir import Get, MapFilterProject, Mfp
from tidemark_protocol.types import Column

_MAX_LITERALS = 1_000
KeyLiterals = tuple[tuple[Literal, ...], ...]


def plan_peek(catalyst: Catalyst, request: PlanQueryRequest, end: FinishedQuery) -> PlannedPeek | None:
    """The peek that answers the query; None: it needs operators. Raises Refusal."""
    base, fused = fuse(push_down(end.hir))
    if not isinstance(base, Scan):
        return None
    relation = next(r for r in request.catalogue.relations if r.id == base.id)
    mfp = _checked(catalyst, base, fused)
    columns = tuple(Column(n, e.type, is_nullable(e)) for n, e in zip(end.names, fused.outputs, strict=True))
    literals, filters = key_literals(relation, mfp.predicates)
    mfp = replace(mfp, predicates=filters)
    return fits_wire(PlannedPeek(relation.id, mfp, end.finishing, columns, literals))


def _checked(catalyst: Catalyst, base: Scan, fused: FilterProject) -> MapFilterProject:
    mfp = mfp_of(base.schema, fused)
    try:
        check_mfp(mfp)
    except PlanNotAllowed as error:
        refuse("TYPE", f"the query is not allowed: {error}; write it in another way")
    try:
        check_round_trip(catalyst, [Mfp(Get(base.id, base.schema), mfp)])
    finally:
        catalyst.drop_relations()
    return mfp


def key_literals(
    relation: Relation, predicates: tuple[ScalarExpr, ...]
) -> tuple[KeyLiterals | None, tuple[ScalarExpr, ...]]:
    """The values that the predicates allow for the index key, and the predicates that are left once the values are
    looked up; None and all predicates where they do not bind all of the key to literals."""
    if not relation.index_key:
        return None, predicates
    values, left = KeyLiterals(((),)), list(predicates)
    for position in relation.index_key:
        bound = next(((p, v) for p in predicates if (v := _allowed_literals(p, position)) is not None), None)
        if bound is None or len(values) * len(bound[1]) > _MAX_LITERALS:
            return None, predicates
        left.remove(bound[0])
        values = tuple((*start, value) for start in values for value in bound[1])
    return values, tuple(left)


def _allowed_literals(predicate: ScalarExpr, position: int) -> tuple[Literal, ...] | None:
    """The literals that the predicate allows for the column at `position`, and no others; None where it does not bind
    the column.

    Floats, arrays and structs are left to the filter: one value has several forms (0.0 and -0.0).
    """
    if not isinstance(predicate, Call) or predicate.function not in ("=", "in"):
        return None
    column, *values = predicate.arguments
    if predicate.function == "=" and isinstance(column, Literal):
        column, values = values[0], [column]
    if not isinstance(column, ColumnRef) or column.index != position or not column.type.is_key_type:
        return None
    literals = tuple(dict.fromkeys(v for v in values if isinstance(v, Literal) and v.value is not None))
    return literals if all(isinstance(v, Literal) for v in values) else None
