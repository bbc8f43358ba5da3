"""What one Python call in a task does, as a small tree of values that travels to the worker.

    Terminals [index i1]
      Reduce                              everything between two stretches of Catalyst is one such tree, run by
        Join                              `stage.py` in one `mapInArrow`: batches pass from kernel to kernel
          Source s1                       as Python generators, without a trip through the JVM
          Slot 0    <- rows from Catalyst

Trees hold names, positions and types, no data. Leaves read what the step's description says.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pyarrow as pa

from tidemark_protocol.ids import GlobalId
from tidemark_replica.arrangement.kernels.join import JoinSpec
from tidemark_replica.arrangement.manifest import ArrangementId
from tidemark_replica.render.kernels import Spec

Types = tuple[pa.DataType, ...]


@dataclass(frozen=True)
class Slot:
    """The rows that come from the JVM as input `slot` of the call."""

    slot: int
    types: Types


@dataclass(frozen=True)
class Source:
    """The updates of an imported shard: its columns `names`, from the parts in the step's description."""

    id: GlobalId
    names: tuple[str, ...]
    types: Types


@dataclass(frozen=True)
class IndexSource:
    """The updates of an imported index."""

    arrangement: ArrangementId
    types: Types


@dataclass(frozen=True)
class Published:
    """What an earlier fragment of the same step published under `name`."""

    name: str
    types: Types


@dataclass(frozen=True)
class Constants:
    """A fixed collection, from a file, that appears at the as_of."""

    file: str
    types: Types


@dataclass(frozen=True)
class Spooled:
    """What a Spool of the same stage has kept; to be read after the Spool has been read to its end."""

    name: str
    types: Types


@dataclass(frozen=True)
class Project:
    """Some of the input's columns, in this order."""

    input: Pipeline
    columns: tuple[int, ...]


@dataclass(frozen=True)
class Negated:
    input: Pipeline


@dataclass(frozen=True)
class Together:
    """The inputs' updates, one input after the other."""

    inputs: tuple[Pipeline, ...]


@dataclass(frozen=True)
class JoinKernel:
    """One stage of a linear join; a side whose arrangement is shared gives its updates all the same."""

    spec: JoinSpec
    left: Pipeline
    right: Pipeline


@dataclass(frozen=True)
class Kernel:
    """A kernel of one input: `kernels.py` says which one goes with a spec."""

    spec: Spec
    input: Pipeline


@dataclass(frozen=True)
class ArrangeKernel:
    """Keeps the input as an arrangement, and passes it on."""

    arrangement: ArrangementId
    input: Pipeline


@dataclass(frozen=True)
class Publish:
    """Writes the input to a file of this step, and passes it on; `consolidated` within each chunk."""

    name: str
    input: Pipeline
    types: Types


@dataclass(frozen=True)
class Spool:
    """Keeps the input in a file of this attempt, and passes it on: so that one stage may read a stream several times.

    The first reader has the Spool in its tree, the others a Spooled of that name. A JoinKernel reads left to its end
    before right, Together one input after the other: so the Spool belongs into the leftmost of the readers.
    """

    name: str
    input: Pipeline
    types: Types


@dataclass(frozen=True)
class Drain:
    """The end of a fragment: everything is consumed, nothing comes out."""

    input: Pipeline


Leaf = Slot | Source | IndexSource | Published | Constants | Spooled
Pipeline = Leaf | Project | Negated | Together | JoinKernel | Kernel | ArrangeKernel | Publish | Spool | Drain


def map_slots(tree: Pipeline, change: Callable[[Slot], Slot]) -> Pipeline:
    """The tree with other slots, `change` being asked in the order in which the tree reads them."""
    match tree:
        case Slot():
            return change(tree)
        case Together(inputs):
            return Together(tuple(map_slots(i, change) for i in inputs))
        case JoinKernel(spec, left, right):
            changed = map_slots(left, change)
            return JoinKernel(spec, changed, map_slots(right, change))
        case Project() | Negated() | Kernel() | ArrangeKernel() | Publish() | Spool() | Drain():
            return replace(tree, input=map_slots(tree.input, change))
        case _:
            return tree


def inputs_of(tree: Pipeline) -> tuple[Pipeline, ...]:
    """The pipelines directly below; none for a leaf."""
    match tree:
        case Together(inputs):
            return inputs
        case JoinKernel(_, left, right):
            return (left, right)
        case Project() | Negated() | Kernel() | ArrangeKernel() | Publish() | Spool() | Drain():
            return (tree.input,)
        case _:
            return ()
