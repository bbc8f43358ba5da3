"""N-ary joins as LIR: the indexes that are used, the order of the inputs, and a linear or a delta join.

    inputs ──in the form of their indexes──► JoinProblem ──linear, delta──► plan
       ▲                                                                     │    an index that no lookup uses is given
       └────────────────────── without unused indexes ◄──────────────────────┘    up: its input keeps its own filters

A delta join keeps no intermediate rows. It is chosen where it needs no more arrangements than a linear join, which is
possible for three or more inputs that are joined by columns. Of orders that need as many arrangements, the one that
makes few rows is chosen.

Reading order: `inputs` (the problem), `equalities`, `order`, `linear`, `delta`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidemark_planner.lir.joins.delta import delta_join
from tidemark_planner.lir.joins.inputs import (
    JoinInput,
    JoinProblem,
    Key,
    arrangement_count,
    indexes_used,
    join_problem,
    starts,
)
from tidemark_planner.lir.joins.linear import linear_join, lookups_after_each
from tidemark_planner.lir.joins.order import fewest_arrangements, fewest_rows, first_input
from tidemark_planner.lir.mfp import FilterProject
from tidemark_protocol.plan.expr import ScalarExpr, map_columns
from tidemark_protocol.plan.lir import Join, refs

__all__ = ["JoinInput", "join_plan"]
# Of more inputs each as the first one would take too long to compare.
_MOST_COMPARED = 16


def join_plan(candidates: Sequence[JoinInput], predicates: Sequence[ScalarExpr], after: FilterProject) -> Join:
    """Join the inputs; `predicates` and `after` are over all their columns, side by side."""
    return _join_plan(*_first_input_first(candidates, predicates, after))


def _first_input_first(
    candidates: Sequence[JoinInput], predicates: Sequence[ScalarExpr], after: FilterProject
) -> tuple[Sequence[JoinInput], Sequence[ScalarExpr], FilterProject]:
    """The join with the input that the others are met with in the first place: hydration follows its path."""
    first = _first_input(candidates, predicates, after)
    if first == 0:
        return candidates, predicates, after
    begins = starts([c.plan for c in candidates])
    columns = [range(begin, begin + len(c.plan.schema)) for begin, c in zip(begins, candidates, strict=True)]
    order = [first, *(at for at in range(len(candidates)) if at != first)]
    place = {column: to for to, column in enumerate(c for at in order for c in columns[at])}

    def moved(exprs: Sequence[ScalarExpr]) -> tuple[ScalarExpr, ...]:
        return tuple(map_columns(e, place.__getitem__) for e in exprs)

    return (
        [candidates[at] for at in order],
        moved(predicates),
        FilterProject(moved(after.predicates), moved(after.outputs)),
    )


def _first_input(candidates: Sequence[JoinInput], predicates: Sequence[ScalarExpr], after: FilterProject) -> int:
    if not 2 < len(candidates) <= _MOST_COMPARED:
        return 0
    problem = join_problem(candidates, frozenset(), predicates, after)
    return first_input([c.known for c in candidates], lookups_after_each(problem))


def _join_plan(candidates: Sequence[JoinInput], predicates: Sequence[ScalarExpr], after: FilterProject) -> Join:
    indexed = frozenset(i for i, c in enumerate(candidates) if c.indexed is not None)
    while True:
        problem = join_problem(candidates, indexed, predicates, after)
        plan = _cheapest_join(problem)
        met = dict(reversed([*indexes_used(plan, problem.index_keys)]))
        if met.keys() == indexed:
            return _name_indexes(plan, candidates, met)
        indexed = frozenset(met)


def _cheapest_join(problem: JoinProblem) -> Join:
    """The join with the fewest arrangements: if possible a delta join, and one that makes few rows."""
    has_choice = len(problem.inputs) > 2
    preferences = (fewest_rows, fewest_arrangements) if has_choice else (fewest_rows,)
    deltas = [join for prefer in preferences if (join := delta_join(problem, prefer))]
    linear = [linear_join(problem, prefer) for prefer in (preferences if any(problem.index_keys) else (fewest_rows,))]
    return min([*deltas, *linear], key=lambda join: arrangement_count(join, problem.index_keys))


def _name_indexes(plan: Join, candidates: Sequence[JoinInput], met: Mapping[int, Key]) -> Join:
    """The join, with each indexed input naming the first index that a lookup uses."""
    inputs = list(plan.inputs)
    for at, key in met.items():
        indexed = candidates[at].indexed
        assert indexed is not None
        get = indexed.gets[indexed.keys.index(key)]
        inputs[at] = replace(get, key=tuple(refs(get.schema)[c] for c in key))
    return replace(plan, inputs=tuple(inputs))
