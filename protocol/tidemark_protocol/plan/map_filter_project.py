"""MapFilterProject: the stateless part of every operator.

row  c0 c1 c2  ──map──>  c0 c1 c2 c3 c4  ──filter──>  kept rows  ──project──>  c4 c0
"""

from __future__ import annotations

from dataclasses import dataclass

from tidemark_protocol.plan.expr import ScalarExpr, is_nullable
from tidemark_protocol.types import ColumnType
from tidemark_protocol.vocabulary import wire_name

Schema = tuple[ColumnType, ...]


@wire_name("MapFilterProject")
@dataclass(frozen=True)
class MapFilterProject:
    """Map, then filter, then project.

    `expressions` are appended to the row one by one (each may read those before it). Rows are kept where all
    `predicates` are
    true. `projection` picks the output columns out of input ++ expressions. `lower` and `upper` are temporal bounds
    (timestamps, or bigints in milliseconds): a row exists while lower <= now < upper for all of them, and never where
    one is
    NULL.

    Errors: false AND error is false, so a row that some predicate drops raises nothing.
    """

    input: Schema
    expressions: tuple[ScalarExpr, ...] = ()
    predicates: tuple[ScalarExpr, ...] = ()
    projection: tuple[int, ...] | None = None
    lower: tuple[ScalarExpr, ...] = ()
    upper: tuple[ScalarExpr, ...] = ()

    @staticmethod
    def identity(schema: Schema) -> MapFilterProject:
        return MapFilterProject(schema)

    @property
    def is_identity(self) -> bool:
        return not (self.expressions or self.predicates or self.lower or self.upper) and (
            self.projection is None or self.projection == tuple(range(len(self.input)))
        )

    @property
    def extended(self) -> Schema:
        """The input columns and the mapped ones, before the projection."""
        return self.input + tuple(ColumnType(e.type, is_nullable(e)) for e in self.expressions)

    @property
    def output(self) -> Schema:
        if self.projection is None:
            return self.extended
        return tuple(self.extended[i] for i in self.projection)
