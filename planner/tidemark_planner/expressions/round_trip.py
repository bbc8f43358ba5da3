"""The proof that each expression's Spark SQL text means the expression.

Replicas evaluate text. So every scalar expression of a plan is written as text (sql_text.to_sql), analysed by Spark
over columns of the same types and lowered again, and must give the same tree. An expression that does not is refused
while planning, rather than computed wrongly later. One query proves all expressions of a plan. Proven expressions are
remembered (Catalyst.proven_expressions) in a form that is independent of the positions of their columns:

    c4 + c2 * 2 over (int, ..., int, int)     ─►     c0 + c1 * 2 over (int, int)     proved?
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidemark_planner.catalyst.analyser import Catalyst, quoted
from tidemark_planner.catalyst.json_tree import CatalystNode
from tidemark_planner.errors import refuse
from tidemark_planner.expressions.constant_patterns import check_constant_patterns
from tidemark_planner.expressions.expression import lower_expression
from tidemark_planner.sql.try_functions import mark_try_functions
from tidemark_protocol.functions.lambdas import renamed
from tidemark_protocol.functions.sql_text import to_sql
from tidemark_protocol.plan.expr import Call, ColumnRef, ScalarExpr, map_columns, shift_columns, walk
from tidemark_protocol.plan.lir import DeltaJoin, FlatMap, Join, MapFilterProject, Mfp, Plan, Reduce, Schema, inputs_of
from tidemark_protocol.types import BOOLEAN, Column

LEAF = "/round-trip"
TypedExpression = tuple[ScalarExpr, Schema]


def check_round_trip(catalyst: Catalyst, plans: Iterable[Plan]) -> None:
    """Raise Refusal for the first expression whose text is not proven to mean it."""
    found = dict.fromkeys(p for plan in plans for p in _expressions(plan) if isinstance(p[0], Call))
    unproven = [
        p for p in dict.fromkeys(_over_own_columns(*p) for p in found) if not catalyst.proven_expressions.has(p)
    ]
    if not unproven:
        return
    check_constant_patterns(catalyst, (expr for expr, _ in unproven))
    starts, columns = _layout(unproven)
    moved = [shift_columns(expr, starts[schema]) for expr, schema in unproven]
    texts = ", ".join(f"{to_sql(expr)} AS e{n}" for n, expr in enumerate(moved))
    catalyst.declare(LEAF, columns)
    tree = catalyst.analyse(mark_try_functions(catalyst.jvm, f"SELECT {texts} FROM {quoted(LEAF)}")).tree
    known = _columns_of(tree, columns)
    for expr, output in zip(moved, tree.expressions("projectList"), strict=True):
        if renamed(lower_expression(output, known)) != renamed(expr):
            refuse(
                "FORBIDDEN_FUNCTION",
                f"the expression {to_sql(expr)} cannot be sent to replicas as text: write it in another way",
            )
    catalyst.proven_expressions.add(unproven)


def _over_own_columns(expr: ScalarExpr, schema: Schema) -> TypedExpression:
    """The expression over the columns that it reads alone, in the order in which it reads them."""
    places = {c: n for n, c in enumerate(dict.fromkeys(e.index for e in walk(expr) if isinstance(e, ColumnRef)))}
    return map_columns(expr, places.__getitem__), tuple(schema[c] for c in places)


def _layout(unproven: Iterable[TypedExpression]) -> tuple[dict[Schema, int], list[Column]]:
    """All schemas side by side, with unique column names, and where each begins."""
    starts: dict[Schema, int] = {}
    columns: list[Column] = []
    for _, schema in unproven:
        if schema not in starts:
            starts[schema] = len(columns)
            columns += [Column(f"c{len(columns) + n}", c.type, c.nullable) for n, c in enumerate(schema)]
    return starts, columns or [Column("c0", BOOLEAN)]


def _columns_of(tree: CatalystNode, columns: list[Column]) -> dict[int, ColumnRef]:
    leaf = tree
    while leaf.kind != "LogicalRDD":
        leaf = leaf.children[0]
    attributes = [a.expr_id for a in leaf.expressions("output")]
    return {a: ColumnRef(n, c.type, c.nullable) for n, (a, c) in enumerate(zip(attributes, columns, strict=True))}


def _expressions(plan: Plan) -> Iterator[TypedExpression]:
    """Every scalar expression of the plan with the schema that it is over."""
    if isinstance(plan, Mfp):
        yield from _mfp_expressions(plan.mfp)
    elif isinstance(plan, FlatMap):
        yield from ((e, plan.input.schema) for e in plan.arguments)
        yield from _mfp_expressions(plan.mfp_after)
    elif isinstance(plan, Reduce):
        yield from ((e, plan.input.schema) for e in (*plan.key, *plan.values))
        yield from _mfp_expressions(plan.mfp_after)
    elif isinstance(plan, Join):
        yield from _join_expressions(plan)
    for below in inputs_of(plan):
        yield from _expressions(below)


def _join_expressions(plan: Join) -> Iterator[TypedExpression]:
    if isinstance(plan.plan, DeltaJoin):  # lookups are by columns and compute nothing
        yield from _mfp_expressions(plan.plan.closure)
        return
    stream = plan.inputs[plan.plan.source].schema
    for stage in plan.plan.stages:
        yield from ((e, stream) for e in stage.stream_key)
        yield from ((e, plan.inputs[stage.lookup].schema) for e in stage.lookup_key)
        yield from _mfp_expressions(stage.closure)
        stream = stage.closure.output


def _mfp_expressions(mfp: MapFilterProject) -> Iterator[TypedExpression]:
    yield from ((e, mfp.extended) for e in (*mfp.expressions, *mfp.predicates, *mfp.lower, *mfp.upper))
