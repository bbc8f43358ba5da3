"""The check by types that Spark finds: whether an expression means in Spark what it means in its dialect.

Translation guesses kinds of values by names (number_kinds.py). This check sees the analysed query, so what the guess
missed is refused here.
"""

from __future__ import annotations

from collections.abc import Iterator

from tidemark_planner.dialects.session_dialect import SessionDialect
from tidemark_planner.errors import unsupported
from tidemark_planner.hir.nodes import Aggregate, Hir, Project, Union, Window, expressions_of, preorder
from tidemark_protocol.plan.expr import Call, Literal, ScalarExpr, walk
from tidemark_protocol.types import SqlType

_SUMS = ("+", "-", "*")
_TIMES = ("timestamp", "timestamp_ntz")
_DAYLESS = ("unix_micros",)
"""Functions of times that are the same in all time zones."""
_COMPUTED = ("+", "-", "*", "/", "%", "=", "<>", "<", "<=", ">", ">=", "<=>", "cast")
"""Functions of a real and another number, which are double precision in PostgreSQL, too."""
_EXTREMES = ("min", "max")
_ROUNDED = ("round", "rint", "floor", "ceil")


def check_types(hir: Hir, dialect: str) -> None:
    """Raises Refusal for an expression that would give another value in the dialect, as SessionDialect reads it."""
    session = SessionDialect.of(dialect)
    dialect = session.name
    for node in preorder(hir):
        for expression in expressions_of(node):
            zoneless = {id(found) for each in walk(expression) for found in _zoneless(each)}
            for each in walk(expression):
                if isinstance(each, Call):
                    _check(each, dialect)
                if isinstance(each, Call) and session.is_postgres and id(each) not in zoneless:
                    _check_times(each, session)
                if isinstance(each, Call) and session.is_postgres:
                    if each.function == "%" and each.type.is_floating:
                        unsupported("% of double precision in dialect postgres", "cast it to numeric", "%")
                    _check_bytes(each)
                    _check_reals(each)
        if session.is_postgres and isinstance(node, Union):
            _check_reals_of_union(node)
        if session.is_postgres and isinstance(node, Window):
            sums = (call.arguments[0] for call in node.calls if call.function == "sum")
            if any(node.input.schema[argument].type.name == "float" for argument in sums):
                unsupported("sum of real in dialect postgres", "cast it to double precision", "sum")
        if isinstance(node, Aggregate):
            for aggregate in node.aggregates:
                of = None if aggregate.argument is None else node.values[aggregate.argument]
                if session.is_postgres and aggregate.function == "sum" and of is not None and _is_real(of):
                    unsupported("sum of real in dialect postgres", "cast it to double precision", "sum")
                if session.is_postgres and aggregate.function in _EXTREMES and aggregate.type.type.name == "binary":
                    name = aggregate.function
                    unsupported(f"{name} of bytea in dialect postgres", "leave it out", name)
                if aggregate.function == "avg" and aggregate.type.type.name == "decimal":
                    unsupported(f"avg of decimals in dialect {dialect}", "cast it to double precision", "avg")


def _check(call: Call, dialect: str) -> None:
    types = [argument.type for argument in call.arguments]
    if call.function == "/" and call.type.name == "decimal":
        unsupported(f"a quotient of decimals in dialect {dialect}", "cast one side to double precision", "/")
    if call.function == "div" and any(of.name == "decimal" for of in types):
        unsupported(f"a quotient of these types in dialect {dialect}", "cast both sides to integers", "/")
    if call.function in _SUMS and call.type.name == "decimal" and _scale(call.function, types) > call.type.scale:
        unsupported(f"decimals of so many digits in dialect {dialect}", "cast the operands to fewer digits")
    if call.function == "round" and types[0].is_floating:
        unsupported(f"round of double precision in dialect {dialect}", "cast it to numeric(p, s)", "round")
    if call.function == "cast":
        _check_cast(call.arguments[0], call.type, dialect)


def _check_cast(of: ScalarExpr, to: SqlType, dialect: str) -> None:
    rounded = isinstance(of, Call) and of.function in _ROUNDED
    cuts = of.type.is_floating or (of.type.name == "decimal" and of.type.scale > 0)
    if to.is_integral and cuts and not rounded:
        unsupported(f"this cast to an integer in dialect {dialect}", "round it first")
    if to.name == "string" and of.type.name not in ("string", "date") and not of.type.is_integral:
        unsupported(f"a cast of {of.type} to text in dialect {dialect}", "leave it as it is")
    if to.name == "decimal" and of.type.is_floating:
        unsupported(f"a cast of {of.type} to numeric in dialect {dialect}", "leave it as it is")


def _zoneless(of: ScalarExpr) -> Iterator[ScalarExpr]:
    """The calls that postgres_times.py writes for a time without a zone, for which Spark has functions of TIMESTAMP
    alone: they are the same in every zone."""
    if not isinstance(of, Call):
        return
    if of.function == "unix_micros":
        yield from of.arguments
    if of.function == "cast" and of.type.name == "timestamp_ntz":
        truncated = of.arguments[0]
        if isinstance(truncated, Call) and truncated.function == "date_trunc":
            yield from (of, truncated, *(each for each in truncated.arguments if isinstance(each, Call)))


def _check_times(call: Call, session: SessionDialect) -> None:
    types = [argument.type.name for argument in call.arguments]
    to = call.type.name
    if call.function == "cast":
        if types[0] == "string" and (to in _TIMES or (to == "date" and isinstance(call.arguments[0], Literal))):
            unsupported(f"this text as {to} in dialect postgres", "cast a literal of the form yyyy-mm-dd hh:mm:ss")
        if types[0] in _TIMES and to not in (*_TIMES, "date"):
            unsupported(f"a cast of {types[0]} to {to} in dialect postgres", "leave it as it is", "cast")
    if call.function in _DAYLESS or session.in_utc:
        return
    is_other = "timestamp" in types and to not in ("boolean", "timestamp")
    if is_other or (to == "timestamp" and (call.function == "date_trunc" or {"date", "timestamp_ntz"} & set(types))):
        hint = "SET TimeZone = 'UTC'"
        unsupported(f"{call.function} of timestamptz in the time zone {session.zone}", hint, call.function)


def _check_bytes(call: Call) -> None:
    """Spark casts a text without a type to the bytes of its characters: also '\\x00ff', which is two bytes there."""
    if call.function == "cast" and {call.arguments[0].type.name, call.type.name} == {"string", "binary"}:
        unsupported("a text beside bytes in dialect postgres", r"write the bytes as '\x00ff'::bytea")


def _check_reals(call: Call) -> None:
    """Where one of several values is chosen, or is in a list, PostgreSQL makes the others reals."""
    if not any(_is_widened(argument) for argument in call.arguments):
        return
    others = [argument for argument in call.arguments if not _is_widened(argument) and argument.type.name == "double"]
    texts = [each for each in others if isinstance(each, Call) and each.function == "cast" and _has_text(each)]
    if texts or (call.function not in _COMPUTED and any(_is_made(each) for each in others)):
        unsupported("a real beside this value in dialect postgres", "cast the value to double precision", call.function)


def _check_reals_of_union(node: Union) -> None:
    rows = [each.exprs for each in node.inputs if isinstance(each, Project)]
    for column in zip(*rows, strict=True):
        others = [each for each in column if not _is_widened(each)]
        if len(others) < len(column) and (len(rows) < len(node.inputs) or any(map(_is_made, others))):
            unsupported("a UNION of reals and other numbers in dialect postgres", "cast them to double precision")


def _is_widened(of: ScalarExpr) -> bool:
    return isinstance(of, Call) and of.function == "cast" and of.type.name == "double" and _is_real(of.arguments[0])


def _is_real(of: ScalarExpr) -> bool:
    return of.type.name == "float"


def _has_text(of: Call) -> bool:
    return of.arguments[0].type.name == "string"


def _is_made(of: ScalarExpr) -> bool:
    """Whether a double is a number of another type in the text."""
    return isinstance(of, Literal) or (isinstance(of, Call) and of.function == "cast")


def _scale(function: str, types: list[SqlType]) -> int:
    """The digits behind the point that the exact result has."""
    scales = [of.scale if of.name == "decimal" else 0 for of in types]
    return sum(scales) if function == "*" else max(scales)
