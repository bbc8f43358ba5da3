"""N-ary joins as LIR: the indexes that are used, the order of the inputs, and a linear or a delta join.

    inputs ──in the form of their indexes──► JoinProblem ──linear, delta──► plan
       ▲                                                                     │    an index that no lookup uses is given
       └────────────────────── without unused indexes ◄──────────────────────┘    up: its input keeps its own filters

A delta join keeps no intermediate rows. It is chosen where it needs no more arrangements than a linear join, which is
possible for three or more inputs that are joined by columns.

Reading order: `inputs` (the problem), `equalities`, `linear`, `delta`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidemark_planner.lir.joins.delta import delta_join
from tidemark_planner.lir.joins.inputs import JoinInput, JoinProblem, Key, arrangement_count, indexes_used, join_problem
from tidemark_planner.lir.joins.linear import linear_join
from tidemark_planner.lir.mfp import FilterProject
from tidemark_protocol.plan.expr import ScalarExpr
from tidemark_protocol.plan.lir import Join, refs

__all__ = ["JoinInput", "join_plan"]


def join_plan(candidates: Sequence[JoinInput], predicates: Sequence[ScalarExpr], after: FilterProject) -> Join:
    """Join the inputs; `predicates` and `after` are over all their columns, side by side."""
    indexed = frozenset(i for i, c in enumerate(candidates) if c.indexed is not None)
    while True:
        problem = join_problem(candidates, indexed, predicates, after)
        plan = _cheaper_join(problem)
        met = dict(reversed([*indexes_used(plan, problem.index_keys)]))
        if met.keys() == indexed:
            return _name_indexes(plan, candidates, met)
        indexed = frozenset(met)


def _cheaper_join(problem: JoinProblem) -> Join:
    linear, delta = linear_join(problem), delta_join(problem)
    return (
        linear
        if delta is None or arrangement_count(delta, problem.index_keys) > arrangement_count(linear, problem.index_keys)
        else delta
    )


def _name_indexes(plan: Join, candidates: Sequence[JoinInput], met: Mapping[int, Key]) -> Join:
    """The join, with each indexed input naming the first index that a lookup uses."""
    inputs = list(plan.inputs)
    for at, key in met.items():
        indexed = candidates[at].indexed
        assert indexed is not None
        get = indexed.gets[indexed.keys.index(key)]
        inputs[at] = replace(get, key=tuple(refs(get.schema)[c] for c in key))
    return replace(plan, inputs=tuple(inputs))
