"""The columns that a stateful operator keeps: expressions computed before it, each once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_protocol.plan.expr import ColumnRef, ScalarExpr
from tidemark_protocol.plan.lir import MapFilterProject, Schema


@dataclass(frozen=True)
class KeyColumns:
    """`mfp` computes rows in which the columns at `positions` hold the expressions' values, in order."""

    mfp: MapFilterProject
    positions: tuple[int, ...]


def key_columns(schema: Schema, exprs: Sequence[ScalarExpr]) -> KeyColumns:
    """Rows of exactly these expressions. Equal expressions share a column; column references are taken as they are."""
    distinct = list(dict.fromkeys(exprs))
    computed = [e for e in distinct if not isinstance(e, ColumnRef)]
    places = {e: len(schema) + i for i, e in enumerate(computed)}
    projection = tuple(e.index if isinstance(e, ColumnRef) else places[e] for e in distinct)
    mfp = MapFilterProject(schema, tuple(computed), projection=projection)
    return KeyColumns(mfp, tuple(distinct.index(e) for e in exprs))
