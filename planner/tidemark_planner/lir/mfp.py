"""Chains of Project and Filter as one MapFilterProject.

    Project [q + 1]                     map    [((c0 / c1) + 1)]
      Filter [q > 2]           ->       filter [((c0 / c1) > 2)]
        Project [c0 / c1 AS q]          project the mapped column

Chains are fused over their input first (rules/fuse.py).
"""

from __future__ import annotations

from tidemark_planner.rules.fuse import FilterProject as FilterProject
from tidemark_planner.rules.fuse import fuse as fuse
from tidemark_planner.rules.temporal_filters import bounds_of
from tidemark_protocol.functions.registry import reads_clock
from tidemark_protocol.plan.expr import ColumnRef
from tidemark_protocol.plan.lir import MapFilterProject, Schema


def mfp_of(schema: Schema, fused: FilterProject) -> MapFilterProject:
    """The operator over rows of `schema`. Equal outputs are computed once; conditions that read the clock become
    temporal bounds.
    """
    computed = tuple(dict.fromkeys(o for o in fused.outputs if not isinstance(o, ColumnRef)))
    place = {expr: len(schema) + at for at, expr in enumerate(computed)}
    projection = tuple(o.index if isinstance(o, ColumnRef) else place[o] for o in fused.outputs)
    whole = projection == tuple(range(len(schema) + len(computed)))
    bounds = [bounds_of(p) for p in fused.predicates if reads_clock(p)]
    return MapFilterProject(
        schema,
        computed,
        tuple(p for p in fused.predicates if not reads_clock(p)),
        None if whole else projection,
        tuple(b.lower for b in bounds if b.lower is not None),
        tuple(b.upper for b in bounds if b.upper is not None),
    )
