"""What a loop takes from outside: every part of its bindings that reads none of them.

X = distinct(edges + project(join(X, filter(edges))))

enters the loop:  edges, filter(edges)            computed once per step, by the operators that are used anywhere
stays inside:     distinct, project, join          they carry iterations
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from tidemark_protocol.ids import GlobalId, LocalId
from tidemark_protocol.plan.lir import (
    ArrangeBy,
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
from tidemark_replica.render.errors import NotRendered
from tidemark_replica.render.plan.fragments import uses

Names = frozenset[GlobalId | LocalId]


@dataclass
class Hoisted:
    """Plans with what comes from outside replaced by a Get; `entering` says what these names are."""

    dataflow: str
    prefix: str
    share: Callable[[LocalId, Plan], None]
    """Compute a Let's value outside, under its own name."""
    entering: dict[Plan, LocalId] = field(default_factory=dict)

    def hoist(self, plan: Plan, inside: Names) -> Plan:
        """The plan, given the names that are bound by the loop or read what is."""
        if not any(name in inside for name in uses(plan)):
            return Get(self._name(plan), plan.schema)
        match plan:
            case Get() | Constant():
                return plan
            case Let(id, value, body):
                return self._let(id, value, body, inside)
            case LetRec():
                raise NotRendered(
                    f"dataflow {self.dataflow}: this replica has no operator for a recursion inside a recursion that "
                    "reads what the outer one defines"
                )
            case Join(inputs, how):
                return _linear(tuple(self.hoist(i, inside) for i in inputs), how)
            case Union():
                return replace(plan, inputs=tuple(self.hoist(i, inside) for i in plan.inputs))
            case ArrangeBy(input):
                return self.hoist(input, inside)
        return replace(plan, input=self.hoist(plan.input, inside))

    def _let(self, id: LocalId, value: Plan, body: Plan, inside: Names) -> Plan:
        if any(name in inside for name in uses(value)):
            return Let(id, self.hoist(value, inside), self.hoist(body, inside | {id}))
        self.share(id, value)
        return self.hoist(body, inside)

    def _name(self, plan: Plan) -> LocalId:
        return self.entering.setdefault(plan, LocalId(f"{self.prefix}enters{len(self.entering)}"))


def _linear(inputs: tuple[Plan, ...], how: LinearJoin | DeltaJoin) -> Plan:
    """Any path of a delta join is a linear join of the same rows; rounds keep the order of updates that it needs."""
    if isinstance(how, LinearJoin):
        return Join(inputs, how)
    joined = Join(inputs, LinearJoin(how.paths[0].source, how.paths[0].stages))
    return joined if how.closure.is_identity else Mfp(joined, how.closure)
