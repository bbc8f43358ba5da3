"""N-ary joins as LIR: the indexes that are used, the order of the inputs, and a linear or a delta join.

    inputs ──in the form of their indexes──► JoinProblem ──linear, delta──► plan
       ▲                                                                     │    an index that no lookup uses is given
       └────────────────────── without unused indexes ◄──────────────────────┘    up: its input keeps its own filters

A delta join keeps no intermediate rows. It is chosen where it needs no more arrangements than a linear join, which is
possible for three or more inputs that are joined by columns. The planner chooses, among orders that need as many
arrangements, the one that makes few rows.

Reading order: `inputs` (the problem), `equalities`, `order`, `linear`, `delta`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

from tidemark_planner.hir.nodes import starts
from tidemark_planner.lir.joins.delta import delta_join
from tidemark_planner.lir.joins.inputs import (
    Key,
    PlannedInput,
    arrangement_count,
    indexes_used,
    join_problem,
)
from tidemark_planner.lir.joins.linear import linear_join, lookups_after_each
from tidemark_planner.lir.joins.order import (
    Preference,
    fewest_arrangements,
    fewest_rows,
    first_input,
    query_first,
    query_order,
)
from tidemark_planner.lir.mfp import FilterProject
from tidemark_protocol.plan.expr import ScalarExpr, map_columns
from tidemark_protocol.plan.lir import Join, LinearJoin, refs

__all__ = ["PlannedInput", "join_plan"]
# Orders are tried by each of these rules. The last ones are the query's order: no choice keeps more state than it does.
FIRST_INPUTS = (first_input, query_first)
PREFERENCES = (fewest_rows, fewest_arrangements, query_order)
# Of more inputs each as the first one would take too long to compare.
_MOST_COMPARED = 16
# Inputs by their place in the query.
_Inputs = frozenset[int]


def join_plan(candidates: Sequence[PlannedInput], predicates: Sequence[ScalarExpr], after: FilterProject) -> Join:
    """Join the inputs; `predicates` and `after` are over all their columns, side by side."""
    return _Planner(candidates, predicates, after).plan()


@dataclass(frozen=True)
class _Attempt:
    """A join, how many arrangements it keeps itself, and the inputs that it meets in an index."""

    join: Join
    arrangements: int
    indexed: _Inputs


class _Planner:
    def __init__(
        self, candidates: Sequence[PlannedInput], predicates: Sequence[ScalarExpr], after: FilterProject
    ) -> None:
        self._candidates, self._predicates, self._after = candidates, predicates, after
        self._first_inputs, self._attempt = cache(self._find_first_inputs), cache(self._make_attempt)

    def plan(self) -> Join:
        """The join with the fewest arrangements: if possible a delta join, and one that makes few rows."""
        if len(self._candidates) <= 2:
            return self._settled(0, fewest_rows).join
        attempts = [self._settled(rule, prefer) for rule in range(len(FIRST_INPUTS)) for prefer in PREFERENCES]
        return min(attempts, key=lambda a: (a.arrangements, isinstance(a.join.plan, LinearJoin))).join

    def _settled(self, rule: int, prefer: Preference) -> _Attempt:
        """The join that uses each index in which it reads an input. It begins as `rule` of FIRST_INPUTS says."""
        indexed = frozenset(at for at, c in enumerate(self._candidates) if c.indexed is not None)
        while True:
            attempt = self._attempt(self._first_inputs(indexed)[rule], prefer, indexed)
            if attempt.indexed == indexed:
                return attempt
            indexed = attempt.indexed

    def _find_first_inputs(self, indexed: _Inputs) -> tuple[int, ...]:
        """The input that the join begins with, by each rule: hydration follows its path."""
        if not 2 < len(self._candidates) <= _MOST_COMPARED:
            return (0,) * len(FIRST_INPUTS)
        problem = join_problem(self._candidates, indexed, self._predicates, self._after)
        known, orders = [*map(problem.read_rows, range(len(self._candidates)))], lookups_after_each(problem)
        return tuple(find(known, orders) for find in FIRST_INPUTS)

    def _make_attempt(self, first: int, prefer: Preference, indexed: _Inputs) -> _Attempt:
        order = [first, *(at for at in range(len(self._candidates)) if at != first)]
        candidates = [self._candidates[at] for at in order]
        places = frozenset(place for place, at in enumerate(order) if at in indexed)
        problem = join_problem(candidates, places, *self._in_order(order))
        linear, delta = linear_join(problem, prefer), delta_join(problem, prefer)
        count, join = min(
            ((arrangement_count(each, problem.index_keys), each) for each in (delta, linear) if each),
            key=lambda counted: counted[0],
        )
        met = dict(reversed([*indexes_used(join, problem.index_keys)]))
        return _Attempt(_name_indexes(join, candidates, met), count, frozenset(order[place] for place in met))

    def _in_order(self, order: Sequence[int]) -> tuple[Sequence[ScalarExpr], FilterProject]:
        """The predicates, and what runs after the join, over the columns of the inputs in this order."""
        begins = starts([c.plan for c in self._candidates])
        columns = [range(at, at + len(c.plan.schema)) for at, c in zip(begins, self._candidates, strict=True)]
        place = {column: to for to, column in enumerate(c for at in order for c in columns[at])}

        def moved(exprs: Sequence[ScalarExpr]) -> tuple[ScalarExpr, ...]:
            return tuple(map_columns(e, place.__getitem__) for e in exprs)

        return moved(self._predicates), FilterProject(moved(self._after.predicates), moved(self._after.outputs))


def _name_indexes(plan: Join, candidates: Sequence[PlannedInput], met: Mapping[int, Key]) -> Join:
    """The join, with each indexed input naming the first index that a lookup uses."""
    inputs = list(plan.inputs)
    for at, key in met.items():
        indexed = candidates[at].indexed
        assert indexed is not None
        get = indexed.gets[indexed.keys.index(key)]
        inputs[at] = replace(get, key=tuple(refs(get.schema)[c] for c in key))
    return replace(plan, inputs=tuple(inputs))
