"""Which queries of one introspection relation the operator answers itself: selections. No replica need run for them.

A selection has comparisons, AND, OR, NOT, IN, LIKE and tests for NULL over columns and literals: functions that cannot
fail, and that mean in Arrow what they mean in Spark. Replicas compute every other query (inline_rows.py).
"""

from __future__ import annotations

from tidemark_protocol.messages.planning import PlannedPeek
from tidemark_protocol.plan.expr import Call, Literal, ScalarExpr, walk
from tidemark_protocol.types import BIGINT, BOOLEAN, STRING

PATTERNS = frozenset(("startswith", "endswith", "contains", "like"))
FUNCTIONS = PATTERNS | {"=", "<", "<=", ">", ">=", "<=>", "in", "and", "or", "not", "is_null", "is_not_null"}
_TYPES = (STRING, BIGINT, BOOLEAN)


def is_selection(peek: PlannedPeek) -> bool:
    """Whether `selected_rows.select` computes the plan."""
    mfp = peek.mfp
    known = all(_is_known(node) for whole in (*mfp.expressions, *mfp.predicates) for node in walk(whole))
    return known and peek.literals is None and not (mfp.lower or mfp.upper)


def _is_known(node: ScalarExpr) -> bool:
    if node.type not in _TYPES or (isinstance(node, Call) and node.function not in FUNCTIONS):
        return False
    if not isinstance(node, Call) or node.function not in PATTERNS:
        return True
    pattern = node.arguments[1]
    return isinstance(pattern, Literal) and pattern.value is not None and "\\" not in pattern.value
