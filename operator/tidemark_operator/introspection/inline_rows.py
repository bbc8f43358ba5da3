"""Replaces imports of introspection relations by their rows, as constants in the plan.

    Import tidemark_introspection.frontiers        ──►   Constant (one row per relation of the namespace)
    Get tidemark_introspection.frontiers ...             Get tidemark_introspection.frontiers ...

All SQL therefore works on these relations, also together with tables, and a replica computes it. Rows that an equality
of the filter excludes (WHERE dataflow = 'revenue') are not produced.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tidemark_operator.introspection.relations import ColumnFilter
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.messages.planning import Planned, PlannedExport, PlannedOneShot, PlannedPeek
from tidemark_protocol.plan.dataflow import BuildDesc, SourceImport
from tidemark_protocol.plan.expr import Call, ColumnRef, Literal
from tidemark_protocol.plan.lir import Constant, Mfp, Plan
from tidemark_protocol.plan.map_filter_project import MapFilterProject
from tidemark_protocol.types import STRING, Column

RESULT = GlobalId("query/result")
RowSource = Callable[[GlobalId, ColumnFilter], Constant | None]


def inline_rows(planned: PlannedPeek | PlannedOneShot, rows: RowSource) -> PlannedPeek | PlannedOneShot:
    """The plan with rows in place of introspection relations; a plan that reads none is unchanged.

    `rows`: the rows of a relation that a filter admits; None for a table or an export. Raises what `rows` raises.
    """
    if isinstance(planned, PlannedOneShot):
        return replace(planned, planned=_with_rows(planned.planned, rows))
    constant = rows(planned.relation, equalities(planned.mfp))
    return planned if constant is None else _one_shot(planned, constant)


def _with_rows(planned: Planned, rows: RowSource) -> Planned:
    found = {source.id: rows(source.id, {}) for source in planned.source_imports}
    built = [BuildDesc(s.id, _imported(s, c)) for s in planned.source_imports if (c := found[s.id]) is not None]
    return replace(
        planned,
        source_imports=tuple(s for s in planned.source_imports if found[s.id] is None),
        objects=(*built, *planned.objects),
    )


def _imported(source: SourceImport, constant: Constant) -> Plan:
    """The columns that the plan reads."""
    return Mfp(constant, MapFilterProject(constant.schema, projection=source.columns))


def equalities(mfp: MapFilterProject) -> ColumnFilter:
    """The texts that the filter requires of columns; of two texts for one column, which no row has, one."""
    equal = (p.arguments for p in mfp.predicates if isinstance(p, Call) and p.function == "=")
    sides = (pair for two in equal for pair in (two, two[::-1]))
    return {
        column.index: value.value
        for column, value in sides
        if isinstance(column, ColumnRef) and column.index < len(mfp.input)
        if isinstance(value, Literal) and value.type == STRING and value.value is not None
    }


def _one_shot(peek: PlannedPeek, constant: Constant) -> PlannedOneShot:
    """A dataflow that produces the rows, in place of a peek of stored ones."""
    held = tuple(Column(f"c{at}", c.type, c.nullable) for at, c in enumerate(peek.columns))
    export = PlannedExport("result", "index", RESULT, held, tuple(range(len(held))))
    objects = (BuildDesc(RESULT, Mfp(constant, peek.mfp)),)
    planned = Planned((), objects, (export,), (peek.relation,), "")
    return PlannedOneShot(planned, peek.finishing, peek.columns[: peek.finishing.shown])
