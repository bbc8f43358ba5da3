"""Streams while a plan is lowered: in Python as long as nothing needs Catalyst, then on the JVM's side, and back.

    Source ──Project──> JoinKernel        a Python stream: a pipeline that is still growing
       │ expressions
       ▼
    StageFrame ──Select──> Slot ──> ...   the pipeline became a stage; its rows, after Catalyst, are a slot of the next

So a stretch of kernels, leaves and projections is one Python call, however many operators it has.

Inside a loop every stream carries one column more than its plan knows of, the iteration (`recursion/`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tidemark_protocol.plan.lir import MapFilterProject, Schema
from tidemark_replica.evaluator import admits
from tidemark_replica.render.errors import NotRendered
from tidemark_replica.render.expressions.mfp import compile_mfp, projection_of
from tidemark_replica.render.plan.carried_columns import carry
from tidemark_replica.render.plan.jvm_frames import (
    Frame,
    NegateFrame,
    ProjectFrame,
    SelectFrame,
    StageFrame,
    UnionFrame,
)
from tidemark_replica.render.plan.pipeline import (
    Compute,
    Negated,
    Pipeline,
    Project,
    Slot,
    Source,
    Together,
    Types,
    map_slots,
)
from tidemark_replica.render.plan.scan_pushdown import told_of
from tidemark_replica.values.arrow_types import arrow_type


@dataclass(frozen=True)
class Flow:
    """A tagged stream: the pipeline that yields it, and its columns."""

    tree: Pipeline
    schema: Schema


class Flows:
    """Makes streams of streams, and stages where the side changes.

    `carried`: columns that every stream has behind those of its schema; `lifted` makes pipelines that were built
    without them carry them. `arrow`: what the Arrow evaluator knows stays in Python; else Catalyst has all expressions.
    """

    def __init__(
        self,
        carried: Schema = (),
        lifted: Callable[[Pipeline], Pipeline] = lambda tree: tree,
        *,
        arrow: bool = True,
    ) -> None:
        self._frames: list[Frame] = []
        self._stages = 0
        self._carried, self._lifted, self.arrow = carried, lifted, arrow

    def mfp(self, flow: Flow, mfp: MapFilterProject) -> Flow:
        """A MapFilterProject without temporal bounds (`render/temporal.py` has those)."""
        if mfp.lower or mfp.upper:
            raise NotRendered("this replica renders temporal filters as operators of their own, not inside others")
        columns = projection_of(mfp)
        if isinstance(flow.tree, Source):
            flow = Flow(told_of(flow.tree, mfp), flow.schema)
        if columns is None and self.arrow and admits(mfp):
            return Flow(Compute(flow.tree, mfp), mfp.output)
        if columns is None:
            carrying = carry(mfp, self._carried)
            return self._slot(SelectFrame(self.frame(flow), compile_mfp(carrying), carrying.output), mfp.output)
        if columns == tuple(range(len(flow.schema))):
            return Flow(flow.tree, mfp.output)
        if isinstance(flow.tree, Slot):
            behind = range(len(flow.schema), len(flow.schema) + len(self._carried))
            frame = ProjectFrame(self.frame(flow), (*columns, *behind), mfp.output + self._carried)
            return self._slot(frame, mfp.output)
        return Flow(Project(flow.tree, columns), mfp.output)

    def negate(self, flow: Flow) -> Flow:
        if isinstance(flow.tree, Slot):
            return self._slot(NegateFrame(self.frame(flow)), flow.schema)
        return Flow(Negated(flow.tree), flow.schema)

    def union(self, flows: Sequence[Flow], schema: Schema) -> Flow:
        if all(isinstance(f.tree, Slot) for f in flows):
            return self._slot(UnionFrame(tuple(self.frame(f) for f in flows), schema + self._carried), schema)
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

        tree = map_slots(self._lifted(flow.tree), renumbered)
        self._stages += 1
        return StageFrame(f"stage{self._stages}", tree, tuple(inputs), flow.schema + self._carried)

    def _slot(self, frame: Frame, schema: Schema) -> Flow:
        self._frames.append(frame)
        return Flow(Slot(len(self._frames) - 1, arrow_types(frame.schema)), schema)


def arrow_types(schema: Schema) -> Types:
    """The Arrow types of a stream's columns."""
    return tuple(arrow_type(c.type) for c in schema)
