"""What Catalyst's optimiser would simplify so that a failure disappears: left to Catalyst.

    (c0 % c1) + NULL         is NULL, whatever c0 and c1 are
    is_null(c0 + c1)         is false where neither may be NULL, and the sum is never computed
    CASE WHEN 1 div c0 > 0 THEN c1 ELSE c1 END         is c1, and so it is with c1 + c2 and c2 + c1
    (c0 + 2147483647) + -1                             is c0 + 2147483646, which more values of c0 survive
    c0 AND (c0 OR 1 div c1 > 0)                        is c0, whatever c1 is
    struct(c0, 1 div c1).c0, array(c0, 1 div c1)[0]    is c0: what is not taken out is never computed

A view must not fail where Spark's batch answers. So an expression that may fail is admitted only in shapes that no rule
makes shorter; one that never fails may be simplified as anybody likes. A mapped column that may have failed fails again
where it is read: it counts as an expression that may fail, of a shape of its own.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark_protocol.expr import Call, ColumnRef, Literal, ScalarExpr, columns_of, walk
from tidemark_protocol.functions import is_fallible
from tidemark_protocol.types import BOOLEAN

_NULLNESS = frozenset({"is_null", "is_not_null", "<=>", "isnan"})
_TAKING_OUT = frozenset({"field", "get", "subscript"})
_COMPARISONS = frozenset({"=", "<", "<=", ">", ">="})
_CHAINS = frozenset({"+", "*"})


Columns = frozenset[int]


def can_fail(expr: ScalarExpr, failing: Columns) -> bool:
    """Whether some row makes the expression fail; `failing`: the columns that may have failed."""
    return is_fallible(expr) or not failing.isdisjoint(columns_of(expr))


def keeps_its_failures(expr: ScalarExpr, failing: Columns) -> bool:
    """Whether every failure that the expression can have shows."""
    return not can_fail(expr, failing) or all(_is_kept(node, failing) for node in walk(expr))


def _is_kept(node: ScalarExpr, failing: Columns) -> bool:
    if isinstance(node, Literal):
        return node.value is not None and node.type != BOOLEAN
    if not isinstance(node, Call) or not can_fail(node, failing):
        return True
    if node.function in _NULLNESS or node.function in _TAKING_OUT:
        return False
    if node.function in _CHAINS:
        return sum(not columns_of(operand) for operand in _operands(node)) < 2
    if node.function in ("and", "or"):
        return _all_differ(_connected(node))
    if node.function in _COMPARISONS or node.function in ("case", "if", "coalesce"):
        return _all_differ(node.arguments)
    return True


def _all_differ(exprs: Sequence[ScalarExpr]) -> bool:
    return len(set(map(_shape, exprs))) == len(exprs)


def _connected(expr: ScalarExpr) -> list[ScalarExpr]:
    """What ANDs, ORs and NOTs above it make one condition of: Catalyst takes out what several of their sides have in
    common."""
    if isinstance(expr, Call) and expr.function in ("and", "or", "not"):
        return [part for argument in expr.arguments for part in _connected(argument)]
    return [expr]


def _operands(call: Call) -> list[ScalarExpr]:
    """What a chain of sums, or of products, adds up; the arguments of any other call."""
    if call.function not in _CHAINS:
        return list(call.arguments)
    nested = (_operands(a) if isinstance(a, Call) and a.function == call.function else [a] for a in call.arguments)
    return [operand for each in nested for operand in each]


def _shape(expr: ScalarExpr) -> str:
    """What two expressions have in common that Catalyst may take for each other, or one for the other's negation."""
    if isinstance(expr, ColumnRef):
        return f"c{expr.index}"
    if isinstance(expr, Literal):
        return f"{expr.value!r} {expr.type}"
    if expr.function == "not":
        return _shape(expr.arguments[0])
    name = "compare" if expr.function in _COMPARISONS else expr.function
    return f"{name}({', '.join(sorted(map(_shape, _operands(expr))))}) {expr.type}"
