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

A recursion inside another that reads it is a loop in the body of the outer one. Its rows carry two iterations, the
inner one last, and it runs to its end in each iteration of the outer one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tidemark_protocol.ids import LocalId
from tidemark_protocol.plan.lir import LetRec, Plan, RecursiveBinding
from tidemark_replica.kernels.recursion.recursion_limit import RecursionLimitSpec
from tidemark_replica.kernels.temporal import TemporalSpec
from tidemark_replica.render.plan import pipeline as p
from tidemark_replica.render.plan.fragments import Fragment, LoopFragment, Scope, uses
from tidemark_replica.render.plan.jvm_frames import nodes_of
from tidemark_replica.render.plan.lowering_stream import Stream, arrow_types
from tidemark_replica.render.recursion.hoist import Hoisted
from tidemark_replica.render.recursion.lift import CARRIED, lift

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
        name, loops = scope.description.name, scope.around + 1
        streams = scope.streams.of_loop(CARRIED * loops, lambda tree: lift(tree, scope.arrangements, name, loops))
        outside: dict[str, Any] = {"imported": {}, "shared": {}, "inlined": {}, "arranged": {}, "groups": {}}
        self._body = replace(scope, streams=streams, fragments=[], keeps_once=False, around=loops, **outside)

    def run(self) -> None:
        hoisted = Hoisted(f"{self._name}-", self._share)
        inside = frozenset(self._names)
        values = [hoisted.hoist(b.value, inside) for b in self._plan.bindings]
        entering = tuple(self._enter(name, outside) for outside, name in hoisted.entering.items())
        before = set(self._scope.arrangements)
        for binding in self._plan.bindings:
            variable = p.LoopVariable(self._names[binding.id].variable, arrow_types(binding.value.schema))
            self._body.shared[binding.id] = Stream(variable, binding.value.schema)
        for at, value in enumerate(values):
            self._bind(at, value)
        parts, fragments = _loop_parts(self._body.fragments)
        loop = p.Loop(
            self._name,
            parts,
            tuple(a for a in self._scope.arrangements if a not in before),
            tuple(hoisted.entering.values()),
            tuple(n.leaving for n in self._names.values()),
            MAX_ITERATIONS,
        )
        self._finish(loop, fragments, entering)
        for binding in self._plan.bindings:
            self._scope.shared[binding.id] = self._result(binding)

    def _share(self, name: LocalId, value: Plan) -> None:
        stream = self._lower(self._scope, value)
        self._scope.finish(stream, self._scope.publish(name, stream, stream.tree))

    def _enter(self, name: LocalId, outside: Plan) -> p.Pipeline:
        """Write outside what a part of the body reads as LoopInput, or in the body of another loop."""
        stream = self._lower(self._scope, outside)
        types = arrow_types(stream.schema)
        if self._scope.around:
            self._body.shared[name] = Stream(p.LoopVariable(name, types), stream.schema)
            return p.EnterLoop(name, stream.tree, types)
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
        return p.Kernel(RecursionLimitSpec(self._body.next_arrangement("limit"), types, last, text), tree)

    def _finish(self, loop: p.Loop, parts: tuple[Fragment, ...], entering: tuple[p.Pipeline, ...]) -> None:
        """End the loop: one task if its body does not need the JVM, else one job per part and round.

        A loop inside another is a part of that one's body.
        """
        if fits_a_task(parts) and not self._scope.around:
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


def _loop_parts(
    body: Sequence[Fragment | LoopFragment],
) -> tuple[tuple[p.LoopPart | p.Loop, ...], tuple[Fragment, ...]]:
    """The parts of a loop's body in order, and the fragments of all of them, by their places."""
    parts, fragments = list[p.LoopPart | p.Loop](), list[Fragment]()
    for each in body:
        if isinstance(each, Fragment):
            scheduled = tuple(
                node.spec.state
                for node in nodes_of(each.stage)
                if isinstance(node, p.Kernel) and isinstance(node.spec, TemporalSpec)
            )
            parts.append(p.LoopPart(each.name, frozenset(_reads(each)), len(fragments), scheduled))
            fragments.append(each)
        else:
            parts.append(_moved(each.loop, len(fragments)))
            fragments += each.body
    return tuple(parts), tuple(fragments)


def _moved(loop: p.Loop, by: int) -> p.Loop:
    """The loop with its trees behind so many others."""
    moved = [
        _moved(each, by) if isinstance(each, p.Loop) else replace(each, place=each.place + by) for each in loop.parts
    ]
    return replace(loop, parts=tuple(moved))


def _is_read(name: LocalId, by: list[Plan]) -> bool:
    return any(name == used for plan in by for used in uses(plan))


def _reads(part: Fragment) -> Iterator[str]:
    """Yield the names that a part of the body reads, loop inputs and variables included: also those of which it takes
    the errors alone, which may change without the rows."""
    for node in nodes_of(part.stage):
        if isinstance(node, p.LoopInput | p.LoopVariable | p.ReadPublished | p.ReadPublishedErrors):
            yield node.name
