"""The operators of a dataflow, for display: the name of each, its state, and its time of work.

    fragment 1   read t        Get
                 read u        Get
                 join          Join      2 arrangements     <── includes the time of the expressions above `read t`
    fragment 2   reduce        Reduce    1 arrangement
                 index totals  ArrangeBy 1 arrangement

Operators are listed in the order in which rows pass through them. A node without state that reads nothing from outside
(filters, expressions, table functions, what Spark computes between two calls) counts for the operator that reads its
rows. A step may run in another shape than the listed one: there an operator is found by what it reads or keeps.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

from tidemark_protocol.ids import GlobalId
from tidemark_replica.arrangement.spines.manifest import ArrangementId, Manifest
from tidemark_replica.kernels.joins.half_join import ArrangementLookup
from tidemark_replica.render.plan import pipeline as p
from tidemark_replica.render.plan.fragments import Fragments, LoopFragment
from tidemark_replica.render.plan.jvm_frames import Frame, StageFrame, inputs_of
from tidemark_replica.render.plan.plan_nodes import PlanNode
from tidemark_replica.render.task.timing import OperatorTimes
from tidemark_replica.render.telemetry.operator_channels import Channel, channels, nearest_stages
from tidemark_replica.render.telemetry.operator_names import name_operator, numbered

OperatorIndex = int
"""The position of an operator among those of its dataflow."""
_Key = tuple[str | int, ...]
"""Identifies an operator in every shape: the kind of node, and the arrangements that it names. A join may keep none of
its own and read the arrangements that another join reads, too: it is known by its spec, which all shapes share.
"""
_Found = tuple[str, str, tuple[ArrangementId, ...], PlanNode | None]
"""The name, the kind, the arrangements that it names, and the node of the plan."""
_NodeOperators = dict[str, tuple[OperatorIndex | None, ...]]
"""Per stage of a shape, the operator of each node in the order of `nodes_of`."""


@dataclass(frozen=True)
class Operator:
    """`kind` is its word in `explain`, `node` the one there; None: none there has it, as an export's index."""

    name: str
    kind: str
    arrangements: tuple[ArrangementId, ...]
    node: PlanNode | None


@dataclass(frozen=True)
class OperatorCost:
    """The state of an operator now, and its microseconds of work, summed over all tasks."""

    name: str
    kind: str
    records: int
    batches: int
    bytes: int
    microseconds: int
    node: PlanNode | None = None


class OperatorCosts:
    """The operators of one rendering. Times are added when steps are committed; all else is fixed."""

    def __init__(self, fragments: Fragments, ids: Mapping[ArrangementId, GlobalId]) -> None:
        """`ids`: those of imported and exported indexes."""
        self._ids, self._own = ids, frozenset(fragments.arrangements)
        self._all = self._own | ids.keys()
        self._fragments = fragments  # while they live, no other spec has the identity of one of theirs
        found = self._find(fragments)
        self._places: dict[_Key, OperatorIndex] = {key: place for place, key in enumerate(found)}
        self._places |= {lookup: self._places[join] for lookup, join in self._lookups()}
        self._owners: dict[ArrangementId, OperatorIndex] = {}
        for place, (_, _, mentions, _) in enumerate(found.values()):
            for arrangement in mentions:
                self._owners.setdefault(arrangement, place)  # the first operator to name it keeps it
        kept = [tuple(a for a, owner in self._owners.items() if owner == place) for place in range(len(found))]
        names, nodes = numbered([name for name, *_ in found.values()]), [node for *_, node in found.values()]
        self.operators = tuple(map(Operator, names, [kind for _, kind, _, _ in found.values()], kept, nodes))
        reads = ((self._owners[a], place) for place, (_, _, named, _) in enumerate(found.values()) for a in named)
        self.channels = self._channels(fragments) | {(owner, place) for owner, place in reads if owner != place}
        """(from, to): rows of the first operator reach the second one, or are looked up by it."""
        self._shapes: dict[int, tuple[StageFrame, _NodeOperators]] = {}
        self._microseconds: Counter[OperatorIndex] = Counter()

    def counted(self, shape: StageFrame, spent: OperatorTimes) -> Counter[OperatorIndex]:
        """Microseconds by operator that tasks of a shape have spent."""
        _, node_operators = self._shapes.setdefault(id(shape), (shape, {}))
        if not node_operators:
            self._stage(shape, None, node_operators)
        total: Counter[OperatorIndex] = Counter()
        for stage, times in spent.stages.items():
            for place, time in zip(node_operators.get(stage, ()), times, strict=False):
                if place is not None:
                    total[place] += time
        for arrangement, time in spent.merges.items():
            if arrangement in self._owners:
                total[self._owners[arrangement]] += time
        return total

    def loop(self, name: str, microseconds: int) -> Counter[OperatorIndex]:
        """Microseconds by operator of a loop whose rounds are jobs."""
        return Counter({self._places["", name]: microseconds})

    def add(self, microseconds: Mapping[OperatorIndex, int]) -> None:
        """Add the times of a committed step."""
        self._microseconds.update(microseconds)

    def work(self, manifests: Iterable[Manifest]) -> list[OperatorCost]:
        """All operators as they are now. `manifests`: those of the dataflow's own arrangements."""
        by_id = {m.arrangement: m for m in manifests}
        return [
            _work(operator, [by_id[a] for a in operator.arrangements if a in by_id], self._microseconds[place])
            for place, operator in enumerate(self.operators)
        ]

    def _find(self, fragments: Fragments) -> dict[_Key, _Found]:
        """Each operator, in order."""
        found: dict[_Key, _Found] = {}
        for fragment in fragments.fragments:
            if isinstance(fragment, LoopFragment):
                loop = fragment.loop
                of = fragments.nodes.by_name.get(loop.name)
                found["", loop.name] = ("recursion", "LetRec", loop.arrangements, of)
                continue
            for node in _bottom_up(fragment.stage):
                if (named := name_operator(node, self._ids)) is not None:
                    mentions = tuple(_mentioned(_names(node), self._own))
                    of = self._plan_node(node, mentions)
                    found.setdefault(self._key(node), (*named, mentions, of))
        return found

    def _plan_node(self, node: p.Pipeline, mentions: Sequence[ArrangementId]) -> PlanNode | None:
        nodes = self._fragments.nodes
        match node:
            case p.Source(name) | p.IndexSource(name):
                return nodes.reads.get(name)
            case p.LoopInTask(loop):
                return nodes.by_name.get(loop.name)
            case p.JoinKernel(spec) if (marked := nodes.of_spec(spec)) is not None:
                return marked
            case p.DeltaKernel(spec) if (marked := nodes.of_spec(spec)) is not None:
                return marked
            case p.ContinualTaskKernel():
                return None
            case _:
                return next((nodes.by_name[each] for each in mentions if each in nodes.by_name), None)

    def _channels(self, fragments: Fragments) -> frozenset[Channel]:
        loops = {str(key[1]): place for key, place in self._places.items() if key[0] == ""}
        return channels(fragments, lambda node: self._places.get(self._key(node)), loops)

    def _lookups(self) -> Iterator[tuple[_Key, _Key]]:
        """(key of a lookup as an operator, key of its join): a delta join's first path, which a hydration may follow in
        tasks.
        """
        for fragment in self._fragments.fragments:
            for node in () if isinstance(fragment, LoopFragment) else _bottom_up(fragment.stage):
                if isinstance(node, p.DeltaKernel):
                    yield from ((_lookup_key(lookup), self._key(node)) for lookup in node.spec.inputs[0].path)

    def _key(self, node: p.Pipeline) -> _Key:
        match node:
            case p.Source(name):
                return type(node).__name__, name
            case p.JoinKernel() | p.DeltaKernel():
                return type(node).__name__, id(node.spec)
            case p.HalfJoinKernel(spec):
                return _lookup_key(spec.lookup)
            case p.Kernel(spec):
                return type(spec).__name__, *_mentioned(_names(node), self._all)
            case _:
                return type(node).__name__, *_mentioned(_names(node), self._all)

    def _stage(self, frame: StageFrame, above: OperatorIndex | None, node_operators: _NodeOperators) -> None:
        """Find the operators of a stage's nodes and of the stages below. `above` reads the stage's output."""
        if above is None:
            above = next(
                (place for node in p.nodes_of(frame.tree) if (place := self._operator_index(node)) is not None), None
            )
        slots: dict[int, OperatorIndex | None] = {}
        node_operators[frame.name] = tuple(self._walk(frame.tree, above, slots))
        for slot, below in enumerate(frame.inputs):
            for sender in nearest_stages(below):
                exchange = sender.tree
                self._stage(
                    sender, slots.get(exchange.slot if isinstance(exchange, p.Exchange) else slot), node_operators
                )

    def _walk(
        self, node: p.Pipeline, above: OperatorIndex | None, slots: dict[int, OperatorIndex | None]
    ) -> Iterator[OperatorIndex | None]:
        """Yield the operator of each node, in the order of `nodes_of`."""
        place = self._operator_index(node)
        place = above if place is None else place
        if isinstance(node, p.JvmInput | p.ExchangeInput):
            slots[node.slot] = place
        yield place
        for below in p.inputs_of(node):
            yield from self._walk(below, place, slots)

    def _operator_index(self, node: p.Pipeline) -> OperatorIndex | None:
        """The operator of a node; in another shape, the last operator whose state the node names."""
        found = self._places.get(self._key(node))
        if found is not None:
            return found
        return max((self._owners[a] for a in _mentioned(_names(node), self._own) if a in self._owners), default=None)


def _lookup_key(lookup: ArrangementLookup) -> _Key:
    return "Lookup", id(lookup)


def _names(node: p.Pipeline) -> Any:
    """The part of a node that names what it reads or keeps."""
    match node:
        case p.Source(id):
            return id
        case p.IndexSource(arrangement) | p.ArrangeKernel(arrangement):
            return arrangement
        case p.LoopInTask(loop):
            return loop.arrangements
        case p.JoinKernel() | p.DeltaKernel() | p.HalfJoinKernel() | p.Kernel() | p.ContinualTaskKernel():
            return node.spec
        case _:
            return None


def _mentioned(value: Any, among: Collection[str]) -> Iterator[ArrangementId]:
    """Yield the arrangements among these that a value names, at any depth."""
    if isinstance(value, str):
        if value in among:
            yield ArrangementId(value)
    elif isinstance(value, tuple | list | frozenset):
        for each in value:
            yield from _mentioned(each, among)
    elif is_dataclass(value) and not isinstance(value, type):
        for each in fields(value):
            yield from _mentioned(getattr(value, each.name), among)


def _bottom_up(frame: Frame) -> Iterator[p.Pipeline]:
    """Yield all nodes, each after the nodes that it reads."""
    for below in inputs_of(frame):
        yield from _bottom_up(below)
    if isinstance(frame, StageFrame):
        yield from _leaves_first(frame.tree)


def _leaves_first(tree: p.Pipeline) -> Iterator[p.Pipeline]:
    for below in p.inputs_of(tree):
        yield from _leaves_first(below)
    yield tree


def _work(operator: Operator, kept: Iterable[Manifest], microseconds: int) -> OperatorCost:
    batches = [batch for manifest in kept for batch in manifest.batches]
    records, size = sum(b.rows for b in batches), sum(b.bytes for b in batches)
    return OperatorCost(operator.name, operator.kind, records, len(batches), size, microseconds, operator.node)
