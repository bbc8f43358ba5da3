"""Calls whose form follows from their arguments: the result type, folded literals, arguments that must be literals.

    Divide(a, b)  ->  a / b of their type       DateAdd(DATE '2020-01-31', 1)  ->  DATE '2020-02-01'

`expression.py` walks the tree and calls these functions.
"""

from __future__ import annotations

from collections.abc import Callable

from tidemark_planner.errors import unsupported
from tidemark_planner.expressions import fold
from tidemark_planner.expressions.allowed import allowed_call
from tidemark_planner.expressions.call_classes import CLASSES
from tidemark_planner.expressions.casting import cast_to
from tidemark_planner.expressions.nested import with_first_type
from tidemark_planner.sql.try_functions import TRY_VARIANTS
from tidemark_protocol import decimals
from tidemark_protocol.functions import call_types
from tidemark_protocol.functions.intervals import PARTS, WHOLE
from tidemark_protocol.functions.registry import call, entry
from tidemark_protocol.functions.text import MAX_REPEATS
from tidemark_protocol.plan.expr import Call, Literal, ScalarExpr
from tidemark_protocol.types import BIGINT, BOOLEAN, DATE, INT, STRING

ARITHMETIC = {"Add": "+", "Subtract": "-", "Multiply": "*", "Divide": "/", "Remainder": "%", "Pmod": "pmod"}


def plain_call(kind: str, arguments: tuple[ScalarExpr, ...]) -> ScalarExpr:
    """The call of a class in call_classes.py. Raises Refusal where the allow-list has no function of such arguments."""
    function, result = CLASSES[kind]
    if result == BOOLEAN:
        arguments = with_first_type(arguments)
    return allowed_call(function, arguments, arguments[0].type if result is None else result)


def try_variant(made: ScalarExpr, arguments: tuple[ScalarExpr, ...]) -> ScalarExpr:
    """The variant of the call that gives NULL where the call raises; the call itself where it cannot raise."""
    if not isinstance(made, Call) or made.arguments != arguments or not entry(made.function).errors(made):
        return made
    return call(TRY_VARIANTS[made.function], arguments, made.type)


def arithmetic(operator: str, arguments: tuple[ScalarExpr, ...]) -> ScalarExpr:
    """Arithmetic of two numbers of one type. Decimals have their own result type for each operator."""
    left, right = (a.type for a in arguments)
    if left.is_decimal and right.is_decimal:
        of = "%" if operator == "pmod" else operator
        return fold.fold_call(call(operator, arguments, decimals.result_type(of, left, right)))
    return fold.fold_call(call(operator, arguments, left))


def _repeat(arguments: tuple[ScalarExpr, ...]) -> ScalarExpr:
    """repeat of a literal count, or of any count that is an error where it is too large."""
    of, count = arguments
    if not entry("repeat").accepts(call("repeat", arguments, STRING)) and not isinstance(count, Literal):
        too_large = call(">", (count, Literal(str(MAX_REPEATS), INT)), BOOLEAN)
        error = call("raise_error", (Literal("REPEAT_TOO_LARGE", STRING),), BOOLEAN)
        fits = call("case", (too_large, error, Literal("true", BOOLEAN)), BOOLEAN)
        count = call("case", (fits, count), INT)
    return allowed_call("repeat", (of, count), STRING)


def _negate(arguments: tuple[ScalarExpr, ...]) -> ScalarExpr:
    of = arguments[0]
    folded = fold.negate(of) if isinstance(of, Literal) else None
    return call("negate", arguments, of.type) if folded is None else folded


def conditional(function: str, arguments: tuple[ScalarExpr, ...]) -> ScalarExpr:
    """IF or CASE: the result has the type of the first value."""
    return call(function, arguments, arguments[1].type)


def _shift_date(function: str, move: Callable[[Literal, int], Literal | None]) -> Callable[..., ScalarExpr]:
    def lowered(arguments: tuple[ScalarExpr, ...]) -> ScalarExpr:
        start, by = arguments
        if isinstance(by, Literal) and by.type.name.startswith("interval"):
            by = Literal(by.value, INT)
        if isinstance(start, Literal) and isinstance(by, Literal) and by.value is not None:
            sign = -1 if function == "date_sub" else 1
            if (folded := move(start, sign * int(by.value))) is not None:
                return folded
        if by.type != INT:
            by = cast_to(by, INT)
        return call(function, (start, by), DATE)

    return lowered


def _interval_field(kind: str) -> Callable[[tuple[ScalarExpr, ...]], ScalarExpr]:
    """A field of an interval. The days of a literal interval are folded to a number."""
    function, _, of, result = PARTS[kind]

    def lowered(arguments: tuple[ScalarExpr, ...]) -> ScalarExpr:
        (interval,) = arguments
        if function == "interval_days" and isinstance(interval, Literal) and interval.value is not None:
            return Literal(str(fold.quotient(int(interval.value), WHOLE[of]["DAY"])), INT)
        if interval.type != of:
            unsupported(f"{function} of {interval.type}", f"it takes an {of}", function.removeprefix("interval_"))
        return call(function, arguments, result)

    return lowered


def _round(arguments: tuple[ScalarExpr, ...]) -> ScalarExpr:
    of, digits = arguments
    if not isinstance(digits, Literal) or digits.value is None:
        unsupported("round to a number of digits that is not a literal", "write the number", "round")
    of_decimal = of.type.is_decimal
    return call("round", arguments, call_types.rounded_type(of.type, int(digits.value))[0] if of_decimal else of.type)


def _round_to_digits(function: str) -> Callable[[tuple[ScalarExpr, ...]], ScalarExpr]:
    """ceil and floor to a number of digits: Spark casts every number to a decimal for them."""

    def lowered(arguments: tuple[ScalarExpr, ...]) -> ScalarExpr:
        (of, digits), name = arguments, function.removesuffix("_to")
        if not of.type.is_decimal or not isinstance(digits, Literal) or digits.value is None:
            unsupported(f"{name} to a number of digits that is not a literal", "write the number", name)
        return call(function, arguments, call_types.rounded_type(of.type, int(digits.value))[0])

    return lowered


def _round_to_whole(function: str) -> Callable[[tuple[ScalarExpr, ...]], ScalarExpr]:
    def lowered(arguments: tuple[ScalarExpr, ...]) -> ScalarExpr:
        of = arguments[0].type
        result = decimals.bounded(of.precision - of.scale + 1, 0) if of.is_decimal else BIGINT
        return call(function, arguments, result)

    return lowered


BY_ARGUMENTS: dict[str, Callable[[tuple[ScalarExpr, ...]], ScalarExpr]] = {
    "IntegralDivide": lambda a: fold.fold_call(call("div", a, BIGINT)),
    "UnaryMinus": _negate,
    "StringRepeat": _repeat,
    "UnaryPositive": lambda a: a[0],
    "Round": _round,
    "Floor": _round_to_whole("floor"),
    "Ceil": _round_to_whole("ceil"),
    "RoundFloor": _round_to_digits("floor_to"),
    "RoundCeil": _round_to_digits("ceil_to"),
    "DateAdd": _shift_date("date_add", fold.add_days),
    "DateSub": _shift_date("date_sub", fold.add_days),
    "AddMonths": _shift_date("add_months", fold.add_months),
    "DateAddYMInterval": _shift_date("add_months", fold.add_months),
    **{kind: _interval_field(kind) for kind in PARTS},
    "TimestampAddInterval": lambda a: call("+", a, a[0].type),
    "TimestampAddYMInterval": lambda a: call("+", a, a[0].type),
}
