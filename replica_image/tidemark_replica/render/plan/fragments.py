"""Fragments: what a dataflow computes, cut where a result is read more than once.

    object a ─┬─> object b ──> index i1        fragment 1:  a, published to a file of the step
              └─> sink m1                      fragment 2:  b, arranged as i1
                                               fragment 3:  m1's delta, published for the sink

A binding, or an object without exports, that joins read by a key is arranged in its fragment instead, and the others
read the arrangement. So is an object that others read by the key of an exported index alone.

A fragment is one Spark job, and no stream inside it is read twice, so every stateful operator runs exactly once per
step. Fragments run in order: later ones read what earlier ones published. Pure: nothing is allocated before the whole
plan has been found renderable.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from itertools import count
from typing import Any

from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.dataflow import ContinualTaskSink, DataflowDescription
from tidemark_protocol.plan.lir import Get, Plan, preorder
from tidemark_replica.arrangement.rows.layout import Layout
from tidemark_replica.arrangement.rows.updates import Updates
from tidemark_replica.arrangement.spines.manifest import ArrangementId
from tidemark_replica.render.plan.jvm_frames import StageFrame, nodes_of
from tidemark_replica.render.plan.lowering_stream import Stream, StreamBuilder, arrow_types
from tidemark_replica.render.plan.pipeline import (
    ArrangeKernel,
    DeltaKernel,
    Drain,
    IndexSource,
    Loop,
    Pipeline,
    Publish,
    ReadPublished,
    Source,
    Types,
)
from tidemark_replica.render.plan.plan_nodes import PlanNodes
from tidemark_replica.render.plan.retractions import RetractionAnalysis


@dataclass(frozen=True)
class Fragment:
    """One job. Its last stage consumes all updates and yields none."""

    name: str
    stage: StageFrame


@dataclass(frozen=True)
class LoopFragment:
    """A recursion whose body needs Catalyst: the jobs of `body`, run in rounds. Or one inside another."""

    loop: Loop
    body: tuple[Fragment, ...]


@dataclass(frozen=True)
class SharedArrangement:
    """An arrangement that joins read in place: an index of another dataflow of this replica or of this one, or one of a
    binding.
    """

    arrangement: ArrangementId
    layout: Layout


@dataclass(frozen=True)
class Fragments:
    """A whole dataflow, ready to be prepared."""

    fragments: tuple[Fragment | LoopFragment, ...]
    arrangements: Mapping[ArrangementId, Layout]
    indexes: Mapping[GlobalId, ArrangementId]
    """The arrangements of exported indexes."""
    sinks: Mapping[GlobalId, Types]
    """The column types of exported sinks."""
    constants: Mapping[str, Updates]
    nodes: PlanNodes

    @property
    def has_delta_joins(self) -> bool:
        """Whether there is a delta join outside all loops."""
        stages = [f.stage for f in self.fragments if isinstance(f, Fragment)]
        return any(isinstance(node, DeltaKernel) for stage in stages for node in nodes_of(stage))


@dataclass
class Scope:
    """The meaning of the names in a plan, and what has been lowered so far. A Let's binding is a shared stream, as an
    object is.
    """

    description: DataflowDescription
    imported: Mapping[GlobalId, SharedArrangement]
    token: str
    """Unique to this rendering: a prefix of the names of its arrangements."""
    streams: StreamBuilder = field(default_factory=StreamBuilder)
    arrangements: dict[ArrangementId, Layout] = field(default_factory=dict)
    constants: dict[str, Updates] = field(default_factory=dict)
    fragments: list[Fragment | LoopFragment] = field(default_factory=list)
    shared: dict[GlobalId | LocalId, Stream] = field(default_factory=dict)
    inlined: dict[GlobalId | LocalId, Plan] = field(default_factory=dict)
    arranged: dict[GlobalId | LocalId, tuple[SharedArrangement, ...]] = field(default_factory=dict)
    """The arrangements of bindings that are read by a key, and the exported indexes of objects."""
    groups: dict[GlobalId | LocalId, Pipeline] = field(default_factory=dict)
    """The operators that make bindings and objects, whose reductions joins may read by the groups' key."""
    keeps_once: bool = True
    """Whether what reads a binding by a key shares its arrangement. Not inside a loop, where rows carry iterations."""
    around: int = 0
    """The number of loops around, each of which gives every row an iteration."""
    numbers: Iterator[int] = field(default_factory=count)
    """The numbers of arrangements. A loop's body, a scope of its own, goes on with these counters."""
    loops: Iterator[int] = field(default_factory=count)
    spools: Iterator[int] = field(default_factory=count)
    nodes: PlanNodes = field(default_factory=PlanNodes)
    """The nodes, also those of loops' bodies."""

    @cached_property
    def retractions(self) -> RetractionAnalysis:
        """The analysis of which plans of the dataflow may take rows back."""
        return RetractionAnalysis(self.description)

    def new_arrangement(self, kind: str, layout: Layout) -> ArrangementId:
        """Allocate the arrangement of a stateful operator."""
        arrangement = self.next_arrangement(kind)
        self.arrangements[arrangement] = layout
        self.nodes.made(arrangement)
        return arrangement

    def new_spool(self) -> str:
        """A new name for a stream that one stage reads several times."""
        return f"spool{next(self.spools)}"

    def new_loop(self) -> str:
        """A new name for a recursion. The input of a recursion may itself be one, which is lowered meanwhile."""
        loop = f"loop{next(self.loops)}"
        self.nodes.made(loop)
        return loop

    def next_arrangement(self, kind: str) -> ArrangementId:
        """An id that no arrangement of the dataflow has or had."""
        return ArrangementId(f"{self.token}-{next(self.numbers)}-{kind}")

    def finish(self, stream: Stream, tree: Pipeline | None) -> None:
        """End a fragment with stream `stream` and last operators `tree` (None: those of the stream)."""
        stage = self.streams.stage(Stream(Drain(stream.tree if tree is None else tree), stream.schema))
        self.fragments.append(Fragment(f"fragment{len(self.fragments)}", stage))

    @contextmanager
    def binding(self, *names: LocalId) -> Iterator[None]:
        """A scope for the bindings of a Let. An inlined object may bind the same names again inside."""
        kept = [(meanings, n, meanings.pop(n)) for meanings in self._meanings for n in names if n in meanings]
        try:
            yield
        finally:
            for meanings in self._meanings:
                for name in names:
                    meanings.pop(name, None)
            for meanings, name, meant in kept:
                meanings[name] = meant

    @property
    def _meanings(self) -> tuple[dict[GlobalId | LocalId, Any], ...]:
        return self.shared, self.inlined, self.arranged, self.groups

    def publish(self, name: GlobalId | LocalId, stream: Stream, tree: Pipeline) -> Pipeline:
        """Publish a stream under `name` for later fragments of the step."""
        types = arrow_types(stream.schema)
        file = f"shared{len(self.fragments)}"
        self.shared[name] = Stream(ReadPublished(file, types), stream.schema)
        return Publish(file, tree, types)

    def arrange(self, name: GlobalId | LocalId, stream: Stream, keys: Sequence[tuple[int, ...]]) -> Pipeline:
        """Keep a binding or object once for each key, for later fragments of the step, which read its updates there."""
        types, tree = arrow_types(stream.schema), stream.tree
        for key in keys:
            layout = Layout.of_rows(types, key)
            made = SharedArrangement(self.new_arrangement("arranged", layout), layout)
            self.arranged[name] = (*self.arranged.get(name, ()), made)
            tree = ArrangeKernel(made.arrangement, tree)
        self.shared[name] = Stream(IndexSource(self.arranged[name][0].arrangement, types), stream.schema)
        return tree


def imported_stream(scope: Scope, id: GlobalId) -> Stream:
    """The stream of an import."""
    for source in scope.description.source_imports:
        if source.id == id:
            columns = tuple(source.shard.columns[c] for c in source.columns)
            schema = tuple(source.shard.schema[c] for c in source.columns)
            scope.nodes.read(id)
            return Stream(Source(id, tuple(c.name for c in columns), arrow_types(schema)), schema)
    for export in scope.description.sink_exports:
        if isinstance(export.sink, ContinualTaskSink) and export.sink.own == id:
            shard = export.sink.shard
            names = tuple(c.name for c in shard.columns)
            scope.nodes.read(id)
            return Stream(Source(id, names, arrow_types(shard.schema), delayed=True), shard.schema)
    index = next(i for i in scope.description.index_imports if i.id == id)
    scope.nodes.read(scope.imported[id].arrangement)
    return Stream(IndexSource(scope.imported[id].arrangement, arrow_types(index.schema)), index.schema)


def gets_of(plan: Plan) -> Iterator[Get]:
    """Yield the reads of a plan by a name."""
    yield from (node for node in preorder(plan) if isinstance(node, Get))


def uses(plan: Plan) -> Iterator[GlobalId | LocalId]:
    """Yield the names that a plan reads, once per read."""
    yield from (get.id for get in gets_of(plan))


def count_uses(description: DataflowDescription) -> Counter[GlobalId | LocalId]:
    """The number of reads of each object by other objects."""
    return Counter(name for built in description.objects for name in uses(built.plan))
