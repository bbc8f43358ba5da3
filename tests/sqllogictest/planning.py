"""Queries of a file as plans: lowered one by one, then many of them as one collection of one dataflow.

    q0  SELECT a FROM t               (0, a, NULL)
    q1  SELECT a, s FROM t    ──►     (1, a, s   )      columns of one type share a place
    q2  SELECT count(*) FROM u        (2, ...    )

An ORDER BY at the top is how the result is read. A LIMIT is part of the view, or, of a one-shot query, of its reading.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from tests.sqllogictest.database import Database
from tidemark_planner.allowed_sql import check_order_last
from tidemark_planner.assemble import assemble
from tidemark_planner.catalyst import Catalyst
from tidemark_planner.errors import Refusal
from tidemark_planner.finishing import finished
from tidemark_planner.hir import Hir
from tidemark_planner.lower import Context, Lowered
from tidemark_planner.lower.organisation import Trimmings, peel
from tidemark_planner.names import scope_of
from tidemark_planner.plan import Built, add_view
from tidemark_planner.query import lower_query
from tidemark_planner.rules import optimise
from tidemark_planner.tree import Node
from tidemark_protocol.dataflow import BuildDesc, ShardMetadata, SourceImport
from tidemark_protocol.expr import Literal
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.lir import Get, MapFilterProject, Mfp, Plan, Schema, TopK, TopKPlan, Union
from tidemark_protocol.planning import Catalogue, Finishing, PlanRequest, Relation
from tidemark_protocol.types import BIGINT, INT, ColumnType, SqlType

ALL = GlobalId("all")


@dataclass(frozen=True)
class Lowering:
    """A query as HIR, and how its rows are finished. `columns` includes those only ordered by."""

    id: GlobalId
    objects: tuple[tuple[GlobalId, Hir], ...]
    catalogue: Catalogue
    names: tuple[str, ...]
    schema: Schema
    finishing: Finishing


@dataclass(frozen=True)
class Together:
    """Queries as one collection: `places` are the columns of each query in it."""

    imports: tuple[SourceImport, ...]
    objects: tuple[BuildDesc, ...]
    places: tuple[tuple[int, ...], ...]
    schema: Schema


class Planner:
    """The real planner, for a file's queries."""

    def __init__(self, catalyst: Catalyst, location: str) -> None:
        self._catalyst, self._location = catalyst, location
        self._lowered = 0

    def lower(self, sql: str, database: Database) -> Lowering:
        """The query over the tables as they are now; raises Refusal."""
        catalogue = Catalogue(tuple(map(self._relation, database.tables.values())))
        self._lowered += 1
        prefix = f"q{self._lowered}/"
        request = PlanRequest("file", database.views_for(sql), (), catalogue, prefix)
        built = Built()
        for view in request.views:
            add_view(self._catalyst, request, view, built)
        trimmings = Trimmings()

        def lower_rows(tree: Node, context: Context) -> Lowered:
            nonlocal trimmings
            rows, trimmings = peel(tree)
            return context.lower(rows)

        scope = scope_of(catalogue, (v.known for v in built.views.values()))
        query = lower_query(
            self._catalyst, sql, scope, lambda n: GlobalId(f"{prefix}{n}"), check_order_last, lower_rows
        )
        end = finished(query.lowered, trimmings)
        hir, id = optimise(end.hir), GlobalId(f"{prefix}rows")
        objects = (*built.objects, *query.objects, (id, hir))
        return Lowering(id, objects, catalogue, end.names[: end.finishing.shown], hir.schema, end.finishing)

    def together(self, queries: Sequence[Lowering], limited: bool) -> Together:
        """The queries as one collection; `limited`: LIMIT and OFFSET are operators of it. Raises Refusal."""
        relations = {r.id: r for q in queries for r in q.catalogue.relations}
        request = PlanRequest("file", (), (), Catalogue(tuple(relations.values())), "")
        planned = assemble(self._catalyst, request, [o for q in queries for o in q.objects], ())
        plans = {o.id: o.plan for o in planned.objects}
        schema, places = _shared([plans[q.id].schema for q in queries])
        parts = tuple(
            _part(number, _limited(q, plans[q.id]) if limited else Get(q.id, plans[q.id].schema), schema, place)
            for number, (q, place) in enumerate(zip(queries, places, strict=True))
        )
        return Together(planned.source_imports, (*planned.objects, BuildDesc(ALL, Union(parts))), places, schema)

    def _relation(self, table: object) -> Relation:
        from tests.sqllogictest.database import StoredTable

        assert isinstance(table, StoredTable)
        shard = ShardMetadata(ShardId(table.id), f"{self._location}/{table.id}", table.columns)
        return Relation(table.name, table.name, GlobalId(table.id), table.columns, shard, short=True)


def refusal(sql: str, error: Refusal) -> str:
    """Why a query was refused, in a line."""
    found = error.diagnostics[0]
    return f"{found.code}: {found.message}"


def _limited(query: Lowering, plan: Plan) -> Plan:
    rows = Get(query.id, plan.schema)
    finishing = query.finishing
    if finishing.limit is None and not finishing.offset:
        return rows
    limit = None if finishing.limit is None else Literal(str(finishing.limit), BIGINT)
    return TopK(rows, (), finishing.order, limit, finishing.offset, TopKPlan())


def _shared(schemas: Sequence[Schema]) -> tuple[Schema, tuple[tuple[int, ...], ...]]:
    """A schema with room for each of the others (after the query's number), and where their columns are in it."""
    most: Counter[SqlType] = Counter()
    for schema in schemas:
        most |= Counter(c.type for c in schema)
    starts, columns = {}, [ColumnType(INT, False)]
    for type, count in most.items():
        starts[type] = len(columns)
        columns += [ColumnType(type)] * count
    places = []
    for schema in schemas:
        used: Counter[SqlType] = Counter()
        place = []
        for column in schema:
            place.append(starts[column.type] + used[column.type])
            used[column.type] += 1
        places.append(tuple(place))
    return tuple(columns), tuple(places)


def _part(number: int, rows: Plan, schema: Schema, place: tuple[int, ...]) -> Plan:
    """A query's rows in the shared schema: its number, its columns, NULL elsewhere."""
    width = len(place)
    nulls = {t: width + 1 + i for i, t in enumerate(dict.fromkeys(c.type for c in schema[1:]))}
    expressions = (Literal(str(number), INT), *(Literal(None, t) for t in nulls))
    taken = {at: i for i, at in enumerate(place)}
    projection = (width, *(taken.get(i, nulls[c.type]) for i, c in enumerate(schema) if i))
    return Mfp(rows, MapFilterProject(rows.schema, expressions, (), projection))
