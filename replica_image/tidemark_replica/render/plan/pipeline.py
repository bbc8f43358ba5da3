"""Pipelines: what one Python call in a task runs, as a tree of values.

    ArrangeKernel [index i1]
      Kernel reduce                       everything between two stretches of Catalyst is one such tree, run by
        JoinKernel                        `task/stage.py` in one `mapInArrow`: batches pass from kernel to kernel
          Source s1                       as Python generators, without a trip through the JVM
          JvmInput 0    <- rows from Catalyst

A tree holds names, positions and types, no data. Its leaves read from the step's description.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa

from tidemark_persist import Condition
from tidemark_protocol.ids import GlobalId
from tidemark_protocol.plan.lir import MapFilterProject
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.kernels.continual_task import ContinualTaskSpec
from tidemark_replica.kernels.joins.delta_join import DeltaSpec
from tidemark_replica.kernels.joins.half_join_path import HalfJoinSpec
from tidemark_replica.kernels.joins.join import JoinSpec
from tidemark_replica.render.plan.kernel_registry import Spec

Types = tuple[pa.DataType, ...]


@dataclass(frozen=True)
class JvmInput:
    """Reads the rows that come from the JVM as input `slot` of the call."""

    slot: int
    types: Types


@dataclass(frozen=True)
class ExchangeInput:
    """Reads the updates that an exchange brings as input `slot` of the call."""

    slot: int


@dataclass(frozen=True)
class Source:
    """Reads the updates of an imported shard: its columns `names`, from the parts in the step's description.

    `delayed`: an update at t is read as one at t + 1. `conditions`: rows that do not satisfy them may be left out,
    since a filter above drops them.
    """

    id: GlobalId
    names: tuple[str, ...]
    types: Types
    delayed: bool = False
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class IndexSource:
    """Reads the updates of an imported index, or of an arrangement that an earlier fragment keeps."""

    arrangement: ArrangementId
    types: Types


@dataclass(frozen=True)
class ReadPublished:
    """Reads the updates that an earlier fragment of the step published under `name`."""

    name: str
    types: Types


@dataclass(frozen=True)
class ReadPublishedErrors:
    """Reads only the errors published under `name`, as rows of a stream with columns of `types`."""

    name: str
    types: Types


@dataclass(frozen=True)
class LoopInput:
    """Inside a loop: reads what was published outside under `name`, at the round's time, in iteration 0."""

    name: str
    types: Types


@dataclass(frozen=True)
class LoopVariable:
    """Inside a loop: reads what was fed back to the binding `name`, or enters an inner loop, for the round's
    iteration.
    """

    name: str
    types: Types


@dataclass(frozen=True)
class Constants:
    """Reads a constant collection from a file; it appears at the as_of."""

    file: str
    types: Types


@dataclass(frozen=True)
class ReadSpool:
    """Reads what a Spool of the same stage has written, after that Spool has been read to its end."""

    name: str
    types: Types


@dataclass(frozen=True)
class Project:
    """Chooses columns of the input, in this order."""

    input: Pipeline
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Compute:
    """A MapFilterProject with expressions that the Arrow evaluator supports."""

    input: Pipeline
    mfp: MapFilterProject


@dataclass(frozen=True)
class NegateDiffs:
    input: Pipeline


@dataclass(frozen=True)
class Concat:
    """The updates of the inputs, one input after the other."""

    inputs: tuple[Pipeline, ...]


@dataclass(frozen=True)
class JoinKernel:
    """One stage of a linear join. A side whose arrangement is shared still streams its updates."""

    spec: JoinSpec
    left: Pipeline
    right: Pipeline


@dataclass(frozen=True)
class DeltaKernel:
    """A delta join. It reads its inputs one after the other, shared arrangements last."""

    spec: DeltaSpec
    inputs: tuple[Pipeline, ...]


@dataclass(frozen=True)
class HalfJoinKernel:
    """A lookup on the first path of a delta join. It reads `met`, the input looked up, to its end first."""

    spec: HalfJoinSpec
    met: Pipeline
    stream: Pipeline


@dataclass(frozen=True)
class Kernel:
    """A kernel with one input; `kernel_registry.py` maps its spec to the function."""

    spec: Spec
    input: Pipeline


@dataclass(frozen=True)
class ContinualTaskKernel:
    """A continual task: the second input's contents at each time at which the first, the watched shard, changes."""

    spec: ContinualTaskSpec
    inputs: tuple[Pipeline, ...]


@dataclass(frozen=True)
class ArrangeKernel:
    """Writes the input to an arrangement, and passes it on."""

    arrangement: ArrangementId
    input: Pipeline


@dataclass(frozen=True)
class Publish:
    """Writes the input to a file of the step, and passes it on; consolidated within each chunk.

    `timed`: the report lists the times that occur in the file.
    """

    name: str
    input: Pipeline
    types: Types
    timed: bool = False


@dataclass(frozen=True)
class LaterIteration:
    """Inside loops: the later of a joined row's two iterations in each loop.

    They are the `loops` columns from `left` on, and the last ones.
    """

    input: Pipeline
    left: int
    loops: int = 1


@dataclass(frozen=True)
class Feedback:
    """Inside a loop: writes rows below iteration `last` for the binding `name`, each one iteration later.

    All rows of the input pass on unchanged.
    """

    name: str
    input: Pipeline
    types: Types
    last: int | None = None


@dataclass(frozen=True)
class EnterLoop:
    """Inside a loop: writes the input for the loop inside it that reads `name`, in iteration 0 of that loop."""

    name: str
    input: Pipeline
    types: Types


@dataclass(frozen=True)
class LoopOutput:
    """Inside a loop: publishes the input without this loop's iterations, for what follows the loop."""

    name: str
    input: Pipeline
    types: Types


@dataclass(frozen=True)
class LoopPart:
    """One job of a loop's body, and the published names that it reads. `place`: its tree's, among all of the loop.

    `scheduled`: the arrangements of updates that fall due in it.
    """

    name: str
    reads: frozenset[str]
    place: int
    scheduled: tuple[ArrangementId, ...] = ()


@dataclass(frozen=True)
class Loop:
    """A LetRec; `task/loop/fixpoint.py` runs it. A loop among its parts runs to its end in each of its rounds."""

    name: str
    parts: tuple[LoopPart | Loop, ...]
    arrangements: tuple[ArrangementId, ...]
    entering: tuple[str, ...]
    leaving: tuple[str, ...]
    most_iterations: int

    @property
    def scheduled(self) -> tuple[ArrangementId, ...]:
        """The arrangements of updates that fall due inside the loop."""
        return tuple(name for part in self.parts for name in part.scheduled)


@dataclass(frozen=True)
class LoopInTask:
    """A loop whose body does not need the JVM, run inside the task once `input` has published the loop's inputs."""

    loop: Loop
    input: Pipeline
    trees: tuple[Pipeline, ...]
    """The trees of the parts, by their places."""


@dataclass(frozen=True)
class Spool:
    """Writes the input to a file of this attempt, and passes it on, so that one stage can read a stream several times.

    The first reader has the Spool in its tree; the others have a ReadSpool with its name. A JoinKernel reads left to
    its end before right; Concat and DeltaKernel read one input after the other. So the Spool belongs to the leftmost
    reader.
    """

    name: str
    input: Pipeline
    types: Types


@dataclass(frozen=True)
class Exchange:
    """The root of a stage before an exchange: sends updates to tasks of another stage, as its input `slot`.

    `key`: the columns whose hash selects the task; None: the task with the same share.
    """

    input: Pipeline
    slot: int
    key: tuple[int, ...] | None


@dataclass(frozen=True)
class Drain:
    """The root of a fragment: consumes its input and yields nothing."""

    input: Pipeline


Leaf = (
    JvmInput
    | ExchangeInput
    | Source
    | IndexSource
    | ReadPublished
    | ReadPublishedErrors
    | LoopInput
    | LoopVariable
    | Constants
    | ReadSpool
)
_OfOne = (
    Project
    | Compute
    | NegateDiffs
    | Kernel
    | ArrangeKernel
    | Publish
    | Spool
    | LaterIteration
    | Feedback
    | EnterLoop
    | LoopOutput
    | LoopInTask
    | Exchange
    | Drain
)
_OF_TWO: dict[type, tuple[str, str]] = {JoinKernel: ("left", "right"), HalfJoinKernel: ("met", "stream")}
Pipeline = Leaf | Concat | JoinKernel | DeltaKernel | HalfJoinKernel | ContinualTaskKernel | _OfOne


def map_jvm_inputs(tree: Pipeline, change: Callable[[JvmInput], JvmInput]) -> Pipeline:
    """The tree with other JvmInputs; `change` is called in the order in which the tree reads them."""
    if isinstance(tree, JvmInput):
        return change(tree)
    return map_inputs(tree, lambda below: map_jvm_inputs(below, change))


def map_inputs(tree: Pipeline, change: Callable[[Pipeline], Pipeline]) -> Pipeline:
    """The same node over other inputs; `change` is called in the order in which the node reads them."""
    if isinstance(tree, Concat | DeltaKernel | ContinualTaskKernel):
        return replace(tree, inputs=tuple(change(i) for i in tree.inputs))
    if isinstance(tree, JoinKernel | HalfJoinKernel):
        changed: dict[str, Any] = {name: change(getattr(tree, name)) for name in _OF_TWO[type(tree)]}
        return replace(tree, **changed)
    return replace(tree, input=change(tree.input)) if isinstance(tree, _OfOne) else tree


def inputs_of(tree: Pipeline) -> tuple[Pipeline, ...]:
    """The pipelines directly below a node; none for a leaf."""
    if isinstance(tree, Concat | DeltaKernel | ContinualTaskKernel):
        return tree.inputs
    if isinstance(tree, JoinKernel | HalfJoinKernel):
        return tuple(getattr(tree, name) for name in _OF_TWO[type(tree)])
    return (tree.input,) if isinstance(tree, _OfOne) else ()


def nodes_of(tree: Pipeline) -> Iterator[Pipeline]:
    """Yield the node and all nodes below it, depth first."""
    yield tree
    for below in inputs_of(tree):
        yield from nodes_of(below)
