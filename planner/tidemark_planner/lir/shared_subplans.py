"""Equal parts of the objects of a dataflow, which are computed once.

    u1/busy =                                        u1/shared/0 =
      Mfp filter c1 > 10                               Reduce key=[c0] count(*)
        Reduce key=[c0] count(*)                         Get sales
          Get sales                                  u1/busy =
    u1/named =                               ──►       Mfp filter c1 > 10
      Join linear: 0 → 1 on [c0 = c0] ...                Get u1/shared/0
        Reduce key=[c0] count(*)                     u1/named =
          Get sales                                    Join linear: 0 → 1 on [c0 = c0] ...
        Get customers                                    Get u1/shared/0
                                                         Get customers

Two parts are equal if their plans are, up to the names of bindings: each filter and each projection has its place by
then, in the part or above it. So each reader would compute the part by itself, from the same rows, and would show every
error of it. The Mfp after a reduction counts as a part above it.

Shared are reductions, distinct rows, top-k and windows, with all that is below them. Their output is no more than what
they keep, so the rows that the readers get are no more either. A join can make many rows of few, and may keep nothing:
each reader computes its joins, unless what they end in is shared. A part that is a whole object is read there, by later
objects. Parts with a recursion or the clock, parts inside a recursion, and those that read a binding from outside are
left alone.

A part is left alone, too, if a side of a join inside is a side of a join outside of it in each object that reads the
part. Such an object keeps the side once for both joins (`shared_arrangements`), and the part would keep it once more.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

from tidemark_planner.lir.shared_arrangements import sides_of
from tidemark_planner.lir.shared_tables import inputs_of_tables
from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.dataflow import BuildDesc
from tidemark_protocol.plan.expr import ScalarExpr
from tidemark_protocol.plan.lir import (
    Changes,
    Constant,
    FlatMap,
    Get,
    Join,
    Let,
    LetRec,
    MapFilterProject,
    Mfp,
    Plan,
    Reduce,
    Threshold,
    TopK,
    Window,
    inputs_of,
    with_inputs,
)

_Names = tuple[GlobalId | LocalId, ...]
_NOTHING = Constant((), ())
_SHARED = (Reduce, Threshold, TopK, Window)


def share_subplans(objects: Sequence[BuildDesc], tables: frozenset[GlobalId], id_prefix: str) -> tuple[BuildDesc, ...]:
    """The objects, and before the first reader of each equal part an object with that part. `tables`: the imports of
    shards, whose arrangements all objects share.
    """
    numbers = _Numbers(tables)
    parts = [(built.id, numbers.part(built.plan, ())) for built in objects]
    whole = frozenset(part.number for _, part in parts)
    doubling = _doubling([part for _, part in parts], whole)
    often = Counter[int]()
    for _, part in parts:
        _count(part, whole, doubling, often)
    sharing = _Sharing(frozenset(number for number, n in often.items() if n > 1), id_prefix)
    for id, part in parts:
        sharing.add(id, part)
    return tuple(sharing.made)


@dataclass(frozen=True)
class _Side:
    """An input of a linear join, as one object keeps it for all joins that arrange the same."""

    input: int
    key: tuple[ScalarExpr, ...]
    kept: tuple[int, ...]


@dataclass(frozen=True)
class _Part:
    """A node of a plan, and what is known of the plan that ends there.

    `origin`: the plan as it was; `plan`: the same, but a reduction with an Mfp after it is an Mfp over one without.
    """

    origin: Plan
    plan: Plan
    inputs: tuple[_Part, ...]
    number: int
    """The same for equal plans."""
    reach: int
    """The number of the bindings around it that the plan needs, counted from the innermost; 0: none."""
    keeps_state: bool
    barred: bool
    """Whether there is something that is not shared inside."""
    sides: tuple[_Side, ...] = ()
    """The sides of the node alone."""

    def may_be_shared(self, whole: frozenset[int]) -> bool:
        """Whether the plan may be an object of its own. `whole`: the numbers of plans that are objects."""
        ends = isinstance(self.plan, _SHARED) or (self.number in whole and self.keeps_state)
        return ends and not self.barred and not self.reach

    def nodes(self) -> Iterator[_Part]:
        """Yield the part and all below it."""
        yield self
        yield from chain.from_iterable(below.nodes() for below in self.inputs)


@dataclass
class _Numbers:
    """Numbers for plans, so that equal ones have the same."""

    _tables: frozenset[GlobalId]
    _known: dict[tuple[Any, ...], int] = field(default_factory=dict)

    def part(self, plan: Plan, bound: _Names) -> _Part:
        """The plan inside of bindings of these names, the innermost last."""
        match plan:
            case Get(name) if name in bound:
                distance = bound[::-1].index(name) + 1
                return _Part(plan, plan, (), self._number(distance, plan.schema, plan.key), distance, False, False)
            case Let(name, value, body):
                inputs = (self.part(value, bound), self.part(body, (*bound, name)))
                return self._make_part(plan, (Let,), inputs, max(inputs[0].reach, inputs[1].reach - 1))
            case LetRec(bindings, body):
                below = self.part(body, (*bound, *(b.id for b in bindings)))
                return _Part(plan, plan, (below,), self._number(plan, bound), len(bound), True, True)
            case Reduce() if not plan.mfp_after.is_identity:
                core = replace(plan, mfp_after=MapFilterProject.identity(plan.mfp_after.input))
                return replace(self._node(Mfp(core, plan.mfp_after), bound), origin=plan)
            case _:
                return self._node(plan, bound)

    def _node(self, plan: Plan, bound: _Names) -> _Part:
        inputs = tuple(self.part(below, bound) for below in inputs_of(plan))
        bare = with_inputs(plan, [_NOTHING] * len(inputs))
        part = self._make_part(plan, (bare,), inputs, max((i.reach for i in inputs), default=0))
        return replace(part, sides=self._sides(plan, inputs)) if isinstance(plan, Join) else part

    def _sides(self, join: Join, inputs: Sequence[_Part]) -> tuple[_Side, ...]:
        """The sides that an object keeps by itself. All objects share those of tables; a binding is of one part."""
        found, of_tables = sides_of(join), inputs_of_tables(join, self._tables)
        alone = [at for at in found if at not in of_tables and not inputs[at].reach]
        return tuple(_Side(inputs[at].number, found[at].key, found[at].kept) for at in alone)

    def _make_part(self, plan: Plan, own: tuple[Any, ...], inputs: tuple[_Part, ...], reach: int) -> _Part:
        """The part of a plan node over its inputs' parts. `own`: what the node adds to its number beside them."""
        number = self._number(*own, *(i.number for i in inputs))
        keeps_state = isinstance(plan, (*_SHARED, Join)) or any(i.keeps_state for i in inputs)
        barred = _is_barred(plan) or any(i.barred for i in inputs)
        return _Part(plan, plan, inputs, number, reach, keeps_state, barred)

    def _number(self, *what: Any) -> int:
        return self._known.setdefault(what, len(self._known))


def _is_barred(plan: Plan) -> bool:
    """Whether the node shows changes, or reads the clock."""
    match plan:
        case Mfp():
            mfp = plan.mfp
        case FlatMap() | Reduce():
            mfp = plan.mfp_after
        case _:
            return isinstance(plan, Changes)
    return bool(mfp.lower or mfp.upper)


def _doubling(objects: Sequence[_Part], whole: frozenset[int]) -> frozenset[int]:
    """The numbers of parts with a side inside that each object with the part needs outside of the part as well."""
    nodes = [list(part.nodes()) for part in objects]
    holders = [(Counter(n.number for n in of), Counter(s for n in of for s in n.sides)) for of in nodes]
    often = sum((numbers for numbers, _ in holders), Counter[int]())
    parts = {n.number: n for of in nodes for n in of if often[n.number] > 1 and n.may_be_shared(whole)}
    found = set[int]()
    for number, part in parts.items():
        inside = Counter(s for n in part.nodes() for s in n.sides)
        reading = [(numbers[number], sides) for numbers, sides in holders if number in numbers]
        if any(all(sides[s] > n * times for n, sides in reading) for s, times in inside.items()):
            found.add(number)
    return frozenset(found)


def _count(part: _Part, whole: frozenset[int], doubling: frozenset[int], often: Counter[int]) -> None:
    """The number of reads of each part that may be shared. The reads of a part count once, however often the part
    is read.

    `doubling`: numbers of parts that are left alone.
    """
    if part.may_be_shared(whole) and part.number not in doubling:
        often[part.number] += 1
        if often[part.number] > 1:
            return
    for below in part.inputs:
        _count(below, whole, doubling, often)


@dataclass
class _Sharing:
    """The objects so far, and what of them is read instead of the parts of these numbers."""

    shared: frozenset[int]
    id_prefix: str
    made: list[BuildDesc] = field(default_factory=list)
    gets: dict[int, Get] = field(default_factory=dict)
    own: int = 0

    def add(self, id: GlobalId, part: _Part) -> None:
        """Add an object. If it is a shared part, and the first that has it, then it is what the others read."""
        plan = self.gets.get(part.number) or self._inside(part)
        assert plan.schema == part.origin.schema, "a shared part has other columns than it had"
        self.made.append(BuildDesc(id, plan))
        if part.number in self.shared:
            self.gets.setdefault(part.number, Get(id, plan.schema))

    def _plan(self, part: _Part) -> Plan:
        if part.number in self.shared and part.number not in self.gets:
            plan = self._inside(part)
            id = GlobalId(f"{self.id_prefix}shared/{self.own}")
            self.own += 1
            self.made.append(BuildDesc(id, plan))
            self.gets[part.number] = Get(id, plan.schema)
        return self.gets.get(part.number) or self._inside(part)

    def _inside(self, part: _Part) -> Plan:
        """The plan of a part, over what is read instead of its inputs: as it was where they are."""
        plan, inputs = part.plan, [self._plan(below) for below in part.inputs]
        if all(new is below.origin for new, below in zip(inputs, part.inputs, strict=True)):
            return part.origin
        if isinstance(plan, LetRec):
            return replace(plan, body=inputs[0])
        if isinstance(part.origin, Reduce) and isinstance(plan, Mfp) and isinstance(core := inputs[0], Reduce):
            return replace(core, mfp_after=plan.mfp)
        return with_inputs(plan, inputs)
