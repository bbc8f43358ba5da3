"""A plan with places for literals, learnt from two statements of one shape (statement_shape.py).

    WHERE k = 7    ──► planner ──► plan ┐
    WHERE k = 12   ──► planner ──► plan ┴► they differ in literals 7 and 12 alone: template
    WHERE k = 40   ──► template ──► plan

The planner has planned both statements, and every difference of the plans is a literal of the statement, in one of the
types that its text can have. Where the plans differ in anything else, the plan depends on a value, and there is no
template.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, Generic, TypeVar

from tidemark_operator.gateway.query.statement_shape import TYPES, StatementShape
from tidemark_protocol.plan.expr import Literal

P = TypeVar("P")
_Path = tuple[str | int, ...]
"""Names of fields and positions in tuples, from the plan to a literal."""


@dataclass(frozen=True)
class PlanTemplate(Generic[P]):
    """`plan`: that of the first statement. `places`: a tree of fields and positions down to its parameters, with the
    parameters' numbers as leaves."""

    plan: P
    places: Mapping[str | int, Any]

    def filled(self, values: Sequence[str]) -> P:
        """The plan for these values of the shape's parameters."""
        plan: P = _filled(self.plan, self.places, values)
        return plan


class ValueDependent(Exception):
    """The plans of a shape depend on its statements' values."""


def learn(shape: StatementShape, plan: P, other: StatementShape, other_plan: P) -> PlanTemplate[P] | None:
    """The template of two statements of one shape; None where a parameter has the same value in both, or two parameters
    have the same two values: a literal may be of either.

    Raises:
        ValueDependent: the plans differ in more than the parameters' literals, or a parameter is in neither.
    """
    pairs = list(zip(shape.values, other.values, strict=True))
    if any(one == another for one, another in pairs) or len(set(pairs)) < len(pairs):
        return None
    places: dict[str | int, Any] = {}
    found = set[int]()
    for path, one, another in _differences(plan, other_plan):
        number = _parameter(shape, other, one, another)
        if number is None:
            raise ValueDependent
        found.add(number)
        _put(places, path, number)
    if len(found) < len(shape.values):
        raise ValueDependent
    return PlanTemplate(plan, places)


def _parameter(shape: StatementShape, other: StatementShape, one: Any, another: Any) -> int | None:
    """The parameter whose two values these are; None where they are no literals of one of its types."""
    if not (isinstance(one, Literal) and isinstance(another, Literal) and one.type == another.type):
        return None
    for at, kind in enumerate(shape.kinds):
        if (one.value, another.value) == (shape.values[at], other.values[at]) and one.type in TYPES[kind]:
            return at
    return None


def _differences(one: Any, other: Any, path: _Path = ()) -> Iterator[tuple[_Path, Any, Any]]:
    """The paths at which two plans differ, down to literals, and what they have there."""
    if one == other:
        return
    if isinstance(one, tuple) and isinstance(other, tuple) and len(one) == len(other):
        for at, (a, b) in enumerate(zip(one, other, strict=True)):
            yield from _differences(a, b, (*path, at))
    elif is_dataclass(one) and type(one) is type(other) and not isinstance(one, Literal):
        for field in fields(one):
            yield from _differences(getattr(one, field.name), getattr(other, field.name), (*path, field.name))
    else:
        yield path, one, other


def _put(places: dict[str | int, Any], path: _Path, number: int) -> None:
    for step in path[:-1]:
        places = places.setdefault(step, {})
    places[path[-1]] = number


def _filled(node: Any, places: Mapping[str | int, Any] | int, values: Sequence[str]) -> Any:
    if isinstance(places, int):
        return replace(node, value=values[places])
    if isinstance(node, tuple):
        return tuple(_filled(each, places[at], values) if at in places else each for at, each in enumerate(node))
    return replace(node, **{str(name): _filled(getattr(node, str(name)), of, values) for name, of in places.items()})
