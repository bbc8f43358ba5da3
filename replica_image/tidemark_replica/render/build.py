"""Building: a description becomes a dataflow that can be stepped, after some hundred milliseconds of planning."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from concurrent.futures import Executor
from pathlib import Path
from typing import Any

from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.dataflow import DataflowDescription
from tidemark_replica.arrangement.store import ArrangementStore
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.errors import NotRendered
from tidemark_replica.render.execution.background_merges import BackgroundMerges
from tidemark_replica.render.execution.executor_affinity import DataflowAffinity, ExecutorAffinity
from tidemark_replica.render.execution.runner import PreparedFragment, PreparedLoop, Runner
from tidemark_replica.render.execution.spark_runner import SparkRunner
from tidemark_replica.render.execution.step_shape import ExchangePolicy, FragmentShapes
from tidemark_replica.render.execution.worker_runner import MAX_ROWS, WorkerRunner
from tidemark_replica.render.index import IndexTrace
from tidemark_replica.render.lowering import lower_dataflow
from tidemark_replica.render.plan.fragments import Fragment, Fragments, LoopFragment, SharedArrangement
from tidemark_replica.render.step_worker.pool import StepWorkers
from tidemark_replica.values.arrow_files import write_tables


def build(
    description: DataflowDescription,
    session: Any,
    store: ArrangementStore,
    scratch: Path,
    indexes: Mapping[GlobalId, IndexTrace] | None = None,
    *,
    merges: Executor,
    arrow: bool = True,
    workers: StepWorkers | None = None,
    max_rows: float = MAX_ROWS,
    exchange_policy: ExchangePolicy | None = None,
    affinity: ExecutorAffinity | None = None,
) -> RenderedDataflow:
    """Build a dataflow, ready to hydrate. Raises NotRendered for a plan without an operator here; nothing is built
    then.

    `description`: one that `check_dataflow` has accepted.
    `indexes`: the imported indexes by the ids of the imports.
    `merges`: the pool of the replica's background merges.
    `arrow`: False leaves every expression to Catalyst.
    `workers`: run steps of at most `max_rows` updates; None: every step is Spark jobs.
    `exchange_policy`: when jobs have several tasks; None: as many tasks as Spark has cores.
    `affinity`: prefers an executor for jobs of one task.
    """
    imported = _imported(description, indexes or {})
    folder = scratch / f"d{uuid.uuid4().hex[:12]}"
    arranged = {id: SharedArrangement(i.arrangement, i.manifest.layout) for id, i in imported.items()}
    fragments = lower_dataflow(description, arranged, folder.name, arrow=arrow)
    prepared = [_prepared(session, f) for f in fragments.fragments]
    layouts = {**fragments.arrangements, **{i.arrangement: i.layout for i in arranged.values()}}
    exchange_policy = exchange_policy or ExchangePolicy(session.sparkContext.defaultParallelism)
    home = DataflowAffinity(affinity, description.name)
    spark = SparkRunner(session, f"tidemark-{folder.name}", FragmentShapes(session, layouts, exchange_policy), home)
    runner = spark if workers is None else _with_workers(spark, workers, max_rows, folder.name, fragments)
    background_merges = BackgroundMerges(session, store, folder, merges)
    folder.mkdir(parents=True)  # nothing can be refused from here on
    _write_constants(fragments, folder)
    return RenderedDataflow(
        description, fragments, prepared, imported, store, runner, background_merges, folder, exchange_policy
    )


def _with_workers(spark: SparkRunner, workers: StepWorkers, max_rows: float, name: str, fragments: Fragments) -> Runner:
    parts = [part for f in fragments.fragments for part in (f.body if isinstance(f, LoopFragment) else (f,))]
    return WorkerRunner(spark, workers, name, parts, max_rows=max_rows)


def _prepared(session: Any, fragment: Fragment | LoopFragment) -> PreparedFragment | PreparedLoop:
    if isinstance(fragment, LoopFragment):
        return PreparedLoop(fragment, tuple(_planned(session, part) for part in fragment.body))
    return _planned(session, fragment)


def _planned(session: Any, fragment: Fragment) -> PreparedFragment:
    """Prepare a fragment. One with expressions for Catalyst is planned, and perhaps refused, now."""
    made = PreparedFragment(fragment, session)
    if fragment.stage.inputs:
        made.plan  # noqa: B018
    return made


def _imported(description: DataflowDescription, indexes: Mapping[GlobalId, IndexTrace]) -> dict[GlobalId, IndexTrace]:
    missing = [i.id for i in description.index_imports if i.id not in indexes]
    if missing:
        raise NotRendered(f"dataflow {description.name}: this replica has no index {missing[0]}, which it imports")
    return {i.id: indexes[i.id] for i in description.index_imports}


def _write_constants(fragments: Fragments, folder: Path) -> None:
    for name, updates in fragments.constants.items():
        write_tables(folder / name, updates.schema, [updates])
