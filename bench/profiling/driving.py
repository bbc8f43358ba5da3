"""Steps of one query, timed from outside; what happened in the workers is joined by the clock of the machine.

listen ─ plan ─ describe ─┬─ submit ─ launch ─ [ stages, by what they did ] ─ end ─┬─ believe ─ ... ─ commit
     driver               └──────────── SparkRunner._run, a job ── ────────────────┘      driver
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pyarrow as pa

from bench.harness.answers import check
from bench.harness.clock import Cost, measured
from bench.harness.deltas import Delta
from bench.harness.engine import AS_OF, Source, View
from bench.harness.queries import Query as Plain
from bench.harness.query import Planner, describe
from bench.harness.tpch import Tables
from bench.peers.duckdb_apply import DuckDb
from bench.profiling import spans
from bench.profiling.plans import QUERIES, lines_changed, tables
from tidemark_replica.render import prepare
from tidemark_replica.render.description import Description
from tidemark_replica.render.runner import believed
from tidemark_replica.render.spark_runner import SparkRunner

DESCRIBE, BELIEVE = "driver: describe", "driver: believe reports"
Spent = defaultdict[str, float]


@dataclass
class Profiled:
    """What steps of one query took, each as milliseconds by label; `costs` of steps and of empty jobs in between."""

    parts: list[Spent] = field(default_factory=list)
    costs: list[Cost] = field(default_factory=list)
    empty: list[Cost] = field(default_factory=list)
    jobs: int = 0


@contextmanager
def instrumented() -> Iterator[Spent]:
    """The driver's own times by label, and workers that report theirs."""
    spent = Spent(float)
    patches = [
        mock.patch.object(prepare, "run_stage", spans.run_stage),
        mock.patch.object(Description, "write", _adding(spent, DESCRIBE, Description.write)),
        mock.patch(f"{SparkRunner.__module__}.believed", _adding(spent, BELIEVE, believed)),
        mock.patch.object(SparkRunner, "_run", _timed_job(spent, SparkRunner._run)),
    ]
    for patch in patches:
        patch.start()
    try:
        yield spent
    finally:
        for patch in patches:
            patch.stop()


def profile(
    session: Any, folder: Path, plan: Planner, name: str, scale_factor: str, steps: int, rows: int, warm_up: int
) -> Profiled:
    """Hydrate the view, then step it; at the end it is what DuckDB computes."""
    query, result, log = QUERIES[name], Profiled(), folder / "profile"
    data = tables(query, scale_factor)
    home = folder / name
    home.mkdir()
    sources = {table: Source(home, table, at) for table, at in data.items()}
    shards = {table: (source.location, source.schema) for table, source in sources.items()}
    empty = session.range(0, 1, 1, 1)
    with instrumented() as spent:
        view = View(session, home, describe(plan, query.sql, shards, AS_OF), sources)
        view.hydrate()
        changes = lines_changed(data["lineitem"], warm_up + steps, rows)
        for number, delta in enumerate(changes):
            for table, source in sources.items():
                source.append(delta.updates(number + 1) if table == "lineitem" else None)
            spent.clear()
            _forget(log)
            job = measured(empty.collect)[0]
            cost, phases = measured(view.step)
            if number >= warm_up:
                result.empty.append(job)
                result.costs.append(Cost(phases.all, cost.cpu))
                result.parts.append(_parts(log, spent, vars(phases)))
        result.jobs = int(spent["jobs"])
        check(f"{name}, compared with DuckDB", view.answer(), _answer(Plain(name, query.sql), data, changes))
        view.close()
    return result


def _answer(query: Plain, data: Tables, changes: Sequence[Delta]) -> pa.Table:
    database = DuckDb(data, [query])
    for delta in changes:
        database.apply(delta)
    return database.answer(query)


def _parts(log: Path, spent: Spent, phases: dict[str, float]) -> Spent:
    """The step's milliseconds by label; they add up to the step's."""
    parts = Spent(float, {f"driver: {name}": phases[name] for name in ("listen", "plan", "commit")})
    parts |= {label: took for label, took in spent.items() if label.startswith("driver: ")}
    in_run = spent["end"] - spent["begin"] + sum(spent[label] for label in (DESCRIBE, BELIEVE))
    parts["driver: all else"] = phases["run"] - in_run
    stages = [json.loads(line) for path in log.glob("spans.*.jsonl") for line in path.read_text().splitlines()]
    begin, end = min(s["begin"] for s in stages), max(s["end"] for s in stages)
    parts["spark: submit and launch, to the first Python call"] = begin - spent["begin"]
    parts["spark: from the last Python call to the driver"] = spent["end"] - end
    parts["spark: between Python calls, and waiting"] = end - begin
    for stage in stages:
        for label, took in stage["spent"].items():
            parts[label] += took
            parts["spark: between Python calls, and waiting"] -= took
    return parts


def _forget(log: Path) -> None:
    for path in log.glob("spans.*.jsonl"):
        path.unlink()


def _adding(spent: Spent, label: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*arguments: Any, **named: Any) -> Any:
        begin = time.perf_counter()
        try:
            return function(*arguments, **named)
        finally:
            spent[label] += (time.perf_counter() - begin) * 1e3

    return timed


def _timed_job(spent: Spent, function: Callable[..., Any]) -> Callable[..., Any]:
    def timed(*arguments: Any) -> Any:
        spent["jobs"] += 1
        spent.setdefault("begin", time.time() * 1e3)
        try:
            return function(*arguments)
        finally:
            spent["end"] = time.time() * 1e3

    return timed
