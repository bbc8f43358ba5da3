"""Tidemark's side: a query as a view of one index, stepped as a replica does; a step is a tick of the sources."""

from __future__ import annotations

import tempfile
from pathlib import Path

from bench.harness.answers import check
from bench.harness.clock import Cost, measured
from bench.harness.engine import AS_OF, Source, View
from bench.harness.measure import Engine
from bench.harness.query import described
from bench.nexmark.queries import QUERIES
from bench.nexmark.workload import Steps, empty, tables_of
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.messages.planning import Catalogue, ExportRequest, PlanRequest, Refused, Relation, ViewRequest
from tidemark_protocol.plan.dataflow import DataflowDescription, ShardMetadata
from tidemark_replica.storage.nexmark.tables import TABLES


def run(engine: Engine, folder: Path, name: str, steps: Steps) -> list[Cost]:
    """The cost of each step, from the commit of its events to that of the index. Raises WrongAnswer."""
    home = Path(tempfile.mkdtemp(prefix=name, dir=folder))
    sources = {table: Source(home, table, empty(table)) for table in tables_of(name)}
    how = engine.workers, engine.max_rows, engine.exchange_policy, engine.affinity
    view = View(engine.session, home, _description(engine, name, sources), sources, *how)
    try:
        view.hydrate()
        costs = []
        for step in range(steps.count):
            for table, source in sources.items():
                source.append(steps.updates(table, step, AS_OF + 1 + step))
            cost, phases = measured(view.step)
            costs.append(Cost(phases.all, cost.cpu))
        check(f"{name}, compared with DuckDB", view.answer(), steps.answer(name))
        return costs
    finally:
        view.close()


def _description(engine: Engine, name: str, sources: dict[str, Source]) -> DataflowDescription:
    relations = tuple(
        Relation("nexmark", table, GlobalId(table), of.columns, _shard(table, source), of.keys, of.monotonic)
        for table, source in sources.items()
        for of in (TABLES[table],)
    )
    view, export = ViewRequest("view", QUERIES[name]), ExportRequest("index", "index", "view", None)
    answer = engine.plan(PlanRequest("bench", (view,), (export,), Catalogue(relations), "bench/"))
    if isinstance(answer, Refused):
        raise ValueError(f"{name} cannot be planned: {answer.diagnostics[0].message}")
    return described(answer, AS_OF)


def _shard(table: str, source: Source) -> ShardMetadata:
    return ShardMetadata(ShardId(table), str(source.location), TABLES[table].columns)
