"""One scalar function of the allow-list (`registry.py`): its signature, errors and nullability."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tidemark_protocol.functions.call_errors import Errors, never
from tidemark_protocol.functions.call_types import Signature
from tidemark_protocol.plan.expr import Call, ScalarExpr, is_nullable

LAMBDA = "lambda"
Nullability = Callable[[Call], bool]


def is_lambda(expr: ScalarExpr) -> bool:
    return isinstance(expr, Call) and expr.function == LAMBDA


def any_argument(call: Call) -> bool:
    """NULL in, NULL out."""
    return any(is_nullable(a) for a in call.arguments)


def all_arguments(call: Call) -> bool:
    """NULL only where every argument is."""
    return all(is_nullable(a) for a in call.arguments)


def not_null(call: Call) -> bool:
    return False


def maybe(call: Call) -> bool:
    """NULL also where no argument is NULL: an element, a field, a search without a match."""
    return True


def first_argument(call: Call) -> bool:
    """NULL where the first argument is."""
    return is_nullable(call.arguments[0])


@dataclass(frozen=True)
class Function:
    """One function: the number and types of its arguments, its errors, its nullability, and lazy arguments.

    `lazy`: an argument that the function does not need (a CASE branch not taken, `y` in `false AND y`) raises nothing.
    `higher_order`: it takes lambdas (lambdas.py); no other function does.
    """

    name: str
    min_arguments: int
    max_arguments: int | None
    signature: Signature
    errors: Errors = never
    nullable: Nullability = any_argument
    lazy: bool = False
    higher_order: bool = False

    def accepts(self, call: Call) -> bool:
        count = len(call.arguments)
        enough = self.min_arguments <= count and (self.max_arguments is None or count <= self.max_arguments)
        allowed = self.higher_order or not any(map(is_lambda, call.arguments))
        return enough and allowed and self.signature(call.arguments, call.type)
