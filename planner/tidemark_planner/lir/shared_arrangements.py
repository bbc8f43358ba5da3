"""Arrangements that a plan keeps once, whichever linear joins read them.

    Union                                                    Let arranged0 =
      Join linear: 0 → 1 on [c0 = c0] keep [c1 | c1]             Get t
        Get t                                                in
        Get u                                          ──►     Union
      Join linear: 0 → 1 on [c0 = c0] keep [c1 | c1]             Join linear: 0 → 1 on [c0 = c0] keep [c1 | c1]
        Get t                                                      Get arranged0 by [c0]
        Get v                                                      Get u
                                                                 Join linear: 0 → 1 on [c0 = c0] keep [c1 | c1]
                                                                   Get arranged0 by [c0]
                                                                   Get v

A Get of a binding by a key names the binding's arrangement by that key. Replicas that do not know it compute the
binding once and keep a copy for each reader.

A reduction has its groups by their key already, in its state. So a side by that key is a Get by the key, of a binding
or of the object that has the reduction, also where no other join reads it (`group_keys.py`):

    Join linear: 0 → 1 on [c0 = c0] keep [c1 | c1]           Let arranged0 =
      Get t                                                      Reduce key=[c0] count(*)
      Reduce key=[c0] count(*)                                     Get u
        Get u                                          ──►     in
                                                               Join linear: 0 → 1 on [c0 = c0] keep [c1 | c1]
                                                                 Get t
                                                                 Get arranged0 by [c0]

Shared are inputs that are equal, by equal keys, and of which the readers
keep the same columns: an arrangement of more columns can be larger than both, and matches more rows. All readers are in
one object, whose errors are those of all its parts, so an error in what is shared is the same.

The binding has the columns that are kept and those of the key, and is outside of all that reads it. Inside a recursion
rows carry iterations, and nothing is shared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from types import MappingProxyType

from tidemark_planner.lir.group_keys import Key, KnownKeys, group_key, is_by_groups
from tidemark_planner.lir.mfp import FilterProject, mfp_of
from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.dataflow import BuildDesc
from tidemark_protocol.plan.expr import ColumnRef, ScalarExpr
from tidemark_protocol.plan.lir import (
    Get,
    Join,
    JoinStage,
    Let,
    LetRec,
    LinearJoin,
    Mfp,
    Plan,
    inputs_of,
    preorder,
    refs,
    with_inputs,
)

_Names = frozenset[GlobalId | LocalId]


NO_GROUPS: KnownKeys = MappingProxyType({})


def share_arrangements(plan: Plan, known: KnownKeys = NO_GROUPS) -> Plan:
    """The plan, in which each arrangement that several sides of linear joins read has a name, and the groups of a
    reduction that one reads by their key. `known`: the keys of objects that are groups.
    """
    bound = Counter(_bound(plan))
    unclear = frozenset(name for name, n in bound.items() if n > 1)
    often = Counter(_sides(plan, unclear, set()))
    shared = frozenset(side for side, n in often.items() if n > 1)
    rewritten = _Sharing(shared, frozenset(bound), unclear, known).rewrite(plan)
    return plan if rewritten == plan else rewritten


def share_in_each(objects: Sequence[BuildDesc], *, among: bool = True) -> tuple[BuildDesc, ...]:
    """The objects, each with shared arrangements; a later one reads the groups that an earlier one is by their key.

    `among`: whether an object may read what another has.
    """
    known, made = dict[GlobalId | LocalId, Key](), list[BuildDesc]()
    for built in objects:
        made.append(replace(built, plan=share_arrangements(built.plan, known)))
        if among and (key := group_key(built.plan, known)) is not None:
            known[built.id] = key
    return tuple(made)


@dataclass(frozen=True)
class SharedSide:
    """An input of a linear join, the key by which the join arranges it, and the columns of it that the join keeps."""

    input: Plan
    key: tuple[ScalarExpr, ...]
    kept: tuple[int, ...]
    """Beside the expressions of the key."""

    @property
    def arranged(self) -> Plan:
        """The collection that is arranged: the columns that are kept, then the expressions of the key."""
        if self._computed or len(self.kept) < len(self.input.schema):
            row = refs(self.input.schema)
            outputs = (*(row[c] for c in self.kept), *self._computed)
            return Mfp(self.input, mfp_of(self.input.schema, FilterProject((), outputs)))
        return self.input

    @property
    def key_of_arranged(self) -> tuple[ScalarExpr, ...]:
        """The key over the columns of `arranged`."""
        row, computed = refs(self.arranged.schema), self._computed
        return tuple(
            row[self.kept.index(k.index) if isinstance(k, ColumnRef) else len(self.kept) + computed.index(k)]
            for k in self.key
        )

    def thinned(self, thinning: tuple[int, ...]) -> tuple[int, ...]:
        """The positions in the columns of `arranged` of some that are kept."""
        return tuple(map(self.kept.index, thinning))

    @property
    def _computed(self) -> tuple[ScalarExpr, ...]:
        return tuple(dict.fromkeys(k for k in self.key if not isinstance(k, ColumnRef)))


def _side(input: Plan, key: tuple[ScalarExpr, ...], thinning: tuple[int, ...]) -> SharedSide | None:
    """The side; None where it is an index, has no key, or has a part of the key twice."""
    row = refs(input.schema)
    over = tuple(row[k.index] if isinstance(k, ColumnRef) else k for k in key)
    if not over or len(set(over)) < len(over) or (isinstance(input, Get) and input.key is not None):
        return None
    return SharedSide(input, over, tuple(sorted({*thinning, *(k.index for k in over if isinstance(k, ColumnRef))})))


def sides_of(join: Join) -> dict[int, SharedSide]:
    """The sides of a linear join that are inputs, by the input; none of a delta join."""
    if not isinstance(join.plan, LinearJoin):
        return {}
    source, first = join.plan.source, join.plan.stages[0]
    found = {source: _side(join.inputs[source], first.stream_key, first.stream_thinning)}
    for stage in join.plan.stages:
        found[stage.lookup] = _side(join.inputs[stage.lookup], stage.lookup_key, stage.lookup_thinning)
    return {at: side for at, side in found.items() if side is not None}


def _sides(plan: Plan, unclear: _Names, seen: set[SharedSide]) -> Iterator[SharedSide]:
    """Yield the sides of all linear joins outside of recursions. A read of a side counts once, as the side does.

    A side that reads a name of several meanings is left out.
    """
    sides = sides_of(plan) if isinstance(plan, Join) else {}
    below = (plan.body,) if isinstance(plan, LetRec) else inputs_of(plan)
    for at, each in enumerate(below):
        side = sides.get(at)
        if side is not None and not (unclear and _free(each) & unclear):
            yield side
            if side in seen:
                continue
            seen.add(side)
        yield from _sides(each, unclear, seen)


@dataclass(frozen=True)
class _Binding:
    """A name for an arrangement, and the names that its value reads."""

    name: LocalId
    value: Plan
    reads: _Names


class _Sharing:
    """Replaces the shared sides of one plan by Gets, and binds what they read as far outside as its names allow."""

    def __init__(self, shared: frozenset[SharedSide], bound: _Names, unclear: _Names, known: KnownKeys) -> None:
        self._shared, self._unclear = shared, unclear
        self._known = dict(known)
        self._names = (name for n in count() if (name := LocalId(f"arranged{n}")) not in bound)
        self._gets: dict[SharedSide, Get] = {}
        self._waiting: list[_Binding] = []
        """Each after those that it reads."""

    def rewrite(self, plan: Plan) -> Plan:
        """The whole plan, with Gets in place of the shared sides, and the bindings that they read."""
        body = self._rewritten(plan)
        return _with_bindings(self._waiting, body)

    def _rewritten(self, plan: Plan) -> Plan:
        match plan:
            case Let(name, value, body):
                if name not in self._unclear and (key := group_key(value, self._known)) is not None:
                    self._known[name] = key
                value = self._rewritten(value)
                return Let(name, value, self._body_with_bindings(frozenset([name]), body))
            case LetRec(bindings, body):
                return LetRec(bindings, self._body_with_bindings(frozenset(b.id for b in bindings), body))
            case Join():
                return self._join(plan)
            case _:
                return with_inputs(plan, [*map(self._rewritten, inputs_of(plan))])

    def _body_with_bindings(self, names: _Names, body: Plan) -> Plan:
        """The body of a Let or LetRec, with the bindings that read its names inside."""
        body = self._rewritten(body)
        inside, outside = [], []
        for binding in self._waiting:
            if binding.reads & names:
                inside.append(binding)
                names |= {binding.name}
            else:
                outside.append(binding)
        self._waiting = outside
        return _with_bindings(inside, body)

    def _join(self, join: Join) -> Join:
        every = sides_of(join)
        sides = {at: side for at, side in every.items() if side in self._shared}
        groups = {at: side for at, side in every.items() if at not in sides and self._is_by_groups(side)}

        def read(at: int, input: Plan) -> Plan:
            if at in sides:
                return self._get(sides[at])
            return self._get_groups(groups[at]) if at in groups else self._rewritten(input)

        inputs = tuple(read(at, input) for at, input in enumerate(join.inputs))
        return Join(inputs, _over_arrangements(join.plan, sides) if isinstance(join.plan, LinearJoin) else join.plan)

    def _is_by_groups(self, side: SharedSide) -> bool:
        """Whether the side is groups by their key, and reads no name of several meanings."""
        columns = [k.index for k in side.key if isinstance(k, ColumnRef)]
        by_columns = len(columns) == len(side.key) and is_by_groups(side.input, columns, self._known)
        return by_columns and not (self._unclear and _free(side.input) & self._unclear)

    def _get_groups(self, side: SharedSide) -> Get:
        """The groups of a side by their key: of the binding or object that they are, else of a binding of their own."""
        if isinstance(side.input, Get):
            return replace(side.input, key=side.key)
        return self._bind(self._rewritten(side.input), side.key)

    def _get(self, side: SharedSide) -> Get:
        """The arrangement of a side, bound at the first call."""
        if side not in self._gets:
            self._gets[side] = self._bind(self._rewritten(side.arranged), side.key_of_arranged)
        return self._gets[side]

    def _bind(self, value: Plan, key: tuple[ScalarExpr, ...]) -> Get:
        """A new name for a plan, read by a key."""
        name = next(self._names)
        self._waiting.append(_Binding(name, value, _free(value)))
        return Get(name, value.schema, key)


def _over_arrangements(linear: LinearJoin, sides: Mapping[int, SharedSide]) -> LinearJoin:
    """The join over the arrangements of these sides."""
    first, *later = (_looking_up(stage, sides.get(stage.lookup)) for stage in linear.stages)
    if (source := sides.get(linear.source)) is not None:
        thinning = source.thinned(first.stream_thinning)
        first = replace(first, stream_key=source.key_of_arranged, stream_thinning=thinning)
    return LinearJoin(linear.source, (first, *later))


def _looking_up(stage: JoinStage, side: SharedSide | None) -> JoinStage:
    if side is None:
        return stage
    return replace(stage, lookup_key=side.key_of_arranged, lookup_thinning=side.thinned(stage.lookup_thinning))


def _with_bindings(bindings: Sequence[_Binding], body: Plan) -> Plan:
    for binding in reversed(bindings):
        body = Let(binding.name, binding.value, body)
    return body


def _free(plan: Plan) -> _Names:
    """The names that a plan reads and does not bind."""
    match plan:
        case Get(name):
            return frozenset([name])
        case Let(name, value, body):
            return _free(value) | (_free(body) - {name})
        case _:
            bound = {b.id for b in plan.bindings} if isinstance(plan, LetRec) else ()
            return frozenset[GlobalId | LocalId]().union(*map(_free, inputs_of(plan))).difference(bound)


def _bound(plan: Plan) -> Iterator[LocalId]:
    """Yield the names that a plan binds, once for each place."""
    for node in preorder(plan):
        if isinstance(node, Let):
            yield node.id
        if isinstance(node, LetRec):
            yield from (b.id for b in node.bindings)
