"""The checks of aggregates, of the plans that keep them, and of window calls."""

from __future__ import annotations

from typing import Any

from tidemark_protocol.check.scalar import refuse
from tidemark_protocol.functions import aggregates, windows
from tidemark_protocol.plan.expr import Literal, ScalarExpr
from tidemark_protocol.plan.lir import (
    AccumulableReduce,
    AggregateExpr,
    BasicReduce,
    CollationReduce,
    HierarchicalReduce,
    OrderKey,
    ReducePlan,
    Schema,
    Window,
    WindowCall,
    WindowFrame,
)
from tidemark_protocol.plan.literals import is_valid
from tidemark_protocol.types import BOOLEAN, INT, INTERVAL_TYPES, SqlType

_KINDS: dict[type, str] = {
    AccumulableReduce: aggregates.ACCUMULABLE,
    HierarchicalReduce: aggregates.HIERARCHICAL,
    BasicReduce: aggregates.BASIC,
}


def check_aggregates(plan: ReducePlan, values: tuple[ScalarExpr, ...]) -> tuple[AggregateExpr, ...]:
    """The aggregates of the reduce in the order of its columns; raises PlanNotAllowed unless all are allowed."""
    made = _in_order(plan)
    for part in plan.parts if isinstance(plan, CollationReduce) else (plan,):
        for aggregate in getattr(part, "aggregates", ()):
            _check_aggregate(aggregate, values, _KINDS[type(part)])
    return made


def _in_order(plan: Any) -> tuple[AggregateExpr, ...]:
    if isinstance(plan, AccumulableReduce | HierarchicalReduce | BasicReduce):
        return plan.aggregates
    if not isinstance(plan, CollationReduce):
        return ()
    made = [a for part in plan.parts for a in part.aggregates]
    places = [p for at in plan.positions for p in at]
    if sorted(places) != list(range(len(made))) or len(plan.parts) != len(plan.positions):
        refuse("the parts of a reduce do not give each aggregate its own position")
    return tuple(a for _, a in sorted(zip(places, made, strict=True), key=lambda pair: pair[0]))


def _check_aggregate(aggregate: AggregateExpr, values: tuple[ScalarExpr, ...], kind: str) -> None:
    name = aggregate.function
    for position in (aggregate.argument, aggregate.filter, *(k.column for k in aggregate.order)):
        if position is not None and not 0 <= position < len(values):
            refuse(f"{name} reads value {position} of {len(values)}")
    if aggregate.filter is not None and values[aggregate.filter].type != BOOLEAN:
        refuse(f"the filter of {name} is not boolean")
    argument = None if aggregate.argument is None else values[aggregate.argument].type
    if aggregates.result_type(name, argument) != aggregate.type.type:
        refuse(f"there is no {name}({argument or '*'}) of type {aggregate.type.type}")
    entry = aggregates.AGGREGATES[name]
    if entry.kind != kind:
        refuse(f"{name} is kept by a reduce that is {entry.kind}, not {kind}")
    if not entry.never_null and not aggregate.type.nullable:
        refuse(f"{name} is declared as never NULL, but may be NULL")
    if aggregate.order and not entry.ordered:
        refuse(f"{name} does not depend on an order")
    if aggregate.distinct and (argument is None or not entry.distinct):
        refuse(f"{name}({'*' if argument is None else 'x'}) is not of distinct arguments")
    _check_parameters(name, aggregate.parameters, entry.parameters)


def _check_parameters(name: str, given: tuple[Literal, ...], wanted: tuple[SqlType, ...]) -> None:
    if tuple(g.type for g in given) != wanted or any(g.value is None or not is_valid(g) for g in given):
        refuse(f"the parameters of {name} are not ({', '.join(map(str, wanted))})")
    if name.startswith("percentile") and not 0 <= float(str(given[0].value)) <= 1:
        refuse(f"{name} is of a fraction between 0 and 1")
    if name in ("ntile", "nth_value") and int(str(given[0].value)) < 1:
        refuse(f"{name} counts from 1")


def check_window_calls(plan: Window) -> None:
    """Raise PlanNotAllowed unless each call is on the allow-list and its frame fits the window's order."""
    schema = plan.input.schema
    for call in plan.calls:
        _check_call(call, schema)
        if call.frame is not None:
            _check_frame(call.frame, plan.order, schema)


def _check_call(call: WindowCall, schema: Schema) -> None:
    found = windows.signature(call.function, [schema[a].type for a in call.arguments])
    if found is None or found.result != call.type.type:
        given = ", ".join(str(schema[a].type) for a in call.arguments)
        refuse(f"there is no window function {call.function}({given}) of type {call.type.type}")
    if found.framed != (call.frame is not None):
        refuse(f"the window function {call.function} {'needs a' if found.framed else 'has no'} frame")
    may_be_null = found.nullable
    if may_be_null is None:
        may_be_null = any(schema[a].nullable for a in call.arguments)
    if may_be_null and not call.type.nullable:
        refuse(f"the window function {call.function} is declared as never NULL, but may be NULL")
    if call.ignore_nulls and call.function not in windows.IGNORES_NULLS:
        refuse(f"the window function {call.function} cannot ignore NULLs")
    _check_parameters(call.function, call.parameters, found.parameters)


def _check_frame(frame: WindowFrame, order: tuple[OrderKey, ...], schema: Schema) -> None:
    if frame.unit not in windows.FRAME_UNITS:
        refuse(f"a frame in {frame.unit} is not known")
    for bound in (frame.lower, frame.upper):
        if bound is None:
            continue
        if bound.value is None or not is_valid(bound):
            refuse("the bound of a frame is not a value")
        if bound.type == INT and (frame.unit == "rows" or bound.value == "0"):
            continue
        if frame.unit == "rows":
            refuse(f"a frame in rows has a bound of type {bound.type}")
        if len(order) != 1:
            refuse("a frame in ranges with an offset needs exactly one column to order by")
        _check_distance(bound.type, schema[order[0].column].type)


def _check_distance(bound: SqlType, ordered: SqlType) -> None:
    """Distances between numbers have their type; between dates and times they are intervals (between dates also days,
    an int).
    """
    moment = ordered.name in ("date", "timestamp", "timestamp_ntz")
    fits = bound == ordered if ordered.is_numeric else moment and bound.name in INTERVAL_TYPES
    if not fits and not (ordered.name == "date" and bound == INT):
        refuse(f"a frame over {ordered} has a bound of type {bound}")
