"""LIR printed as an indented tree.

    Reduce key=[c0] accumulable [sum(c1), count(*)]
      Join linear: 0 → 1 on [c0 = c1] keep [c1 | c0]
        Get s:lineitem
        Mfp filter (c3 >= DATE '1994-01-01') project [c0, c1]
          Get s:orders

`cN` is column N of the operator's input row. In a join stage the key is "stream = lookup", and `keep` lists the columns
of both that go on. A delta join has a path for each input. In a reduce, the aggregates read `values`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidemark_protocol.functions.sql_text import literal_sql, to_sql
from tidemark_protocol.plan.dataflow import (
    ContinualTaskSink,
    CopyToSink,
    DataflowDescription,
    MaterializedViewSink,
    SubscribeSink,
)
from tidemark_protocol.plan.expr import ScalarExpr
from tidemark_protocol.plan.lir import (
    AccumulableReduce,
    Aggregate,
    BasicReduce,
    CollationReduce,
    Constant,
    DeltaJoin,
    DeltaPath,
    DistinctReduce,
    FlatMap,
    Get,
    HierarchicalReduce,
    Join,
    JoinStage,
    Let,
    LetRec,
    LinearJoin,
    MapFilterProject,
    Mfp,
    OrderKey,
    Plan,
    Reduce,
    ReducePlan,
    TopK,
    Union,
    Window,
    WindowCall,
    WindowFrame,
    inputs_of,
)

_MAX_ROWS_SHOWN = 5


def explain(plan: Plan) -> str:
    """The tree, one node per line, inputs indented below."""
    return "\n".join(_lines(plan, 0)) + "\n"


def explain_dataflow(description: DataflowDescription) -> str:
    """The whole dataflow: its imports, its objects and its exports."""
    parts = []
    for source in description.source_imports:
        columns = ", ".join(source.shard.columns[c].name for c in source.columns)
        parts.append(f"import {source.id} [{columns}]\n")
    parts += [f"import index {index.on} by {_list(index.key)}\n" for index in description.index_imports]
    parts += [f"\n{built.id} =\n{explain(built.plan)}" for built in description.objects]
    parts.append("\n")
    for export in description.index_exports:
        key = ", ".join(export.columns[k].name for k in export.key)
        parts.append(f"index on {export.on} by [{key}]\n")
    parts += [
        f"{_SINKS[type(sink.sink)]} of {sink.on}{_sink_details(sink.sink)}\n" for sink in description.sink_exports
    ]
    if description.until is not None:
        parts.append(f"until {description.until}\n")
    return "".join(parts)


def _sink_details(sink: object) -> str:
    if isinstance(sink, MaterializedViewSink) and sink.refresh is not None:
        return f", refreshed {sink.refresh}"
    if not isinstance(sink, ContinualTaskSink):
        return ""
    own = "" if sink.own is None else f", reading its own output as {sink.own}"
    return f" at each change of {sink.watches}{own}"


_SINKS = {
    MaterializedViewSink: "materialized view",
    SubscribeSink: "subscribe",
    CopyToSink: "copy",
    ContinualTaskSink: "continual task",
}


def _lines(plan: Plan, depth: int) -> Iterator[str]:
    pad = "  " * depth
    if isinstance(plan, Let):
        yield f"{pad}Let {plan.id} ="
        yield from _lines(plan.value, depth + 2)
        yield f"{pad}in"
        yield from _lines(plan.body, depth + 1)
        return
    if isinstance(plan, LetRec):
        yield f"{pad}LetRec"
        for binding in plan.bindings:
            ends = "" if binding.return_at_limit else ", else an error"
            limit = "" if binding.max_iterations is None else f" at most {binding.max_iterations} times{ends}"
            yield f"{pad}  {binding.id}{limit} ="
            yield from _lines(binding.value, depth + 2)
        yield f"{pad}in"
        yield from _lines(plan.body, depth + 1)
        return
    yield pad + _node_text(plan)
    if isinstance(plan, Join) and isinstance(plan.plan, DeltaJoin):
        yield from (f"{pad}    path {_path(path)}" for path in plan.plan.paths)
    for below in inputs_of(plan):
        yield from _lines(below, depth + 1)


def _node_text(plan: Plan) -> str:
    if isinstance(plan, Constant):
        return _constant(plan)
    if isinstance(plan, Get):
        return f"Get {plan.id}" + ("" if plan.key is None else f" by {_list(plan.key)}")
    if isinstance(plan, Mfp):
        return "Mfp" + _mfp(plan.mfp)
    if isinstance(plan, FlatMap):
        return f"FlatMap {plan.function}{_list(plan.arguments)}{_mfp(plan.mfp_after)}"
    if isinstance(plan, Join):
        return _join(plan)
    if isinstance(plan, Reduce):
        values = f" values={_list(plan.values)}" if plan.values else ""
        return f"Reduce key={_list(plan.key)}{values} {_reduce(plan.plan)}{_mfp(plan.mfp_after)}"
    if isinstance(plan, TopK):
        return _top_k(plan)
    if isinstance(plan, Window):
        return _window(plan)
    if isinstance(plan, Union) and plan.consolidate_output:
        return "Union consolidating"
    return type(plan).__name__


def _constant(plan: Constant) -> str:
    if plan.error is not None:
        return f"Constant error {plan.error.code}"
    shown = [
        "(" + ", ".join(map(literal_sql, row.values)) + ")" + ("" if row.diff == 1 else f" × {row.diff}")
        for row in plan.rows[:_MAX_ROWS_SHOWN]
    ]
    more = [f"… {len(plan.rows)} rows"] if len(plan.rows) > _MAX_ROWS_SHOWN else []
    return "Constant [" + ", ".join(shown + more) + "]"


def _join(plan: Join) -> str:
    if isinstance(plan.plan, LinearJoin):
        return f"Join linear: {_path(plan.plan)}"
    return f"Join delta{_mfp(plan.plan.closure)}"


def _path(path: LinearJoin | DeltaPath) -> str:
    return f"{path.source}" + "".join(map(_stage, path.stages))


def _stage(stage: JoinStage) -> str:
    keys = [
        f"{to_sql(s)} {'<=>' if n in stage.null_safe else '='} {to_sql(k)}"
        for n, (s, k) in enumerate(zip(stage.stream_key, stage.lookup_key, strict=True))
    ]
    on = f" on [{', '.join(keys)}]" if keys else " cross"
    kept = f" keep [{_positions(stage.stream_thinning)} | {_positions(stage.lookup_thinning)}]"
    return f" → {stage.lookup}{on}{kept}{_mfp(stage.closure)}"


def _mfp(mfp: MapFilterProject) -> str:
    parts = [
        f" {word} {_list(exprs)}" for word, exprs in (("map", mfp.expressions), ("filter", mfp.predicates)) if exprs
    ]
    parts += [f" {word} {_list(bounds)}" for word, bounds in (("from", mfp.lower), ("until", mfp.upper)) if bounds]
    if mfp.projection is not None and mfp.projection != tuple(range(len(mfp.extended))):
        parts.append(f" project [{_positions(mfp.projection)}]")
    return "".join(parts)


def _reduce(plan: ReducePlan) -> str:
    if isinstance(plan, DistinctReduce):
        return "distinct"
    if isinstance(plan, CollationReduce):
        return "collation (" + "; ".join(map(_reduce, plan.parts)) + ")"
    kind = {AccumulableReduce: "accumulable", HierarchicalReduce: "hierarchical", BasicReduce: "basic"}[type(plan)]
    grows = " monotonic" if isinstance(plan, HierarchicalReduce) and plan.monotonic else ""
    return f"{kind}{grows} [{', '.join(map(_aggregate, plan.aggregates))}]"


def _aggregate(aggregate: Aggregate) -> str:
    argument = "*" if aggregate.argument is None else f"v{aggregate.argument}"
    given = ", ".join([argument, *map(literal_sql, aggregate.parameters)])
    order = f" order by [{', '.join(_order(k, 'v') for k in aggregate.order)}]" if aggregate.order else ""
    where = "" if aggregate.filter is None else f" where v{aggregate.filter}"
    return f"{aggregate.function}({'distinct ' if aggregate.distinct else ''}{given}{order}){where}"


def _top_k(plan: TopK) -> str:
    limit = "" if plan.limit is None else f" limit {to_sql(plan.limit)}"
    offset = f" offset {plan.offset}" if plan.offset else ""
    order = ", ".join(map(_order, plan.order))
    return f"TopK {plan.plan.kind} group=[{_positions(plan.group_key)}] order=[{order}]{limit}{offset}"


def _window(plan: Window) -> str:
    order = ", ".join(map(_order, plan.order))
    return f"Window partition=[{_positions(plan.partition)}] order=[{order}] [{', '.join(map(_call, plan.calls))}]"


def _call(call: WindowCall) -> str:
    given = ", ".join([*(f"c{a}" for a in call.arguments), *map(literal_sql, call.parameters)])
    nulls = " ignore nulls" if call.ignore_nulls else ""
    return f"{call.function}({given}){nulls}{'' if call.frame is None else _frame(call.frame)}"


def _frame(frame: WindowFrame) -> str:
    ends = ("unbounded" if end is None else literal_sql(end) for end in (frame.lower, frame.upper))
    return f" {frame.unit} between {' and '.join(ends)}"


def _order(key: OrderKey, letter: str = "c") -> str:
    return f"{letter}{key.column}{' desc' if key.descending else ''}{' nulls last' if key.nulls_last else ''}"


def _list(exprs: Iterable[ScalarExpr]) -> str:
    return "[" + ", ".join(map(to_sql, exprs)) + "]"


def _positions(positions: Iterable[int]) -> str:
    return ", ".join(f"c{p}" for p in positions)
