"""Queries of a file as plans: each by the planner's one-shot planning, then many as one collection of one dataflow.

    q0  SELECT a FROM t               (0, a, NULL)
    q1  SELECT a, s FROM t    ──►     (1, a, s   )      columns of one type share a place
    q2  SELECT count(*) FROM u        (2, ...    )

Views are common table expressions of the text that reads them. An ORDER BY at the top is how the result is read; a
LIMIT there is an operator of a maintained view, and the end of a one-shot query.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from tests.sqllogictest.database import Database, StoredTable
from tests.sqllogictest.distinct_names import renamed
from tests.sqllogictest.lexer import tokens
from tidemark_planner.catalyst.analyser import Catalyst
from tidemark_planner.planning.one_shot import plan_query
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.messages.planning import Catalogue, Finishing, PlannedPeek, PlanQueryRequest, Refused, Relation
from tidemark_protocol.plan.dataflow import BuildDesc, ShardMetadata, SourceImport
from tidemark_protocol.plan.expr import Literal
from tidemark_protocol.plan.lir import Get, MapFilterProject, Mfp, Plan, Schema, TopK, TopKPlan, Union
from tidemark_protocol.types import BIGINT, INT, ColumnType, SqlType

ALL = GlobalId("all")


class QueryRefused(Exception):
    """Planning refused the query; `code` and the message are the first diagnostic's."""

    def __init__(self, refused: Refused) -> None:
        found = refused.diagnostics[0]
        super().__init__(f"{found.code}: {found.message}")
        self.code = found.code


@dataclass(frozen=True)
class PlannedQuery:
    """A dataflow's parts, under ids that no other query has, and how the rows are finished.

    `schema` includes what is only ordered by.
    """

    imports: tuple[SourceImport, ...]
    objects: tuple[BuildDesc, ...]
    on: GlobalId
    schema: Schema
    names: tuple[str, ...]
    finishing: Finishing


@dataclass(frozen=True)
class PlannedQueries:
    """Queries as one collection: `places` are the columns of each query in it."""

    imports: tuple[SourceImport, ...]
    objects: tuple[BuildDesc, ...]
    places: tuple[tuple[int, ...], ...]
    schema: Schema


class Planner:
    """The real planner, for a file's queries."""

    def __init__(self, catalyst: Catalyst, location: str) -> None:
        self._catalyst, self._location = catalyst, location
        self._planned = 0

    def plan(self, sql: str, database: Database) -> PlannedQuery:
        """The query over the tables and views as they are now; raises QueryRefused."""
        catalogue = Catalogue(tuple(map(self._relation, database.tables.values())))
        self._planned += 1
        prefix = f"q{self._planned}/"
        answer = plan_query(self._catalyst, PlanQueryRequest(_with_views(sql, database), catalogue, prefix))
        if isinstance(answer, Refused):
            raise QueryRefused(answer)
        if isinstance(answer, PlannedPeek):
            return _of_peek(answer, catalogue, prefix)
        planned, (export,) = answer.planned, answer.planned.exports
        own = {o.id for o in planned.objects}
        objects = tuple(BuildDesc(o.id, renamed(o.plan, prefix, own)) for o in planned.objects)
        imports = tuple(replace(i, id=GlobalId(prefix + i.id)) for i in planned.source_imports)
        schema = next(o.plan.schema for o in objects if o.id == export.on)
        return PlannedQuery(
            imports, objects, export.on, schema, tuple(c.name for c in answer.columns), answer.finishing
        )

    def _relation(self, table: StoredTable) -> Relation:
        shard = ShardMetadata(ShardId(table.id), f"{self._location}/{table.id}", table.columns)
        return Relation(table.name, table.name, GlobalId(table.id), table.columns, shard, short=True)


def _of_peek(peek: PlannedPeek, catalogue: Catalogue, prefix: str) -> PlannedQuery:
    """A peek as a dataflow, which has the same rows."""
    shard = next(r.shard for r in catalogue.relations if r.id == peek.relation)
    assert shard is not None
    assert peek.literals is None, "the key's literals are no filter of the dataflow"
    read, on = GlobalId(prefix + peek.relation), GlobalId(f"{prefix}result")
    plan = Mfp(Get(read, peek.mfp.input), peek.mfp)
    names = tuple(c.name for c in peek.columns[: peek.finishing.shown])
    imports = (SourceImport(read, shard, tuple(range(len(shard.columns)))),)
    return PlannedQuery(imports, (BuildDesc(on, plan),), on, plan.schema, names, peek.finishing)


def table_of(id: str) -> str:
    """The stored table that an import reads."""
    return id.rpartition("/")[2]


def one_collection(queries: Sequence[PlannedQuery], limited: bool) -> PlannedQueries:
    """The queries as one collection; `limited`: LIMIT and OFFSET are operators of it."""
    schema, places = _shared([q.schema for q in queries])
    parts = tuple(
        _part(number, _limited(q) if limited else Get(q.on, q.schema), schema, place)
        for number, (q, place) in enumerate(zip(queries, places, strict=True))
    )
    objects = (*(o for q in queries for o in q.objects), BuildDesc(ALL, Union(parts)))
    return PlannedQueries(tuple(i for q in queries for i in q.imports), objects, places, schema)


def _with_views(sql: str, database: Database) -> str:
    """The text, after the views that it reads."""
    views = database.views_for(sql)
    if not views:
        return sql
    defined = ", ".join(f"`{v.name}` AS ({v.sql})" for v in views)
    found = tokens(sql)
    if found[0].upper != "WITH":
        return f"WITH {defined} {sql}"
    recursive = found[1].upper == "RECURSIVE"
    rest = sql[found[1 if recursive else 0].end :]
    return f"WITH {'RECURSIVE ' if recursive else ''}{defined}, {rest}"


def _limited(query: PlannedQuery) -> Plan:
    rows, finishing = Get(query.on, query.schema), query.finishing
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
