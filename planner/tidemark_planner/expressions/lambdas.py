"""Catalyst's higher-order functions (transform, filter, aggregate ...) as typed trees.

    ArrayTransform(a, LambdaFunction(x + 1, [x]))        transform(a, lambda(x0 + 1, x0))

A variable is named by its nesting depth. Spark's expression ids tell variables apart before that.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemark_planner.catalyst.json_tree import CatalystNode
from tidemark_planner.catalyst.spark_types import type_of
from tidemark_planner.errors import unsupported
from tidemark_planner.expressions.allowed import supported_call
from tidemark_protocol.functions.entry import LAMBDA
from tidemark_protocol.functions.lambdas import VARIABLE
from tidemark_protocol.functions.registry import call
from tidemark_protocol.plan.expr import Call, Literal, ScalarExpr
from tidemark_protocol.types import BOOLEAN, STRING, SqlType

Lower = Callable[[CatalystNode], ScalarExpr]
NAMES = frozenset(
    "transform filter exists forall aggregate reduce zip_with array_sort array_compact arrays_zip".split()
)
_KINDS = {
    "ArrayTransform": "transform",
    "ArrayFilter": "filter",
    "ArrayExists": "exists",
    "ArrayForAll": "forall",
    "ArrayAggregate": "aggregate",
    "ZipWith": "zip_with",
    "ArraySort": "array_sort",
}
_HINTS = {
    "aggregate": "start with a number, a boolean, a date or time, or a struct of these",
    "transform": "the function may build texts and arrays from the element alone, not from other columns",
    "zip_with": "the function may build texts and arrays from the elements alone, not from other columns",
}


def lower_higher_order(node: CatalystNode, lower: Lower) -> ScalarExpr | None:
    """The typed tree of a higher-order function; None for other nodes."""
    if node.kind == "KnownNotContainsNull":
        return lower(node.children[0])
    if node.kind == "ArraysZip":
        return _arrays_zip(node, lower)
    name = _KINDS.get(node.kind)
    return None if name is None else _allowed_call(name, tuple(map(lower, node.children)))


def variable(name: str, of: SqlType) -> Call:
    return call(VARIABLE, (Literal(name, STRING),), of)


def parameters(node: CatalystNode, depth: int) -> dict[int, ScalarExpr]:
    """The variables of a LambdaFunction, by Spark's expression ids."""
    declared = enumerate(node.children[1:], start=depth)
    return {p.expr_id: variable(f"x{at}", type_of(p.fields["dataType"])) for at, p in declared}


def lambda_call(body: ScalarExpr, variables: tuple[ScalarExpr, ...]) -> ScalarExpr:
    """The lambda with this body and these parameters."""
    return call(LAMBDA, (body, *variables), body.type)


def _allowed_call(name: str, arguments: tuple[ScalarExpr, ...]) -> ScalarExpr:
    return supported_call(name, arguments, _result_type(name, arguments), _HINTS.get(name, ""))


def _result_type(name: str, arguments: tuple[ScalarExpr, ...]) -> SqlType:
    if name in ("exists", "forall"):
        return BOOLEAN
    if name == "aggregate":
        return arguments[-1].type
    return SqlType.array(arguments[-1].type) if name in ("transform", "zip_with") else arguments[0].type


def _arrays_zip(node: CatalystNode, lower: Lower) -> ScalarExpr:
    """arrays_zip of two arrays; the shorter one is padded with NULL."""
    arrays = tuple(map(lower, node.children))
    names = [str(n.fields["value"]) for n in node.expressions("names")]
    if len(arrays) != 2 or not all(a.type.is_array for a in arrays):
        unsupported("arrays_zip of other than two arrays", "zip two at a time", "arrays_zip")
    pair = tuple(variable(f"x{at}", a.type.element) for at, a in enumerate(arrays))
    if names[0].lower() == names[1].lower():
        unsupported("arrays_zip of two arrays of one name", "rename one of them in a subquery", "arrays_zip")
    struct = SqlType.struct(zip(names, (p.type for p in pair), strict=True))
    return _allowed_call("zip_with", (*arrays, lambda_call(call("named_struct", pair, struct), pair)))
