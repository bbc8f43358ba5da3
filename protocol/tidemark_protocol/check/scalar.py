"""The checks of scalar expressions and of MapFilterProject ; `plan.py` and `nodes.py` call them."""

from __future__ import annotations

from typing import NoReturn

from tidemark_protocol.errors import PlanNotAllowed
from tidemark_protocol.functions.call_types import describe
from tidemark_protocol.functions.lambdas import unbound
from tidemark_protocol.functions.registry import FUNCTIONS, is_constant
from tidemark_protocol.plan import literals
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal, ScalarExpr, is_nullable, walk
from tidemark_protocol.plan.lir import MapFilterProject, Schema
from tidemark_protocol.types import BIGINT, BOOLEAN, INTERVAL_TYPES, TIMESTAMP, ColumnType

MAX_EXPR_NODES = 10_000
MAX_LITERAL_CHARACTERS = 1 << 20
_DATETIMES = ("date", "timestamp", "timestamp_ntz")


def refuse(why: str) -> NoReturn:
    raise PlanNotAllowed(why)


def check_expr(expr: ScalarExpr, schema: Schema) -> None:
    """Raise PlanNotAllowed unless the expression is allowed and types over rows of `schema`."""
    for count, node in enumerate(walk(expr), start=1):
        if count > MAX_EXPR_NODES:
            refuse(f"an expression has more than {MAX_EXPR_NODES} nodes")
        if isinstance(node, ColumnRef):
            _check_column(node, schema)
        elif isinstance(node, Literal):
            _check_literal(node)
        else:
            _check_call(node)
    if unbound(expr):
        refuse("an expression reads a variable that no enclosing function binds")


def check_mfp(mfp: MapFilterProject) -> None:
    """Raise PlanNotAllowed unless each expression reads columns before it alone, and the projection is in range."""
    row = list(mfp.input)
    for expr in mfp.expressions:
        _check_value(expr, tuple(row))
        row.append(ColumnType(expr.type, is_nullable(expr)))
    whole = tuple(row)
    for predicate in mfp.predicates:
        check_expr(predicate, whole)
        if predicate.type != BOOLEAN:
            refuse(f"a filter is of type {predicate.type}, not boolean")
    for bound in (*mfp.lower, *mfp.upper):
        check_expr(bound, whole)
        if bound.type not in (TIMESTAMP, BIGINT):
            refuse(f"a temporal bound is of type {bound.type}, neither timestamp nor bigint (milliseconds)")
    if any(not 0 <= c < len(whole) for c in mfp.projection or ()):
        refuse(f"a projection names a column beyond the {len(whole)} that there are")


def _check_value(expr: ScalarExpr, schema: Schema) -> None:
    check_expr(expr, schema)
    if expr.type.name in INTERVAL_TYPES:
        refuse(f"a column of type {expr.type} cannot be kept")


def _check_column(node: ColumnRef, schema: Schema) -> None:
    if not 0 <= node.index < len(schema):
        refuse(f"column {node.index} is read of a row of {len(schema)}")
    column = schema[node.index]
    if node.type != column.type:
        refuse(f"column {node.index} is read as {node.type}, but is {column.type}")
    if column.nullable and not node.nullable:
        refuse(f"column {node.index} is read as never NULL, but may be NULL")


def _check_literal(node: Literal) -> None:
    if node.value is not None and len(node.value) > MAX_LITERAL_CHARACTERS:
        refuse(f"a literal has more than {MAX_LITERAL_CHARACTERS} characters")
    if not literals.is_valid(node):
        refuse(f"a literal is not a value of type {node.type}")


def _check_call(node: Call) -> None:
    function = FUNCTIONS.get(node.function)
    if function is None:
        refuse(f"function {node.function!r} is not on the allow-list")
    if not function.accepts(node):
        refuse(f"there is no {describe(node)}")
    if function.nullable(node) and not node.nullable:
        refuse(f"{describe(node)} is declared as never NULL, but may be NULL")
    if node.function in ("cast", "try_cast") and node.type.name in _DATETIMES:
        _check_moment(node.arguments[0])


def _check_moment(argument: ScalarExpr) -> None:
    """Refuse constant text that becomes a date or time relative to the current time, such as 'today'."""
    if argument.type.name != "string" or not is_constant(argument):
        return
    if not isinstance(argument, Literal):
        refuse("constant text is put together and cast to a date or time: write the date or time as one literal")
    if argument.value is not None and literals.is_special_time(argument.value):
        refuse(f"{argument.value!r} as a date or time depends on the current time: write the date or time itself")
