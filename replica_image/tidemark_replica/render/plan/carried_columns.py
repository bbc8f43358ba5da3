"""Carried columns: columns behind those of a stream's schema, which every operator of a plan passes on."""

from __future__ import annotations

from tidemark_protocol.plan.expr import map_columns
from tidemark_protocol.plan.lir import MapFilterProject, Schema


def with_carried_columns(mfp: MapFilterProject, carried: Schema) -> MapFilterProject:
    """The MapFilterProject over rows with more columns behind, which it passes on behind its own output."""
    if not carried:
        return mfp
    width, more = len(mfp.input), len(carried)

    def moved(column: int) -> int:
        return column if column < width else column + more

    shown = range(width + len(mfp.expressions)) if mfp.projection is None else mfp.projection
    return MapFilterProject(
        mfp.input + carried,
        tuple(map_columns(e, moved) for e in mfp.expressions),
        tuple(map_columns(p, moved) for p in mfp.predicates),
        (*map(moved, shown), *range(width, width + more)),
    )
