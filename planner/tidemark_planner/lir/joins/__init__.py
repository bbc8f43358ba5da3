"""Joins of any number of inputs as LIR: which inputs an index serves in place, and in which order they meet.

    candidates ──use their indexes──► Problem ──linear, delta──► plan     an index that no lookup then uses is
                      ▲                                           │       given up: its input is read as it is,
                      └──────────── without the idle ones ◄───────┘       with its filters below the join

A delta join keeps nothing of the rows on their way, so it is chosen wherever it can be had for no more arrangements
than a linear join keeps: of three inputs or more that are met by columns.

Reading order: `inputs` (the problem), `equalities`, `linear`, `delta`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from tidemark_planner.lir.joins.delta import delta_join
from tidemark_planner.lir.joins.inputs import Candidate, Key, Problem, in_place, kept, problem
from tidemark_planner.lir.joins.linear import linear_join
from tidemark_planner.lir.mfp import Fused
from tidemark_protocol.plan.expr import ScalarExpr
from tidemark_protocol.plan.lir import Join, refs

__all__ = ["Candidate", "join_plan"]


def join_plan(candidates: Sequence[Candidate], predicates: Sequence[ScalarExpr], after: Fused) -> Join:
    """Join the inputs; `predicates` and `after` are over all their columns side by side."""
    indexed = frozenset(i for i, c in enumerate(candidates) if c.arranged is not None)
    while True:
        asked = problem(candidates, indexed, predicates, after)
        plan = _best(asked)
        met = dict(reversed([*in_place(plan, asked.arranged_by)]))
        if met.keys() == indexed:
            return _naming(plan, candidates, met)
        indexed = frozenset(met)


def _best(asked: Problem) -> Join:
    linear, delta = linear_join(asked), delta_join(asked)
    return linear if delta is None or kept(delta, asked.arranged_by) > kept(linear, asked.arranged_by) else delta


def _naming(plan: Join, candidates: Sequence[Candidate], met: Mapping[int, Key]) -> Join:
    """The join, each indexed input named by the first index that it is met in."""
    inputs = list(plan.inputs)
    for at, key in met.items():
        arranged = candidates[at].arranged
        assert arranged is not None
        get = arranged.gets[arranged.keys.index(key)]
        inputs[at] = replace(get, key=tuple(refs(get.schema)[c] for c in key))
    return replace(plan, inputs=tuple(inputs))
