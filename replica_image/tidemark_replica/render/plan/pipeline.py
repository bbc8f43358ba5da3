"""What one Python call in a task does, as a small tree of values that travels to the worker.

    Terminals [index i1]
      Reduce                              everything between two stretches of Catalyst is one such tree, run by
        Join                              `task/stage.py` in one `mapInArrow`: batches pass from kernel to kernel
          Source s1                       as Python generators, without a trip through the JVM
          Slot 0    <- rows from Catalyst

Trees hold names, positions and types, no data. Leaves read what the step's description says.
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
    """The rows that come from the JVM as input `slot` of the call."""

    slot: int
    types: Types


@dataclass(frozen=True)
class ExchangeInput:
    """What an exchange brings as input `slot` of the call."""

    slot: int


@dataclass(frozen=True)
class Source:
    """The updates of an imported shard: its columns `names`, from the parts in the step's description.

    `delayed`: as it was just before, so an update at t is seen from t + 1 on. `conditions`: what does not meet them may
    be left out, since a filter behind it drops it.
    """

    id: GlobalId
    names: tuple[str, ...]
    types: Types
    delayed: bool = False
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True)
class IndexSource:
    """The updates of an imported index."""

    arrangement: ArrangementId
    types: Types


@dataclass(frozen=True)
class ReadPublished:
    """What an earlier fragment of the same step published under `name`."""

    name: str
    types: Types


@dataclass(frozen=True)
class ReadPublishedErrors:
    """The errors alone of what was published under `name`; `types` are the columns of the stream that they join."""

    name: str
    types: Types


@dataclass(frozen=True)
class LoopInput:
    """Inside a loop: what was published outside under `name`, at the time that is being settled, in iteration 0."""

    name: str
    types: Types


@dataclass(frozen=True)
class LoopVariable:
    """Inside a loop: what was fed back to the binding `name` for the iteration under way."""

    name: str
    types: Types


@dataclass(frozen=True)
class Constants:
    """A fixed collection, from a file, that appears at the as_of."""

    file: str
    types: Types


@dataclass(frozen=True)
class ReadSpool:
    """What a Spool of the same stage has kept; to be read after the Spool has been read to its end."""

    name: str
    types: Types


@dataclass(frozen=True)
class Project:
    """Some of the input's columns, in this order."""

    input: Pipeline
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Compute:
    """A MapFilterProject whose expressions the Arrow evaluator knows."""

    input: Pipeline
    mfp: MapFilterProject


@dataclass(frozen=True)
class NegateDiffs:
    input: Pipeline


@dataclass(frozen=True)
class Concat:
    """The inputs' updates, one input after the other."""

    inputs: tuple[Pipeline, ...]


@dataclass(frozen=True)
class JoinKernel:
    """One stage of a linear join; a side whose arrangement is shared gives its updates all the same."""

    spec: JoinSpec
    left: Pipeline
    right: Pipeline


@dataclass(frozen=True)
class DeltaKernel:
    """A delta join. It reads its inputs one after the other, those last that are nothing but indexes."""

    spec: DeltaSpec
    inputs: tuple[Pipeline, ...]


@dataclass(frozen=True)
class HalfJoinKernel:
    """A lookup on a delta join's first path; reads `met` to its end first."""

    spec: HalfJoinSpec
    met: Pipeline
    stream: Pipeline


@dataclass(frozen=True)
class Kernel:
    """A kernel of one input: `kernel_registry.py` says which one goes with a spec."""

    spec: Spec
    input: Pipeline


@dataclass(frozen=True)
class ContinualTaskKernel:
    """A continual task: what the second input holds at each time at which the first one, the watched shard, changes."""

    spec: ContinualTaskSpec
    inputs: tuple[Pipeline, ...]


@dataclass(frozen=True)
class ArrangeKernel:
    """Keeps the input as an arrangement, and passes it on."""

    arrangement: ArrangementId
    input: Pipeline


@dataclass(frozen=True)
class Publish:
    """Writes the input to a file of this step, and passes it on; `consolidated` within each chunk.

    `timed`: the report says which times occur in it.
    """

    name: str
    input: Pipeline
    types: Types
    timed: bool = False


@dataclass(frozen=True)
class LaterIteration:
    """Inside a loop: a joined row's two iterations, in column `left` and the last one, become one, the later."""

    input: Pipeline
    left: int


@dataclass(frozen=True)
class Feedback:
    """Inside a loop: keeps the input's rows of before iteration `last` for binding `name`, each an iteration on, and
    passes all of them on."""

    name: str
    input: Pipeline
    types: Types
    last: int | None = None


@dataclass(frozen=True)
class LoopOutput:
    """Inside a loop: publishes the input without its iterations, for what comes after the loop."""

    name: str
    input: Pipeline
    types: Types


@dataclass(frozen=True)
class LoopPart:
    """One job's worth of a loop's body, and the published names that it reads."""

    name: str
    reads: frozenset[str]


@dataclass(frozen=True)
class Loop:
    """A LetRec: `loop/fixpoint.py` says how it runs."""

    name: str
    parts: tuple[LoopPart, ...]
    arrangements: tuple[ArrangementId, ...]
    entering: tuple[str, ...]
    leaving: tuple[str, ...]
    most_iterations: int


@dataclass(frozen=True)
class LoopInTask:
    """A loop that needs nothing of the JVM, run inside the task once `input` has published what enters it."""

    loop: Loop
    input: Pipeline
    trees: tuple[Pipeline, ...]
    """The parts, in the loop's order."""


@dataclass(frozen=True)
class Spool:
    """Keeps the input in a file of this attempt, and passes it on: so that one stage may read a stream several times.

    The first reader has the Spool in its tree, the others a Spooled of that name. A JoinKernel reads left to its end
    before right, Together and DeltaKernel one input after the other: so the Spool belongs into the leftmost reader.
    """

    name: str
    input: Pipeline
    types: Types


@dataclass(frozen=True)
class Exchange:
    """The end of a call: its updates go to the tasks of another, by the hash of the columns `key`, as input `slot`.

    Without a key each stays with the task that has the same share.
    """

    input: Pipeline
    slot: int
    key: tuple[int, ...] | None


@dataclass(frozen=True)
class Drain:
    """The end of a fragment: everything is consumed, nothing comes out."""

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
    | LoopOutput
    | LoopInTask
    | Exchange
    | Drain
)
_OF_TWO: dict[type, tuple[str, str]] = {JoinKernel: ("left", "right"), HalfJoinKernel: ("met", "stream")}
Pipeline = Leaf | Concat | JoinKernel | DeltaKernel | HalfJoinKernel | ContinualTaskKernel | _OfOne


def map_jvm_inputs(tree: Pipeline, change: Callable[[JvmInput], JvmInput]) -> Pipeline:
    """The tree with other slots, `change` being asked in the order in which the tree reads them."""
    if isinstance(tree, JvmInput):
        return change(tree)
    return map_inputs(tree, lambda below: map_jvm_inputs(below, change))


def map_inputs(tree: Pipeline, change: Callable[[Pipeline], Pipeline]) -> Pipeline:
    """The same node over other inputs, `change` being asked in the order in which it reads them."""
    if isinstance(tree, Concat | DeltaKernel | ContinualTaskKernel):
        return replace(tree, inputs=tuple(change(i) for i in tree.inputs))
    if isinstance(tree, JoinKernel | HalfJoinKernel):
        changed: dict[str, Any] = {name: change(getattr(tree, name)) for name in _OF_TWO[type(tree)]}
        return replace(tree, **changed)
    return replace(tree, input=change(tree.input)) if isinstance(tree, _OfOne) else tree


def inputs_of(tree: Pipeline) -> tuple[Pipeline, ...]:
    """The pipelines directly below; none for a leaf."""
    if isinstance(tree, Concat | DeltaKernel | ContinualTaskKernel):
        return tree.inputs
    if isinstance(tree, JoinKernel | HalfJoinKernel):
        return tuple(getattr(tree, name) for name in _OF_TWO[type(tree)])
    return (tree.input,) if isinstance(tree, _OfOne) else ()


def nodes_of(tree: Pipeline) -> Iterator[Pipeline]:
    """The node and all below it."""
    yield tree
    for below in inputs_of(tree):
        yield from nodes_of(below)
