"""Catalyst's analysed plans to HIR: one file per kind of node; LOWERINGS lists them all.

Each lowering takes the node and the query's Context. It returns a `Lowered`: the HIR, and which of Spark's attributes
each output column is. Reading order: `base`, `leaf`, `project`, `join`, then any other.
"""

from __future__ import annotations

from tidemark_planner.lower.aggregates.aggregate import lower_aggregate
from tidemark_planner.lower.aggregates.grouping_sets import lower_expand
from tidemark_planner.lower.base import Context, Lower, Lowered
from tidemark_planner.lower.cte import lower_cte_ref, lower_with_cte
from tidemark_planner.lower.generate import lower_generate, lower_lateral, lower_range
from tidemark_planner.lower.join import lower_join
from tidemark_planner.lower.leaf import lower_inline, lower_one_row, lower_view
from tidemark_planner.lower.project import lower_filter, lower_project
from tidemark_planner.lower.row_order import lower_limit, lower_sort
from tidemark_planner.lower.set_operation import lower_except, lower_intersect
from tidemark_planner.lower.subquery import (
    LOWERED,
    lower_stand_in,
    with_subqueries,
    with_subqueries_in_condition,
)
from tidemark_planner.lower.union import lower_union
from tidemark_planner.lower.window import lower_window

__all__ = ["LOWERINGS", "Context", "Lowered"]

LOWERINGS: dict[str, Lower] = {
    "Project": with_subqueries(lower_project, "projectList"),
    "Filter": lower_filter,
    "Join": with_subqueries_in_condition(lower_join),
    "Aggregate": with_subqueries(lower_aggregate, "groupingExpressions", only_in_aggregates=("aggregateExpressions",)),
    "Union": lower_union,
    "Expand": lower_expand,
    "Intersect": lower_intersect,
    "Except": lower_except,
    "View": lower_view,
    "LocalRelation": lower_inline,
    "OneRowRelation": lower_one_row,
    "WithCTE": lower_with_cte,
    "CTERelationRef": lower_cte_ref,
    "GlobalLimit": lower_limit,
    "Offset": lower_limit,
    "Sort": lower_sort,
    "Window": lower_window,
    "Generate": lower_generate,
    "Range": lower_range,
    "LateralJoin": lower_lateral,
    LOWERED: lower_stand_in,
}
