"""Streams during lowering: a pipeline while nothing needs Catalyst, then a frame on the JVM's side, and back.

    Source ──Project──> JoinKernel        a Python stream: a pipeline that still grows
       │ expressions
       ▼
    StageFrame ──Select──> JvmInput ──> ...   the pipeline became a stage; its rows, after Catalyst, are a JvmInput

So a stretch of kernels, leaves and projections is one Python call, however many operators it has.

Inside a loop every stream carries one column more than its plan has, the iteration (`recursion/`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from tidemark_protocol.plan.lir import MapFilterProject, Schema
from tidemark_replica.evaluator import admits
from tidemark_replica.render.errors import NotRendered
from tidemark_replica.render.expressions.mfp import compile_mfp, projection_of
from tidemark_replica.render.plan.carried_columns import with_carried_columns
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
    Concat,
    JvmInput,
    NegateDiffs,
    Pipeline,
    Project,
    Source,
    Types,
    map_jvm_inputs,
)
from tidemark_replica.render.plan.scan_pushdown import push_down
from tidemark_replica.values.arrow_types import arrow_type


@dataclass(frozen=True)
class Stream:
    """A tagged stream: the pipeline that yields it, and its columns."""

    tree: Pipeline
    schema: Schema


class StreamBuilder:
    """Builds streams from streams, and stages where a stream changes sides.

    `carried`: columns that every stream has behind those of its schema. `lifted`: makes a pipeline that was built
    without them carry them. `arrow`: expressions that the Arrow evaluator supports stay in Python; else Catalyst has
    all. `stages`: the numbers of stages.
    """

    def __init__(
        self,
        carried: Schema = (),
        lifted: Callable[[Pipeline], Pipeline] = lambda tree: tree,
        *,
        arrow: bool = True,
        stages: Iterator[int] | None = None,
    ) -> None:
        self._frames: list[Frame] = []
        self._stages = count(1) if stages is None else stages
        self._carried, self._lifted, self.arrow = carried, lifted, arrow

    def of_loop(self, carried: Schema, lifted: Callable[[Pipeline], Pipeline]) -> StreamBuilder:
        """The builder for the streams of a loop's body. Their stages have names of their own in the dataflow."""
        return StreamBuilder(carried, lifted, arrow=self.arrow, stages=self._stages)

    def mfp(self, stream: Stream, mfp: MapFilterProject) -> Stream:
        """Apply a MapFilterProject. Raises NotRendered for temporal bounds (`render/temporal.py` has those)."""
        if mfp.lower or mfp.upper:
            raise NotRendered("this replica renders temporal filters as operators of their own, not inside others")
        columns = projection_of(mfp)
        if isinstance(stream.tree, Source):
            stream = Stream(push_down(stream.tree, mfp), stream.schema)
        if columns is None and self.arrow and admits(mfp):
            return Stream(Compute(stream.tree, mfp), mfp.output)
        if columns is None:
            carrying = with_carried_columns(mfp, self._carried)
            return self._slot(SelectFrame(self.frame(stream), compile_mfp(carrying), carrying.output), mfp.output)
        if columns == tuple(range(len(stream.schema))):
            return Stream(stream.tree, mfp.output)
        if isinstance(stream.tree, JvmInput):
            behind = range(len(stream.schema), len(stream.schema) + len(self._carried))
            frame = ProjectFrame(self.frame(stream), (*columns, *behind), mfp.output + self._carried)
            return self._slot(frame, mfp.output)
        return Stream(Project(stream.tree, columns), mfp.output)

    def negate(self, stream: Stream) -> Stream:
        if isinstance(stream.tree, JvmInput):
            return self._slot(NegateFrame(self.frame(stream)), stream.schema)
        return Stream(NegateDiffs(stream.tree), stream.schema)

    def union(self, streams: Sequence[Stream], schema: Schema) -> Stream:
        if all(isinstance(f.tree, JvmInput) for f in streams):
            return self._slot(UnionFrame(tuple(self.frame(f) for f in streams), schema + self._carried), schema)
        return Stream(Concat(tuple(f.tree for f in streams)), schema)

    def frame(self, stream: Stream) -> Frame:
        """The stream on the JVM's side."""
        if isinstance(stream.tree, JvmInput):
            return self._frames[stream.tree.slot]
        return self.stage(stream)

    def stage(self, stream: Stream) -> StageFrame:
        """The pipeline as a stage, its JvmInputs numbered in the order in which it reads them."""
        inputs: list[Frame] = []

        def renumbered(slot: JvmInput) -> JvmInput:
            inputs.append(self._frames[slot.slot])
            return JvmInput(len(inputs) - 1, slot.types)

        tree = map_jvm_inputs(self._lifted(stream.tree), renumbered)
        return StageFrame(f"stage{next(self._stages)}", tree, tuple(inputs), stream.schema + self._carried)

    def _slot(self, frame: Frame, schema: Schema) -> Stream:
        self._frames.append(frame)
        return Stream(JvmInput(len(self._frames) - 1, arrow_types(frame.schema)), schema)


def arrow_types(schema: Schema) -> Types:
    """The Arrow types of a schema's columns."""
    return tuple(arrow_type(c.type) for c in schema)
