"""Min and max: value-ordered state, of which a step reads the first rows.

(region, price) ──kernel──> (region, min(price), max(price))      see `ranking/extremes.py`

By heads as a rule; with `buckets` through a tournament's stages first; where the input only grows (`monotonic`), the
state is the answers alone. All three agree.
"""

from __future__ import annotations

from tidemark_protocol.plan.lir import Aggregate, HierarchicalReduce
from tidemark_replica.kernels.ranking.extremes import Extreme, Extremes, ExtremesSpec, Value
from tidemark_replica.render.plan.fragments import Scope
from tidemark_replica.render.plan.lowering_stream import Flow, arrow_types
from tidemark_replica.render.plan.pipeline import Kernel
from tidemark_replica.render.reduce.grouped import Grouped
from tidemark_replica.render.top_k import ranking_state


def lower_hierarchical(scope: Scope, rows: Grouped, plan: HierarchicalReduce) -> Flow:
    """The groups' extremes."""
    of = Extremes(arrow_types(rows.flow.schema), rows.key, tuple(_extreme(a, rows) for a in plan.aggregates))
    states = tuple(
        ranking_state(scope, "extreme", of.ranking(v), plan.monotonic, plan.must_consolidate, plan.buckets)
        for v in of.values
    )
    return Flow(Kernel(ExtremesSpec(of, states), rows.flow.tree), rows.output(plan.aggregates))


def _extreme(aggregate: Aggregate, rows: Grouped) -> Extreme:
    """The aggregate over the kernel's columns."""
    assert aggregate.argument is not None, "the check of plans lets no min(*) pass"
    value = Value(rows.values[aggregate.argument], aggregate.function == "max", rows.column(aggregate.filter))
    return Extreme(value, rows.text(aggregate))
