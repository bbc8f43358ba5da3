"""The checks of each kind of LIR node against the schemas of its inputs; `plan.py` walks the plan."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tidemark_protocol.check.aggregates import check_aggregates, check_window_calls
from tidemark_protocol.check.scalar import check_expr, check_mfp, refuse
from tidemark_protocol.functions import table_functions
from tidemark_protocol.plan.expr import ColumnRef, Literal, ScalarExpr, is_nullable
from tidemark_protocol.plan.lir import (
    Changes,
    Constant,
    DeltaPath,
    FlatMap,
    Join,
    JoinStage,
    LinearJoin,
    Mfp,
    Negate,
    Reduce,
    Schema,
    Threshold,
    TopK,
    Union,
    Window,
)
from tidemark_protocol.plan.literals import is_valid
from tidemark_protocol.types import BIGINT, ColumnType

TOP_K_KINDS = frozenset({"heads", "monotonic_top1", "monotonic_top_k"})


def fits(actual: Schema, declared: Schema) -> bool:
    """Whether rows of `actual` may be read as `declared`: the same types, and no NULL where none is declared."""
    return len(actual) == len(declared) and all(
        a.type == d.type and (d.nullable or not a.nullable) for a, d in zip(actual, declared, strict=True)
    )


def check_constant(plan: Constant) -> None:
    for row in plan.rows:
        if any(not is_valid(v) for v in row.values):
            refuse("a constant row holds a literal that is no value of its type")
        if not fits(tuple(ColumnType(v.type, v.value is None) for v in row.values), plan.schema):
            refuse("a constant row does not have the columns that its collection declares")


def check_mfp_node(plan: Mfp) -> None:
    _check_over(plan.mfp.input, plan.input.schema, "a map-filter-project")
    check_mfp(plan.mfp)


def check_flat_map(plan: FlatMap) -> None:
    schema = plan.input.schema
    _check_keys(plan.arguments, schema)
    made = table_functions.produces(plan.function, [a.type for a in plan.arguments])
    if made is None:
        of = ", ".join(str(a.type) for a in plan.arguments)
        refuse(f"table function {plan.function!r} of ({of}) is not on the allow-list")
    if not fits(made, plan.produces):
        refuse(f"table function {plan.function} does not give the columns that its node declares")
    _check_over(plan.mfp_after.input, schema + plan.produces, "the projection of a table function")
    check_mfp(plan.mfp_after)


def check_join(plan: Join) -> None:
    if isinstance(plan.plan, LinearJoin):
        _check_path(plan, plan.plan)
        return
    if [path.source for path in plan.plan.paths] != list(range(len(plan.inputs))) or not plan.inputs:
        refuse("a delta join does not have one path for each of its inputs, in their order")
    for path in plan.plan.paths:
        _check_over(plan.plan.closure.input, _check_path(plan, path), "the closure of a delta join")
        if not all(_is_lookup(stage) for stage in path.stages):
            refuse(
                f"the path of a delta join from input {path.source} computes: its keys must be columns of both sides"
            )
    check_mfp(plan.plan.closure)


def _check_path(plan: Join, path: LinearJoin | DeltaPath) -> Schema:
    """The schema of the stream at the end of the path."""
    met = sorted([path.source, *(s.lookup for s in path.stages)])
    if not path.stages or met != list(range(len(plan.inputs))):
        refuse(f"a join path from input {path.source} does not meet each of the {len(plan.inputs)} inputs once")
    stream = plan.inputs[path.source].schema
    for stage in path.stages:
        stream = _check_stage(stage, stream, plan.inputs[stage.lookup].schema)
    return stream


def _is_lookup(stage: JoinStage) -> bool:
    """Whether the stage looks up columns by columns (at least one, each of the lookup once) and computes nothing."""
    closure, columns = stage.closure, {k.index for k in stage.lookup_key if isinstance(k, ColumnRef)}
    computes = closure.expressions or closure.predicates or closure.lower or closure.upper
    by_columns = all(isinstance(k, ColumnRef) for k in stage.stream_key) and len(columns) == len(stage.lookup_key)
    return bool(columns) and by_columns and not computes


def _check_stage(stage: JoinStage, stream: Schema, lookup: Schema) -> Schema:
    _check_keys(stage.stream_key, stream)
    _check_keys(stage.lookup_key, lookup)
    if [k.type for k in stage.stream_key] != [k.type for k in stage.lookup_key]:
        refuse("the two sides of a join key differ in type")
    if any(not 0 <= n < len(stage.stream_key) for n in stage.null_safe):
        refuse("a null-safe position is beyond the join key")
    _check_positions(stage.stream_thinning, stream)
    _check_positions(stage.lookup_thinning, lookup)
    kept = tuple(stream[c] for c in stage.stream_thinning) + tuple(lookup[c] for c in stage.lookup_thinning)
    _check_over(stage.closure.input, kept, "a join's closure")
    check_mfp(stage.closure)
    return stage.closure.output


def check_reduce(plan: Reduce) -> None:
    schema = plan.input.schema
    _check_keys(plan.key, schema)
    _check_keys(plan.values, schema)
    made = check_aggregates(plan.plan, plan.values)
    key = tuple(ColumnType(k.type, is_nullable(k)) for k in plan.key)
    _check_over(plan.mfp_after.input, key + tuple(a.type for a in made), "the projection of a reduce")
    check_mfp(plan.mfp_after)


def check_top_k(plan: TopK) -> None:
    schema = plan.input.schema
    _check_positions((*plan.group_key, *(o.column for o in plan.order)), schema)
    if plan.limit is not None:
        check_expr(plan.limit, ())
        if plan.limit.type != BIGINT:
            refuse(f"a limit is of type {plan.limit.type}, not bigint")
        if isinstance(plan.limit, Literal) and int(plan.limit.value or 0) < 0:
            refuse(f"a limit of {plan.limit.value} rows is negative")
    if plan.offset < 0:
        refuse("an offset is negative")
    if plan.plan.kind not in TOP_K_KINDS:
        refuse(f"there is no top-k of kind {plan.plan.kind!r}")


def check_window(plan: Window) -> None:
    _check_positions((*plan.partition, *(o.column for o in plan.order)), plan.input.schema)
    for call in plan.calls:
        _check_positions(call.arguments, plan.input.schema)
    check_window_calls(plan)


def check_union(plan: Union) -> None:
    if not plan.inputs:
        refuse("a union has no inputs")
    first = [c.type for c in plan.inputs[0].schema]
    if any([c.type for c in each.schema] != first for each in plan.inputs):
        refuse("the inputs of a union differ in their columns")


def check_nothing(plan: Negate | Threshold | Changes) -> None:
    """The schema of these nodes follows from that of their input."""


def _check_keys(keys: tuple[ScalarExpr, ...], schema: Schema) -> None:
    for key in keys:
        check_expr(key, schema)


def _check_positions(positions: tuple[int, ...], schema: Schema) -> None:
    if any(not 0 <= p < len(schema) for p in positions):
        refuse(f"a position is beyond the {len(schema)} columns of the row")


def _check_over(declared: Schema, actual: Schema, what: str) -> None:
    if not fits(actual, declared):
        refuse(f"{what} is over other columns than its input's")


_BY_KIND: dict[type, Callable[[Any], None]] = {
    Constant: check_constant,
    Mfp: check_mfp_node,
    FlatMap: check_flat_map,
    Join: check_join,
    Reduce: check_reduce,
    TopK: check_top_k,
    Window: check_window,
    Negate: check_nothing,
    Threshold: check_nothing,
    Union: check_union,
    Changes: check_nothing,
}


def check_node(plan: Any) -> None:
    """Check the node itself; the caller checks its inputs."""
    _BY_KIND[type(plan)](plan)
