"""Preparing: frames become a physical plan on the JVM, planned once and run at every step."""

from __future__ import annotations

from functools import partial, reduce
from typing import Any

from tidemark_replica.render.expressions import catalyst
from tidemark_replica.render.plan.jvm_frames import (
    ExchangeFrame,
    Frame,
    NegateFrame,
    ProjectFrame,
    SelectFrame,
    StageFrame,
    UnionFrame,
)
from tidemark_replica.render.plan.lowering_stream import arrow_types
from tidemark_replica.render.plan.pipeline import Types
from tidemark_replica.render.plan.tree_pickle import pickled_once
from tidemark_replica.render.task.exchange_io import EXCHANGE_DDL
from tidemark_replica.render.task.jvm_input_slots import StageFeed
from tidemark_replica.render.task.stage import run_stage


def prepare(session: Any, stage: StageFrame, tasks: int = 1) -> Any:
    """The physical plan, on the JVM, of a fragment's last stage. All its stages run in `tasks` tasks."""
    return _Plans(session, tasks).stage(stage, "done boolean")._jdf.queryExecution().executedPlan()


class _Plans:
    """Builds DataFrames from frames."""

    def __init__(self, session: Any, tasks: int) -> None:
        self._session, self._tasks = session, tasks

    def stage(self, frame: StageFrame, ddl: str) -> Any:
        """One Python call. Without inputs, each task starts from one row without meaning."""
        if not frame.inputs:
            return self._call(frame, (), self._session.range(0, self._tasks, 1, self._tasks), ddl)
        if isinstance(frame.inputs[0], ExchangeFrame):
            return self._call(frame, (), self._exchange(frame.inputs[0]), ddl, exchanged=True)
        inputs = [(self._build(i), i.schema) for i in frame.inputs]
        rows = inputs[0][0] if len(inputs) == 1 else catalyst.side_by_side(inputs)
        return self._call(frame, tuple(arrow_types(schema) for _, schema in inputs), rows, ddl)

    def _call(
        self, frame: StageFrame, slots: tuple[Types, ...], rows: Any, ddl: str, *, exchanged: bool = False
    ) -> Any:
        feed = StageFeed(slots, self._tasks, exchanged)
        return rows.mapInArrow(partial(run_stage, frame.name, pickled_once(frame.tree), feed), ddl)

    def _exchange(self, frame: ExchangeFrame) -> Any:
        """Spark's shuffle of rows (share, slot, file, begin, bytes)."""
        streams = [self.stage(i, EXCHANGE_DDL) for i in frame.inputs]
        return reduce(lambda a, b: a.union(b), streams).repartitionById(self._tasks, "share")

    def _build(self, frame: Frame) -> Any:
        """The frame as a DataFrame."""
        match frame:
            case StageFrame():
                return self.stage(frame, catalyst.spark_schema(frame.schema))
            case SelectFrame(input, select, _):
                return catalyst.apply(self._build(input), select)
            case ProjectFrame(input, columns, _):
                return catalyst.project(self._build(input), columns)
            case NegateFrame(input):
                return catalyst.negate(self._build(input), len(input.schema))
            case UnionFrame(inputs, _):
                return catalyst.union([self._build(i) for i in inputs])
            case ExchangeFrame():
                return self._exchange(frame)
