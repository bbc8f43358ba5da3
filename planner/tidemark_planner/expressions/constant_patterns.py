"""Checks of constant patterns, week days and time zones while planning.

Spark compiles a constant pattern of LIKE and RLIKE, and reads a constant day of next_day, when it compiles the
expression, even if there are no rows. An invalid constant is therefore an error of the SQL, and refused. A pattern that
comes from rows is an error of the rows where it is invalid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.errors import refuse, unsupported
from tidemark_protocol.functions.registry import entry, is_constant, is_fallible
from tidemark_protocol.functions.sql_text import string_sql, to_sql
from tidemark_protocol.plan.expr import Call, Literal, ScalarExpr, walk
from tidemark_protocol.types import STRING


def check_constant_patterns(catalyst: Catalyst, exprs: Iterable[ScalarExpr]) -> None:
    """Raise Refusal for the first constant that is not valid."""
    calls = dict.fromkeys(n for expr in exprs for n in walk(expr) if isinstance(n, Call) and n.function in _CHECKS)
    for call in calls:
        for argument in filter(
            is_constant, call.arguments if call.function == "convert_timezone" else call.arguments[1:2]
        ):
            if argument.type == STRING and entry(call.function).errors(call):
                pattern = _value(catalyst, argument)
                if pattern is not None and (wrong := _CHECKS[call.function](catalyst, call, pattern)):
                    refuse("TYPE", f"the {wrong} {string_sql(pattern)} is not valid: correct it", word=pattern)


def _value(catalyst: Catalyst, expr: ScalarExpr) -> str | None:
    """The value of a constant expression; raises Refusal where it might fail."""
    if isinstance(expr, Literal):
        return expr.value
    if is_fallible(expr):
        unsupported(f"the pattern {to_sql(expr)}", "write it as a literal")
    return catalyst.constant(to_sql(expr))


def _like(catalyst: Catalyst, call: Call, pattern: str) -> str:
    literal = Call(call.function, (call.arguments[0], Literal(pattern, call.arguments[1].type)), call.type)
    return "pattern of LIKE" if entry(call.function).errors(literal) else ""


def _regular(catalyst: Catalyst, call: Call, pattern: str) -> str:
    try:
        catalyst.jvm.java.util.regex.Pattern.compile(pattern)
    except (PySparkException, Py4JJavaError):
        return "regular expression"
    return ""


def _day(catalyst: Catalyst, call: Call, pattern: str) -> str:
    return "day of the week"


def _zone(catalyst: Catalyst, call: Call, pattern: str) -> str:
    try:
        catalyst.jvm.org.apache.spark.sql.catalyst.util.DateTimeUtils.getZoneId(pattern)
    except (PySparkException, Py4JJavaError):
        return "time zone"
    return ""


_CHECKS: dict[str, Callable[[Catalyst, Call, str], str]] = {
    "like": _like,
    "rlike": _regular,
    "next_day": _day,
    "from_utc_timestamp": _zone,
    "to_utc_timestamp": _zone,
    "convert_timezone": _zone,
}
