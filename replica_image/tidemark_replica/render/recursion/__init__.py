"""LetRec: bindings that read each other and themselves, iterated until they no longer change.

    X[0] = empty     X[i+1] = value(X[i])     out = X[i] for the first i from which on X does not change

              ┌─────────────── rounds, at one time ───────────────┐
    edges ──> │ LoopInput (i=0) ─┐                                │
              │                  ├─> join ─> distinct ──┬──> LoopOutput ──> X, without iterations
              │ ┌─> LoopVariable ┘  max of i            │         │
              │ └───────────────── Feedback (i+1) <─────┘         │
              └───────────────────────────────────────────────────┘

State: that of the operators inside, with iterations. Cost of an update at t: what it changes in each iteration, not a
new start.

An update inside is (row, i) at t: from iteration i on, the row's multiplicity changes by diff. The iteration is a
column that every stream carries and no plan has (`lift`), so the operators are those of other plans. `hoist` finds what
stays outside the loop, `fixpoint` orders the rounds, `rounds` runs in the tasks. A binding reads earlier bindings at
its own iteration, itself and later ones at the iteration before. Errors leave the loop at once and do not iterate;
every binding that depends on a binding in error is in error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from tidemark_protocol.ids import LocalId
from tidemark_protocol.plan.lir import LetRec, Plan, RecursiveBinding
from tidemark_replica.kernels.recursion.recursion_limit import RecursionLimitSpec
from tidemark_replica.render.plan import pipeline as p
from tidemark_replica.render.plan.fragments import Fragment, LoopFragment, Scope, uses
from tidemark_replica.render.plan.jvm_frames import nodes_of
from tidemark_replica.render.plan.lowering_stream import Stream, StreamBuilder, arrow_types
from tidemark_replica.render.recursion.hoist import Hoisted
from tidemark_replica.render.recursion.lift import CARRIED, ITERATION, lift

MAX_ITERATIONS = 100_000
"""The iteration at which a recursion without a limit of its own counts as endless."""

Lower = Callable[[Scope, Plan], Stream]


def lower_let_rec(scope: Scope, plan: LetRec, lower: Lower) -> None:
    """Append the loop to the scope's fragments; its bindings become shared streams of the scope."""
    _Lowering(scope, plan, lower).run()


@dataclass(frozen=True)
class _Names:
    """The names of a binding's files."""

    variable: str
    leaving: str


class _Lowering:
    def __init__(self, scope: Scope, plan: LetRec, lower: Lower) -> None:
        self._scope, self._plan, self._lower = scope, plan, lower
        self._name = scope.new_loop()
        self._names = {
            b.id: _Names(f"{self._name}-{n}", f"{self._name}-{n}-leaves") for n, b in enumerate(plan.bindings)
        }
        name = scope.description.name
        streams = StreamBuilder(CARRIED, lambda tree: lift(tree, scope.arrangements, name), arrow=scope.streams.arrow)
        outside: dict[str, Any] = {"imported": {}, "shared": {}, "inlined": {}, "arranged": {}}
        self._body = replace(scope, streams=streams, fragments=[], keeps_once=False, **outside)

    def run(self) -> None:
        hoisted = Hoisted(self._scope.description.name, f"{self._name}-", self._share)
        inside = frozenset(self._names)
        values = [hoisted.hoist(b.value, inside) for b in self._plan.bindings]
        entering = tuple(self._enter(name, outside) for outside, name in hoisted.entering.items())
        before = set(self._scope.arrangements)
        for binding in self._plan.bindings:
            variable = p.LoopVariable(self._names[binding.id].variable, arrow_types(binding.value.schema))
            self._body.shared[binding.id] = Stream(variable, binding.value.schema)
        for at, value in enumerate(values):
            self._bind(at, value)
        loop = p.Loop(
            self._name,
            tuple(p.LoopPart(f.name, frozenset(_reads(f))) for f in self._parts()),
            tuple(a for a in self._scope.arrangements if a not in before),
            tuple(hoisted.entering.values()),
            tuple(n.leaving for n in self._names.values()),
            MAX_ITERATIONS,
        )
        self._finish(loop, entering)
        for binding in self._plan.bindings:
            self._scope.shared[binding.id] = self._result(binding)

    def _share(self, name: LocalId, value: Plan) -> None:
        stream = self._lower(self._scope, value)
        self._scope.finish(stream, self._scope.publish(name, stream, stream.tree))

    def _enter(self, name: LocalId, outside: Plan) -> p.Pipeline:
        """Publish outside what a part of the body reads as LoopInput."""
        stream = self._lower(self._scope, outside)
        types = arrow_types(stream.schema)
        self._body.shared[name] = Stream(p.LoopInput(name, types), stream.schema)
        return p.Publish(name, stream.tree, types, timed=True)

    def _bind(self, at: int, value: Plan) -> None:
        """Lower one binding as a part of the body. Later bindings read it at the same iteration."""
        stream, binding = self._lower(self._body, value), self._plan.bindings[at]
        types, names = arrow_types(stream.schema), self._names[binding.id]
        values = [b.value for b in self._plan.bindings]
        tree = stream.tree
        if _is_read(binding.id, values[at + 1 :]):
            tree = self._body.publish(binding.id, stream, tree)
        last = None if binding.max_iterations is None else binding.max_iterations - 1
        if _is_read(binding.id, values[: at + 1]):
            tree = p.Feedback(names.variable, tree, types, last)
        if last is not None and not binding.return_at_limit:
            tree = self._at_limit(binding, tree, types, last)
        self._body.finish(stream, p.LoopOutput(names.leaving, tree, types))

    def _at_limit(self, binding: RecursiveBinding, tree: p.Pipeline, types: p.Types, last: int) -> p.Pipeline:
        text = f"{binding.id} still changes in iteration {last + 1}"
        spec = RecursionLimitSpec(self._body.next_arrangement("limit"), (*types, ITERATION), last, text)
        self._scope.arrangements[spec.state] = spec.layout
        return p.Kernel(spec, tree)

    def _parts(self) -> Iterator[Fragment]:
        for fragment in self._body.fragments:
            assert isinstance(fragment, Fragment), "a loop inside a loop has been refused"
            yield fragment

    def _finish(self, loop: p.Loop, entering: tuple[p.Pipeline, ...]) -> None:
        """End the loop: one task if its body does not need the JVM, else one job per part and round."""
        parts = tuple(self._parts())
        if fits_a_task(parts):
            trees = tuple(part.stage.tree for part in parts)
            self._scope.finish(Stream(p.LoopInTask(loop, p.Concat(entering), trees), ()), None)
        else:
            self._scope.finish(Stream(p.Concat(entering), ()), None)
            self._scope.fragments.append(LoopFragment(loop, parts))

    def _result(self, binding: RecursiveBinding) -> Stream:
        """The stream that leaves the loop, with the errors of all bindings that it depends on."""
        types = arrow_types(binding.value.schema)
        others = [p.ReadPublishedErrors(self._names[id].leaving, types) for id in self._read_by(binding)]
        tree = p.ReadPublished(self._names[binding.id].leaving, types)
        return Stream(p.Concat((tree, *others)) if others else tree, binding.value.schema)

    def _read_by(self, binding: RecursiveBinding) -> list[LocalId]:
        """The other bindings whose rows can reach this one."""
        values = {b.id: b.value for b in self._plan.bindings}
        reached, pending = {binding.id}, [binding.id]
        while pending:
            more = [id for id in values if id not in reached and _is_read(id, [values[pending[-1]]])]
            pending[-1:] = more
            reached.update(more)
        return [id for id in values if id in reached and id != binding.id]


def fits_a_task(parts: tuple[Fragment, ...]) -> bool:
    """Whether no part of the body needs the JVM."""
    return all(not part.stage.inputs for part in parts)


def _is_read(name: LocalId, by: list[Plan]) -> bool:
    return any(name == used for plan in by for used in uses(plan))


def _reads(part: Fragment) -> Iterator[str]:
    """Yield the names that a part of the body reads, loop inputs and variables included."""
    for node in nodes_of(part.stage):
        if isinstance(node, p.LoopInput | p.LoopVariable | p.ReadPublished):
            yield node.name
