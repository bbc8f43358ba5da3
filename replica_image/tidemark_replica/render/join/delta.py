"""Delta joins: one path per input, in one kernel call over arrangements of the inputs alone, then the closure.

    out = in0 join in1 join in2 ...

    input 0 ──columns that are used──┐
    input 1 ─────────────────────────┼──> kernel ──closure──> the joined rows
    input 2, an index ───────────────┘

State: each input by each key that a path looks it up by; shared arrangements are read in place; nothing between the
inputs. Cost of an update: the delta and its matches on its input's path (`kernels/joins/delta_join.py`). The output is
that of a linear join of the same inputs. Keys are columns, and closures on a path only choose columns, so a path never
needs Catalyst.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tidemark_protocol.plan.lir import DeltaJoin, DeltaPath, Join, JoinStage, MapFilterProject, Plan
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.kernels.joins.delta_join import DeltaInput, DeltaSpec
from tidemark_replica.kernels.joins.half_join import ArrangementLookup
from tidemark_replica.render.errors import NotRendered
from tidemark_replica.render.expressions.mfp import projection_of
from tidemark_replica.render.join.indexes import columns_of, index_of, indexes_of
from tidemark_replica.render.plan.fragments import Scope, SharedArrangement
from tidemark_replica.render.plan.lowering_stream import Stream, arrow_types
from tidemark_replica.render.plan.pipeline import DeltaKernel, IndexSource

Columns = tuple[int, ...]


@dataclass
class _Input:
    """One input: its stream, the input columns that the stream has, and the arrangements of it by key."""

    stream: Stream
    columns: Columns
    indexes: list[SharedArrangement]
    own: dict[Columns, ArrangementId] = field(default_factory=dict)


def lower_delta(scope: Scope, plan: Join, delta: DeltaJoin, lower: Callable[[Plan], Stream]) -> Stream:
    """Lower a delta join. Raises NotRendered for a closure that reads the clock."""
    if delta.closure.lower or delta.closure.upper:
        name = scope.description.name
        raise NotRendered(f"dataflow {name}: this replica has no operator for a join whose closure reads the clock")
    inputs = [_input(scope, delta, at, below, lower) for at, below in enumerate(plan.inputs)]
    paths = [_path(scope, plan, path, inputs) for path in delta.paths]
    types = arrow_types(delta.closure.input)
    spec = DeltaSpec(
        tuple(
            DeltaInput(arrow_types(i.stream.schema), tuple(i.own.values()), path)
            for i, path in zip(inputs, paths, strict=True)
        ),
        types,
    )
    scope.nodes.marked(spec)
    joined = Stream(DeltaKernel(spec, tuple(i.stream.tree for i in inputs)), delta.closure.input)
    return scope.streams.mfp(joined, delta.closure)


def _input(scope: Scope, delta: DeltaJoin, at: int, plan: Plan, lower: Callable[[Plan], Stream]) -> _Input:
    """An index that every lookup can use in place, else the input reduced to the columns that the paths use."""
    indexes, index = indexes_of(scope, plan), index_of(scope, plan)
    if index is not None and all(_serving(indexes, key) for key in _keys_of(delta, at)):
        whole = tuple(range(len(plan.schema)))
        return _Input(Stream(IndexSource(index.arrangement, index.layout.types), plan.schema), whole, indexes)
    used = _used(delta, at)
    return _Input(_projected(scope, lower(plan), used), used, indexes)


def _projected(scope: Scope, stream: Stream, columns: Columns) -> Stream:
    return scope.streams.mfp(stream, MapFilterProject(stream.schema, projection=columns))


def _path(scope: Scope, plan: Join, path: DeltaPath, inputs: list[_Input]) -> tuple[ArrangementLookup, ...]:
    source = inputs[path.source]
    # the plan's column numbers, and where the stream has these columns
    place = {column: at for at, column in enumerate(source.columns)}
    lookups: list[ArrangementLookup] = []
    for stage in path.stages:
        lookups.append(_lookup(scope, stage, inputs[stage.lookup], place, _width(source, lookups)))
        place = {column: column for column in range(len(stage.closure.output))}
    return tuple(lookups)


def _width(source: _Input, lookups: list[ArrangementLookup]) -> int:
    return len(lookups[-1].output) if lookups else len(source.columns)


def _lookup(scope: Scope, stage: JoinStage, met: _Input, place: dict[int, int], width: int) -> ArrangementLookup:
    """One half-join, its key in the order of the arrangement's key."""
    stream_key, lookup_key = columns_of(stage.stream_key), columns_of(stage.lookup_key)
    chosen = projection_of(stage.closure)
    assert stream_key is not None, "the plan was checked: keys are columns"
    assert lookup_key is not None, "the plan was checked: keys are columns"
    assert chosen is not None, "the plan was checked: closures on the way only choose columns"
    index = _serving(met.indexes, lookup_key)
    key = index.layout.key if index is not None else tuple(sorted(lookup_key))
    order = [lookup_key.index(column) for column in key]
    looked_up = {c: c for c in stage.lookup_thinning} if index else {c: at for at, c in enumerate(met.columns)}
    carried = [*(place[c] for c in stage.stream_thinning), *(width + looked_up[c] for c in stage.lookup_thinning)]
    return ArrangementLookup(
        stage.lookup,
        index.arrangement if index is not None else _own_arrangement(scope, met, key),
        tuple(place[stream_key[n]] for n in order),
        tuple(carried[c] for c in chosen),
        tuple(order.index(n) for n in stage.null_safe),
        shared=index is not None,
    )


def _own_arrangement(scope: Scope, met: _Input, key: Columns) -> ArrangementId:
    """The join's arrangement of an input by a key, allocated at the first call."""
    if key not in met.own:
        positions = [met.columns.index(column) for column in key]
        met.own[key] = scope.new_arrangement("delta", Layout.of_rows(arrow_types(met.stream.schema), positions))
    return met.own[key]


def _serving(indexes: list[SharedArrangement], key: Columns | None) -> SharedArrangement | None:
    """The first index whose key is exactly these columns, in any order."""
    return next((i for i in indexes if key is not None and sorted(i.layout.key) == sorted(key)), None)


def _keys_of(delta: DeltaJoin, at: int) -> list[Columns | None]:
    return [columns_of(stage.lookup_key) for path in delta.paths for stage in path.stages if stage.lookup == at]


def _used(delta: DeltaJoin, at: int) -> Columns:
    """The columns of an input that any path looks up by or puts out."""
    used: set[int] = set()
    for path in delta.paths:
        if path.source == at:
            used.update(path.stages[0].stream_thinning, columns_of(path.stages[0].stream_key) or ())
        for stage in path.stages:
            if stage.lookup == at:
                used.update(stage.lookup_thinning, columns_of(stage.lookup_key) or ())
    return tuple(sorted(used))
