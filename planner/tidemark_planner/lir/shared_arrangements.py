"""Arrangements that a plan keeps once: a join of a collection with itself by one key.

    Join linear: 0 → 1 on [c0 = c0] keep [c0, c1 | c1]      Let arranged0 =
      Get t                                            ──►      Get t
      Get t                                                 in
                                                              Join linear: 0 → 1 on [c0 = c0] keep [c0, c1 | c1]
                                                                Get arranged0 by [c0]
                                                                Get arranged0 by [c0]

A Get of a binding by a key names the binding's arrangement by that key. Replicas that do not know it compute the
binding once and keep a copy for each side. Shared are only inputs that are equal, by equal keys, and of which both
sides keep the same columns: a side that kept more would be larger for the other, and match more rows. Both sides would
evaluate the input, so an error in it is the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import count

from tidemark_protocol.ids import LocalId
from tidemark_protocol.plan.expr import ColumnRef
from tidemark_protocol.plan.lir import Constant, Get, Join, JoinStage, Let, LetRec, LinearJoin, Plan, Union


def share_arrangements(plan: Plan) -> Plan:
    """The plan with the arrangements of self-joins named once. What is inside a recursion stays as it is."""
    return _shared(plan, count())


def _shared(plan: Plan, names: Iterator[int]) -> Plan:
    match plan:
        case Constant() | Get():
            return plan
        case Let(_, value, body):
            return replace(plan, value=_shared(value, names), body=_shared(body, names))
        case LetRec():
            return replace(plan, body=_shared(plan.body, names))
        case Union():
            return replace(plan, inputs=tuple(_shared(i, names) for i in plan.inputs))
        case Join():
            return _self_join(replace(plan, inputs=tuple(_shared(i, names) for i in plan.inputs)), plan, names)
        case _:
            return replace(plan, input=_shared(plan.input, names))


def _self_join(join: Join, before: Join, names: Iterator[int]) -> Plan:
    """`before`: the join whose inputs are as they were: what is shared inside them has names that differ."""
    how = join.plan
    if not isinstance(how, LinearJoin) or not _is_of_one(before, how):
        return join
    value, key = join.inputs[how.source], how.stages[0].stream_key
    name = LocalId(f"arranged{next(names)}")
    get = Get(name, value.schema, key)
    sides = (how.source, how.stages[0].lookup)
    return Let(name, value, replace(join, inputs=tuple(get if i in sides else v for i, v in enumerate(join.inputs))))


def _is_of_one(join: Join, how: LinearJoin) -> bool:
    """Whether both sides of the first stage are one input, kept by one key with the same columns."""
    first = how.stages[0]
    source, lookup = join.inputs[how.source], join.inputs[first.lookup]
    if source != lookup or not first.stream_key or (isinstance(source, Get) and source.key is not None):
        return False
    return first.stream_key == first.lookup_key and _kept(first, first.stream_thinning) == _kept(
        first, first.lookup_thinning
    )


def _kept(stage: JoinStage, thinning: tuple[int, ...]) -> frozenset[int]:
    """The columns that a side keeps, beside the expressions of the key, which are equal on both sides."""
    return frozenset(thinning).union(k.index for k in stage.stream_key if isinstance(k, ColumnRef))
