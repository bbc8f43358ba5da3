"""Frames as DataFrames, prepared once: planned here, run at every step."""

from __future__ import annotations

from functools import partial
from typing import Any

from tidemark_replica.render import catalyst
from tidemark_replica.render.flow import arrow_types
from tidemark_replica.render.fragments import Fragment
from tidemark_replica.render.frames import Frame, NegateFrame, ProjectFrame, SelectFrame, StageFrame, UnionFrame
from tidemark_replica.render.stage import run_stage


def prepare(session: Any, fragment: Fragment) -> Any:
    """The fragment's physical plan, on the JVM."""
    frame = _stage(session, fragment.stage, "done boolean")
    return frame._jdf.queryExecution().executedPlan()


def _stage(session: Any, frame: StageFrame, ddl: str) -> Any:
    """One Python call; without inputs it starts from a single row that says nothing."""
    inputs = [(build(session, i), i.schema) for i in frame.inputs]
    types = [arrow_types(schema) for _, schema in inputs]
    if not inputs:
        rows = session.range(0, 1, 1, 1)
    else:
        rows = inputs[0][0] if len(inputs) == 1 else catalyst.side_by_side(inputs)
    return rows.mapInArrow(partial(run_stage, frame.name, frame.tree, types), ddl)


def build(session: Any, frame: Frame) -> Any:
    """The frame as a DataFrame."""
    match frame:
        case StageFrame():
            return _stage(session, frame, catalyst.spark_schema(frame.schema))
        case SelectFrame(input, select, _):
            return catalyst.apply(build(session, input), select)
        case ProjectFrame(input, columns, _):
            return catalyst.project(build(session, input), columns)
        case NegateFrame(input):
            return catalyst.negate(build(session, input), len(input.schema))
        case UnionFrame(inputs, _):
            return catalyst.union([build(session, i) for i in inputs])
