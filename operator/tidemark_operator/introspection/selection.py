"""The queries of one introspection relation that the operator answers itself: selections. No replica need run for them.

A selection has comparisons, AND, OR, NOT, IN, LIKE and tests for NULL over columns and literals: functions that cannot
fail, and that mean in Arrow what they mean in Spark. It shows each column once, and literals that are short, so that
its answer is not much larger than the relation: the operator serves all namespaces. Replicas compute every other query
(inline_rows.py).
"""

from __future__ import annotations

from itertools import islice

from tidemark_protocol.messages.planning import PlannedPeek
from tidemark_protocol.plan.expr import Call, Literal, ScalarExpr, walk
from tidemark_protocol.plan.map_filter_project import MapFilterProject
from tidemark_protocol.types import BIGINT, BOOLEAN, INT, STRING

PATTERNS = frozenset(("startswith", "endswith", "contains", "like"))
FUNCTIONS = PATTERNS | {"=", "<", "<=", ">", ">=", "<=>", "in", "and", "or", "not", "is_null", "is_not_null"}
NODES_MAX, COLUMNS_MAX = 200, 32
"""The nodes of all expressions together, and the columns of the answer, at most."""
SHOWN_MAX, PATTERN_MAX = 64, 256
"""Characters of a literal that is shown, and of a pattern."""
_TYPES = (STRING, BIGINT, INT, BOOLEAN)


def is_selection(peek: PlannedPeek) -> bool:
    """Whether `selected_rows.select` computes the plan."""
    mfp = peek.mfp
    if peek.literals is not None or mfp.lower or mfp.upper or not _is_small(mfp):
        return False
    nodes = list(islice((n for whole in (*mfp.expressions, *mfp.predicates) for n in walk(whole)), NODES_MAX + 1))
    return len(nodes) <= NODES_MAX and all(map(_is_known, nodes))


def _is_small(mfp: MapFilterProject) -> bool:
    shown = range(len(mfp.extended)) if mfp.projection is None else mfp.projection
    texts = (e for e in mfp.expressions if e.type == STRING)
    short = all(isinstance(text, Literal) and len(text.value or "") <= SHOWN_MAX for text in texts)
    return short and len(shown) <= COLUMNS_MAX and len(set(shown)) == len(shown)


def _is_known(node: ScalarExpr) -> bool:
    if node.type not in _TYPES or (isinstance(node, Call) and node.function not in FUNCTIONS):
        return False
    if not isinstance(node, Call) or node.function not in PATTERNS:
        return True
    pattern = node.arguments[1]
    if not isinstance(pattern, Literal) or pattern.value is None:
        return False
    return len(pattern.value) <= PATTERN_MAX and "\\" not in pattern.value
