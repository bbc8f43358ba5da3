"""The delta plan of an n-ary join: for each input, in which order its updates meet the others, by which keys.

    inputs t, u, v on [t.k = u.k, u.z = v.z, t.x < v.y]

    t  →  u by [k]  →  v by [z]       u  →  t by [k]  →  v by [z]       v  →  u by [z]  →  t by [k]       then t.x < v.y

Four arrangements: t by k, u by k, u by z, v by z, and none of t ⋈ u. The next input on a path is one that an equality
connects to those before it, the one that `order` prefers. A lookup uses all equalities, or those on the key of an
index. Remaining equalities, and all other predicates, form the closure after the join. Hydration follows the path of
the first input.
"""

from __future__ import annotations

from collections.abc import Sequence

from tidemark_planner.lir.joins.equalities import (
    Equality,
    KeyEquality,
    equalities,
    equalities_by_input,
    equalities_on_index,
    equalities_on_key,
)
from tidemark_planner.lir.joins.inputs import JoinProblem
from tidemark_planner.lir.joins.linear import closure_over, stage_of
from tidemark_planner.lir.joins.order import PossibleLookup, Preference, fewest_rows, next_lookup
from tidemark_planner.lir.mfp import FilterProject
from tidemark_protocol.plan.expr import ColumnRef, columns_of
from tidemark_protocol.plan.lir import DeltaJoin, DeltaPath, Join, MapFilterProject, refs

_FEWEST_INPUTS = 3
# A delta join of n inputs has n (n - 1) lookups: beyond this its plan, and each of its steps, would be too large.
_MOST_INPUTS = 16
# The next input of a path, and the equalities of its lookup.
_Step = tuple[int, list[KeyEquality]]


def delta_join(problem: JoinProblem, prefer: Preference = fewest_rows) -> Join | None:
    """The delta join; None for too few or too many inputs, or where an input cannot be looked up by columns."""
    return _Planner(problem, prefer).plan() if _FEWEST_INPUTS <= len(problem.inputs) <= _MOST_INPUTS else None


class _Planner:
    def __init__(self, problem: JoinProblem, prefer: Preference) -> None:
        self._problem, self._columns, self._prefer = problem, problem.columns, prefer
        self._schema, self._row = problem.schema, refs(problem.schema)
        self._indexed, self._unique = problem.indexed, problem.unique
        of_columns = [e for e in equalities(problem.predicates) if _is_of_columns(e)]
        self._candidates = equalities_by_input(of_columns, self._columns)
        # Arrangements that exist, or that an earlier path needs: input, columns.
        self._arranged = {(at, frozenset(key)) for at, keys in enumerate(self._indexed) for key in keys}

    def plan(self) -> Join | None:
        paths = []
        for source in range(len(self._problem.inputs)):
            steps = self._steps(source)
            if steps is None:
                return None
            paths.append(steps)
        applied = set.intersection(*({m.predicate for _, used in steps for m in used} for steps in paths))
        rest = [p for p in self._problem.predicates if p not in applied]
        after = FilterProject((*rest, *self._problem.after.predicates), self._problem.after.outputs)
        row = sorted(frozenset[int]().union(*map(columns_of, after.all_expressions)))
        drawn = tuple(self._path(source, steps, row) for source, steps in enumerate(paths))
        closure = closure_over(self._schema, row, after.predicates, after.outputs)
        return Join(self._problem.inputs, DeltaJoin(drawn, closure))

    def _steps(self, source: int) -> list[_Step] | None:
        """The order of a path, and the equalities of each lookup; None where an input cannot be looked up."""
        known, left, steps = self._columns[source], [i for i in range(len(self._columns)) if i != source], []
        while left:
            possible = {i: used for i in left if (used := self._key_equalities(known, i))}
            if not possible:
                return None
            chosen = next_lookup([self._lookup(step) for step in possible.items()], self._prefer).input
            step = chosen, possible[chosen]
            self._arranged.add(_arrangement(step))
            steps.append(step)
            known |= self._columns[step[0]]
            left.remove(step[0])
        return steps

    def _lookup(self, step: _Step) -> PossibleLookup:
        """A step as the next one. A filter of an input with an index runs at the end of the join."""
        at, bound = _arrangement(step)
        return PossibleLookup(
            at,
            len(bound),
            any(bound.issuperset(key) for key in self._problem.row_keys[at]),
            (at, bound) in self._arranged,
            self._problem.read_rows(at),
            self._problem.values_of(frozenset[int]().union(*(columns_of(m.stream) for m in step[1]))),
        )

    def _key_equalities(self, known: frozenset[int], lookup: int) -> list[KeyEquality]:
        """The equalities of a lookup: those on the key of an index, else one for every column that has one."""
        possible = [m for e in self._candidates[lookup] if (m := e.between(known, self._columns[lookup]))]
        if found := equalities_on_index(possible, self._indexed[lookup], "lookup", self._unique):
            return found
        columns = sorted({c for m in possible for c in columns_of(m.lookup)})
        return equalities_on_key(possible, tuple(columns), "lookup") or []

    def _path(self, source: int, steps: Sequence[_Step], row: list[int]) -> DeltaPath:
        stream, stages = sorted(self._columns[source]), []
        for at, (lookup, used) in enumerate(steps):
            keys = (columns_of(m.stream) for _, later in steps[at + 1 :] for m in later)
            needed = frozenset(row).union(*keys)
            last = row if at == len(steps) - 1 else None

            def closure(both: list[int], last: list[int] | None = last) -> MapFilterProject:
                return closure_over(self._schema, both, (), [self._row[c] for c in (both if last is None else last)])

            stage, stream = stage_of(lookup, used, stream, sorted(self._columns[lookup]), needed, closure)
            stages.append(stage)
        return DeltaPath(source, tuple(stages))


def _arrangement(step: _Step) -> tuple[int, frozenset[int]]:
    lookup, used = step
    return lookup, frozenset[int]().union(*(columns_of(m.lookup) for m in used))


def _is_of_columns(equality: Equality) -> bool:
    return isinstance(equality.left, ColumnRef) and isinstance(equality.right, ColumnRef)
