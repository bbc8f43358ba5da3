"""Queries through the real renderer: many as one dataflow, and apart where something is wrong with one of them.

Errors in a collection belong to no query. So queries whose dataflow fails, or shows an error at the time of reading,
are divided until the one is found to which that belongs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from tests.oracle.harness import SINK, DataflowHarness, Updates, contents
from tests.oracle.histories import History
from tests.sqllogictest.compare import Result
from tests.sqllogictest.database import StoredTable
from tests.sqllogictest.modes import as_of, as_tables, bounds, reading_time
from tests.sqllogictest.planning import ALL, PlannedQueries, PlannedQuery, one_collection, table_of
from tests.sqllogictest.time_limit import SECONDS, StatementTimedOut, bounded
from tidemark_persist import FilePart
from tidemark_protocol.check.plan import check_dataflow
from tidemark_protocol.ids import ShardId, Time
from tidemark_protocol.plan.dataflow import DataflowDescription, MaterializedViewSink, ShardMetadata, SinkExport
from tidemark_protocol.types import Column
from tidemark_replica.peek.result_finishing import sorted_indices
from tidemark_replica.render.lowering import lower_dataflow
from tidemark_replica.render.plan.fragments import Fragment
from tidemark_replica.render.step_worker.pool import StepWorkers
from tidemark_replica.values.arrow_types import arrow_type

BATCH = 25


@dataclass(frozen=True)
class Asked:
    """A query and after which moment it is asked."""

    number: int
    planned: PlannedQuery
    moment: int
    alone: bool = False
    on_arrow: bool = True


@dataclass(frozen=True)
class InError:
    """The view shows errors of these codes."""

    codes: tuple[str, ...]


@dataclass(frozen=True)
class Failed:
    """The dataflow could not be planned, built or stepped; or it showed what cannot be."""

    reason: str


Answer = Result | InError | Failed


class FileHarness(DataflowHarness):
    """A harness whose imports read the tables; each query has its own name for a table."""

    def parts(self, table: str, lower: int, upper: int) -> list[FilePart]:
        return super().parts(table_of(table), lower, upper)

    def answered(self, description: DataflowDescription, uppers: Sequence[int], patience: float, **how: Any) -> Updates:
        """The sink's updates over steps that end at `uppers`; raises StatementTimedOut."""
        dataflow = self.build(description, **how)
        try:
            with bounded(patience, dataflow.cancel):
                return self.steps(dataflow, uppers)
        finally:
            dataflow.drop()


class Dataflows:
    """One way (`mode`) to the answers of a file."""

    def __init__(
        self,
        spark: Any,
        mode: str,
        tables: Sequence[StoredTable],
        history: History,
        folder: Path,
        workers: StepWorkers | None = None,
        patience: float = SECONDS,
    ) -> None:
        self._spark, self._mode, self._patience = spark, mode, patience
        self._how: dict[str, Any] = {"workers": workers, "max_rows": math.inf} if workers else {}
        self._tables, self._history, self._folder = as_tables(tables), history, folder

    def answers(self, asked: Sequence[Asked]) -> Iterator[tuple[int, Answer]]:
        """The answer of each query, by its number, as they are found."""
        made = FileHarness(self._spark, self._folder, self._tables, self._history)
        try:
            for batch in self._batches(asked):
                yield from self._answers(made, batch)
        finally:
            made.close()

    def _batches(self, asked: Sequence[Asked]) -> Iterator[list[Asked]]:
        """The batches of queries that one dataflow can answer, as they begin and end together and are evaluated alike:
        one expression that needs Catalyst brings all of a dataflow there. Queries that are expected to fail are on
        their own."""
        open: dict[bool, list[Asked]] = {True: [], False: []}
        for one in asked:
            if one.alone:
                yield [one]
                continue
            batch = open[one.on_arrow]
            if len(batch) == BATCH or (batch and self._mode == "peek" and one.moment != batch[0].moment):
                yield batch
                batch = open[one.on_arrow] = []
            batch.append(one)
        yield from (batch for batch in open.values() if batch)

    def _answers(self, made: FileHarness, batch: Sequence[Asked]) -> Iterator[tuple[int, Answer]]:
        found: list[Answer]
        try:
            found = self._run(made, batch)
        except StatementTimedOut as error:
            found = [Failed(str(error))]
        except Exception as error:  # whatever breaks is the answer to the query that broke it
            found = [Failed(f"{type(error).__name__}: {error}")]
        if len(batch) == 1:
            yield batch[0].number, found[0]
        elif all(isinstance(answer, Result) for answer in found) and len(found) == len(batch):
            yield from zip((one.number for one in batch), found, strict=True)
        else:
            middle = len(batch) // 2
            yield from self._answers(made, batch[:middle])
            yield from self._answers(made, batch[middle:])

    def _run(self, made: FileHarness, batch: Sequence[Asked]) -> list[Answer]:
        limited = self._mode != "peek"
        whole = one_collection([one.planned for one in batch], limited)
        last = max(one.moment for one in batch)
        description = self._describe(whole, as_of(self._mode, last))
        uppers = bounds(self._mode, reading_time(last), str(batch[0].number))
        updates = made.answered(description, uppers, self._patience, **self._how)
        return [self._answer(updates, whole, i, one, limited) for i, one in enumerate(batch)]

    def _describe(self, whole: PlannedQueries, begins: int) -> DataflowDescription:
        described = description_of(whole, begins, str(self._folder / "sink"))
        check_dataflow(described)
        return described

    def _answer(self, updates: Updates, whole: PlannedQueries, number: int, one: Asked, limited: bool) -> Answer:
        rows, errors = contents(updates, reading_time(one.moment))
        if errors:
            return InError(tuple(sorted(errors)))
        mine = {row: n for row, n in rows.items() if row[0] == number}
        if negative := [row for row, n in mine.items() if n < 0]:
            return Failed(f"a negative multiplicity of {negative[0]}")
        picked = [tuple(row[p] for p in whole.places[number]) for row, n in mine.items() for _ in range(n)]
        return finish(picked, one.planned, limited)


def description_of(whole: PlannedQueries, begins: int, location: str) -> DataflowDescription:
    """The queries as a dataflow with one sink."""
    columns = tuple(Column(f"x{i}", c.type, c.nullable) for i, c in enumerate(whole.schema))
    sink = MaterializedViewSink(ShardMetadata(ShardId("sink"), location, columns))
    return DataflowDescription(
        name="file",
        source_imports=whole.imports,
        index_imports=(),
        objects=whole.objects,
        index_exports=(),
        sink_exports=(SinkExport(SINK, ALL, sink),),
        as_of=Time(begins),
    )


def is_on_arrow(planned: PlannedQuery) -> bool:
    """Whether all that the query computes stays beside the kernels, so that a step of it needs no job."""
    described = description_of(one_collection([planned], limited=True), 0, "")
    fragments = lower_dataflow(described, {}, "on-arrow").fragments
    return all(isinstance(f, Fragment) and not f.stage.inputs for f in fragments)


def finish(rows: list[tuple[Any, ...]], planned: PlannedQuery, limited: bool) -> Result:
    """The rows in order, as a reader of a view gets them; those whose order is the same are tied."""
    finishing = planned.finishing
    columns = [pa.array(c, arrow_type(t.type)) for c, t in zip(_turned(rows, planned), planned.schema, strict=True)]
    table = pa.table(columns, names=[str(i) for i in range(len(columns))])
    if finishing.order:
        table = table.take(sorted_indices(table, finishing.order))
    if not limited:
        table = table.slice(finishing.offset, finishing.limit)
    ordered = list(zip(*map(_values, table.columns), strict=True))
    runs: list[int] = []
    previous = None
    for row in ordered:
        key = repr([row[k.column] for k in finishing.order])
        if key == previous:
            runs[-1] += 1
        else:
            runs.append(1)
        previous = key
    cut = finishing.limit is not None or finishing.offset > 0
    shown = tuple(row[: finishing.shown] for row in ordered)
    return Result(shown, tuple(runs), planned.names, cut and not finishing.order)


def _values(column: pa.ChunkedArray) -> list[Any]:
    """The values; those of four bytes as the shortest number that means them: 1.2, not 1.2000000477."""
    if not pa.types.is_float32(column.type):
        return list(column.to_pylist())
    return [None if v is None else float(str(np.float32(v))) for v in column.to_pylist()]


def _turned(rows: list[tuple[Any, ...]], planned: PlannedQuery) -> list[list[Any]]:
    if not rows:
        return [[] for _ in planned.schema]
    turned = [list(c) for c in zip(*rows, strict=True)]
    floats = [t.type.is_floating for t in planned.schema]
    return [[float(v) if isinstance(v, str) else v for v in c] if f else c for c, f in zip(turned, floats, strict=True)]
