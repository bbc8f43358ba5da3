"""TopK: of each group the rows at positions offset to offset + limit.

    out[t] = for each group of in[t]: sort by `order`, then by the whole row; take positions offset to offset + limit

    SELECT * FROM t ORDER BY b LIMIT 2        group (): (a, 1) (b, 4) | (c, 4) (d, 7) ...

| plan             | state                                          | cost of an update, per touched group          |
|------------------|------------------------------------------------|-----------------------------------------------|
| (default)        | the input, sorted by value                     | about offset + limit rows of each batch       |
| monotonic_top1,  | offset + limit rows per group                  | the delta; only for an input that only grows  |
| monotonic_top_k  |                                                |                                               |

A dataflow's only step keeps no state, and holds offset + limit rows per group if its rows are never taken back.

All plans give the same rows. Without a limit the output is all rows but the first `offset`. A limit of 0 needs no
state. Errors of the input pass through. A negative multiplicity before the last position is an error
(`ranking/top_k.py`).
"""

from __future__ import annotations

from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.lir import MapFilterProject, TopK
from tidemark_protocol.types import BOOLEAN
from tidemark_replica.kernels.ranking.ranking import Ranking
from tidemark_replica.kernels.ranking.state import RankingStateSpec
from tidemark_replica.kernels.ranking.top_k import TopKSpec
from tidemark_replica.render.errors import NotRendered
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.lowering_stream import Stream, arrow_types
from tidemark_replica.render.plan.pipeline import Kernel

_MOST = 2**62
"""A limit above this is no limit: a kernel fails the step before it counts so many rows."""


def lower_top_k(scope: Scope, plan: TopK, stream: Stream) -> Stream:
    """Lower a TopK to a kernel over its input. Raises NotRendered for a limit that is not a literal."""
    limit, offset = _limit(scope, plan), min(plan.offset, _MOST)
    if limit == 0:
        nothing = MapFilterProject(stream.schema, (), (Literal("false", BOOLEAN),))
        return scope.streams.mfp(stream, nothing)
    if limit is None and offset == 0:
        return stream
    types = arrow_types(stream.schema)
    if limit is None:
        ranking, complement = Ranking(types, plan.group_key, plan.order, 0, offset), True
    else:
        ranking, complement = Ranking(types, plan.group_key, plan.order, offset, offset + limit), False
    growing = plan.plan.kind in ("monotonic_top1", "monotonic_top_k")
    state = RankingStateSpec(scope.new_arrangement("topk", ranking.layout), growing, scope.retractions.of(plan.input))
    return Stream(Kernel(TopKSpec(state, ranking, complement), stream.tree), stream.schema)


def _limit(scope: Scope, plan: TopK) -> int | None:
    if plan.limit is None:
        return None
    if not isinstance(plan.limit, Literal) or plan.limit.value is None:
        raise NotRendered(f"dataflow {scope.description.name}: the limit of a TopK must be a number, not an expression")
    limit = int(plan.limit.value)
    return None if limit > _MOST - plan.offset else limit
