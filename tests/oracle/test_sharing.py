"""SQL over indexes of other dataflows gives the same rows as over the collections themselves."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.oracle.harness import SINK, DataflowHarness, Updates, consolidated, delta, harness
from tests.oracle.histories import random_bounds, random_history
from tests.oracle.oracle import Oracle
from tests.oracle.tables import TU
from tidemark_planner.planning.dataflow import plan
from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.ids import GlobalId, ShardId, Time
from tidemark_protocol.messages.planning import (
    Catalogue,
    ExportRequest,
    Planned,
    PlanRequest,
    Relation,
    SharedIndex,
    ViewRequest,
)
from tidemark_protocol.plan.dataflow import (
    BuildDesc,
    DataflowDescription,
    IndexExport,
    MaterializedViewSink,
    ShardMetadata,
    SinkExport,
    SourceImport,
)
from tidemark_protocol.plan.lir import Get

pytestmark = [pytest.mark.spark, pytest.mark.broad]

QUERIES = {
    "met by the key": "SELECT t.b, u.d FROM t JOIN u ON t.a = u.a",
    "filtered above": "SELECT t.b, u.d FROM t JOIN u ON t.a = u.a WHERE t.s = 'x' AND u.d > -1 AND t.b > u.d",
    "null-safe": "SELECT t.b, u.d FROM t JOIN u ON t.a <=> u.a",
    "self join": "SELECT x.b, y.s FROM t x JOIN t y ON x.a = y.a AND x.b = y.b",
    "by another key": "SELECT t.s, u.d FROM t JOIN u ON t.b = u.a",
    "three ways": "SELECT x.b, u.d, y.s FROM t x JOIN u ON x.a = u.a JOIN t y ON u.a = y.b",
    "in an aggregate": "SELECT t.s, count(*) AS n FROM t JOIN u ON t.a = u.a GROUP BY t.s",
    "errors of an input": "SELECT t.b, m.q FROM t JOIN (SELECT a, 10 div CAST(d AS int) AS q FROM u) m ON t.a = m.a",
}
KEY = (0,)


def index_of(name: str) -> GlobalId:
    return GlobalId(f"{name}-by-a")


def relation(of: DataflowHarness, name: str, indexed: bool) -> Relation:
    shared = (SharedIndex(index_of(name), GlobalId(f"object/{name}"), KEY),) if indexed else ()
    id = index_of(name) if indexed else GlobalId(name)
    shard = None if indexed else of.shard(name)
    return Relation(name, name, id, of.tables[name].named, shard, short=True, indexes=shared)


def view_of(oracle: Oracle, of: DataflowHarness, sql: str, indexed: tuple[str, ...]) -> DataflowDescription:
    """The query as a materialized view, over shards and the indexes of the tables `indexed`."""
    catalogue = Catalogue(tuple(relation(of, name, name in indexed) for name in of.tables))
    exports = (ExportRequest("m", "materializedView", "v"),)
    planned = plan(oracle.catalyst, PlanRequest("case", (ViewRequest("v", sql),), exports, catalogue, "o/"))
    assert isinstance(planned, Planned), planned
    export = planned.exports[0]
    sink = MaterializedViewSink(ShardMetadata(ShardId("sink"), str(of.folder / "sink"), export.columns))
    description = DataflowDescription(
        name="reader",
        source_imports=planned.source_imports,
        index_imports=planned.index_imports,
        objects=planned.objects,
        index_exports=(),
        sink_exports=(SinkExport(SINK, export.on, sink),),
        as_of=Time(of.history.as_of),
    )
    check_dataflow(description)
    return description


def exporter_of(of: DataflowHarness, name: str) -> DataflowDescription:
    table, built = of.tables[name], GlobalId(f"object/{name}")
    source = SourceImport(GlobalId(name), of.shard(name), tuple(range(len(table.columns))))
    return DataflowDescription(
        name=name,
        source_imports=(source,),
        index_imports=(),
        objects=(BuildDesc(built, Get(source.id, table.schema)),),
        index_exports=(IndexExport(index_of(name), built, KEY, table.named),),
        sink_exports=(),
        as_of=Time(of.history.as_of),
    )


def through_indexes(
    of: DataflowHarness, description: DataflowDescription, bounds: list[int], ahead: list[int]
) -> Updates:
    """The view's updates in steps that end at `bounds`, its indexes' dataflows stepping further at `ahead`."""
    made: Counter[Any] = Counter()
    exporters = [of.build(exporter_of(of, name)) for name in of.tables]
    indexes = {id: trace for exporter in exporters for id, trace in exporter.indexes.items()}
    importer = of.build(description, indexes={i.id: indexes[i.id] for i in description.index_imports})
    for upper in bounds:
        until = min(u for u in ahead if u >= upper)
        for exporter in exporters:
            if exporter.frontier.encode() < until:
                of.step(exporter, until)
        outcome = of.step(importer, upper)
        made.update(delta(outcome, SINK))
        outcome.release()
        for exporter in exporters:
            for id in exporter.indexes:
                exporter.compact(id, exporter.frontier)
    for dataflow in (importer, *exporters):
        dataflow.drop()
    return consolidated(made)


@pytest.mark.parametrize("sql", QUERIES.values(), ids=QUERIES)
def test_agree_indexes_and_shards(oracle: Oracle, spark: Any, tmp_path: Path, sql: str) -> None:
    """Whatever is indexed, however far the indexes are ahead, and though they may always be compacted."""
    history = random_history(TU, 11, changes=4)
    bounds = random_bounds(history, 3)
    with harness(spark, tmp_path, TU, history) as of:
        direct = of.run(view_of(oracle, of, sql, ()), bounds)
        for indexed in (("t",), ("t", "u")):
            description = view_of(oracle, of, sql, indexed)
            assert {i.id for i in description.index_imports} == {
                index_of(n) for n in indexed if re.search(rf"\b{n}\b", sql)
            }
            assert through_indexes(of, description, bounds, [*history.times[3::2], bounds[-1]]) == direct
