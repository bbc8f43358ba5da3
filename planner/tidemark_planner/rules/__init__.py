"""Rewrites of HIR: RULES lists them in the order in which they run.

Beside the rules: `match`, `infer` and `conditions` (parts of push_down and desugar), `fuse`, `scalar` and
`temporal_filters` (also used by lir/).
"""

from __future__ import annotations

from collections.abc import Callable

from tidemark_planner.hir.nodes import Hir
from tidemark_planner.rules.limit_windows import limit_windows
from tidemark_planner.rules.nullability import with_nullability
from tidemark_planner.rules.prune import prune
from tidemark_planner.rules.push_down import push_down
from tidemark_planner.rules.semi import semi_to_inner

RULES: tuple[Callable[[Hir], Hir], ...] = (semi_to_inner, push_down, prune, limit_windows, with_nullability)


def optimise(node: Hir) -> Hir:
    """The same rows with flat joins, low filters and few columns."""
    for rule in RULES:
        node = rule(node)
    return node
