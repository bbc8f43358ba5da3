"""A harness for one dataflow: shards' files, an arrangement store, and steps with any bounds.

A table's whole history is one Parquet file; a step reads its share of it, as `listen` and `snapshot_parts` would say.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.oracle.histories import Change, History, Table
from tidemark_persist import FilePart, StagedFile, Time, write_staged
from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.frontier import Frontier
from tidemark_protocol.ids import GlobalId, ShardId
from tidemark_protocol.ids import Time as At
from tidemark_protocol.plan.dataflow import (
    BuildDesc,
    DataflowDescription,
    IndexExport,
    MaterializedViewSink,
    ShardMetadata,
    SinkExport,
    SourceImport,
)
from tidemark_protocol.plan.lir import Plan
from tidemark_protocol.types import Column
from tidemark_replica.arrangement.store import ArrangementStore
from tidemark_replica.render.build import build
from tidemark_replica.render.dataflow import RenderedDataflow
from tidemark_replica.render.execution.background_merges import merge_pool
from tidemark_replica.render.stepped_dataflow import StepOutcome
from tidemark_replica.values.arrow_types import arrow_type

OBJECT, INDEX, SINK = GlobalId("object"), GlobalId("index"), GlobalId("sink")
Updates = Counter[tuple[tuple[Any, ...], str | None, int]]


class DataflowHarness:
    """Tables with their histories, on disk."""

    def __init__(self, session: Any, folder: Path, tables: Mapping[str, Table], history: History) -> None:
        self.session, self.folder, self.history = session, folder, history
        self.tables = tables
        self.store = ArrangementStore(folder / "arrangements")
        self.merges = merge_pool()
        self._files = {name: self._write(name, table) for name, table in tables.items()}

    def close(self) -> None:
        self.merges.shutdown(wait=False, cancel_futures=True)
        self.store.close()

    def parts(self, table: str, lower: int, upper: int) -> list[FilePart]:
        """Where the table's updates with times in [lower, upper) are."""
        file = self._files[table]
        if file is None or file.max_time < lower or file.min_time >= upper:
            return []
        return [FilePart(str(self.folder / table), file.path, Time(lower), Time(upper), file.rows, file.size)]

    def inputs(self, dataflow: RenderedDataflow, upper: int) -> dict[GlobalId, list[FilePart]]:
        """The inputs of the next step of the dataflow."""
        lower = dataflow.frontier.encode()
        hydrated = lower != dataflow.description.as_of
        lower = lower if hydrated else 0
        imports = dataflow.description.source_imports
        return {i.id: self.parts(i.id, lower, upper) for i in imports}

    def describe(self, plan: Plan, *, until: int | None = None, as_of: int | None = None) -> DataflowDescription:
        """The plan over the tables, exported as a sink and as an index on its first column."""
        columns = tuple(Column(f"x{i}", c.type, c.nullable) for i, c in enumerate(plan.schema))
        location = str(self.folder / "sink")
        sink = MaterializedViewSink(ShardMetadata(ShardId("sink"), location, columns))
        description = DataflowDescription(
            name="case",
            source_imports=tuple(
                SourceImport(GlobalId(name), self.shard(name), tuple(range(len(table.columns))))
                for name, table in self.tables.items()
            ),
            index_imports=(),
            objects=(BuildDesc(OBJECT, plan),),
            index_exports=(IndexExport(INDEX, OBJECT, (0,) if columns else (), columns),),
            sink_exports=(SinkExport(SINK, OBJECT, sink),),
            as_of=At(self.history.as_of if as_of is None else as_of),
            until=None if until is None else At(until),
        )
        check_dataflow(description)
        return description

    def build(self, description: DataflowDescription, **how: Any) -> RenderedDataflow:
        return build(description, self.session, self.store, self.folder / "scratch", merges=self.merges, **how)

    def step(self, dataflow: RenderedDataflow, upper: int, rows: int | None = None) -> StepOutcome:
        """One step, committed; of at most so many rows, or one time, it may end earlier."""
        inputs, end = self.inputs(dataflow, upper), Frontier.at(upper)
        if rows is not None:
            end = dataflow.narrowed(end, inputs, rows)
        outcome = dataflow.run(dataflow.plan_step(end, inputs))
        dataflow.commit(outcome)
        return outcome

    def run(self, description: DataflowDescription, bounds: Sequence[int], **how: Any) -> Updates:
        """The sink's updates, consolidated, over steps that end at `bounds`; `how` it is built."""
        dataflow = self.build(description, **how)
        try:
            return self.steps(dataflow, bounds)
        finally:
            dataflow.drop()

    def steps(self, dataflow: RenderedDataflow, bounds: Sequence[int]) -> Updates:
        """The sink's updates, consolidated, over steps that end at `bounds`."""
        made: Updates = Counter()
        for upper in bounds:
            while dataflow.frontier < Frontier.at(upper):  # a dataflow may end its hydration early
                outcome = self.step(dataflow, upper)
                made.update(delta(outcome, SINK))
                outcome.release()
        return consolidated(made)

    def shard(self, name: str) -> ShardMetadata:
        """The table as imports name it."""
        return ShardMetadata(ShardId(name), str(self.folder / name), self.tables[name].named)

    def _write(self, name: str, table: Table) -> StagedFile | None:
        (self.folder / name).mkdir(parents=True, exist_ok=True)
        return write_staged(str(self.folder / name), as_table(table, self.history.changes[name]))


@contextmanager
def harness(session: Any, folder: Path, tables: Mapping[str, Table], history: History) -> Iterator[DataflowHarness]:
    """A harness that is closed at the end of the block."""
    made = DataflowHarness(session, folder, tables, history)
    try:
        yield made
    finally:
        made.close()


def as_table(table: Table, changes: Sequence[Change]) -> pa.Table:
    """Changes as a shard has them."""
    arrays = {
        column.name: pa.array([row[i] for row, _, _ in changes], arrow_type(column.type))
        for i, column in enumerate(table.named)
    }
    times = pa.array([time for _, time, _ in changes], pa.int64())
    diffs = pa.array([diff for _, _, diff in changes], pa.int64())
    return pa.table({**arrays, "__time": times, "__diff": diffs})


def delta(outcome: StepOutcome, sink: GlobalId) -> Updates:
    """A step's delta of a sink."""
    return counted(outcome.deltas[sink].batches())


def counted(batches: Iterator[Any]) -> Updates:
    """Batches of updates as a dictionary."""
    made: Updates = Counter()
    for batch in batches:
        *columns, times, diffs, errors = [c.to_pylist() for c in batch.columns]
        rows = zip(*columns, strict=True) if columns else [()] * batch.num_rows
        for row, time, diff, error in zip(rows, times, diffs, errors, strict=True):
            made[tuple(map(plain, row)), None if error is None else json.loads(error)["code"], time] += diff
    return made


def consolidated(updates: Updates) -> Updates:
    return Counter({key: diff for key, diff in updates.items() if diff})


def contents(updates: Updates, time: int) -> tuple[Counter[tuple[Any, ...]], Counter[str]]:
    """(rows, errors) at a time."""
    rows: Counter[tuple[Any, ...]] = Counter()
    errors: Counter[str] = Counter()
    for (row, error, at), diff in updates.items():
        if at <= time and error is None:
            rows[row] += diff
        elif at <= time and error is not None:
            errors[error] += diff
    return Counter({k: n for k, n in rows.items() if n}), Counter({k: n for k, n in errors.items() if n})


def plain(value: Any) -> Any:
    """A value as SQL groups it: one NaN, one zero; arrays as tuples, structs as tuples of their fields' values."""
    if isinstance(value, dict):
        return tuple(map(plain, value.values()))
    if isinstance(value, list):
        return tuple(map(plain, value))
    if isinstance(value, float):
        return "NaN" if value != value else value + 0.0
    return value
