"""A row_number that only limits the rows of each group becomes a TopK.

    Project [c0, c1]                                Project [c0, c1]
      Filter [c2 <= 3]                       ->       TopK group=[c0] order=[c1] limit 3
        Window partition=[c0] order=[c1]                ...
          [row_number()]

Both break ties by the whole row, so they keep the same rows.
"""

from __future__ import annotations

from tidemark_planner.hir.nodes import Filter, Hir, Project, Window, filtered, inputs_of, project, top_k, with_inputs
from tidemark_planner.rules.fuse import FilterProject, fuse
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal, ScalarExpr, columns_of
from tidemark_protocol.types import INT

_MIRRORED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "="}
# The first and the last number; None: without an end.
Range = tuple[int, int | None]


def limit_windows(node: Hir) -> Hir:
    """The same rows. Runs after prune, so that unread columns are gone."""
    if isinstance(node, Project | Filter):
        base, fused = fuse(node)
        limited = _as_top_k(base, fused) if isinstance(base, Window) else None
        node = node if limited is None else limited
    return with_inputs(node, tuple(limit_windows(i) for i in inputs_of(node)))


def _as_top_k(window: Window, fused: FilterProject) -> Hir | None:
    """The FilterProject over a TopK instead of the window; None where the number is read elsewhere."""
    number = len(window.input.schema)
    if [c.function for c in window.calls] != ["row_number"] or any(number in columns_of(e) for e in fused.outputs):
        return None
    by_number = [p for p in fused.predicates if number in columns_of(p)]
    rest = tuple(p for p in fused.predicates if p not in by_number)
    ranges = [found for p in by_number if (found := _range(p, number)) is not None]
    if not ranges or len(ranges) < len(by_number):
        return None
    first = max(start for start, _ in ranges)
    ends = [end for _, end in ranges if end is not None]
    limit = min(ends) - first + 1 if ends else None
    kept = top_k(window.input, window.partition, window.order, limit, first - 1)
    return project(filtered(kept, rest), fused.outputs)


def _range(predicate: ScalarExpr, number: int) -> Range | None:
    """The numbers that the predicate keeps, where it compares the number with a literal."""
    if not isinstance(predicate, Call) or predicate.function not in _MIRRORED:
        return None
    operator, (left, right) = predicate.function, predicate.arguments
    if isinstance(left, Literal):
        operator, left, right = _MIRRORED[operator], right, left
    is_number = isinstance(left, ColumnRef) and left.index == number
    if not is_number or not isinstance(right, Literal) or right.value is None or right.type != INT:
        return None
    bound = int(right.value)
    return {
        "<": (1, bound - 1),
        "<=": (1, bound),
        ">": (max(bound + 1, 1), None),
        ">=": (max(bound, 1), None),
        "=": (max(bound, 1), bound),
    }[operator]
