"""Window: each row of the input, with one more column per call over the row's partition.

    out[t] = for each partition of in[t]: row ++ call_1(partition, row) ++ call_2(partition, row) ...

    SELECT a, b, sum(b) OVER (PARTITION BY a ORDER BY b) FROM t

State: the input, arranged by the partition's columns. Cost of an update: each partition that it touches is evaluated
whole, once per touched time (`groups/reevaluated_groups.py`). A call that fails makes the whole partition one error.
"""

from __future__ import annotations

from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.lir import OrderKey, Window, WindowCall, WindowFrame
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.ordering import Order
from tidemark_replica.kernels.groups.reevaluated_groups import ReevaluatedGroupsSpec
from tidemark_replica.kernels.window.calls import WindowColumn
from tidemark_replica.kernels.window.frames import Bound, Distance, Frame
from tidemark_replica.kernels.window.window import WindowFunction
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.lowering_stream import Stream, arrow_types
from tidemark_replica.render.plan.pipeline import Kernel
from tidemark_replica.values.arrow_types import arrow_type

_UNITS = {"interval year to month": "months", "interval day to second": "micros"}


def lower_window(scope: Scope, plan: Window, stream: Stream) -> Stream:
    """Lower a Window to the kernel that reevaluates whole groups."""
    types = arrow_types(stream.schema)
    layout = Layout.of_rows(types, plan.partition)
    order = tuple(Order(o.column, o.descending, o.nulls_last) for o in plan.order)
    function = WindowFunction(types, order, tuple(_call(c, plan) for c in plan.calls))
    spec = ReevaluatedGroupsSpec(scope.new_arrangement("window", layout), layout, function)
    return Stream(Kernel(spec, stream.tree), plan.schema)


def _call(call: WindowCall, plan: Window) -> WindowColumn:
    arguments = ", ".join(f"c{a}" for a in call.arguments) or ("*" if call.function == "count" else "")
    return WindowColumn(
        call.function,
        call.arguments,
        arrow_type(call.type.type),
        f"{call.function}({arguments}) OVER",
        None if call.frame is None else _frame(call.frame, plan),
        tuple(_value(p) for p in call.parameters),
        call.ignore_nulls,
    )


def _value(parameter: Literal) -> str | int | float:
    text = str(parameter.value)
    if parameter.type.is_integral:
        return int(text)
    return float(text) if parameter.type.is_floating else text


def _frame(frame: WindowFrame, plan: Window) -> Frame:
    in_rows = frame.unit == "rows"
    return Frame(in_rows, *(_bound(b, in_rows, plan.order, plan) for b in (frame.lower, frame.upper)))


def _bound(bound: Literal | None, in_rows: bool, order: tuple[OrderKey, ...], plan: Window) -> Bound:
    if bound is None:
        return None
    text = str(bound.value)
    if in_rows or text == "0":
        return int(text)
    if bound.type.name in _UNITS:
        return Distance(int(text), _UNITS[bound.type.name])
    ordered = plan.input.schema[order[0].column].type
    if ordered.name == "date":
        return Distance(int(text), "days")
    if bound.type.is_decimal:
        return Distance(int(text.replace(".", "")))
    return Distance(float(text) if bound.type.is_floating else int(text))
