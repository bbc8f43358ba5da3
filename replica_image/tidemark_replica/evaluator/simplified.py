"""Expressions that Catalyst's optimiser may simplify so that a failure disappears: Catalyst evaluates these.

    (c0 % c1) + NULL         is NULL, whatever c0 and c1 are
    is_null(c0 + c1)         is false where neither may be NULL, and the sum is never computed
    CASE WHEN 1 div c0 > 0 THEN c1 ELSE c1 END         is c1, and so it is with c1 + c2 and c2 + c1
    (c0 + 2147483647) + -1                             is c0 + 2147483646, which more values of c0 survive
    (c0 * 3) * c1                                      is (c0 * c1) * 3, whole numbers, and fails for others than before
    c0 AND (c0 OR 1 div c1 > 0)                        is c0, whatever c1 is
    struct(c0, 1 div c1).c0, array(c0, 1 div c1)[0]    is c0: what is not taken out is never computed
    cast(coalesce(cast(1 div c0 AS int), 0) AS bigint) < 3000000000     is true, as of any int that is never NULL
    CASE WHEN 1 div c0 > 0 THEN c1 <=> c1 ELSE 1 = 1 END                is true

A view must not fail where Spark's batch answers. So an expression that may fail is admitted only in shapes that no rule
of the optimiser shortens. An expression that cannot fail may have any shape. A mapped column that may have failed fails
again where it is read, so it counts as an expression that may fail, with a shape of its own. Catalyst replaces a mapped
column that is the same in every row by its value, so nothing that may fail is admitted beside such a column.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from tidemark_protocol.functions.registry import entry, is_fallible
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal, ScalarExpr, columns_of, is_nullable, walk
from tidemark_protocol.types import BOOLEAN

_NULLNESS = frozenset({"is_null", "is_not_null", "<=>", "isnan"})
_EXTRACTIONS = frozenset({"field", "get", "subscript"})
_COMPARISONS = frozenset({"=", "<", "<=", ">", ">="})
_CHAINS = frozenset({"+", "*"})
_CONNECTIVES = frozenset({"and", "or", "not"})

Columns = frozenset[int]
Fails = Callable[[ScalarExpr], bool]


def can_fail(expr: ScalarExpr, failing: Columns) -> bool:
    """Whether the expression fails for some row. `failing`: the columns that may have failed."""
    return is_fallible(expr) or not failing.isdisjoint(columns_of(expr))


def keeps_failures(expr: ScalarExpr, failing: Columns) -> bool:
    """Whether no simplification removes a failure of the expression."""
    if not can_fail(expr, failing):
        return True
    nodes = list(walk(expr))
    fails = _failing_nodes(nodes, failing)
    return all(_keeps_failure(node, lambda e: id(e) in fails) for node in _chain_tops(nodes))


def may_be_constant(expr: ScalarExpr, constant: Columns) -> bool:
    """Whether Catalyst may find the expression to be the same in every row. `constant`: columns that may be."""
    if not constant.isdisjoint(columns_of(expr)) or not columns_of(expr):
        return True
    return not all(
        _keeps_failure(node, lambda _: True) and not _folds_without_rows(node) for node in _chain_tops(list(walk(expr)))
    )


def _failing_nodes(nodes: Sequence[ScalarExpr], failing: Columns) -> set[int]:
    """The ids of the nodes that can fail; `nodes` are parents first. Each node's own failures are computed once."""
    fails: set[int] = set()
    for node in reversed(nodes):
        if isinstance(node, ColumnRef):
            can = node.index in failing
        else:
            can = isinstance(node, Call) and (
                any(id(a) in fails for a in node.arguments) or bool(entry(node.function).errors(node))
            )
        if can:
            fails.add(id(node))
    return fails


def _chain_tops(nodes: Sequence[ScalarExpr]) -> Iterator[ScalarExpr]:
    """Yield the nodes, parents first, without inner nodes of a chain or condition, which its top node represents."""
    inner: set[int] = set()
    for node in nodes:
        if isinstance(node, Call):
            own = _CONNECTIVES if node.function in _CONNECTIVES else {node.function}
            if node.function in _CONNECTIVES or node.function in _CHAINS:
                inner.update(id(a) for a in node.arguments if isinstance(a, Call) and a.function in own)
        if id(node) not in inner:
            yield node


def _keeps_failure(node: ScalarExpr, fails: Fails) -> bool:
    if isinstance(node, Literal):
        return node.value is not None and node.type != BOOLEAN
    if not isinstance(node, Call) or not fails(node):
        return not _folds_without_rows(node)
    if node.function in _NULLNESS or node.function in _EXTRACTIONS:
        return False
    if node.function in _CHAINS:
        return _keeps_its_order(node)
    if node.function in _CONNECTIVES:
        return _all_differ(_connected(node))
    if node.function in _COMPARISONS:
        return _all_differ(node.arguments) and not _is_beyond(node, fails)
    if node.function == "in":
        return not _is_beyond(node, fails)
    if node.function in ("case", "if", "coalesce"):
        return _all_differ(node.arguments)
    return True


def _folds_without_rows(node: ScalarExpr) -> bool:
    """Whether Catalyst computes TRUE, FALSE or NULL for a node that cannot fail, without a row."""
    if not isinstance(node, Call) or not (node.type == BOOLEAN or node.nullable):
        return False
    if node.function in ("is_null", "is_not_null"):
        return not is_nullable(_with_nullable_columns(node.arguments[0]))
    if node.function in _COMPARISONS or node.function == "<=>":
        return not _all_differ(node.arguments) or _is_constant(node)
    return _is_constant(node)


def _is_constant(expr: ScalarExpr) -> bool:
    return not any(isinstance(node, ColumnRef) for node in walk(expr))


def _keeps_its_order(chain: Call) -> bool:
    """Whether Catalyst keeps the order of a chain. It combines the constants of a chain. In a chain of whole numbers it
    moves them behind the other operands, which it combines from the left.
    """
    operands = _operands(chain)
    constants = sum(not columns_of(operand) for operand in operands)
    if constants == 0 or len(operands) == 2 or not chain.type.is_integral:
        return constants < 2
    return constants == 1 and not columns_of(operands[-1]) and _is_from_the_left(chain)


def _is_from_the_left(chain: Call) -> bool:
    first, second = (isinstance(a, Call) and a.function == chain.function for a in chain.arguments)
    before = chain.arguments[0]
    return not second and (not first or (isinstance(before, Call) and _is_from_the_left(before)))


def _is_beyond(call: Call, fails: Fails) -> bool:
    """Whether a literal may be outside the type of the value it is compared with, as in `cast(e) < 3000000000`.

    If e is never NULL, Catalyst answers without evaluating it. (Decimal literals reach Catalyst as casts, which it does
    not see through.)
    """
    others = [a for a in call.arguments if not isinstance(a, Literal)]
    if len(others) == len(call.arguments) or any(a.type.is_decimal for a in others):
        return False
    return all(isinstance(a, Call) and a.function == "cast" and _is_lost(a.arguments[0], fails) for a in others)


def _is_lost(expr: ScalarExpr, fails: Fails) -> bool:
    return fails(expr) and not is_nullable(_with_nullable_columns(expr))


def _with_nullable_columns(expr: ScalarExpr) -> ScalarExpr:
    """The expression as Catalyst sees it on a replica: every column is nullable, since error rows have NULLs."""
    if isinstance(expr, ColumnRef):
        return replace(expr, nullable=True)
    if not isinstance(expr, Call):
        return expr
    made = replace(expr, arguments=tuple(map(_with_nullable_columns, expr.arguments)))
    return replace(made, nullable=entry(made.function).nullable(made))


def _all_differ(exprs: Sequence[ScalarExpr]) -> bool:
    return len(set(map(_shape, exprs))) == len(exprs)


def _connected(expr: ScalarExpr) -> list[ScalarExpr]:
    """The parts of one condition under ANDs, ORs and NOTs. Catalyst factors out parts that several sides share."""
    if isinstance(expr, Call) and expr.function in ("and", "or", "not"):
        return [part for argument in expr.arguments for part in _connected(argument)]
    return [expr]


def _operands(call: Call) -> list[ScalarExpr]:
    """The operands of a chain of sums or of products; the arguments of any other call."""
    if call.function not in _CHAINS:
        return list(call.arguments)
    nested = (_operands(a) if isinstance(a, Call) and a.function == call.function else [a] for a in call.arguments)
    return [operand for each in nested for operand in each]


def _shape(expr: ScalarExpr) -> str:
    """The common form of expressions that Catalyst may consider equal, or each other's negation.

    Catalyst compares without casts where it can: `cast(c0 AS bigint) = 3` as `c0 = 3`.
    """
    if isinstance(expr, ColumnRef):
        return f"c{expr.index}"
    if isinstance(expr, Literal):
        return repr(expr.value)
    if expr.function in ("not", "cast"):
        return _shape(expr.arguments[0])
    name = "compare" if expr.function in _COMPARISONS else expr.function
    return f"{name}({', '.join(sorted(map(_shape, _operands(expr))))}) {expr.type}"
