"""Project and Filter. EXISTS and IN (subquery) in a WHERE become semi and anti joins.

WHERE EXISTS (u) AND a NOT IN (SELECT b FROM v) AND x > 1

Filter [x > 1]
  Match anti   with v on a = b;  with v where b is NULL;  with v if a is NULL
    Match semi   with u
"""

from __future__ import annotations

from tidemark_planner.catalyst.json_tree import CatalystNode
from tidemark_planner.hir.nodes import Filter, Hir, Match, MatchKind, Project
from tidemark_planner.lower.base import Context, Lowered, attributes_of
from tidemark_planner.lower.subquery import (
    SubqueryColumns,
    correlation,
    has_subquery,
    membership,
    rows_of,
    select_columns,
    shared_rows,
)


def lower_project(node: CatalystNode, context: Context) -> Lowered:
    below = context.lower(node.children[0])
    outputs = node.expressions("projectList")
    exprs = tuple(below.expression(o) for o in outputs)
    return Lowered(Project(below.hir, exprs), *attributes_of(outputs))


def lower_filter(node: CatalystNode, context: Context) -> Lowered:
    below = context.lower(node.children[0])
    condition = node.expression("condition")
    if condition is None or not has_subquery(condition):
        own = () if condition is None else (below.expression(condition),)
        return Lowered(Filter(below.hir, own), below.attributes, below.names)
    rows, rest = below, []
    for each in _conjuncts(condition):
        matched = _semi_or_anti_join(each, rows, context)
        if matched is None:
            rest.append(each)
        else:
            rows = Lowered(matched, below.attributes, below.names)
    beside = SubqueryColumns(rows, context)
    conditions = [beside.replace_subqueries(each, in_filter=True) for each in rest]
    predicates = tuple(beside.rows.expression(each) for each in conditions)
    filtered = Lowered(Filter(beside.rows.hir, predicates), beside.rows.attributes, beside.rows.names)
    return select_columns(filtered, below.attributes)


def _conjuncts(condition: CatalystNode) -> list[CatalystNode]:
    if condition.kind != "And":
        return [condition]
    return [part for child in condition.children for part in _conjuncts(child)]


def _semi_or_anti_join(condition: CatalystNode, rows: Lowered, context: Context) -> Hir | None:
    """The rows for which an EXISTS or IN, or the negation of one, is true; None for other conditions."""
    negated = condition.kind == "Not"
    subquery = condition.children[0] if negated else condition
    kind = MatchKind.ANTI if negated else MatchKind.SEMI
    if subquery.kind == "Exists":
        right = rows_of(subquery, context)
        return Match(kind, rows.hir, right.hir, correlation(subquery, rows, right))
    if subquery.kind != "InSubquery" or any(has_subquery(value) for value in subquery.children[:-1]):
        return None
    right = rows_of(subquery.children[-1], context)
    found = membership(subquery, rows, right)
    if not negated or not found.unknown:
        return Match(kind, rows.hir, right.hir, found.matched)
    right = shared_rows(right, context)
    kept = rows.hir
    for predicates in (found.matched, *found.unknown):
        kept = Match(kind, kept, right.hir, predicates)
    return kept
