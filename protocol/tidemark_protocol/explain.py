"""LIR as a tree for people, and printed as an indented one (explained_plan.py has other forms).

    Reduce key=[c0] accumulable [sum(c1), count(*)]
      Join linear: 0 → 1 on [c0 = c1] keep [c1 | c0]
        Get s:lineitem
        Mfp filter (c3 >= DATE '1994-01-01') project [c0, c1]
          Get s:orders

Columns have their names where they are known (row_names.py); `cN` is column N of the operator's input row. In a join
stage the key is "stream = lookup", and `keep` lists the columns of both that go on. A delta join has a path for each
input. In a reduce, the aggregates read `values`: `v0` is the first of them. `(about 1,024 rows)` is an estimate, where
row counts are known.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from tidemark_protocol.explained_plan import ExplainedOperator, ExplainedPlan, lines
from tidemark_protocol.functions.sql_text import literal_sql, positional, to_sql
from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.messages.planning import Planned
from tidemark_protocol.plan.change_costs import Upkeep, upkeep_of
from tidemark_protocol.plan.dataflow import (
    BuildDesc,
    ContinualTaskSink,
    CopyToSink,
    DataflowDescription,
    IndexImport,
    MaterializedViewSink,
    ShardSink,
    SourceImport,
    SubscribeSink,
)
from tidemark_protocol.plan.expr import ScalarExpr
from tidemark_protocol.plan.lir import (
    AccumulableReduce,
    AggregateExpr,
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
    RecursiveBinding,
    Reduce,
    ReducePlan,
    TopK,
    Union,
    Window,
    WindowCall,
    WindowFrame,
    inputs_of,
    preorder,
)
from tidemark_protocol.plan.refresh import AUTO, FULL
from tidemark_protocol.plan.row_estimates import RowEstimates
from tidemark_protocol.row_names import ColumnFormat, Names, RowNames, column_format, extended
from tidemark_protocol.types import Column

_MAX_ROWS_SHOWN = 5
NOTHING_KNOWN: Mapping[GlobalId, Names] = MappingProxyType({})
NOT_COUNTED: Mapping[GlobalId, int] = MappingProxyType({})


def explain(plan: Plan) -> str:
    """The tree by positions alone, one node per line, inputs indented below."""
    return "\n".join(lines(_Printer(None).operator(plan))) + "\n"


def explain_dataflow(
    description: DataflowDescription,
    known: Mapping[GlobalId, Names] = NOTHING_KNOWN,
    rows: Mapping[GlobalId, int] = NOT_COUNTED,
) -> ExplainedPlan:
    """The whole dataflow: its imports, its objects and its exports. `known`: the columns of imported indexes, by the
    ids of the indexes or their objects. `rows`: row counts of imports; operators are shown with estimates of theirs."""
    names = RowNames(description.source_imports, description.index_imports, known)
    exported = [(i.on, i.columns) for i in description.index_exports]
    exported += [(s.on, s.sink.shard.columns) for s in description.sink_exports if isinstance(s.sink, ShardSink)]
    imports = tuple(_imports(description.source_imports, description.index_imports, names))
    objects = tuple(_objects(description.objects, exported, names, rows, _policy(description)))
    exports = []
    for export in description.index_exports:
        key = ", ".join(export.columns[k].name for k in export.key)
        exports.append(f"index on {export.on} by [{key}]")
    exports += [
        f"{_SINKS[type(sink.sink)]} of {sink.on}{_sink_details(sink.sink)}" for sink in description.sink_exports
    ]
    if description.until is not None:
        exports.append(f"until {description.until}")
    return ExplainedPlan(imports, objects, tuple(exports))


def explain_planned(
    planned: Planned, known: Mapping[GlobalId, Names] = NOTHING_KNOWN, rows: Mapping[GlobalId, int] = NOT_COUNTED
) -> ExplainedPlan:
    """A plan that is not a dataflow yet: its imports and objects. `known`, `rows`: as of `explain_dataflow`."""
    names = RowNames(planned.source_imports, planned.index_imports, known)
    exported = [(export.on, export.columns) for export in planned.exports]
    imports = tuple(_imports(planned.source_imports, planned.index_imports, names))
    return ExplainedPlan(imports, tuple(_objects(planned.objects, exported, names, rows)))


def _policy(description: DataflowDescription) -> str:
    """The refresh policy of all exports; empty: they have none, or several."""
    policies = {getattr(export.sink, "refresh_policy", "") for export in description.sink_exports}
    return policies.pop() if len(policies) == 1 and not description.index_exports else ""


def _imports(sources: Iterable[SourceImport], indexes: Iterable[IndexImport], names: RowNames) -> Iterator[str]:
    for source in sources:
        columns = ", ".join(source.shard.columns[c].name for c in source.columns)
        yield f"import {source.id} [{columns}]"
    for index in indexes:
        row = Get(index.id, index.schema)
        yield f"import index {index.on} by {_list(index.key, column_format(names.of(row)))}"


def _objects(
    objects: Iterable[BuildDesc],
    exported: Iterable[tuple[GlobalId, Sequence[Column]]],
    names: RowNames,
    rows: Mapping[GlobalId, int],
    policy: str = "",
) -> Iterator[tuple[str, ExplainedOperator]]:
    estimates = RowEstimates(rows)
    for on, columns in exported:
        names.export(on, columns)
    for built in objects:
        names.built(built.id, built.plan)
        yield built.id, _Printer(names, estimates, policy, built.plan).operator(built.plan)
        estimates.bind(built.id, built.plan)


def _binding(binding: RecursiveBinding) -> str:
    ends = "" if binding.return_at_limit else ", else an error"
    limit = "" if binding.max_iterations is None else f" at most {binding.max_iterations} times{ends}"
    return f"{binding.id}{limit} ="


def _sink_details(sink: object) -> str:
    if isinstance(sink, MaterializedViewSink):
        refreshed = "" if sink.refresh is None else f", refreshed {sink.refresh}"
        published = "" if sink.publish is None else f", published at {sink.publish.location}"
        outside = "".join(f", written to {each.target}" for each in sink.outside)
        return refreshed + _POLICIES.get(sink.refresh_policy, "") + published + outside
    if not isinstance(sink, ContinualTaskSink):
        return ""
    own = "" if sink.own is None else f", reading its own output as {sink.own}"
    return f" at each change of {sink.watches}{own}"


_POLICIES = {
    FULL: ", computed anew at each refresh",
    AUTO: ", computed anew where the changes of a time, or a refresh, are estimated to cost more",
}
_SINKS = {
    MaterializedViewSink: "materialized view",
    SubscribeSink: "subscribe",
    CopyToSink: "copy",
    ContinualTaskSink: "continual task",
}


class _Printer:
    """Prints the nodes of plans. `names`: those of columns; None: all are shown by position, and no upkeep. `policy`:
    the refresh policy, where all exports have the same one. `root`: the plan whose operators have numbers."""

    def __init__(
        self, names: RowNames | None, estimates: RowEstimates | None = None, policy: str = "", root: Plan | None = None
    ) -> None:
        self._names, self._estimates, self._policy = names, estimates or RowEstimates({}), policy
        self._numbers = {} if root is None else {id(node): number for number, node in enumerate(preorder(root))}

    def operator(self, plan: Plan, *above: Plan) -> ExplainedOperator:
        """The plan's tree. `above`: the operators that read it, the nearest last."""
        if isinstance(plan, Let):
            value = self.operator(plan.value, *_above(plan.id, plan.body, *above))
            self._estimates.bind(plan.id, plan.value)
            return ExplainedOperator(f"Let {plan.id} =", (self.operator(plan.body, *above),), bindings=(("", value),))
        if isinstance(plan, LetRec):
            self._estimates.forget(binding.id for binding in plan.bindings)
            bindings = tuple((_binding(binding), self.operator(binding.value)) for binding in plan.bindings)
            body = (self.operator(plan.body),)
            return ExplainedOperator(
                "LetRec", body, bindings=bindings, upkeep=self._upkeep(plan), number=self._number(plan)
            )
        paths = plan.plan.paths if isinstance(plan, Join) and isinstance(plan.plan, DeltaJoin) else ()
        details = tuple(f"path {self._path(plan, path)}" for path in paths) if isinstance(plan, Join) else ()
        if isinstance(plan, Reduce) and _has_parts(plan, *above[-2:]) and (rows := self._estimates.of(plan.input)):
            details += (f"before the join, which meets a row per group in place of about {rows:,}",)
        return ExplainedOperator(
            self._node(plan),
            tuple(self.operator(each, *above[-1:], plan) for each in inputs_of(plan)),
            self._estimates.of(plan),
            details,
            reads=plan.id if isinstance(plan, Get) else "",
            upkeep=self._upkeep(plan),
            number=self._number(plan),
        )

    def _number(self, plan: Plan) -> int | None:
        return self._numbers.get(id(plan))

    def _upkeep(self, plan: Plan) -> Upkeep | None:
        return None if self._names is None else upkeep_of(plan, self._estimates.of, self._policy)

    def _row(self, plan: Plan) -> ColumnFormat:
        """The columns of the plan's output."""
        return positional if self._names is None else column_format(self._names.of(plan))

    def _node(self, plan: Plan) -> str:
        names = self._names
        match plan:
            case Constant():
                return _constant(plan)
            case Get():
                return f"Get {plan.id}" + ("" if plan.key is None else f" by {_list(plan.key, self._row(plan))}")
            case Mfp():
                return "Mfp" + self._mfp(plan.mfp, None if names is None else names.of(plan.input))
            case FlatMap():
                after = self._mfp(plan.mfp_after, None if names is None else names.flat_mapped(plan))
                return f"FlatMap {plan.function}{_list(plan.arguments, self._row(plan.input))}{after}"
            case Join():
                return self._join(plan)
            case Reduce():
                row = self._row(plan.input)
                values = f" values={_list(plan.values, row)}" if plan.values else ""
                after = self._mfp(plan.mfp_after, None if names is None else names.reduced(plan))
                return f"Reduce key={_list(plan.key, row)}{values} {_reduce(plan.plan)}{after}"
            case TopK():
                return _top_k(plan, self._row(plan.input))
            case Window():
                return _window(plan, self._row(plan.input))
            case Union() if plan.consolidate_output:
                return "Union consolidating"
        return type(plan).__name__

    def _join(self, plan: Join) -> str:
        if isinstance(plan.plan, LinearJoin):
            return f"Join linear: {self._path(plan, plan.plan)}"
        met = None if self._names is None else self._names.delta_join_row(plan, plan.plan)
        return f"Join delta{self._mfp(plan.plan.closure, met)}"

    def _path(self, join: Join, path: LinearJoin | DeltaPath) -> str:
        if self._names is None:
            return f"{path.source}" + "".join(self._stage(join, stage, None) for stage in path.stages)
        streams = self._names.streams(join, path.source, path.stages)
        stages = zip(path.stages, streams, strict=False)
        return f"{path.source}" + "".join(self._stage(join, stage, stream) for stage, stream in stages)

    def _stage(self, join: Join, stage: JoinStage, stream: Names | None) -> str:
        left = positional if stream is None else column_format(stream)
        right = self._row(join.inputs[stage.lookup])
        keys = [
            f"{to_sql(s, left)} {'<=>' if n in stage.null_safe else '='} {to_sql(k, right)}"
            for n, (s, k) in enumerate(zip(stage.stream_key, stage.lookup_key, strict=True))
        ]
        on = f" on [{', '.join(keys)}]" if keys else " cross"
        kept = f" keep [{_positions(stage.stream_thinning, left)} | {_positions(stage.lookup_thinning, right)}]"
        met = None if self._names is None or stream is None else self._names.stage_row(join, stream, stage)
        return f" → {stage.lookup}{on}{kept}{self._mfp(stage.closure, met)}"

    def _mfp(self, mfp: MapFilterProject, names: Names | None) -> str:
        row = positional if names is None else column_format(extended(mfp, names))
        parts = [
            f" {word} {_list(exprs, row)}"
            for word, exprs in (("map", mfp.expressions), ("filter", mfp.predicates))
            if exprs
        ]
        parts += [
            f" {word} {_list(bounds, row)}" for word, bounds in (("from", mfp.lower), ("until", mfp.upper)) if bounds
        ]
        if mfp.projection is not None and mfp.projection != tuple(range(len(mfp.extended))):
            parts.append(f" project [{_positions(mfp.projection, row)}]")
        return "".join(parts)


def _above(name: LocalId, plan: Plan, *above: Plan) -> tuple[Plan, ...]:
    """The operators that read a binding where a plan reads it first, the nearest last. `above`: those of the plan."""
    match plan:
        case Get():
            return above[-2:] if plan.id == name else ()
        case Let(_, value, body):
            return _above(name, value) or _above(name, body, *above)
        case _:
            found = (_above(name, each, *above, plan) for each in inputs_of(plan))
            return next(filter(None, found), ())


def _has_parts(groups: Reduce, *above: Plan) -> bool:
    """Whether an aggregate of a join, `above`, adds up what an input of the join has for each group."""
    match above:
        case (Reduce(plan=whole), Join()):
            parts = {each.function for each in _aggregates(groups.plan)}
            added = {each.function for each in _aggregates(whole)}
            return parts <= _PARTS and added <= _ADDED and bool(parts) == bool(added)
    return False


_PARTS, _ADDED = {"count", "sum", "min", "max"}, {"sum", "min", "max"}


def _aggregates(plan: ReducePlan) -> tuple[AggregateExpr, ...]:
    match plan:
        case DistinctReduce():
            return ()
        case CollationReduce(parts):
            return tuple(each for part in parts for each in _aggregates(part))
        case _:
            return plan.aggregates


def _constant(plan: Constant) -> str:
    if plan.error is not None:
        return f"Constant error {plan.error.code}"
    rows = [
        "(" + ", ".join(map(literal_sql, row.values)) + ")" + ("" if row.diff == 1 else f" × {row.diff}")
        for row in plan.rows[:_MAX_ROWS_SHOWN]
    ]
    more = [f"… {len(plan.rows)} rows"] if len(plan.rows) > _MAX_ROWS_SHOWN else []
    return "Constant [" + ", ".join(rows + more) + "]"


def _reduce(plan: ReducePlan) -> str:
    if isinstance(plan, DistinctReduce):
        return "distinct"
    if isinstance(plan, CollationReduce):
        return "collation (" + "; ".join(map(_reduce, plan.parts)) + ")"
    kind = {AccumulableReduce: "accumulable", HierarchicalReduce: "hierarchical", BasicReduce: "basic"}[type(plan)]
    grows = " monotonic" if isinstance(plan, HierarchicalReduce) and plan.monotonic else ""
    return f"{kind}{grows} [{', '.join(map(_aggregate, plan.aggregates))}]"


def _aggregate(aggregate: AggregateExpr) -> str:
    argument = "*" if aggregate.argument is None else f"v{aggregate.argument}"
    given = ", ".join([argument, *map(literal_sql, aggregate.parameters)])
    order = f" order by [{', '.join(_order(k, _value) for k in aggregate.order)}]" if aggregate.order else ""
    where = "" if aggregate.filter is None else f" where v{aggregate.filter}"
    return f"{aggregate.function}({'distinct ' if aggregate.distinct else ''}{given}{order}){where}"


def _value(position: int) -> str:
    return f"v{position}"


def _top_k(plan: TopK, row: ColumnFormat) -> str:
    limit = "" if plan.limit is None else f" limit {to_sql(plan.limit, row)}"
    offset = f" offset {plan.offset}" if plan.offset else ""
    order = ", ".join(_order(key, row) for key in plan.order)
    return f"TopK {plan.plan.kind} group=[{_positions(plan.group_key, row)}] order=[{order}]{limit}{offset}"


def _window(plan: Window, row: ColumnFormat) -> str:
    order = ", ".join(_order(key, row) for key in plan.order)
    calls = ", ".join(_call(call, row) for call in plan.calls)
    return f"Window partition=[{_positions(plan.partition, row)}] order=[{order}] [{calls}]"


def _call(call: WindowCall, row: ColumnFormat) -> str:
    given = ", ".join([*map(row, call.arguments), *map(literal_sql, call.parameters)])
    nulls = " ignore nulls" if call.ignore_nulls else ""
    return f"{call.function}({given}){nulls}{'' if call.frame is None else _frame(call.frame)}"


def _frame(frame: WindowFrame) -> str:
    ends = ("unbounded" if end is None else literal_sql(end) for end in (frame.lower, frame.upper))
    return f" {frame.unit} between {' and '.join(ends)}"


def _order(key: OrderKey, row: ColumnFormat) -> str:
    return f"{row(key.column)}{' desc' if key.descending else ''}{' nulls last' if key.nulls_last else ''}"


def _list(exprs: Iterable[ScalarExpr], row: ColumnFormat) -> str:
    return "[" + ", ".join(to_sql(expr, row) for expr in exprs) + "]"


def _positions(positions: Iterable[int], row: ColumnFormat) -> str:
    return ", ".join(map(row, positions))
