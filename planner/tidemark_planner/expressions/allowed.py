"""Calls of the allow-list, and refusals of those that it does not have."""

from __future__ import annotations

from typing import NoReturn

from tidemark_planner.errors import refuse, unsupported
from tidemark_protocol.functions.call_types import describe
from tidemark_protocol.functions.registry import call, entry
from tidemark_protocol.functions.text import MAX_CHARACTERS, MAX_REPEATS
from tidemark_protocol.plan.expr import Call, ScalarExpr
from tidemark_protocol.types import SqlType

# Hints of what to write instead, by function.
_HINTS = {
    **dict.fromkeys(
        ("lpad", "rpad"), f": write a literal length of at most {MAX_CHARACTERS}; the text must not be padded already"
    ),
    **dict.fromkeys(
        ("from_utc_timestamp", "to_utc_timestamp"), ": write the zone as a literal, such as 'Europe/Berlin'"
    ),
    "next_day": ": write the day as a name, such as 'Monday'",
    **dict.fromkeys(("trunc", "date_trunc"), ": write the unit as a literal, such as 'MONTH'"),
    "repeat": f": write a literal number of at most {MAX_REPEATS}; the text must not be repeated already",
    **dict.fromkeys(
        ("date_format", "to_timestamp", "to_timestamp_ntz", "try_to_timestamp", "to_unix_timestamp"),
        ": write the pattern as a literal of the letters y M d H h m s S a E D",
    ),
}


def allowed_call(function: str, arguments: tuple[ScalarExpr, ...], result: SqlType) -> Call:
    """The call; raises Refusal where the allow-list has no function of such arguments."""
    made = call(function, arguments, result)
    if not entry(function).accepts(made):
        refuse("TYPE", f"there is no {describe(made)}{_HINTS.get(function, '')}", word=function)
    return made


def supported_call(function: str, arguments: tuple[ScalarExpr, ...], result: SqlType, hint: str) -> Call:
    """The call; raises Refusal with the hint where the allow-list does not take such arguments."""
    made = call(function, arguments, result)
    if not entry(function).accepts(made):
        unsupported(f"{function} of {', '.join(str(a.type) for a in arguments)}", hint, function)
    return made


def refuse_class(name: str) -> NoReturn:
    """Refuse an expression class or a method of Spark."""
    message = f"the expression {name} is not on the list of allowed functions (docs/reference/sql.md)"
    refuse("FORBIDDEN_FUNCTION", message, word=name)
