"""TopK: of each group the rows at places offset to offset + limit.

    out[t] = of each group of in[t], sorted by `order` and then by the whole row, the places offset to offset + limit

    SELECT * FROM t ORDER BY b LIMIT 2        group (): (a, 1) (b, 4) | (c, 4) (d, 7) ...

heads            the default: state is the input, sorted by value; a step reads about offset + limit rows of each batch

Without a limit the output is all rows but the first `offset`. A limit of 0 needs no state. Errors of the input pass
through; a negative multiplicity before the last place is one more.
"""

from __future__ import annotations

from tidemark_protocol.expr import Literal
from tidemark_protocol.lir import MapFilterProject, TopK
from tidemark_protocol.types import BOOLEAN
from tidemark_replica.arrangement.kernels.ranking import Ranking
from tidemark_replica.arrangement.kernels.top_k import TopKSpec
from tidemark_replica.render.errors import NotRendered
from tidemark_replica.render.flow import Flow, arrow_types
from tidemark_replica.render.fragments import Scope
from tidemark_replica.render.pipeline import Kernel

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
    if plan.plan.kind != "heads":
        raise NotRendered(
            f"dataflow {scope.description.name}: this replica has no operator for TopK by {plan.plan.kind}"
        )
    state = scope.new_arrangement("topk", ranking.layout)
    return Flow(Kernel(TopKSpec(state, ranking, complement), flow.tree), flow.schema)


def _limit(scope: Scope, plan: TopK) -> int | None:
    if plan.limit is None:
        return None
    if not isinstance(plan.limit, Literal) or plan.limit.value is None:
        raise NotRendered(f"dataflow {scope.description.name}: the limit of a TopK must be a number, not an expression")
    limit = int(plan.limit.value)
    return None if limit > _MOST - plan.offset else limit
