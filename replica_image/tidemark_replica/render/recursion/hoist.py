"""Hoisting: the parts of a loop's bindings that read no binding are computed outside the loop.

X = distinct(edges + project(join(X, filter(edges))))

loop inputs:    edges, filter(edges)            computed once per step, outside
stay inside:    distinct, project, join         they carry iterations

A recursion that reads a binding stays inside, whole: what its bindings read from outside enters both loops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.lir import (
    Constant,
    DeltaJoin,
    Get,
    Join,
    Let,
    LetRec,
    LinearJoin,
    Mfp,
    Plan,
    Union,
)
from tidemark_replica.render.plan.fragments import uses

Names = frozenset[GlobalId | LocalId]


@dataclass
class Hoisted:
    """Plans whose outside parts are replaced by Gets; `entering` maps these parts to their names."""

    prefix: str
    share: Callable[[LocalId, Plan], None]
    """Computes a Let's value outside the loop, under its own name."""
    entering: dict[Plan, LocalId] = field(default_factory=dict)

    def hoist(self, plan: Plan, inside: Names) -> Plan:
        """The plan with its outside parts replaced. `inside`: the loop's bindings, and names that depend on them."""
        if not any(name in inside for name in uses(plan)):
            return Get(self._name(plan), plan.schema)
        match plan:
            case Get() | Constant():
                return plan
            case Let(id, value, body):
                return self._let(id, value, body, inside)
            case LetRec(bindings, body):
                own = inside | {b.id for b in bindings}
                values = tuple(replace(b, value=self.hoist(b.value, own)) for b in bindings)
                return LetRec(values, self.hoist(body, own))
            case Join(inputs, how):
                return _linear(tuple(self.hoist(i, inside) for i in inputs), how)
            case Union():
                return replace(plan, inputs=tuple(self.hoist(i, inside) for i in plan.inputs))
        return replace(plan, input=self.hoist(plan.input, inside))

    def _let(self, id: LocalId, value: Plan, body: Plan, inside: Names) -> Plan:
        if any(name in inside for name in uses(value)):
            return Let(id, self.hoist(value, inside), self.hoist(body, inside | {id}))
        self.share(id, value)
        return self.hoist(body, inside)

    def _name(self, plan: Plan) -> LocalId:
        return self.entering.setdefault(plan, LocalId(f"{self.prefix}enters{len(self.entering)}"))


def _linear(inputs: tuple[Plan, ...], join: LinearJoin | DeltaJoin) -> Plan:
    """A delta join as a linear join along any of its paths. Rounds keep the order of updates that it needs."""
    if isinstance(join, LinearJoin):
        return Join(inputs, join)
    joined = Join(inputs, LinearJoin(join.paths[0].source, join.paths[0].stages))
    return joined if join.closure.is_identity else Mfp(joined, join.closure)
