"""TopK: of each group the rows at places offset to offset + limit.

    out[t] = of each group of in[t], sorted by `order` and then by the whole row, the places offset to offset + limit

    SELECT * FROM t ORDER BY b LIMIT 2        group (): (a, 1) (b, 4) | (c, 4) (d, 7) ...

heads            the default: state is the input, sorted by value; a step reads about offset + limit rows of each batch
tournament       groups split by hash into parts, whose first rows meet in larger parts, and so on: agrees with heads
monotonic_top1,  for an input that only grows: of each group the first rows are all the state
monotonic_top_k

Without a limit the output is all rows but the first `offset`. A limit of 0 needs no state. Errors of the input pass
through; a negative multiplicity before the last place is one more (`ranking/top_k.py`).
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.lir import MapFilterProject, TopK
from tidemark_protocol.types import BOOLEAN
from tidemark_replica.kernels.ranking.ranking import Ranking
from tidemark_replica.kernels.ranking.state import State, stage_ranking
from tidemark_replica.kernels.ranking.top_k import TopKSpec
from tidemark_replica.render.errors import NotRendered
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.lowering_stream import Flow, arrow_types
from tidemark_replica.render.plan.pipeline import Kernel

_MOST = 2**62
"""More rows than a kernel counts (it fails the step before): as a limit, none."""


def lower_top_k(scope: Scope, plan: TopK, flow: Flow) -> Flow:
    """The stream of the first rows."""
    limit, offset = _limit(scope, plan), min(plan.offset, _MOST)
    if limit == 0:
        nothing = MapFilterProject(flow.schema, (), (Literal("false", BOOLEAN),))
        return scope.flows.mfp(flow, nothing)
    if limit is None and offset == 0:
        return flow
    types = arrow_types(flow.schema)
    if limit is None:
        ranking, complement = Ranking(types, plan.group_key, plan.order, 0, offset), True
    else:
        ranking, complement = Ranking(types, plan.group_key, plan.order, offset, offset + limit), False
    growing = plan.plan.kind in ("monotonic_top1", "monotonic_top_k")
    state = ranking_state(scope, "topk", ranking, growing, plan.plan.must_consolidate, plan.plan.buckets)
    return Flow(Kernel(TopKSpec(state, ranking, complement), flow.tree), flow.schema)


def ranking_state(
    scope: Scope, kind: str, ranking: Ranking, grows: bool, must_consolidate: bool, buckets: Sequence[int]
) -> State:
    """Room for a ranking; `buckets`: the stages of a tournament before its last."""
    stages = [(scope.new_arrangement(f"{kind}-stage", stage_ranking(ranking).layout), parts) for parts in buckets]
    return State(scope.new_arrangement(kind, ranking.layout), grows, must_consolidate, tuple(stages))


def _limit(scope: Scope, plan: TopK) -> int | None:
    if plan.limit is None:
        return None
    if not isinstance(plan.limit, Literal) or plan.limit.value is None:
        raise NotRendered(f"dataflow {scope.description.name}: the limit of a TopK must be a number, not an expression")
    limit = int(plan.limit.value)
    return None if limit > _MOST - plan.offset else limit
