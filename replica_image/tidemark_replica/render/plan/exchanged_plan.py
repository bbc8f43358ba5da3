"""The exchanged shape of a fragment: several tasks, with an exchange before every stateful operator.

    one task                              several tasks
    Drain                                 Drain
      ArrangeKernel by a                    ArrangeKernel by a
        Kernel reduce by a                    Kernel reduce by a, of sums
          Compute                               ExchangeInput 0
            JoinKernel on k                 ═══ exchange by a ═══
              Source s                        Kernel sums by a                 partial sums before they move
              Source t                          Compute
                                                  JoinKernel on k
                                                    ExchangeInput 0, ExchangeInput 1
                                               ═══ exchange by k ═══
                                              Source s,   Source t             every task reads some of the row groups

The operators between two exchanges are one Python call in every task. Leaves are divided among the tasks. A kernel gets
all rows of a key in one task, so kernels and state are those of the one-task shape. A stream that is already
partitioned by a kernel's key (here the groups' rows, for an arrangement by the same key) does not move again.

The paths of a delta join look up each other's inputs in any order, so in general they run in one task. At a hydration
that ends with the as_of only the first path is followed (`joins/half_join_path.py`); a lookup is then an operator like
any other.

Pure: frames in, frames out. Fragments with loops, delta joins after hydration or temporal filters stay in one task (the
result is None).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from itertools import count

from tidemark_protocol.plan.lir import Schema
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.kernels.flat_map import FlatMapSpec
from tidemark_replica.kernels.groups.reevaluated_groups import ReevaluatedGroupsSpec
from tidemark_replica.kernels.joins.half_join_path import ArrangeInputSpec
from tidemark_replica.kernels.joins.join import JoinSide, JoinSpec
from tidemark_replica.kernels.joins.self_join import SelfJoinSpec
from tidemark_replica.kernels.ranking.extremes import ExtremesSpec
from tidemark_replica.kernels.ranking.partial_first_rows import PartialFirstRowsSpec
from tidemark_replica.kernels.ranking.state import Retractions
from tidemark_replica.kernels.ranking.top_k import TopKSpec
from tidemark_replica.kernels.reduce.partial_sums import PartialSumsSpec
from tidemark_replica.kernels.reduce.reduce import ReduceSpec
from tidemark_replica.kernels.threshold import ThresholdSpec
from tidemark_replica.render.plan import pipeline as p
from tidemark_replica.render.plan.delta_join_hydration import OneTaskOnly, hydration_path
from tidemark_replica.render.plan.jvm_frames import (
    ExchangeFrame,
    Frame,
    NegateFrame,
    ProjectFrame,
    SelectFrame,
    StageFrame,
    UnionFrame,
)

Key = tuple[int, ...]
Layouts = Mapping[ArrangementId, Layout]

_DIVISIBLE = (p.Source, p.IndexSource, p.ReadPublished, p.ReadPublishedErrors, p.Constants)
_ROW_BY_ROW = (p.Project, p.Compute, p.NegateDiffs, p.Concat, p.Publish, p.Spool, p.Drain, p.Exchange)


def exchanged_plan(
    stage: StageFrame, layouts: Layouts, *, single_time: bool, only_step: bool = False
) -> StageFrame | None:
    """The exchanged shape of a fragment's last stage; None if the fragment must run in one task.

    `layouts`: those of all arrangements that the fragment names. `single_time`: for a hydration that ends with the
    as_of. `only_step`: for the only step of a dataflow, where delta joins need the first path alone.
    """
    cutter = _Cutter(stage.name, layouts, single_time=single_time, only_step=only_step)
    try:
        return cutter.stage(stage.tree, stage.inputs, stage.schema)
    except OneTaskOnly:
        return None


@dataclass
class _StageBuilder:
    """A stage under construction, and its inputs so far."""

    below: tuple[Frame, ...]
    """The frames of the JvmInputs of the tree that the stage is made from."""
    exchanges: dict[int, StageFrame] = field(default_factory=dict)
    direct: dict[int, p.JvmInput] = field(default_factory=dict)
    spools: set[str] = field(default_factory=set)

    def next(self) -> int:
        return len(self.exchanges) + len(self.direct)


class _Cutter:
    """Cuts one fragment into stages."""

    def __init__(self, name: str, layouts: Layouts, *, single_time: bool, only_step: bool) -> None:
        """`name` is unique among the stages of the dataflow: their reports share a folder."""
        self._name, self._layouts, self._numbers = name, layouts, count(1)
        self._single_time, self._only_step = single_time, only_step
        self._spooled: dict[str, Key] = {}

    def stage(self, tree: p.Pipeline, below: tuple[Frame, ...], schema: Schema) -> StageFrame:
        """The tree as a stage of its own."""
        builder = _StageBuilder(below)
        tree = self._rewrite(tree, builder)
        inputs: tuple[Frame, ...] = ()
        if builder.direct and builder.next() == 1:
            ((number, slot),) = builder.direct.items()
            tree = _with_slot(tree, number, replace(slot, slot=0))
            inputs = (self._frame(below[slot.slot]),)
        elif builder.next():
            staying = {n: self._kept_in_task(n, slot, below) for n, slot in builder.direct.items()}
            dealt = builder.exchanges | staying
            inputs = (ExchangeFrame(tuple(dealt[n] for n in sorted(dealt))),)
        return StageFrame(f"{self._name}-{next(self._numbers)}", tree, inputs, schema)

    def _kept_in_task(self, number: int, slot: p.JvmInput, below: tuple[Frame, ...]) -> StageFrame:
        return self.stage(p.Exchange(slot, number, None), below, ())

    def _frame(self, frame: Frame) -> Frame:
        """The frame in every partition. A union becomes a stage, so that tasks keep their shares."""
        match frame:
            case StageFrame(_, tree, inputs, schema):
                return self.stage(tree, inputs, schema)
            case SelectFrame() | ProjectFrame() | NegateFrame():
                return replace(frame, input=self._frame(frame.input))
            case UnionFrame(inputs, schema):
                slots = tuple(p.JvmInput(i, ()) for i in range(len(inputs)))
                return self.stage(p.Concat(slots), inputs, schema)
            case ExchangeFrame():
                raise AssertionError("a fragment is exchanged once")

    def _rewrite(self, tree: p.Pipeline, builder: _StageBuilder) -> p.Pipeline:
        """The tree as part of the stage, each kernel's input partitioned as the kernel needs it."""
        match tree:
            case p.JvmInput():
                number = builder.next()
                builder.direct[number] = tree
                return p.ExchangeInput(number)
            case p.ReadSpool(name):
                if name not in builder.spools:
                    raise OneTaskOnly
                return tree
            case p.JoinKernel(spec, left, right):
                left = self._partitioned(left, self._side(spec, JoinSide.LEFT), builder)
                return p.JoinKernel(spec, left, self._partitioned(right, self._side(spec, JoinSide.RIGHT), builder))
            case p.DeltaKernel() if self._single_time:
                path = hydration_path(tree, self._layouts, builder.below, only_step=self._only_step)
                return self._rewrite(path, builder)
            case p.HalfJoinKernel(spec, met, stream):
                if spec.arranged_input is not None:
                    met = self._partitioned(met, self._layouts[spec.arranged_input.arrangement].key, builder)
                return p.HalfJoinKernel(spec, met, self._partitioned(stream, spec.lookup.stream_key, builder))
            case p.ArrangeKernel(arrangement, input):
                return replace(tree, input=self._partitioned(input, self._layouts[arrangement].key, builder))
            case p.Kernel(ReduceSpec() as spec, input) if self._needs_exchange(input, spec.shape.key):
                sums = p.Kernel(PartialSumsSpec(spec.shape), input)
                return p.Kernel(
                    replace(spec, summed=True), self._exchanged(sums, _first_columns(len(spec.shape.key)), builder)
                )
            case p.Kernel(TopKSpec() as spec, input) if self._is_thinned(spec, input):
                some = p.Kernel(PartialFirstRowsSpec(spec.state, spec.ranking), input)
                return replace(tree, input=self._exchanged(some, spec.ranking.key, builder))
            case p.Kernel(spec, input) if not isinstance(spec, FlatMapSpec | PartialSumsSpec | PartialFirstRowsSpec):
                arranged = spec.arrangement if isinstance(spec, ArrangeInputSpec | SelfJoinSpec) else None
                key = _key_of(spec) if arranged is None else self._layouts[arranged].key
                return replace(tree, input=self._partitioned(input, key, builder))
            case _ if isinstance(tree, (*_ROW_BY_ROW, *_DIVISIBLE, p.Kernel)):
                walked = p.map_inputs(tree, lambda below: self._rewrite(below, builder))
                builder.spools |= {tree.name} if isinstance(tree, p.Spool) else set()
                return walked
            case _:
                raise OneTaskOnly

    def _partitioned(self, tree: p.Pipeline, key: Key, builder: _StageBuilder) -> p.Pipeline:
        """The stream with all rows of equal `key` in one task."""
        match tree:
            case p.Spool(name, input):
                self._spooled[name] = key
                builder.spools.add(name)
                return replace(tree, input=self._partitioned(input, key, builder))
            case p.ReadSpool(name):
                if not set(self._spooled.get(name, (-1,))) <= set(key):
                    raise OneTaskOnly
                return self._rewrite(tree, builder)
            case _ if self._needs_exchange(tree, key):
                return self._exchanged(tree, key, builder)
            case _:
                return self._rewrite(tree, builder)

    def _needs_exchange(self, tree: p.Pipeline, key: Key) -> bool:
        return not isinstance(tree, p.Spool | p.ReadSpool) and self._partition_key(tree) != key

    def _is_thinned(self, spec: TopKSpec, input: p.Pipeline) -> bool:
        """Whether tasks leave out rows before an exchange: nobody needs them later, and nothing may be taken back."""
        keeps_some = not spec.complement and spec.state.retractions is not Retractions.ALWAYS
        return self._only_step and keeps_some and self._needs_exchange(input, spec.ranking.key)

    def _exchanged(self, tree: p.Pipeline, key: Key, builder: _StageBuilder) -> p.Pipeline:
        """The stream through an exchange."""
        number = builder.next()
        builder.exchanges[number] = self.stage(p.Exchange(tree, number, key), builder.below, ())
        return p.ExchangeInput(number)

    def _partition_key(self, tree: p.Pipeline) -> Key | None:
        """The columns by whose hash the stream's rows are partitioned; None if they are not."""
        match tree:
            case p.IndexSource(arrangement) | p.ArrangeKernel(arrangement):
                return self._layouts[arrangement].key
            case p.Kernel(ReduceSpec() as spec):
                return _first_columns(len(spec.shape.key))
            case p.Kernel(ExtremesSpec() as spec):
                return _first_columns(len(spec.of.key))
            case p.Kernel(TopKSpec() | ThresholdSpec() as spec):
                return _key_of(spec)
            case p.Kernel(SelfJoinSpec() as spec):
                kept = [*spec.left, *(None for _ in spec.right)]
                return _map_key(self._layouts[spec.arrangement].key, kept.index)
            case p.JoinKernel(spec):
                kept = [*spec.left.output_columns, *(None for _ in spec.right.output_columns)]
                return _map_key(self._side(spec, JoinSide.LEFT), kept.index)
            case p.Project(input, columns):
                return _project_key(self._partition_key(input), columns)
            case p.Compute(input, mfp):
                columns = tuple(range(len(mfp.extended))) if mfp.projection is None else mfp.projection
                return _project_key(self._partition_key(input), columns)
            case p.NegateDiffs(input) | p.Publish(_, input):
                return self._partition_key(input)
            case _:
                return None

    def _side(self, spec: JoinSpec, side: JoinSide) -> Key:
        read = spec.input(side)
        return self._layouts[read.arrangement].key if read.groups is None else read.groups.layout.key


def _key_of(spec: object) -> Key:
    match spec:
        case ReduceSpec():
            return spec.shape.key
        case ReevaluatedGroupsSpec():
            return spec.layout.key
        case ExtremesSpec():
            return spec.of.key
        case TopKSpec():
            return spec.ranking.key
        case ThresholdSpec():
            return spec.shape.key
        case _:
            raise OneTaskOnly


def _first_columns(width: int) -> Key:
    return tuple(range(width))


def _project_key(key: Key | None, columns: tuple[int, ...]) -> Key | None:
    return None if key is None else _map_key(key, columns.index)


def _map_key(key: Key, place: Callable[[int], int]) -> Key | None:
    try:
        return tuple(place(column) for column in key)
    except ValueError:
        return None


def _with_slot(tree: p.Pipeline, number: int, slot: p.JvmInput) -> p.Pipeline:
    if tree == p.ExchangeInput(number):
        return slot
    return p.map_inputs(tree, lambda below: _with_slot(below, number, slot))
