"""All calls that the Arrow evaluator admits, of every function and combination of types.

Some functions are admitted with literals alone that other functions have no use for: these calls are added here.
"""

from __future__ import annotations

from functools import cache

from tests.planner.every_call import TYPES, calls_of
from tidemark_protocol.functions.registry import FUNCTIONS, call
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal
from tidemark_protocol.types import BOOLEAN, STRING
from tidemark_replica.evaluator.functions import admits_expression

_TEXT = ColumnRef(2 * TYPES.index(STRING), STRING)


def _texts(*values: str) -> tuple[Literal, ...]:
    return tuple(Literal(value, STRING) for value in values)


_MORE: dict[str, tuple[Call, ...]] = {
    "replace": tuple(
        call("replace", (_TEXT, *_texts(wanted, by)), STRING)
        for wanted, by in (("a", "bb"), ("Ω", ""), ("\\", "%"), (" ", "數"), ("[", "]"))
    ),
    "like": tuple(
        call("like", (_TEXT, *_texts(pattern)), BOOLEAN)
        for pattern in ("a%", "%c", "%b%", "a_c", "%", "", "_", "abc", "%\n", "ß%🙂", "[1%", "%.%")
    ),
}


def _admitted(name: str) -> tuple[Call, ...]:
    calls = dict.fromkeys((*calls_of(name), *_MORE.get(name, ())))
    return tuple(c for c in calls if admits_expression(c))


@cache
def admitted_calls() -> dict[str, tuple[Call, ...]]:
    """By function. To find them takes seconds, so no module asks for them while tests are collected."""
    return {name: calls for name in FUNCTIONS if (calls := _admitted(name))}
