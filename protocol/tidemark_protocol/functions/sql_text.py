"""Scalar expressions as Spark SQL text over uniquely named columns.

    Call("*", (ColumnRef(3), Call("-", (Literal("1"), ColumnRef(4)))))   ->   (c3 * (1BD - c4))

Equal trees have equal texts. The text, analysed over the same columns in ANSI mode and UTC, gives the same tree back:
literals carry their exact types, and everything is in parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from decimal import Decimal

from tidemark_protocol.errors import PlanNotAllowed
from tidemark_protocol.functions.intervals import FIELDS
from tidemark_protocol.functions.registry import FUNCTIONS, error_value, is_fallible
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal, ScalarExpr
from tidemark_protocol.plan.lir import ErrorValue
from tidemark_protocol.plan.literals import parts_of
from tidemark_protocol.types import SqlType

__all__ = ["error_of", "is_fallible", "literal_sql", "string_sql", "to_sql"]

ColumnName = Callable[[int], str]
_INFIX = {n: n.upper() for n in "+ - * / div % = < <= > >= <=> and or & | ^".split()}
_SUFFIX = {"tinyint": "Y", "smallint": "S", "int": "", "bigint": "L", "float": "F", "double": "D"}
_ESCAPES = {"\\": "\\\\", "'": "\\'", "\n": "\\n", "\r": "\\r", "\t": "\\t"}
_SPECIAL = re.compile(r"[\\'\x00-\x1f\x7f]|\$(?=\{)")
_MICROS_PER_DAY = 86_400_000_000


def positional(index: int) -> str:
    return f"c{index}"


def to_sql(expr: ScalarExpr, column_name: ColumnName = positional) -> str:
    """The text of the expression; `column_name` gives the (quoted) name of each column. Raises PlanNotAllowed."""
    if isinstance(expr, ColumnRef):
        return column_name(expr.index)
    if isinstance(expr, Literal):
        return literal_sql(expr)
    if expr.function not in FUNCTIONS:
        raise PlanNotAllowed(f"function {expr.function!r} is not on the allow-list")
    return _call_sql(expr, [to_sql(a, column_name) for a in expr.arguments])


def error_of(expr: ScalarExpr, column_name: ColumnName = positional) -> ErrorValue:
    """The value of `__error` for a row on which the expression fails; the same in every evaluator."""
    return error_value(expr, to_sql(expr, column_name))


def _call_sql(call: Call, arguments: list[str]) -> str:
    name = call.function
    if name in _INFIX:
        return "(" + f" {_INFIX[name]} ".join(arguments) + ")"
    special = _SPECIAL_FORMS.get(name)
    return special(call, arguments) if special else f"{name}({', '.join(arguments)})"


def _case(call: Call, arguments: list[str]) -> str:
    paired = len(arguments) // 2 * 2
    whens = (f"WHEN {arguments[i]} THEN {arguments[i + 1]}" for i in range(0, paired, 2))
    last = [f"ELSE {arguments[paired]}"] if paired < len(arguments) else []
    return " ".join(["CASE", *whens, *last, "END"])


def _trim(side: str) -> Callable[[Call, list[str]], str]:
    """The second argument, where there is one, is the set of characters to remove."""

    def written(call: Call, arguments: list[str]) -> str:
        what = f"{arguments[1]} FROM {arguments[0]}" if len(arguments) == 2 else f"FROM {arguments[0]}"
        return f"trim({side} {what})"

    return written


def _array(call: Call, arguments: list[str]) -> str:
    written = f"array({', '.join(arguments)})"
    return written if arguments else f"CAST({written} AS {_type_sql(call.type)})"


def _named_struct(call: Call, arguments: list[str]) -> str:
    named = (f"{string_sql(n)}, {a}" for n, a in zip(call.type.labels, arguments, strict=True))
    return f"named_struct({', '.join(named)})"


def _field(call: Call, arguments: list[str]) -> str:
    of, position = call.arguments[0].type, call.arguments[1]
    struct = of.element if of.is_array else of
    assert isinstance(position, Literal), "a field is named by a literal"
    return f"({arguments[0]}).{backquoted(struct.labels[int(position.value or 0)])}"


def _lambda(call: Call, arguments: list[str]) -> str:
    body, *parameters = arguments
    return f"{parameters[0]} -> {body}" if len(parameters) == 1 else f"({', '.join(parameters)}) -> {body}"


def _variable(call: Call, arguments: list[str]) -> str:
    name = call.arguments[0]
    assert isinstance(name, Literal), "a variable has a name"
    return name.value or ""


def _with_unit(call: Call, arguments: list[str]) -> str:
    """The first argument is a keyword in the text."""
    unit = call.arguments[0]
    assert isinstance(unit, Literal), "a unit is a literal"
    return f"{call.function}({unit.value}, {', '.join(arguments[1:])})"


def _truncated(call: Call, arguments: list[str]) -> str:
    unit = call.arguments[1]
    assert isinstance(unit, Literal), "a unit is a literal"
    return f"CAST({arguments[0]} AS INTERVAL {unit.value})"


_SPECIAL_FORMS: dict[str, Callable[[Call, list[str]], str]] = {
    "negate": lambda call, a: f"(- {a[0]})",
    "~": lambda call, a: f"(~ {a[0]})",
    "not": lambda call, a: f"(NOT {a[0]})",
    "is_null": lambda call, a: f"({a[0]} IS NULL)",
    "is_not_null": lambda call, a: f"({a[0]} IS NOT NULL)",
    "in": lambda call, a: f"({a[0]} IN ({', '.join(a[1:])}))",
    "cast": lambda call, a: f"CAST({a[0]} AS {_type_sql(call.type)})",
    "try_cast": lambda call, a: f"TRY_CAST({a[0]} AS {_type_sql(call.type)})",
    "case": _case,
    "array": _array,
    "named_struct": _named_struct,
    "field": _field,
    "subscript": lambda call, a: f"({a[0]})[{a[1]}]",
    "from_json": lambda call, a: f"from_json({a[0]}, {string_sql(_type_sql(call.type))})",
    "raise_error": lambda call, a: f"CAST(raise_error({a[0]}) AS {str(call.type).upper()})",
    "rlike": lambda call, a: f"({a[0]} RLIKE {a[1]})",
    "yearofweek": lambda call, a: f"extract(YEAROFWEEK FROM {a[0]})",
    "second_with_fraction": lambda call, a: f"extract(SECOND FROM {a[0]})",
    "timestampdiff": _with_unit,
    "timestampadd": _with_unit,
    "floor_to": lambda call, a: f"floor({a[0]}, {a[1]})",
    "ceil_to": lambda call, a: f"ceil({a[0]}, {a[1]})",
    "lambda": _lambda,
    "variable": _variable,
    "timestamps_between": lambda call, a: f"({a[0]} - {a[1]})",
    "dates_between": lambda call, a: f"({a[0]} - {a[1]})",
    "interval_times": lambda call, a: f"({a[0]} * {a[1]})",
    "interval_divided": lambda call, a: f"({a[0]} / {a[1]})",
    "interval_truncated": _truncated,
    **dict.fromkeys(FIELDS, lambda call, a: f"extract({FIELDS[call.function]} FROM {a[0]})"),
    "like": lambda call, a: f"({a[0]} LIKE {a[1]})",
    "trim": _trim("BOTH"),
    "ltrim": _trim("LEADING"),
    "rtrim": _trim("TRAILING"),
}


def literal_sql(literal: Literal) -> str:
    """The constant in a form whose type is the literal's, or under a cast to it."""
    value, of = literal.value, literal.type
    if value is None:
        return f"CAST(NULL AS {_type_sql(of)})"
    if of.is_nested:
        return _nested_sql(literal)
    if of.is_floating and value in ("NaN", "Infinity", "-Infinity"):
        return f"CAST('{value}' AS {_type_sql(of)})"
    if of.is_decimal:
        natural = _natural_decimal(value)
        return f"{value}BD" if natural == of else f"CAST({value}BD AS {_type_sql(of)})"
    if of.name in _SUFFIX:
        return value + _SUFFIX[of.name]
    return _QUOTED[of.name](value)


def _nested_sql(literal: Literal) -> str:
    parts = [literal_sql(part) for part in parts_of(literal)]
    if literal.type.is_array:
        return f"CAST(array({', '.join(parts)}) AS {_type_sql(literal.type)})"
    named = (f"{string_sql(n)}, {part}" for n, part in zip(literal.type.labels, parts, strict=True))
    return f"named_struct({', '.join(named)})"


def string_sql(text: str) -> str:
    """A string literal in which no character ends the literal, starts an escape, or names a variable of Spark's."""
    return "'" + _SPECIAL.sub(lambda m: _ESCAPES.get(m[0], f"\\u{ord(m[0]):04x}"), text) + "'"


def _natural_decimal(digits: str) -> SqlType:
    number = Decimal(digits).as_tuple()
    scale = -int(number.exponent)
    return SqlType("decimal", max(len(number.digits), scale), scale)


def _day_to_second(value: str) -> str:
    micros = int(value)
    sign, rest = ("-" if micros < 0 else ""), abs(micros)
    days, rest = divmod(rest, _MICROS_PER_DAY)
    hours, rest = divmod(rest, 3_600_000_000)
    minutes, rest = divmod(rest, 60_000_000)
    seconds, fraction = divmod(rest, 1_000_000)
    clock = f"{hours:02}:{minutes:02}:{seconds:02}.{fraction:06}"
    return f"INTERVAL '{sign}{days} {clock}' DAY TO SECOND"


def _year_to_month(value: str) -> str:
    months = int(value)
    return f"INTERVAL '{'-' if months < 0 else ''}{abs(months) // 12}-{abs(months) % 12}' YEAR TO MONTH"


_QUOTED: dict[str, Callable[[str], str]] = {
    "boolean": lambda v: v.upper(),
    "string": string_sql,
    "binary": lambda v: f"unhex('{v.upper()}')",  # Spark's trees do not show the bytes of X'...'
    "date": lambda v: f"DATE '{v}'",
    "timestamp": lambda v: f"TIMESTAMP_LTZ '{v.replace('T', ' ')} UTC'",
    "timestamp_ntz": lambda v: f"TIMESTAMP_NTZ '{v.replace('T', ' ')}'",
    "interval day to second": _day_to_second,
    "interval year to month": _year_to_month,
}


def _type_sql(of: SqlType) -> str:
    if of.is_array:
        return f"ARRAY<{_type_sql(of.element)}>"
    if of.is_struct:
        return f"STRUCT<{', '.join(f'{backquoted(n)}: {_type_sql(t)}' for n, t in of.fields)}>"
    return str(of).upper()


def backquoted(name: str) -> str:
    """A name as an SQL identifier."""
    return "`" + name.replace("`", "``") + "`"
