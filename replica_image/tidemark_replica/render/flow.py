"""Streams while a plan is lowered: in Python as long as nothing needs Catalyst, then on the JVM's side, and back.

    Source ──Project──> JoinKernel        a Python stream: a pipeline that is still growing
       │ expressions
       ▼
    StageFrame ──Select──> Slot ──> ...   the pipeline became a stage; its rows, after Catalyst, are a slot of the next

So a stretch of kernels, leaves and projections is one Python call, however many operators it has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidemark_protocol.lir import MapFilterProject, Schema
from tidemark_replica.arrow_types import arrow_type
from tidemark_replica.render.errors import NotRendered
from tidemark_replica.render.frames import Frame, NegateFrame, ProjectFrame, SelectFrame, StageFrame, UnionFrame
from tidemark_replica.render.mfp import compile_mfp, projection_of
from tidemark_replica.render.pipeline import Negated, Pipeline, Project, Slot, Together, Types, map_slots


@dataclass(frozen=True)
class Flow:
    """A tagged stream: the pipeline that yields it, and its columns."""

    tree: Pipeline
    schema: Schema


class Flows:
    """Makes streams of streams, and stages where the side changes."""

    def __init__(self) -> None:
        self._frames: list[Frame] = []
        self._stages = 0

    def mfp(self, flow: Flow, mfp: MapFilterProject) -> Flow:
        """A MapFilterProject without temporal bounds (`temporal.py` has those)."""
        if mfp.lower or mfp.upper:
            raise NotRendered("this replica renders temporal filters as operators of their own, not inside others")
        columns = projection_of(mfp)
        if columns is None:
            return self._slot(SelectFrame(self.frame(flow), compile_mfp(mfp), mfp.output))
        if columns == tuple(range(len(flow.schema))):
            return Flow(flow.tree, mfp.output)
        if isinstance(flow.tree, Slot):
            return self._slot(ProjectFrame(self.frame(flow), columns, mfp.output))
        return Flow(Project(flow.tree, columns), mfp.output)

    def negate(self, flow: Flow) -> Flow:
        if isinstance(flow.tree, Slot):
            return self._slot(NegateFrame(self.frame(flow)))
        return Flow(Negated(flow.tree), flow.schema)

    def union(self, flows: Sequence[Flow], schema: Schema) -> Flow:
        if all(isinstance(f.tree, Slot) for f in flows):
            return self._slot(UnionFrame(tuple(self.frame(f) for f in flows), schema))
        return Flow(Together(tuple(f.tree for f in flows)), schema)

    def frame(self, flow: Flow) -> Frame:
        """The stream on the JVM's side."""
        if isinstance(flow.tree, Slot):
            return self._frames[flow.tree.slot]
        return self.stage(flow)

    def stage(self, flow: Flow) -> StageFrame:
        """The pipeline as a call of its own, its slots numbered in the order in which it reads them."""
        inputs: list[Frame] = []

        def renumbered(slot: Slot) -> Slot:
            inputs.append(self._frames[slot.slot])
            return Slot(len(inputs) - 1, slot.types)

        tree = map_slots(flow.tree, renumbered)
        self._stages += 1
        return StageFrame(f"stage{self._stages}", tree, tuple(inputs), flow.schema)

    def _slot(self, frame: Frame) -> Flow:
        self._frames.append(frame)
        return Flow(Slot(len(self._frames) - 1, arrow_types(frame.schema)), frame.schema)


def arrow_types(schema: Schema) -> Types:
    """The Arrow types of a stream's columns."""
    return tuple(arrow_type(c.type) for c in schema)
